"""Formulas of perplexity against literal ones, their intervals, FUAR on them, published numbers."""

import decimal
import math
import statistics

import numpy as np
import pytest

from ckl_jax.analysis import perplexity as p
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.analysis.published import (
    METHODS,
    MONTHS,
    TABLE_3,
    TABLE_5,
    TABLE_6,
)
from ckl_jax.probes.forgetting import backward_transfer, fuar

KINDS = ("updated", "new")


def make_rows(n=70, seed=0, probe="0801-0901_changed", easier=0.0):
    rng = np.random.default_rng(seed)
    tokens, ours = rng.integers(3, 24, n), rng.integers(1, 3, n)
    losses = rng.gamma(4.0, 1.5, (2, n)) - easier
    return [
        {
            "probe": probe,
            "item": str(i),
            "kind": KINDS[i % 2],
            "truncated": i % 7 == 0,
            "nll": float(losses[0, i] * tokens[i]),
            "tokens": int(tokens[i]),
            "object_nll": float(losses[1, i] * ours[i]),
            "object_tokens": int(ours[i]),
        }
        for i in range(n)
    ]


def literal(rows, formula):
    if formula == "per_fact_mean":
        return statistics.fmean(math.exp(r["nll"] / r["tokens"]) for r in rows)
    if formula == "batch_mean_legacy":
        parts = [rows[i : i + 32] for i in range(0, len(rows), 32)]
        means = [sum(r["nll"] for r in b) / sum(r["tokens"] for r in b) for b in parts]
        return math.exp(statistics.fmean(means))
    name = "object_" if formula == "object_only" else ""
    total, count = (sum(r[f"{name}{c}"] for r in rows) for c in ("nll", "tokens"))
    return math.exp(total / count)


@pytest.mark.parametrize("formula", p.FORMULAS)
def test_formulas(formula):
    rows = make_rows()
    losses = p.Losses.of(rows)
    value = p.perplexity(losses, formula)
    assert value == pytest.approx(literal(rows, formula), rel=1e-12)
    found = p.estimate(losses, formula, samples=400)
    assert found["low"] < value < found["high"] and found["facts"] == 70
    better = p.Losses.of(make_rows(easier=0.5))
    a, b = p.bootstrap([losses, better], formula, samples=400)
    assert (a > b).all()  # the same facts in every resample
    assert p.score(better, formula) > p.score(losses, formula)


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """Of 100 draws of 70 facts out of a known population, about 95 intervals hold its value."""
    truth = p.perplexity(p.Losses.of(make_rows(200_000, seed=1)))
    found = [p.estimate(p.Losses.of(make_rows(seed=s)), samples=300, seed=s) for s in range(2, 102)]
    assert 86 <= sum(e["low"] <= truth <= e["high"] for e in found) <= 100


def test_scores_by_kind_feed_fuar_and_transfer():
    interval = "0801-0901"
    models = [
        {
            f"{interval}_changed": p.Losses.of(make_rows(easier=e)),
            f"{interval}_unchanged": p.Losses.of(
                [{**r, "kind": "unchanged"} for r in make_rows(easier=-0.2 * e, seed=5)]
            ),
        }
        for e in (0.0, 0.5)
    ]
    kinds = {f"{interval}_{kind}": kind for kind in ("updated", "new")}
    scores = [
        {probe: p.score(losses) for probe, losses in m.items()}
        | {task: p.score(m[f"{interval}_changed"].only(kind)) for task, kind in kinds.items()}
        for m in models
    ]
    # Every token cost 0.5 nats less, and 0.1 nats more: 0.1 / (0.5 + 0.5), of whatever perplexity.
    found = fuar(scores, [f"{interval}_unchanged"], f"{interval}_updated", f"{interval}_new")
    assert found.value == pytest.approx(0.1)
    tasks = [f"{interval}_changed"] * 2
    assert backward_transfer(scores, tasks) == pytest.approx(0.5)


