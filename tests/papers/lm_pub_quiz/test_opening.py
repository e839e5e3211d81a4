"""Evaluators of folders and live models, single items, own metrics, parquet; a Trainer."""

import dataclasses
import json
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ckl_jax as ckl
from ckl_jax.papers.lm_pub_quiz.opening import open_scorer

GOLDEN = Path(__file__).parents[2] / "parity" / "golden" / "lm_pub_quiz.zip"


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def dataset(golden):
    return ckl.Dataset.from_path(golden / "dataset")


@pytest.fixture(scope="module")
def evaluator(golden):
    return ckl.Evaluator.from_model(golden / "model")


class Live:
    """Something with `save_pretrained`, which writes some files of a folder."""

    def __init__(self, folder, *names):
        self.files = [path for path in folder.iterdir() if path.name in names]

    def save_pretrained(self, folder):
        for path in self.files:
            shutil.copy(path, folder)


def test_one_item_scores_as_in_its_dataset(dataset, evaluator):
    relation = dataset["P1"]
    whole = evaluator.evaluate_relation(relation, 0)
    item = relation.templates[0], relation.answer_labels, relation.instances[2].sub_label
    np.testing.assert_allclose(evaluator.evaluate_item(*item), whole.scores[2], atol=1e-4)
    tokens = evaluator.evaluate_item(*item, reduction=None)
    np.testing.assert_allclose([sum(t) for t in tokens], whole.scores[2], atol=1e-4)


