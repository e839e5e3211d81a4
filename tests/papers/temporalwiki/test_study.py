"""Runs of a decoder-only model by the gin files of TemporalWiki's methods, at the smallest size."""

import json

import pytest

from ckl_jax.analysis.perplexity import perplexity
from ckl_jax.analysis.rows import ProbedRun
from ckl_jax.checkpoints.restore import find_checkpoint, restore_params
from ckl_jax.cli import ckl, t5x
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.papers.temporalwiki.analysis.text_losses import ratios, read_losses
from ckl_jax.trees.paths import flatten
from tests.moved import assert_ranks_elsewhere
from tests.tiny import newest_step, read_rows


class Runs:
    """A world, an Initial GPT-2 of it, and the flags of runs that start from that."""

    def __init__(self, root):
        self.root = root

    def argv(self, method, *files, **macros):
        macros = {
            "MODEL_DIR": str(self.root / method),
            "DATA_DIR": str(self.root / "world"),
            "INITIAL_DIR": str(self.root / "initial"),
            "EPOCHS": 1,
            **macros,
        }
        names = (f"temporalwiki_{method}.gin", "temporalwiki_tiny.gin", *files)
        bindings = [f"--gin_bindings={name} = {value!r}" for name, value in macros.items()]
        return [*(f"--gin_file={name}" for name in names), *bindings]

    def facts(self):
        """Two files of facts about people in the world; nobody knows them."""
        for name in ("unchanged", "changed"):
            lines = [f"Person {i},club,Team {i % 3}" for i in range(9)]
            path = self.root / f"0501-0601_{name}.csv"
            path.write_text("\n".join(["subject,relation,object", *lines]))
        return tuple(str(path) for path in sorted(self.root.glob("0501-0601_*.csv")))

    def scores(self, method):
        """{(step, task): perplexity} of a run."""
        lines = (self.root / method / "metrics.jsonl").read_text().splitlines()
        rows = [row for row in map(json.loads, lines) if row["split"].startswith("training_eval/")]
        return {(row["step"], row["split"].split("/")[1]): row["perplexity"] for row in rows}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("temporalwiki"))
    asked = {"FACT_PROBES": runs.facts(), "FACT_ANSWERS": "last", "PROPER_NOUN_TASKS": ("d1",)}
    assert t5x.main(["train", *runs.argv("vanilla", HELD_OUT_ROWS=32, **asked)]) == 0
    return runs


def test_one_command_makes_world_rows_and_initial_model_and_learns(runs, capsys):
    last = newest_step(runs.root / "vanilla")
    scores = runs.scores("vanilla")
    assert {task for _, task in scores} == {"d0", "d1"}
    assert scores[last, "d1"] < scores[0, "d1"] < 1024
    tasks = runs.root / "world" / "prepared" / "rows"
    assert json.loads((tasks / "d1" / "manifest.json").read_text())["meta"]["rows"] == "causal"
    initial = json.loads((runs.root / "initial" / "summary.json").read_text())
    run = json.loads((runs.root / "vanilla" / "summary.json").read_text())
    assert run["trainable_parameters"] == run["total_parameters"] == initial["total_parameters"]


