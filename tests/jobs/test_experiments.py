"""`ckl experiment`: every cell's configuration parses, and the smallest size runs to its tables."""

import json

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.jobs import experiments as job
from ckl_jax.jobs import gin_config

CELLS = [
    pytest.param(name, scenario, cell, id=f"{name}-{scenario.name}-{cell.name}")
    for name, experiment in job.EXPERIMENTS.items()
    for scenario in experiment.scenarios
    if scenario.name in experiment.published
    for cell in scenario.cells
]


def settings_of(command):
    """{gin name: value as text} of a command line, its files read."""
    files = [a.removeprefix("--gin_file=") for a in command if a.startswith("--gin_file=")]
    macros = [a.removeprefix("--gin.") for a in command if a.startswith("--gin.")]
    bindings = [a.removeprefix("--gin_bindings=") for a in command if "--gin_bindings=" in a]
    found = gin_config.read(files, [*(m.replace("=", " = ", 1) for m in macros), *bindings])
    return {b.name: b.value for b in found.scan.bindings}


@pytest.mark.parametrize("name, scenario, cell", CELLS)
def test_a_cell_is_what_the_table_says(name, scenario, cell, tmp_path):
    running = job.Running(str(tmp_path), "tiny")
    trainings = {t.name: t for t in job.trainings(job.find(name), running)}
    training = trainings[f"{scenario.name} {cell.name}"]
    settings = settings_of(training.command)
    published = {"main": "d1", "small": "d1_small", "p1": "p1", "p1_p2": "p2", "rates": "d1_small"}
    assert settings["MIXTURE_OR_TASK_NAME"] == published[scenario.name]
    assert settings["closed_book.ClosedBook.probes"] == scenario.probes
    assert settings["INITIAL_CHECKPOINT_PATH"] == str(
        tmp_path / "p1" / cell.name if scenario.after else tmp_path / "initial"
    )
    assert training.after == (f"p1 {cell.name}" if scenario.after else "initial",)
    if cell.rate:
        assert settings["LEARNING_RATE"] == cell.rate
    grows = cell.method in ("lora", "k_adapter_k2", "k_adapter_k3", "modular")
    phases = [value for name, value in settings.items() if name.endswith(".phase")]
    assert phases == ([1 if scenario.after else 0] if grows else [])
    assert cell.name in job.find(name).published[scenario.name]


def test_the_full_size_starts_from_the_published_files(tmp_path):
    running = job.Running(str(tmp_path), "full", data="/data/ckl", methods=("lora",))
    made = job.trainings(job.find("ckl/table3"), running)
    assert [t.name for t in made] == ["small lora", "p1 lora", "p1_p2 lora"]
    settings = settings_of(made[0].command)
    assert settings["DATA_DIR"] == "/data/ckl" and settings["t5.T5Config.emb_dim"] == 1024
    assert settings["EPOCHS"] == 8 and made[0].after == ()


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["ckl/table33"], "there are ckl/table2, ckl/table3, ckl/table7, ckl/table8. Did"),
        (["ckl/table3", "--size", "huge"], "--size is 'huge'"),
        (["ckl/table3", "--size", "full"], "--data"),
        (["ckl/table3", "--methods", "lroa"], "lroa"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, capsys, arguments, sentence):
    assert main(["experiment", *arguments, "--out", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_phases_at_the_smallest_size(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLA_FLAGS")  # it runs longer than it compiles
    arguments = ["experiment", "ckl/table3", "--size", "tiny", "--methods", "vanilla,lora",
                 "--out", str(tmp_path), "--jobs", "1"]  # fmt: skip
    assert main(arguments) == 0
    parts = json.loads((tmp_path / "ckl-table3.json").read_text())
    assert list(parts) == ["small", "p1", "p1_p2"]
    for part in parts.values():
        assert list(part["rows"]) == ["initial", "vanilla", "lora"]
        assert part["probes"] == ["invariant_lama", "new_lama_easy_p1", "new_lama_easy_p2"]
    assert parts["p1_p2"]["fuar"] == "((IL), n.d., NLE-P2)"
    cell = parts["small"]["rows"]["lora"]["invariant_lama"]
    assert cell["paper"] == 14.26 and 0 <= cell["low"] <= cell["ours"] <= cell["high"] <= 100
    second = json.loads((tmp_path / "p1_p2" / "lora" / "summary.json").read_text())
    first = json.loads((tmp_path / "p1" / "lora" / "summary.json").read_text())
    assert (first["phase"], second["phase"]) == (1, 2)
    assert second["total_parameters"] > first["total_parameters"]
    assert "14.26" in (tmp_path / "ckl-table3.md").read_text()
    capsys.readouterr()
    assert main(arguments) == 0  # nothing is left to train
    assert "started" not in capsys.readouterr().out