def test_a_live_model_scores_as_its_folder(golden, dataset, evaluator):
    model = Live(golden / "model", "config.json", "model.safetensors")
    tokenizer = Live(golden / "model", "tokenizer.json", "vocab.json", "merges.txt")
    results = ckl.probe(model, dataset, templates=0, tokenizer=tokenizer)
    theirs = evaluator.evaluate_dataset(dataset, 0)
    assert [r.code for r in results] == [r.code for r in theirs]
    for one, other in zip(results, theirs, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
    assert repr(ckl.Model(model)) == "Model(Live)"
    with pytest.raises(ckl.UserError, match="A live model needs its tokenizer"):
        ckl.probe(model, dataset)
    with pytest.raises(ckl.UserError, match="tokenizer is of a live model; .* has its own"):
        ckl.probe(golden / "model", dataset, tokenizer=tokenizer)


def test_the_tokenizer_of_a_live_model_may_be_a_folder(golden, dataset, evaluator, tmp_path):
    pytest.importorskip("transformers")
    model = Live(golden / "model", "config.json", "model.safetensors")
    relation = dataset["P1"]
    given = ckl.Evaluator.from_model(model, str(golden / "model")).evaluate_relation(relation, 0)
    theirs = evaluator.evaluate_relation(relation, 0)
    np.testing.assert_allclose(given.scores, theirs.scores, atol=1e-5)
    for wrong, told in (
        ("no_such_folder", "There is no folder no_such_folder with a tokenizer"),
        (tmp_path, "holds no tokenizer that transformers reads"),
        (object, "tokenizer is <class 'object'>; give one of transformers"),
    ):
        with pytest.raises(ckl.UserError, match=told):
            ckl.probe(model, dataset, tokenizer=wrong)


def answered_first(scores, answers):
    return float((answers == 0).mean())


def test_metrics_of_ones_own_with_and_without_scores(dataset, evaluator, tmp_path):
    results = evaluator.evaluate_dataset(dataset, 0, batch_size=3)
    assert evaluator.scorer.batch_size == 3
    wanted = results.get_metrics(["accuracy", answered_first])["overall"]
    right = [i.answer_idx == 0 for relation in dataset for i in relation.instances]
    assert wanted["answered_first"] == pytest.approx(np.mean(right))
    options = {"metric": ["accuracy", "precision_at_k", answered_first], "save_path": tmp_path}
    for _ in range(2):  # the second time they are read
        bare = evaluator.evaluate_dataset(dataset, 0, create_instance_table=False, **options)
        assert bare.get_metrics(["accuracy", answered_first])["overall"] == wanted
        assert bare.get_metrics(["accuracy", "answered_first"])["overall"] == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["metadata_results.json"]
    kept = json.loads((tmp_path / "metadata_results.json").read_text())["P1"]["metric_values"]
    np.testing.assert_allclose(kept["precision_at_k"], results["P1"].get_metric("precision_at_k"))
    with pytest.raises(ckl.UserError, match="P1 keeps no scores, but accuracy, precision_at_k"):
        bare.get_metrics("brier_score")
    only = evaluator.evaluate_dataset(
        dataset, 0, create_instance_table=False, metric=answered_first
    )
    assert "accuracy" not in repr(only) and only._repr_html_()
    assert results.get_metrics(["accuracy", "accuracy"]) == results.get_metrics("accuracy")
    with pytest.raises(ckl.UserError, match="a name of its own"):
        results.get_metrics([lambda s, a: 0.0, lambda s, a: 1.0])
    with pytest.raises(ckl.UserError, match="there must be a metric"):
        evaluator.evaluate_dataset(dataset, create_instance_table=False)
    with pytest.raises(ckl.UserError, match="scored with metric_only="):
        evaluator.evaluate_dataset(dataset, 0, save_path=tmp_path)


@pytest.mark.parametrize("table", [True, False])
def test_a_metric_of_ones_own_is_computed_by_what_it_is_now(dataset, evaluator, tmp_path, table):
    for value in (1.0, 2.0):

        def mine(scores, answers, value=value):
            return value

        options = {"metric": mine, "save_path": tmp_path, "create_instance_table": table}
        evaluator.evaluate_dataset(dataset, 0, **options)
        kept = json.loads((tmp_path / "metadata_results.json").read_text())["P1"]["metric_values"]
        assert kept["mine"] == value


def test_results_of_two_models_are_not_mixed(dataset, evaluator, tmp_path):
    """Neither by saving them, nor by scoring other relations into one folder."""
    results = evaluator.evaluate_dataset(dataset, 0, save_path=tmp_path)
    codes = [relation.code for relation in dataset]
    metadata = json.loads((tmp_path / "metadata_results.json").read_text())
    metadata[codes[0]]["parameters"] = "0" * 16
    theirs = {codes[0]: metadata[codes[0]]}
    rest = dataclasses.replace(dataset, relations={codes[1]: dataset[codes[1]]})
    (tmp_path / "metadata_results.json").write_text(json.dumps(theirs))
    with pytest.raises(ckl.UserError, match="holds P1 of another model .parameters is '000"):
        evaluator.evaluate_dataset(rest, 0, save_path=tmp_path)
    with pytest.raises(ckl.UserError, match="holds P1 of another model"):
        results.save(tmp_path)
    assert json.loads((tmp_path / "metadata_results.json").read_text()) == theirs


def test_parquet_comes_back_as_it_was(dataset, evaluator, tmp_path):
    pytest.importorskip("pyarrow")
    results = evaluator.evaluate_dataset(dataset, 0, save_path=tmp_path / "a", fmt="parquet")
    assert {p.suffix for p in (tmp_path / "a").iterdir()} == {".parquet", ".json"}
    again = ckl.DatasetResults.from_path(tmp_path / "a")
    assert again["P1"].table == results["P1"].table
    np.testing.assert_allclose(again["P1"].scores, results["P1"].scores, atol=1e-9)
    assert again.get_metrics("accuracy", "cardinality") == results.get_metrics(
        "accuracy", "cardinality"
    )
    with pytest.raises(ckl.UserError, match="fmt is 'csv'; choose from jsonl, parquet"):
        results.save(tmp_path / "b", fmt="csv")
    with pytest.raises(ckl.UserError, match="have no relation 0. They have P1, P2."):
        results[0]


def test_parquet_without_its_package_is_refused_first(dataset, evaluator, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ckl.UserError, match="Parquet needs the package 'pyarrow'"):
        evaluator.evaluate_dataset(dataset, 0, save_path=tmp_path / "a", fmt="parquet")
    assert not (tmp_path / "a").exists()


def test_results_and_datasets_are_shown_shortly(dataset, evaluator, monkeypatch, tmp_path):
    results = evaluator.evaluate_dataset(dataset, 0, subsample=2)
    assert repr(dataset) == "Dataset('dataset', 2 relations, 9 instances)"
    assert "<td>[X] speaks [Y].</td>" in dataset._repr_html_()
    assert repr(results["P1"]) == "RelationResult('P1', 2 rows)"
    assert len(repr(results)) < 100 and "<table" in results._repr_html_()
    assert list(results.scores().index) == ["P1", "P2"]
    assert results.scores("cardinality").support.sum() == 4
    monkeypatch.setenv("LM_PUB_QUIZ_CACHE_ROOT", str(tmp_path))
    with pytest.raises(ckl.UserError, match="lm-pub-quiz has no copy"):
        ckl.Dataset.from_name("BEAR")
    shutil.copytree(dataset.path, tmp_path / "datasets" / "Mine")
    assert ckl.Dataset.from_name("mine").relations == dataset.relations
    with pytest.raises(ckl.UserError, match="no dataset 'bare'; give BEAR, BEAR-big, mine, or"):
        ckl.Dataset.from_name("bare")
    with pytest.raises(ckl.UserError, match="dataset has no relation 'P9'. It has P1, P2."):
        _ = dataset["P9"]


@pytest.mark.filterwarnings("default")  # of torch and transformers
def test_a_live_model_of_peft_scores_with_its_adapters(golden, dataset, tmp_path):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    base = transformers.AutoModelForCausalLM.from_pretrained(golden / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(golden / "model")
    settings = peft.LoraConfig(target_modules=["c_attn"], init_lora_weights=False)
    model = peft.get_peft_model(base, settings)
    found = ckl.probe(model, dataset, templates=0, tokenizer=tokenizer)
    assert any("lora_A" in name for name, _ in model.named_parameters())  # it is as it was
    model.merge_and_unload().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    merged = ckl.probe(tmp_path, dataset, templates=0)
    np.testing.assert_allclose(found["P1"].scores, merged["P1"].scores, atol=1e-5)
    prompt = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    with pytest.raises(ckl.UserError, match="PeftModelForCausalLM has adapters of PEFT that do"):
        ckl.probe(peft.get_peft_model(base, prompt), dataset, tokenizer=tokenizer)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of torch and transformers
def test_a_trainer_ranks_the_model_that_it_trains(golden, dataset, tmp_path):
    pytest.importorskip("accelerate")
    torch = pytest.importorskip("torch")
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(golden / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(golden / "model")
    tokenizer.pad_token = tokenizer.eos_token
    text = torch.arange(8)[None]
    rows = [{"input_ids": row, "labels": row} for row in text.repeat(8, 1)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "run"), max_steps=2, eval_strategy="steps", eval_steps=1, report_to=[],
        learning_rate=0.05, per_device_train_batch_size=4, use_cpu=True,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model, arguments, train_dataset=rows, eval_dataset=rows[:1], processing_class=tokenizer
    )
    callback = ckl.PubQuizCallback(
        trainer, dataset, accumulate="cardinality", save_path=tmp_path / "results"
    )
    trainer.add_callback(callback)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "eval_dataset_score" in row]
    assert [row["step"] for row in logged] == [1, 2]
    model.save_pretrained(tmp_path / "trained")
    tokenizer.save_pretrained(tmp_path / "trained")
    after = ckl.probe(tmp_path / "trained", dataset, templates=0)
    assert logged[-1]["eval_dataset_score"] == after.get_metrics("accuracy")["overall"]["accuracy"]
    assert sum(name.startswith("eval_dataset_") for name in logged[-1]) == 3
    saved = ckl.DatasetResults.from_path(tmp_path / "results" / "2_dataset_results")
    np.testing.assert_allclose(saved["P1"].scores, after["P1"].scores, atol=1e-5)
    first = ckl.DatasetResults.from_path(tmp_path / "results" / "1_dataset_results")
    assert np.abs(first["P1"].scores - saved["P1"].scores).max() > 0.01
    with pytest.raises(ckl.UserError, match="P1 of dataset has no 'regions'"):
        ckl.PubQuizCallback(trainer, dataset, accumulate="regions")
    assert open_scorer(tmp_path / "trained").bos
