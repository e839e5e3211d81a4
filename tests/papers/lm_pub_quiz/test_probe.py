"""`ckl probe bear` on a Hugging Face folder, on an imported model, and on what cannot rank."""

import dataclasses
import json
import shutil
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.cli import ckl, t5x
from ckl_jax.convert.hugging_face import model_gin
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import probe
from ckl_jax.papers.lm_pub_quiz.opening import open_model, open_scorer
from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.papers.lm_pub_quiz.scorers import CausalScorer
from ckl_jax.papers.lm_pub_quiz.settings import SCHEMES
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train import progress
from tests.helpers import TINY, TINY_XL, model_of, random_params
from tests.tiny import read_rows

GOLDEN = Path(__file__).parents[2] / "parity" / "golden" / "lm_pub_quiz.zip"


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden")
    with zipfile.ZipFile(GOLDEN) as archive:
        archive.extractall(folder)
    return folder


def test_a_hugging_face_folder_and_the_imported_model_score_alike(golden, tmp_path, capsys):
    argv = ["probe", "bear", "--dataset", str(golden / "dataset"), "--out"]
    assert ckl.main([*argv, str(tmp_path / "a"), "--model", str(golden / "model")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("accuracy 30.43 % of 23 rows (95 % interval ")
    assert (
        ckl.main(["import-hf", "--model", str(golden / "model"), "--out", f"{tmp_path}/run"]) == 0
    )
    assert ckl.main([*argv, str(tmp_path / "b"), "--model", f"{tmp_path}/run"]) == 0
    one, other = (DatasetResults.from_path(tmp_path / name) for name in "ab")
    theirs = DatasetResults.from_path(golden / "results" / "sum")
    for code in ("P1", "P2"):
        np.testing.assert_allclose(one[code].scores, theirs[code].scores, atol=2e-4)
        np.testing.assert_allclose(other[code].scores, one[code].scores, atol=2e-4)
    summary = json.loads((tmp_path / "a/summary.json").read_text())
    assert summary["overall"]["accuracy"] == pytest.approx(7 / 23)
    assert summary["cardinality"]["multiple instances per answer"]["support"] == 8
    capsys.readouterr()
    assert ckl.main([*argv, str(tmp_path / "a"), "--model", str(golden / "model"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["overall"] == summary["overall"]


@pytest.mark.parametrize(
    "more, message",
    [
        (["--templates", "x"], "--templates is 'x'; give numbers from 0"),
        (["--relations", "P3"], "has no relation 'P3'"),
        (["--reduction", "max"], "--reduction is 'max'; choose from sum, mean, none"),
        (["--templates", "4"], "P1 has no template 4; it has 3, counted from 0"),
        (["--templates", "0,0"], "Templates [0, 0] name one twice"),
        (["--subjects", ","], "--subjects names none"),
        (["--pll-metric", "bogus"], "--pll-metric is 'bogus'"),
        (
            ["--pll-metric", "original"],
            "--pll-metric (pll_metric) is of masked models (BERT); leave it out",
        ),
        (["--target", "statement"], "--target (target) is of encoder-decoders (T5); leave it out"),
        (["--dtype", "float16"], "--dtype is 'float16'; choose from bfloat16, float32"),
        (["--model", "nowhere"], "There is no folder nowhere; give that of a Hugging Face model"),
        (["--dataset", "nowhere"], "Cannot read nowhere"),
        (["--out", __file__], f"Cannot write {__file__}: File exists"),
    ],
)
def test_wrong_input_is_one_sentence(golden, tmp_path, capsys, more, message):
    base = ["--dataset", str(golden / "dataset"), "--model", str(golden / "model")]
    assert ckl.main(["probe", "bear", *base, "--out", str(tmp_path / "out"), *more]) == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error


def test_what_is_wrong_with_a_relation_leaves_the_finished_ones(golden, tmp_path, capsys):
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(golden / "dataset", data)
    table = (data / "P2.jsonl").read_text()
    (data / "P2.jsonl").write_text(table.replace("Low German", "Low " * 70))
    argv = ["probe", "bear", "--model", str(golden / "model"), "--dataset", str(data)]
    assert ckl.main([*argv, "--out", str(out)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"ckl: P2, {data}/P2.jsonl, line 1, template 0, option 'Low Low ")
    assert "more than the model's 64 positions; shorten the label" in error
    assert list(DatasetResults.from_path(out).relations) == ["P1"]
    whole = (out / "P1_results.jsonl").read_text()
    (out / "P1_results.jsonl").write_text("".join(whole.splitlines(keepends=True)[:4]))
    assert ckl.main([*argv, "--out", str(out)]) == 2
    assert "has 4 rows, where metadata_results.json says 15" in capsys.readouterr().err
    (out / "P1_results.jsonl").write_text(whole)
    written = (out / "P1_results.jsonl").stat().st_mtime_ns
    (data / "P2.jsonl").write_text(table)
    assert ckl.main([*argv, "--out", str(out)]) == 0
    assert (out / "P1_results.jsonl").stat().st_mtime_ns == written
    items = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert len(items) == 23 and sum(item["correct"] for item in items) == 7
    assert all(item["correct"] == (item["best"] == item["answer"]) for item in items)


def test_scores_of_other_parameters_or_facts_are_not_taken_for_these(golden, tmp_path, capsys):
    model, data, out = (str(tmp_path / name) for name in ("model", "data", "out"))
    shutil.copytree(golden / "model", model)
    shutil.copytree(golden / "dataset", data)
    argv = ["probe", "bear", "--model", model, "--dataset", data, "--out", out]
    argv += ["--relations", "P1", "--templates", "0"]
    assert ckl.main(argv) == 0
    weights = Path(model, "model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1  # a bit of a parameter
    weights.write_bytes(content)
    assert ckl.main(argv) == 2
    told = "holds P1 scored by other parameters of the model; choose another folder"
    assert told in capsys.readouterr().err
    shutil.copy(golden / "model" / "model.safetensors", weights)
    table = Path(data, "P1.jsonl")
    rows = [json.loads(line) for line in table.read_text().splitlines()]
    rows[0]["sub_label"] = "Nobody"
    table.write_text("\n".join(map(json.dumps, rows)))
    assert ckl.main(argv) == 2
    assert "scored with other subjects, answers or options" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["answer", pytest.param("statement", marks=pytest.mark.slow)])
def test_a_t5_is_ranked_by_what_it_writes(golden, tiny, tmp_path, capsys, target):
    argv = ["--dataset", str(golden / "dataset"), "--model", str(tiny.root / "initial")]
    argv += ["--out", str(tmp_path), "--target", target]
    assert ckl.main(["probe", "bear", *argv]) == 0
    assert "of 23 rows" in capsys.readouterr().out
    results = DatasetResults.from_path(tmp_path)
    assert results["P1"].metadata["target"] == target and (results["P1"].scores < 0).all()
    if target == "answer":
        assert ckl.main(["probe", "bear", *argv, "--conditional"]) == 2
        assert "leave it out, or add --target statement" in capsys.readouterr().err
        evaluator = Evaluator(open_scorer(tiny.root / "initial"), conditional_score=True)
        with pytest.raises(UserError, match="leave it out, or add --target statement"):
            evaluator.evaluate_dataset(Dataset.from_path(golden / "dataset"))


@pytest.mark.slow
def test_a_transformer_xl_is_ranked_by_its_model_gin(golden, tmp_path, capsys):
    lines = [path.read_text() for path in sorted((golden / "dataset").glob("*.jsonl"))]
    vocabulary = train_vocabulary(lines, tmp_path / "v.model", 200, byte_fallback=False)
    config = dataclasses.replace(TINY_XL, vocab_size=vocabulary.vocab_size)
    model = tmp_path / "run"
    with CheckpointStore(str(model)) as store:
        store.save(0, {"params": random_params(config), "step": np.zeros((), np.int32)}, {})
    lines = model_gin(config).splitlines()
    lines.insert(2, "from ckl_jax.data.text import vocabularies")
    lines += ["VOCABULARY = @vocabularies.Vocabulary()"]
    lines += [f"vocabularies.Vocabulary.path = {vocabulary.path!r}"]
    (model / "model.gin").write_text("\n".join(lines))
    argv = ["probe", "bear", "--model", str(model), "--dataset", str(golden / "dataset")]
    assert ckl.main([*argv, "--out", str(tmp_path / "out")]) == 0
    assert "of 23 rows" in capsys.readouterr().out
    result = DatasetResults.from_path(tmp_path / "out")["P1"]
    scorer = CausalScorer(model_of(config, vocabulary=vocabulary), random_params(config))
    direct = Evaluator(scorer).evaluate_relation(Dataset.from_path(golden / "dataset")["P1"])
    np.testing.assert_allclose(result.scores, direct.scores, atol=1e-4)


def test_scores_of_earlier_parameters_are_refused_in_python_too(golden, tmp_path):
    dataset, scorer = Dataset.from_path(golden / "dataset"), open_scorer(golden / "model")
    first = Evaluator(scorer).evaluate_dataset(dataset, 0, save_path=tmp_path)
    scorer.params = jax.tree.map(lambda x: x + 0.01, scorer.params)
    with pytest.raises(UserError, match="P1 scored by other parameters of the model"):
        Evaluator(scorer).evaluate_dataset(dataset, 0, save_path=tmp_path)
    assert np.abs(Evaluator(scorer).evaluate_dataset(dataset, 0)["P1"].scores).sum() > 0
    stored = DatasetResults.from_path(tmp_path)
    np.testing.assert_allclose(stored["P1"].scores, first["P1"].scores, atol=1e-6)
    shown = [Evaluator(scorer), dataset, dataset["P1"], stored, stored["P1"]]  # in a notebook
    assert all(len(repr(x)) < 90 and repr(x).startswith(f"{type(x).__name__}('") for x in shown)


@pytest.mark.parametrize(
    "name, change",
    [
        ("config.json", lambda config: {**config, "layer_norm_epsilon": 0.1}),
        ("tokenizer.json", lambda tokenizer: {**tokenizer, "pre_tokenizer": None}),
    ],
)
def test_scores_of_another_configuration_or_tokenizer_are_refused(golden, tmp_path, name, change):
    model = shutil.copytree(golden / "model", tmp_path / "model")
    words = ["--dataset", str(golden / "dataset"), "--model", str(model), "--out"]
    words = ["probe", "bear", *words, str(tmp_path / "out")]
    ckl.command(words)
    ckl.command(words)  # goes on
    path = model / name
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(UserError, match="P1 scored by another configuration or tokenizer"):
        ckl.command(words)


def test_a_folder_of_hugging_face_scores_on_all_devices(golden):
    opened = open_model(golden / "model")
    assert len({d for x in jax.tree.leaves(opened.scorer.params) for d in x.devices()}) == 8
    batch = opened.scorer.put_batch({"decoder_input_tokens": np.zeros((16, 4), np.int32)})
    shapes = {shard.data.shape for shard in batch["decoder_input_tokens"].addressable_shards}
    assert shapes == {(2, 4)}


def test_a_setting_that_a_scorer_would_ignore_is_refused(golden):
    with pytest.raises(UserError, match="give it to Evaluator.scorer, conditional_score=True."):
        open_scorer(golden / "model", conditional_score=True)
    with pytest.raises(UserError, match="open_scorer.. has no 'templates'; there are batch_size"):
        open_scorer(golden / "model", templates="0")


def test_results_are_drawn_beside_each_other(golden, tmp_path, capsys):
    runs = [f"{name}={golden / 'results' / name}" for name in ("sum", "no_bos")]
    argv = ["probe", "compare", *runs, "--out", str(tmp_path), "--bias", "P1"]
    assert ckl.main(argv) == 0
    *drawn, told, tested = capsys.readouterr().out.splitlines()
    names = [Path(line).name for line in drawn]
    figures = ["calibration.png", "domains.png", "bias_P1.png"]
    assert names == ["report.html", "comparison.json", *figures]
    assert told.startswith("no_bos: another best option than sum in ")
    numbers = json.loads((tmp_path / "comparison.json").read_text())
    (test,) = numbers["tests"]["overall"]
    assert tested.startswith(f"no_bos: {test['difference']:+.2f} points against sum (95 % interval")
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in figures)
    page = (tmp_path / "report.html").read_text()
    results = DatasetResults.from_path(golden / "results" / "sum")
    accuracy = 100 * results.get_metrics("accuracy")["overall"]["accuracy"]
    assert f"sum: accuracy {accuracy:.2f} % of {sum(len(r.table) for r in results)} rows" in page
    assert page.count('<span class="below">right') == sum(
        int((r.scores.argmax(1) == r.answers).sum())
        for name in ("sum", "no_bos")
        for r in DatasetResults.from_path(golden / "results" / name)
    )
    assert ckl.main(["probe", "compare", "a=x", "a=y", "--out", str(tmp_path)]) == 2
    assert "a is named twice" in capsys.readouterr().err
    assert ckl.main([*argv[:-1], "P7"]) == 2
    assert "has no relation 'P7'" in capsys.readouterr().err
    plain = DatasetResults.from_path(golden / "results" / "sum")
    for template in (0, 1):
        for result in (part := DatasetResults.from_path(golden / "results" / "sum")):
            rows = [i for i, r in enumerate(result.table) if r["template_index"] == template]
            part.relations[result.code] = result.filter_subset(rows, keep_answer_space=True)
        part.save(tmp_path / f"t{template}")
    argv = ["probe", "compare", "--out", str(tmp_path / "figures"), f"first={tmp_path / 't0'}"]
    assert ckl.main([*argv, str(tmp_path / "t1")]) == 2
    assert "0 rows are common. Score the models on one dataset" in capsys.readouterr().err
    argv = [*argv, f"sum={golden / 'results' / 'sum'}"]
    shared = sum(len(r.table) for r in DatasetResults.from_path(tmp_path / "t0"))
    assert ckl.main(argv) == 2
    every = sum(len(r.table) for r in plain)
    coverage = f"first has {shared} rows of 2 relations; sum has {every} rows of 2 relations"
    assert coverage in capsys.readouterr().err
    assert ckl.main([*argv, "--common-rows"]) == 0
    told = capsys.readouterr().out
    assert f"than first in 0 of {shared} rows\n" in told and coverage in told
    assert coverage in (tmp_path / "figures" / "report.html").read_text()
    for result in plain:
        result.metadata["relation_info"].pop("domains")
    plain.save(tmp_path / "plain")
    argv = ["probe", "compare", str(tmp_path / "plain"), "--out", str(tmp_path), "--bias", "P1"]
    assert ckl.main(argv) == 0
    (*_, drawn, told) = capsys.readouterr().out.splitlines()
    assert drawn.endswith("bias_P1.png") and told.startswith("No domains.png: ")


def test_ranking_in_training_takes_every_way_to_score(golden, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_PERIOD_SECONDS", 0.0)
    dataset, model = Dataset.from_path(golden / "dataset"), open_scorer(golden / "model")
    settings = {"reduction": "mean", "conditional_score": True, "templates": None}
    ranking = probe.Ranking(str(golden / "dataset"), str(tmp_path), **settings)
    found = ranking(model.model, Partitioner())(model.params, 7, False)["inference_eval/dataset"]
    lines = [f"evaluating dataset: {n} of 2 relations ranked" for n in range(2)]
    assert capsys.readouterr().out.splitlines() == lines
    direct = Evaluator(model, conditional_score=True).evaluate_dataset(dataset, reduction="mean")
    kept = DatasetResults.from_path(tmp_path / "ranking/dataset/000007")
    for result in direct:
        np.testing.assert_allclose(kept[result.code].scores, result.scores, atol=1e-5)
    groups = direct.get_metrics("accuracy", "cardinality")
    assert len(groups) == 2
    for group, values in groups.items():
        name = f"accuracy/{group.replace(' ', '_')}"
        assert found[name] == pytest.approx(100 * values["accuracy"])
    for settings, told in [
        (
            {"conditional_score": True},
            "RANKING_CONDITIONAL is of whole .*, or bind probe.Ranking.target = 'statement'",
        ),
        ({"pll_metric": SCHEMES[1]}, "RANKING_PLL_METRIC is of masked models"),
        ({"bos": False}, "probe.Ranking.bos is of causal models"),
        ({"reduction": "max"}, "RANKING_REDUCTION is 'max'; choose from sum, mean"),
        ({"target": "all"}, "probe.Ranking.target is 'all'; choose from answer, statement"),
        ({"pll_metric": "all"}, "RANKING_PLL_METRIC is 'all'; choose from"),
    ]:
        with pytest.raises(UserError, match=told):
            ranking = probe.Ranking(str(golden / "dataset"), **settings)
            ranking(model_of(TINY), Partitioner())
    both = {"conditional_score": True, "target": "statement"}
    assert callable(probe.Ranking(str(golden / "dataset"), **both)(model_of(TINY), Partitioner()))


@pytest.mark.slow
def test_ranking_while_a_model_trains(golden, tiny, tmp_path):
    data = str(golden / "dataset")
    argv = tiny.argv(
        "vanilla", tmp_path / "run", "ckl_ranking.gin", EPOCHS=2, PROBES=None, RANKING_DATASET=data
    )
    assert t5x.main(["train", *argv]) == 0
    rows = [row for row in read_rows(tmp_path / "run/metrics.jsonl") if "accuracy/P1" in row]
    steps = [row["step"] for row in rows]
    assert {row["split"] for row in rows} == {"inference_eval/dataset"}
    assert len(steps) == 3 and steps[0] == 0 and steps[2] == 2 * steps[1] > 0
    last = DatasetResults.from_path(tmp_path / f"run/ranking/dataset/{steps[2]:06}")
    assert rows[-1]["accuracy"] == pytest.approx(
        100 * last.get_metrics("accuracy")["overall"]["accuracy"]
    )
    # The curve is that of the model that is saved.
    argv = ["--dataset", data, "--model", str(tmp_path / "run"), "--templates", "0"]
    assert ckl.main(["probe", "bear", *argv, "--out", str(tmp_path / "out")]) == 0
    again = DatasetResults.from_path(tmp_path / "out")
    np.testing.assert_allclose(again["P1"].scores, last["P1"].scores, rtol=1e-5)


@pytest.mark.slow
def test_biases_of_generic_subjects_and_what_bfloat16_changes(golden, tmp_path, capsys):
    base = ["probe", "bear", "--dataset", str(golden / "dataset"), "--model", str(golden / "model")]
    out = {name: str(tmp_path / name) for name in ("generic", "bf16", "figures")}
    assert ckl.main([*base, "--subjects", "it,the place", "--out", out["generic"]]) == 0
    assert capsys.readouterr().out.startswith("P1: ")
    generic = DatasetResults.from_path(out["generic"])
    assert [row["sub_label"] for row in generic["P2"].table] == ["it", "it", "the place"] + [
        "the place"
    ]
    bias = generic["P1"].answer_bias()
    assert sorted(bias) == [0, 1, 2] and all(b.sum() == pytest.approx(1) for b in bias.values())
    assert ckl.main([*base, "--dtype", "bfloat16", "--out", out["bf16"]]) == 0
    capsys.readouterr()
    theirs = str(golden / "results" / "sum")
    compare = ["probe", "compare", f"float32={theirs}", f"bfloat16={out['bf16']}"]
    assert ckl.main([*compare, "--out", out["figures"]]) == 0
    told = capsys.readouterr().out.splitlines()[-2]
    scores = DatasetResults.from_path(out["bf16"])
    whole = DatasetResults.from_path(theirs)
    changed = sum(
        int((scores[c].scores.argmax(1) != whole[c].scores.argmax(1)).sum()) for c in ("P1", "P2")
    )
    assert told == f"bfloat16: another best option than float32 in {changed} of 23 rows"
    assert not np.array_equal(scores["P1"].scores, whole["P1"].scores)


def test_the_development_versions_layout_is_read(golden, tmp_path):
    whole = DatasetResults.from_path(golden / "results" / "sum")
    relations = {}
    for code in ("P1", "P2"):
        of = whole[code].metadata
        rows = [
            {**row, "template": of["templates"][row["template_index"]], "subject": row["sub_label"]}
            | {"answers": of["answer_space_labels"]}
            for row in whole[code].rows()
        ]
        lines = [json.dumps({k: v for k, v in row.items() if k != "sub_label"}) for row in rows]
        (tmp_path / f"{code}_results.jsonl").write_text("\n".join(lines) + "\n")
        relations[code] = {**of, "metric_values": {}}
    (tmp_path / "metadata_relations.json").write_text(json.dumps(relations))
    (tmp_path / "metadata.json").write_text(json.dumps({"model_name": "mine"}))
    again = DatasetResults.from_path(tmp_path)
    for code in ("P1", "P2"):
        np.testing.assert_array_equal(again[code].scores, whole[code].scores)
        assert again[code].table[0]["sub_label"] == whole[code].table[0]["sub_label"]
    assert again.get_metrics("accuracy") == whole.get_metrics("accuracy")
