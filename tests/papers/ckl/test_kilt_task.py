"""Fine-tuning on KILT: Table 9's gin files, a run from a LoRA run's checkpoint, and Table 8."""

import json

import pytest

pytest.importorskip("rouge", reason="needs the extra `kilt`")

from ckl_jax.cli import t5x
from ckl_jax.cli.ckl import main
from ckl_jax.papers.ckl import experiments as job
from ckl_jax.papers.ckl.data.kilt import KILT_SETS
from ckl_jax.papers.ckl.data.simulated_kilt import write_kilt
from ckl_jax.papers.ckl.scenarios import find
from ckl_jax.world.timeline import make_world
from tests.papers.ckl.test_experiments import settings_of
from tests.tiny import ROOT, read_rows

TABLE_9 = {  # epochs, input and output length, learning rate, batch
    "fever": (5, 25, 10, 1e-4, 128),
    "aidayago2": (20, 768, 6, 1e-4, 16),
    "trex": (9, 25, 6, 1e-3, 512),
    "structured_zeroshot": (30, 25, 6, 1e-4, 256),
    "nq": (45, 35, 6, 1e-3, 256),
    "hotpotqa": (12, 50, 8, 1e-4, 256),
    "triviaqa": (50, 25, 10, 1e-3, 128),
    "eli5": (6, 35, 350, 1e-3, 32),
    "wow": (8, 175, 40, 1e-4, 64),
}
SCENARIOS = [s for s in find("ckl/table8").scenarios if s.tuned]


def training(tmp_path, scenario, cell, size="full"):
    data = "/data/ckl" if size == "full" else None
    running = job.Running(out=str(tmp_path), size=size, data=data)
    made = {t.name: t for t in job.trainings(find("ckl/table8"), running)}
    return made[f"{scenario} {cell}"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_a_cell_of_the_published_size_is_table_9s(tmp_path, scenario):
    name = scenario.name.removeprefix("kilt_")
    made = training(tmp_path, scenario.name, "modular")
    found = settings_of(made.command)
    epochs, inputs, targets, rate, batch = TABLE_9[name]
    assert found["KILT_SET"] == name and found["EPOCHS"] == epochs
    assert found["TASK_FEATURE_LENGTHS"] == {"inputs": inputs, "targets": targets}
    assert (found["LEARNING_RATE"], found["BATCH_SIZE"]) == (rate, batch)
    assert (KILT_SETS[name].input_length, KILT_SETS[name].target_length) == (inputs, targets)
    assert found["kilt.KiltProbes.beam_size"] == 2 and "modular.modular.phase" in found
    assert found["modular.modular.phase"] == 0
    assert found["INITIAL_CHECKPOINT_PATH"] == str(tmp_path / "main" / "modular")
    assert made.after == ("main modular", f"{scenario.name} initial")
    published = find("ckl/table8").published["kilt"]
    assert all(probe in published["modular"] for probe in scenario.probes)


def test_every_set_is_asked_once_and_initial_is_tuned_too(tmp_path):
    assert [p for s in SCENARIOS for p in s.probes] == list(KILT_SETS)
    first = training(tmp_path, "kilt_fever", "initial")
    assert settings_of(first.command)["INITIAL_CHECKPOINT_PATH"] == "/data/ckl/initial"
    assert first.after == ()
    small = training(tmp_path, "kilt_fever", "initial", "tiny")
    found = settings_of(small.command)
    assert found["INITIAL_CHECKPOINT_PATH"] == str(tmp_path / "initial")
    assert (found["EPOCHS"], found["BATCH_SIZE"]) == (2, 32) and small.after == ("initial",)
    assert find("ckl/table8").published["kilt"]["modular"]["eli5"] == 13.72


def test_the_papers_scores_are_those_of_the_header_and_of_whole_records():
    published = find("ckl/table8").published["kilt"]
    lines = [line.split() for line in open(ROOT / "gin_configs/experiments/ckl/table8.gin")]
    header = [[float(x) for x in line[-11:]] for line in lines if line[-11:-10] and _number(line)]
    assert header == [list(row.values()) for row in published.values()]
    for probe, records in {"aidayago2": 4784, "trex": 5000, "hotpotqa": 5600}.items():
        for row in published.values():
            right = row[probe] * records / 100
            assert abs(right - round(right)) <= records * 0.005 / 100 + 1e-9, (probe, row)


def _number(line):
    return all(x.replace(".", "", 1).isdigit() for x in line[-11:])


def test_missing_files_are_missed_before_anything_is_trained(tmp_path, capsys):
    out = tmp_path / "out"
    (tmp_path / "data").mkdir()
    argv = ["experiment", "ckl/table8", "--size=full", f"--out={out}"]
    assert main([*argv, f"--data={tmp_path / 'data'}"]) == 2
    told = capsys.readouterr().err
    assert "data/kilt/fever-dev-kilt.jsonl" in told and told.count("\n") == 1
    assert not out.exists()


def test_bindings_of_kilts_macros_are_for_its_cells(tmp_path):
    running = job.Running(
        out=str(tmp_path), size="tiny", bindings=("KILT_SCORING='kilt'", "EPOCHS=1")
    )
    for made in job.trainings(find("ckl/table8"), running):
        told = [a for a in made.command if a.startswith("--gin_bindings=")]
        assert "--gin_bindings=EPOCHS=1" in told
        tuned = made.name.startswith("kilt_")
        assert ("--gin_bindings=KILT_SCORING='kilt'" in told) == tuned
        if tuned:
            assert settings_of(made.command)["KILT_SCORING"] == "kilt"
            break


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """KILT's files, simulated, and a place for cached tasks."""
    folder = tmp_path_factory.mktemp("kilt")
    write_kilt(make_world(0, "tiny"), folder / "kilt")
    return folder


def tune(base, files, out, name="nq", **macros):
    """Two steps of fine-tuning on top of the config.gin of `base`."""
    macros = {
        "INITIAL_CHECKPOINT_PATH": str(base),
        "MODEL_DIR": str(out),
        "TRAIN_STEPS": 2,
        "KILT_DIR": str(files / "kilt"),
        "KILT_TASKS": str(files / "tasks"),
        **macros,
    }
    names = [
        f"{base}/config.gin",
        f"experiments/ckl/table9/{name}.gin",
        "experiments/ckl/kilt_world.gin",
    ]
    return t5x.main(
        [
            "train",
            *(f"--gin_file={f}" for f in names),
            *(f"--gin.{k}={v!r}" for k, v in macros.items()),
        ]
    )


def summaries(*folders):
    return [json.loads((folder / "summary.json").read_text()) for folder in folders]


@pytest.mark.slow
def test_two_steps_from_a_checkpoint_and_its_dev_file(tiny, files, tmp_path, capsys):
    assert tune(tiny.root / "initial", files, tmp_path) == 0, capsys.readouterr().err
    assert summaries(tmp_path)[0]["steps"] == 2
    rows = read_rows(tmp_path / "probes" / "rows_000002.jsonl")
    assert {row["probe"] for row in rows} == {"nq"} and len(rows) > 40
    assert all(row["score"] == row["em"] and row["metric"] == "em" for row in rows)
    assert all(len(row["predictions"]) == 2 for row in rows)
    told = read_rows(tmp_path / "inference_eval" / "nq-metrics.jsonl")[0]
    assert {"em", "f1", "accuracy", "score"} <= set(told)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "k_adapter_k2", "modular", "recadam", "mix_review"])