def test_facts_leave_rows_at_every_evaluation_and_perplexities_among_the_metrics(runs):
    run, name = ProbedRun.open(runs.root / "vanilla"), "0501-0601_changed"
    assert set(run.last) == {name, "0501-0601_unchanged"}
    assert run.at(0)[name].answered is False  # asked at the last evaluation only
    last = run.last[name]
    assert last.answered and len(last.items) == 9 and (last.losses.tokens > 0).all()
    lines = (runs.root / "vanilla" / "metrics.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if row["split"] == f"inference_eval/{name}"]
    assert [row["step"] for row in found] == [0, run.steps[-1]]
    before, after = (row["perplexity"] for row in found)
    assert after == pytest.approx(perplexity(last.losses)) != before


def test_proper_nouns_of_the_news_get_likelier_than_they_were(runs):
    folder = runs.root / "vanilla"
    initial, trained = (read_losses(folder, step) for step in (0, None))
    found = ratios(trained, initial)["d1"]
    assert set(found) == {"proper_nouns", "all"}
    assert found["proper_nouns"]["high"] < 1 and found["all"]["high"] < 1
    tokens = {group: losses.tokens.sum() for group, losses in trained["d1"].items()}
    assert 0 < tokens["proper_nouns"] < tokens["all"]
    (held,) = (
        row
        for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        if row["split"] == "training_eval/d1" and row["step"] == newest_step(folder)
    )
    assert found["all"]["model"] == pytest.approx(held["perplexity"], rel=0.2)  # other rows
    (kept,) = (runs.root / "world" / "prepared" / "rows" / "d1").glob("words-heuristic-*.npz")
    assert kept.stat().st_size


def test_a_run_is_ranked_by_its_own_vocabulary_and_method(runs, tmp_path, capsys):
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "metadata_relations.json").write_text('{"P1": {"templates": ["[X] is in [Y]."]}}')
    rows = [{"sub_id": s, "sub_label": s, "obj_id": o, "obj_label": o} for s, o in ("ab", "cd")]
    (folder / "P1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    argv = ["--model", str(runs.root / "vanilla"), "--dataset", str(folder), "--conditional"]
    assert ckl.main(["probe", "bear", *argv]) == 0
    assert "of 2 rows" in capsys.readouterr().out
    results = DatasetResults.from_path(runs.root / "vanilla" / "bear" / "dataset")
    assert results["P1"].metadata["ensure_bos_token_added"] is False


@pytest.mark.slow
def test_adapters_train_alone_and_are_evaluated_with_them(runs, capsys):
    asked = {"FACT_PROBES": runs.facts(), "FACT_ANSWERS": "last", "PROPER_NOUN_TASKS": ("d1",)}
    asked["HELD_OUT_ROWS"] = 32
    assert t5x.main(["train", *runs.argv("k_adapter_k2", **asked)]) == 0
    saved = flatten(restore_params(find_checkpoint(runs.root / "k_adapter_k2")))
    assert saved and all(path.startswith("k_adapter_0/") for path in saved)
    trained, last = runs.scores("k_adapter_k2"), newest_step(runs.root / "k_adapter_k2")
    argv = runs.argv("k_adapter_k2", "temporalwiki_eval.gin", **asked)
    assert t5x.main(["eval", *argv]) == 0
    folders = runs.root / "k_adapter_k2", runs.root / "k_adapter_k2" / "eval"
    for name in ("probes", "proper_nouns"):
        now, then = (read_rows(f / name / f"rows_{last:06}.jsonl") for f in folders)
        assert now == then  # epoch and step too
    metrics = runs.root / "k_adapter_k2" / "eval" / "training_eval" / "d1-metrics.jsonl"
    found = json.loads(metrics.read_text())
    assert found["perplexity"] == pytest.approx(trained[last, "d1"], rel=1e-6)
    assert found["perplexity"] < trained[0, "d1"]


@pytest.mark.slow
def test_a_run_is_tuned_on_facts_as_a_whole_and_asked(runs, tmp_path, capsys):
    assert t5x.main(["train", *runs.argv("lora", HELD_OUT_TASKS=())]) == 0
    tune = runs.root / "lighttuning_changed_9.csv"
    tune.write_text((runs.root / "0501-0601_changed.csv").read_text())
    argv = ["train", f"--gin_file={runs.root}/lora/config.gin"]
    argv += ["--gin_file=temporalwiki_light_tune.gin", f"--gin.FACT_PROBES={runs.facts()[:1]!r}"]
    assert t5x.main(argv) == 2 and "LIGHT_TUNE_FACTS is not set" in capsys.readouterr().err
    argv += [f"--gin.LIGHT_TUNE_FACTS={str(tune)!r}", "--gin.LIGHT_TUNE_NAME='changed'"]
    # Beyond the published setting, so that something is learnt of nine facts.
    argv += ["--gin.BATCH_SIZE=8", "--gin.EPOCHS=45", "--gin.LEARNING_RATE=3e-3"]
    assert t5x.main(argv) == 0
    folder = runs.root / "lora" / "light_tuned" / "changed"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["trainable_parameters"] == summary["total_parameters"]
    assert summary["base_checkpoint"] == str(runs.root / "lora") and summary["steps"] == 90
    assert summary["run"] == "lora_changed"
    (scored,) = ProbedRun.open(folder).last.values()
    assert ProbedRun.open(folder).steps == (90,) and scored.answered
    assert perplexity(scored.losses) < 5 and scored.f1.mean() > 0.3
    assert_ranks_elsewhere(runs.root / "vanilla", tmp_path, runs.root)


@pytest.mark.slow
def test_packed_rows_train_too_and_other_settings_need_another_folder(runs, capsys):
    packed = dict(MODEL_DIR=str(runs.root / "packed"), PACK_ROWS=True, HELD_OUT_TASKS=())
    assert t5x.main(["train", *runs.argv("lora", **packed)]) == 2
    assert "was made with packed = False, not True" in capsys.readouterr().err
    argv = runs.argv("lora", **packed, ROWS_NAME="prepared/packed")
    assert t5x.main(["train", *argv]) == 0
    both = [json.loads((runs.root / n / "summary.json").read_text()) for n in ("packed", "vanilla")]
    assert both[0]["steps"] < both[1]["steps"]


def test_rows_and_probes_of_another_kind_of_model_are_refused(runs, tmp_path, capsys):
    ckl = (str(runs.root / "world" / "prepared" / "tasks"),)
    new = str(runs.root / "new")
    assert t5x.main(["train", *runs.argv("vanilla", CACHE_DIRS=ckl, MODEL_DIR=new)]) == 2
    err = capsys.readouterr().err
    assert "the model reads ('targets',)" in err and "ckl data rows" in err
    probing = tmp_path / "probing.gin"
    probing.write_text(
        "from __gin__ import dynamic_registration\n"
        "from ckl_jax.train import train\nfrom ckl_jax.probes import closed_book\n"
        "train.train.probes = @closed_book.ClosedBook()\n"
        f"closed_book.ClosedBook.data_dir = {str(runs.root / 'world' / 'ckl')!r}\n"
    )
    assert t5x.main(["train", *runs.argv("vanilla", str(probing), MODEL_DIR=new)]) == 2
    err = capsys.readouterr().err
    assert "asks 'new_lama_easy' with 150 tokens" in err and "64 positions" in err
    assert not (runs.root / "new").exists()
