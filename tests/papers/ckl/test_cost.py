"""The cost of an experiment that is told before it runs, against what runs recorded."""

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.papers.ckl import cost
from ckl_jax.papers.ckl import experiments as job

# Rows of the small world of seed 0.
ROWS = {"d0": 11764, "d0_review": 9577, "d1": 1066, "d1_small": 101, "p1": 66, "p2": 35}


def costs(tmp_path, name, *methods, **settings):
    running = job.Running(out=str(tmp_path), methods=methods, **settings)
    made = job.trainings(job.find(name), running)
    return {training.name: cost.of(training, ROWS.get) for training in made}


def test_steps_are_those_of_the_runs(tmp_path):
    """The numbers in summary.json of `ckl experiment ckl/pareto` and of the Initial model."""
    found = costs(tmp_path, "ckl/pareto", "vanilla", "mix_review", rates=(1e-3,))
    steps = {"initial": 1288, "pareto vanilla-0.001": 216, "pareto mix_review-0.001": 755}
    assert {name: x.steps for name, x in found.items()} == steps
    for name, counted in (("initial", 5890867200), ("pareto vanilla-0.001", 2059499520)):
        assert found[name].flops / found[name].steps == pytest.approx(counted, rel=0.1)


def test_replay_and_phases_add_their_rows(tmp_path):
    found = costs(tmp_path, "ckl/table2", "replay", "lora_mix_review")
    assert found["main replay"].steps == 4 * -(-(1066 + 1066 // 19) // 20)
    assert found["main lora_mix_review"].steps == 755
    found = costs(tmp_path, "ckl/table3", "mix_review")
    epoch = [-(-(35 + 66 + int(35 * 4 * 0.7**e + 1e-6)) // 20) for e in range(8)]
    assert found["p1_p2 mix_review"].steps == sum(epoch)


def test_the_published_size(tmp_path):
    rows = {"d1": 375_000, "d0": 2_000_000}  # some 25,000 steps
    running = job.Running(out=str(tmp_path), methods=("vanilla",), size="full", data="/nowhere")
    (training,) = job.trainings(job.find("ckl/table2"), running)
    found = cost.of(training, rows.get)
    assert found.steps == 25_000
    assert found.flops / found.steps == pytest.approx(99.4e12, rel=0.1)
    (told,) = cost.lines([training], rows.get)
    assert told.startswith("1 training: 25,000 steps, about 2.3") and "2.95 GB" in told
    assert "of an H100 at half its speed" in told


def test_a_dry_run_says_it_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["ckl/table8", "--size", "tiny", "--methods", "vanilla", "--dry-run", "--out", str(out)]
    assert main(["experiment", *words]) == 0
    told = capsys.readouterr().out.splitlines()
    assert f"main vanilla: {out}/main/vanilla" in told and not out.exists()
    assert told[-1].startswith("20 trainings: 128 steps (and 18 fine-tunings), about ")


def test_units():
    assert cost._sized(2.34e15, "FLOP") == "2.34 PFLOP" and cost._sized(12, "B") == "12 B"
    assert [cost._duration(x) for x in (5, 130, 8000, 200_000)] == [
        "5 seconds",
        "2.2 minutes",
        "2.2 hours",
        "2.3 days",
    ]
