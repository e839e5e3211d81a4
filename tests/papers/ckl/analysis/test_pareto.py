"""Fronts and matched learning of `ckl/pareto`, against numbers worked out by hand."""

import json

import numpy as np
import pytest

from ckl_jax.analysis.study import load_study
from ckl_jax.cli.ckl import main
from ckl_jax.errors import UserError
from ckl_jax.files import write_json
from ckl_jax.papers.ckl.analysis import experiment_tables, pareto
from tests.papers.ckl.analysis.test_experiment_analyses import probe, run


def scores(kept, updated, new):
    """Rows of three probes of eight items, so many of each right."""
    names = ("invariant_lama", "updated_lama", "new_lama")
    right = ([1] * n + [0] * (8 - n) for n in (kept, updated, new))
    return [r for name, x in zip(names, right, strict=True) for r in probe(name, *x)]


@pytest.fixture
def root(tmp_path):
    """Makes a folder of `ckl experiment` with runs of these numbers of right answers."""

    def make(seed=0, **runs):
        out = tmp_path / f"seed-{seed}"
        initial = run(out / "initial", {9: scores(8, 0, 0)})
        for name, right in runs.items():
            method, _, rest = name.rpartition("_at_")
            run(out / "pareto" / f"{method}-{rest}", {9: scores(*right)}, base=initial)
        write_json(out / "experiments.json", {"seed": seed, "size": "tiny"})
        return out

    return make


VANILLA = {
    "vanilla_at_0.001": (4, 4, 4),
    "vanilla_at_0.002": (2, 8, 8),
    "vanilla_at_0.004": (0, 7, 7),
}
LORA = {"lora_at_0.001": (6, 4, 4), "lora_at_0.002-rank=16": (6, 3, 2)}


def test_one_run_of_each_method_learned_most(root):
    folders = pareto.runs_of(root(**VANILLA, **LORA))
    study = pareto.most_learned(load_study(folders))
    assert [e.label for e in study.entries] == ["Initial", "LoRA 0.001", "Vanilla 0.002"]


def test_a_users_own_method_stands_beside_the_others(root):
    folders = pareto.runs_of(root(**VANILLA, **{"my-own_at_0.001": (5, 5, 5)}))
    study = pareto.most_learned(load_study(folders))
    assert [e.label for e in study.entries] == ["Initial", "my-own-0.001", "Vanilla 0.002"]
    _, numbers = pareto.compare([folders], samples=50)
    assert "my-own" in numbers["matched"] and "vanilla" in numbers["matched"]


def test_nothing_learned_is_matched_by_nobody(root):
    runs = {"vanilla_at_0.001": (4, 0, 0), "lora_at_0.001": (6, 0, 0)}
    _, numbers = pareto.compare([pareto.runs_of(root(**runs))], samples=50)
    assert {x["value"] for at in numbers["matched"].values() for x in at.values()} == {None}


def test_forgetting_is_linear_between_the_points_of_a_front(root):
    sections, numbers = pareto.compare([pareto.runs_of(root(**VANILLA, **LORA))], samples=50)
    assert numbers["reference"] == "vanilla" and numbers["seeds"] == 1
    points = numbers["points"]
    assert [name for name, point in points.items() if point["front"]] == [
        "vanilla-0.001",
        "vanilla-0.002",
        "lora-0.001",
    ]
    assert points["lora-0.001"]["forgotten"]["value"] == 25.0
    values = {m: [x["value"] for x in at.values()] for m, at in numbers["matched"].items()}
    assert values == {"vanilla": [25.0, 50.0, 62.5], "lora": [12.5, 25.0, None]}
    for at in numbers["matched"]["vanilla"].values():
        assert at["low"] <= at["value"] <= at["high"]
    more = [x["value"] for x in numbers["more"]["lora"].values()]
    assert more == [-12.5, -25.0, None] and list(numbers["more"]) == ["lora"]
    figure, matched, _, every = sections
    assert figure.png and [c.text for c in matched.rows[1]] == ["LoRA", "12.50", "25.00", "–"]
    assert [row[1].text for row in every.rows][-1] == "2e-3, rank=16"


def test_several_seeds_are_a_mean_of_what_all_have(root, tmp_path, capsys):
    folders = [root(0, **VANILLA, **LORA), root(1, **{**VANILLA, "vanilla_at_0.001": (6, 4, 4)})]
    for folder in folders:
        write_json(folder / "ckl-pareto.json", {})
    out = tmp_path / "all"
    assert main(["report", *map(str, folders), "--seeds", "--out", str(out)]) == 0
    numbers = json.loads((out / "seeds-ckl-pareto.json").read_text())
    assert numbers["seeds"] == 2 and list(numbers["matched"]) == ["vanilla"]
    assert numbers["left_out"] == ["lora-0.001", "lora-0.002-rank=16"]
    assert numbers["matched"]["vanilla"]["0.25"]["value"] == (25.0 + 12.5) / 2
    assert (out / "seeds-ckl-pareto.png").is_file()
    assert "lora-0.001" in (out / "seeds-ckl-pareto.md").read_text()


def test_without_vanilla_the_best_learner_is_the_measure(root):
    _, numbers = pareto.compare([pareto.runs_of(root(**LORA))], samples=2)
    assert numbers["reference"] == "lora"


def test_the_same_resamples_for_all_runs(root):
    """Two runs of the same answers differ in no resample."""
    same = {"vanilla_at_0.001": (4, 4, 4), "lora_at_0.001": (4, 4, 4)}
    _, numbers = pareto.compare([pareto.runs_of(root(**same))], samples=50)
    first, second = numbers["points"].values()
    assert first["forgotten"] == second["forgotten"]


def test_folders_without_a_common_run_are_refused(root):
    runs = [pareto.runs_of(root(0, **VANILLA)), pareto.runs_of(root(1, **LORA))]
    with pytest.raises(UserError, match="No run of ckl/pareto is there in all seeds"):
        pareto.compare(runs)


def test_front_against_every_pair():
    random = np.random.default_rng(0)
    for _ in range(50):
        x, y = random.integers(0, 5, (2, 6)).astype(float)
        beaten = [
            any(
                x[j] >= x[i] and y[j] <= y[i] and (x[j], y[j]) != (x[i], y[i])
                for j in range(len(x))
            )
            for i in range(len(x))
        ]
        front = pareto._front(x, y)
        kept = {(x[i], y[i]) for i in range(len(x)) if not beaten[i]}
        assert {(x[i], y[i]) for i in front} == kept and list(x[front]) == sorted(set(x[front]))


def test_a_method_that_the_paper_lacks_has_a_dash_for_its_number():
    cell = {"ours": 1.0, "low": 0.5, "high": 2.0, "defined": True, "paper": None, "printed": False}
    printed = cell | {"paper": 3.0, "printed": True}
    rows = {"vanilla": {"new_lama": printed}, "replay": {"new_lama": cell}}
    sizes = {name: {"ours": "1M / 1M", "paper": None} for name in rows}
    part = {"probes": ["new_lama"], "fuar": None, "rows": rows, "parameters": sizes}
    made = experiment_tables.section("main", part)
    assert [[c.text for c in row] for row in made.rows] == [
        ["Vanilla", "1M / 1M", "1.00 (3.00)"],
        ["Replay", "1M / 1M (–)", "1.00 (–)"],
    ]
