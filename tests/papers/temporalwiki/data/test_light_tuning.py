"""Facts to tune on: the probes' relations in their proportions, none of them a probe."""

import collections

import pytest

from ckl_jax.papers.temporalwiki.data.light_tuning import draw, quotas
from ckl_jax.papers.temporalwiki.data.probe_filters import Probe


def fact(subject, relation, answer="Rome", n=0):
    return Probe("new", f"Q{n}", f"P{relation[1:]}", f"Q{n + 5000}", subject, relation, answer)


POOL = [fact(f"s{i}", f"r{i % 3}", f"o{i}x", i) for i in range(900)]
PROBES = [fact(f"s{i}", "r0", f"o{i}", i) for i in range(0, 90, 3)] + [
    fact(f"t{i}", f"r{1 + i % 2}", "x", 2000 + i) for i in range(10)
]


def test_relations_come_in_the_probes_proportions_and_no_probe_is_among_them():
    drawn = draw(POOL, PROBES, 40, seed=0)
    counts = collections.Counter(p.relation for p in drawn)
    assert counts == {"r0": 30, "r1": 5, "r2": 5}
    assert not {(p.subject, p.relation) for p in drawn} & {(p.subject, p.relation) for p in PROBES}
    assert len({p.subject for p in drawn}) == 40
    assert drawn == draw(reversed(POOL), PROBES, 40, seed=0) != draw(POOL, PROBES, 40, seed=1)


def test_too_few_facts_of_a_relation_are_made_up_by_others():
    few = [p for p in POOL if p.relation != "r0"] + [fact("s3000", "r0", "there", 3000)]
    drawn = draw(few, PROBES, 40, seed=0)
    assert len(drawn) == 40 and sum(p.relation == "r0" for p in drawn) == 1
    assert len(draw(few[:7], PROBES, 40)) == 7 and draw(POOL, [], 40) == []


def test_filters_one_and_two_and_subjects_hold():
    bad = [fact("Paris", "r0", "Paris Club", 1), fact("A", "r0", "a b c d e f g", 2)]
    good = [fact("B", "r0", "q", 3), fact("B", "r1", "z", 4)]
    drawn = draw(bad + good, PROBES, 10)
    assert [p.subject for p in drawn] == ["B"]


@pytest.mark.parametrize("count", [1, 7, 500])
def test_quotas_sum_to_the_count_and_are_near_the_shares(count):
    sizes = collections.Counter({"a": 58, "b": 13, "c": 13, "d": 1})
    found = quotas(sizes, count)
    assert sum(found.values()) == count
    assert all(abs(found[k] - count * sizes[k] / 85) < 1 for k in sizes)