def test_a_run_of_any_method_is_tuned_whole(tiny, files, tmp_path, capsys, method):
    base, tuned = tmp_path / method, tmp_path / "nq"
    argv = tiny.argv(method, base, PROBES=None, TRAIN_STEPS=2)
    assert t5x.main(["train", *argv]) == 0
    assert tune(base, files, tuned) == 0, capsys.readouterr().err
    before, after = summaries(base, tuned)
    assert after["total_parameters"] == before["total_parameters"] == after["trainable_parameters"]
    grows = method not in ("recadam", "mix_review")
    assert (before["trainable_parameters"] < before["total_parameters"]) == grows
    assert after["method"] == before["method"] and after["steps"] == 2


@pytest.mark.parametrize(
    "macros, sentence",
    [
        ({"KILT_DIR": "nowhere"}, "There is no nowhere/nq-train-kilt.jsonl; set KILT_DIR"),
        ({"KILT_SET": "wned"}, "fine-tune on aidayago2"),
        ({"KILT_PROBES": ("nqq",)}, "Did you mean 'nq'"),
        ({"KILT_SCORING": "kilted"}, "Did you mean 'kilt'"),
    ],
)
def test_bad_input_is_one_sentence(tiny, files, tmp_path, capsys, macros, sentence):
    capsys.readouterr()
    assert tune(tiny.root / "initial", files, tmp_path / "out", **macros) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert sentence in told


@pytest.mark.slow
def test_table_8_at_the_smallest_size(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLA_FLAGS")  # it runs longer than it compiles
    arguments = [
        "experiment",
        "ckl/table8",
        "--size",
        "tiny",
        "--methods",
        "vanilla,modular",
        "--out",
        str(tmp_path),
        "--jobs",
        "1",
    ]
    assert main(arguments) == 0
    part = json.loads((tmp_path / "ckl-table8.json").read_text())["kilt"]
    assert list(part["rows"]) == ["initial", "vanilla", "modular"]
    assert part["probes"] == list(KILT_SETS)
    assert part["metrics"] == {name: form.metric for name, form in KILT_SETS.items()}
    for row in part["rows"].values():
        assert list(row) == list(KILT_SETS)
        assert all(0 <= c["low"] <= c["ours"] <= c["high"] <= 100 for c in row.values())
    assert part["rows"]["modular"]["wow"]["paper"] == 14.03
    text = (tmp_path / "ckl-table8.md").read_text()
    assert "ELI5 R-L" in text and "14.03" in text and "eli5, training: of " in text
    for name in ("vanilla", "modular"):
        summary = json.loads((tmp_path / "kilt_eli5" / name / "summary.json").read_text())
        assert summary["trainable_parameters"] == summary["total_parameters"]
    asked = read_rows(
        tmp_path / "kilt_aidayago2" / "modular" / "inference_eval" / "cweb-metrics.jsonl"
    )
    assert len(asked) == 1 and "accuracy" in asked[0]
    capsys.readouterr()
    assert main(arguments) == 0  # nothing is left to train
    assert "started" not in capsys.readouterr().out