def test_summary_and_bad_rows():
    rows = [*make_rows(), {"probe": "updated_lama", "em": 1}]
    (found,) = p.summarize(rows).values()
    assert found["perplexity"] == pytest.approx(literal(rows[:-1], "token_micro"), rel=1e-12)
    assert found["truncated"] == 10
    for bad in (math.nan, None, "3"):
        with pytest.raises(UserError, match=r"fact '0' of 0801-0901_changed has nll = "):
            p.Losses.of([{**rows[0], "nll": bad}])
    with pytest.raises(UserError, match="did you mean 'token_micro'|Did you mean 'token_micro'"):
        p.perplexity(p.Losses.of(rows[:-1]), "token_mikro")
    nothing = p.Losses.of([{**rows[0], "object_nll": 0.0, "object_tokens": 0}])
    with pytest.raises(UserError, match="no fact with a token that counts in object_only"):
        p.perplexity(nothing, "object_only")
    with pytest.raises(UserError, match="different numbers of facts"):
        p.bootstrap([p.Losses.of(rows[:9]), p.Losses.of(rows[:8])])


# --- what the paper printed


def test_all_28_averages_of_table_3_are_means_rounded_half_up():
    even = 0
    for method in METHODS:
        for unchanged, changed, avg in TABLE_3[method].values():
            assert str(p.average(unchanged, changed)) == avg
            mean = (decimal.Decimal(unchanged) + decimal.Decimal(changed)) / 2
            even += str(mean.quantize(decimal.Decimal("0.01"), decimal.ROUND_HALF_EVEN)) != avg
    assert even > 0  # so it matters


def column(table, month, i):
    return {method: float(table[method][month][i]) for method in METHODS}


def test_the_paper_s_claims_that_hold_of_table_3_and_those_that_do_not():
    best, matches = [], {}
    for month in MONTHS:
        unchanged, changed, average = (column(TABLE_3, month, i) for i in range(3))
        updated = [m for m in METHODS if m not in ("Initial", "Full")]
        assert all(changed[m] < changed["Initial"] for m in updated)
        assert (changed["Full"] < changed["Initial"]) is (month != "0910")
        assert (average["Diff"] < average["Full"]) is (month != "1011")
        assert unchanged["K-Adapter"] < min(unchanged["Full"], unchanged["Initial"])
        best.append(min(average, key=average.get))
        matches[month] = {m for m in updated if changed[m] <= changed["Diff"]} - {"Diff"}
    assert best == ["RecAdam", "K-Adapter", "K-Adapter", "Mix-Review"]
    assert [
        ("LoRA" in m, "K-Adapter" in m, "Mix-Review" in m, "RecAdam" in m) for m in matches.values()
    ] == [
        (False, False, True, True),
        (False, False, False, True),
        (False, True, False, True),
        (False, False, True, True),
    ]
    over_months = {
        m: str(p.rounded(sum(decimal.Decimal(x) for k in MONTHS for x in TABLE_3[m][k][:2]) / 8))
        for m in METHODS
    }
    assert over_months == {
        "K-Adapter": "333.56",
        "Mix-Review": "346.34",
        "RecAdam": "353.55",
        "LoRA": "374.14",
        "Diff": "378.73",
        "Full": "387.86",
        "Initial": "388.02",
    }


def test_the_best_averages_of_table_5_and_the_ranges_of_table_6():
    found = []
    for month in MONTHS:
        means = {m: sum(map(float, TABLE_5[m][month])) / 2 for m in METHODS}
        best = min(means, key=means.get)
        found.append((best, str(p.average(*TABLE_5[best][month]))))
    assert found == [
        ("Diff", "118.48"),
        ("Diff", "134.31"),
        ("K-Adapter", "134.19"),
        ("Mix-Review", "131.97"),
    ]
    for month in MONTHS:  # facts that did not change are known better, by every model
        unchanged, changed = (column(TABLE_6, month, i) for i in range(2))
        assert all(unchanged[m] > changed[m] for m in METHODS)
