import itertools
import re

import numpy as np
import pytest

from ckl_jax.analysis.ledger import (
    STATES,
    counts,
    describe,
    difference,
    fact_states,
)
from ckl_jax.analysis.rows import ProbedRun, as_columns
from ckl_jax.errors import UserError
from tests.analysis.helpers import METHODS, PROBES, make_run


def scored(em, em_old):
    return as_columns(
        [
            {"probe": "new_lama", "item": str(i), "em": int(e), "f1": 0.0, "em_old": int(o)}
            for i, (e, o) in enumerate(zip(em, em_old, strict=True))
        ]
    )


def test_states_of_all_sixteen_cases():
    cases = list(itertools.product((0, 1), repeat=4))  # right, old now; right, old then
    right, old, was_right, was_old = zip(*cases, strict=True)
    states = fact_states(scored(right, old), scored(was_right, was_old))
    named = dict(zip(cases, (STATES[s] for s in states), strict=True))
    assert all(named[1, o, 1, w] == "kept" for o in (0, 1) for w in (0, 1))
    assert all(named[1, o, 0, 1] == "updated" for o in (0, 1))
    assert all(named[1, o, 0, 0] == "learned" for o in (0, 1))
    assert all(named[0, 1, r, w] == "stale" for r in (0, 1) for w in (0, 1))
    assert all(named[0, 0, r, w] == "forgotten" for r, w in ((1, 0), (0, 1), (1, 1)))
    assert named[0, 0, 0, 0] == "never known"


@pytest.mark.parametrize("name", METHODS)
def test_states_partition_the_facts_and_agree_with_em(demo, name):
    now, before = ProbedRun.open(demo / name).last, ProbedRun.open(demo / "initial").last
    for probe, size in PROBES.items():
        states = fact_states(now[probe], before[probe])
        count = counts(states)
        assert sum(count.values()) == size == len(states)
        assert count["kept"] + count["updated"] + count["learned"] == now[probe].em.sum()
        only_old = (now[probe].em_old > 0) & (now[probe].em == 0)
        assert count["stale"] == only_old.sum()
        if probe != "updated_lama":
            assert count["kept"] + count["forgotten"] == before[probe].em.sum()
            assert count["stale"] == count["updated"] == 0
        if name == "initial":
            assert count["updated"] == count["learned"] == count["forgotten"] == 0


def test_the_matrix_of_a_difference_counts_all_facts():
    a, b = np.array([0, 0, 4, 5]), np.array([0, 4, 4, 2])
    matrix, changed = difference(a, b)
    assert matrix.sum() == 4 and changed == [1, 3]
    assert matrix[0, 0] == matrix[0, 4] == matrix[5, 2] == 1


def test_describe_gives_counts_and_some_facts(demo):
    text = describe(demo / "vanilla", limit=3)
    assert "InvariantLAMA (120 facts)" in text and "-> " in text and "more (--limit)" in text
    only = describe(demo / "vanilla", state="never-known", limit=2)
    assert "facts never known" in only and "  kept        Subject" not in only


def test_describe_compares_two_runs(demo):
    text = describe(demo / "vanilla", diff=demo / "modular", limit=2)
    assert "InvariantLAMA: 42 of 120 facts differ" in text
    same = describe(demo / "vanilla", diff=demo / "vanilla")
    assert "InvariantLAMA: 0 of 120 facts differ" in same


def test_one_fact_and_none_are_worded(tmp_path):
    make_run(tmp_path, "initial", sizes={"new_lama": 1})
    text = describe(make_run(tmp_path, "lora", sizes={"new_lama": 1}))
    assert "NewLAMA (1 fact)" in text
    assert re.search(r"NewLAMA: [01] of \d+ facts? ever known", text)
    assert "NewLAMA: 0 of 1 fact forgotten" in describe(tmp_path / "lora", state="forgotten")
    assert "0 of 1 fact differs" in describe(tmp_path / "lora", diff=tmp_path / "lora")


def test_a_difference_takes_each_run_from_its_own_initial_model(demo, tmp_path):
    other = make_run(tmp_path, "lora", seed=1)
    make_run(tmp_path, "initial", seed=1)
    text = describe(demo / "vanilla", diff=other, limit=0)
    assert f"A to {demo / 'initial'}, B to {tmp_path / 'initial'}." in text
    own = describe(other, limit=0).split("UpdatedLAMA")[0].splitlines()[-2].split()[2:]
    part = text.split("UpdatedLAMA")[0].splitlines()
    rows = [line[18:].split() for line in part if line[:18].strip() in STATES]
    columns = [sum(map(int, column)) for column in zip(*rows, strict=True)]
    assert columns == list(map(int, own))
    assert "own Initial" not in describe(demo / "vanilla", diff=demo / "lora")
    assert "facts differ" in describe(demo / "vanilla", diff=demo / "initial")


def test_describe_explains_what_is_wrong(demo, tmp_path):
    with pytest.raises(UserError, match="Did you mean 'kept'"):
        describe(demo / "vanilla", state="kep")
    with pytest.raises(UserError, match="--limit is -3; give 0 or more"):
        describe(demo / "vanilla", limit=-3)
    with pytest.raises(UserError, match="give --initial"):
        describe(demo / "initial")
    assert "forgotten" in describe(demo / "initial", initial=demo / "initial")
    other = make_run(tmp_path, "lora", sizes={"new_lama": 3})
    with pytest.raises(UserError, match="different items"):
        describe(other, initial=demo / "initial")
