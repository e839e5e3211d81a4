"""The gate: what is a condition, which ratios it is on, and that none of it is ever run."""

import numpy as np
import pytest

from ckl_jax.analysis import gate
from ckl_jax.analysis.perplexity import Losses
from ckl_jax.cli import ckl
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.analysis import promotion
from ckl_jax.papers.temporalwiki.analysis.report import write_report
from tests.papers.temporalwiki.analysis.temporalwiki_study import INTERVALS, write_run, write_study

RATIOS = {"unchanged": 1.04, "changed": 0.9, "avg": 0.97, "new": 0.8, "updated": 1.2}


@pytest.mark.parametrize(
    ("text", "failures"),
    [
        ("unchanged <= 1.05 and changed < 1.0", []),
        ("unchanged <= 1.04", []),
        ("unchanged < 1.04", ["unchanged < 1.04"]),
        ("unchanged <= 1 and changed < 0.5", ["unchanged <= 1", "changed < 0.5"]),
        ("unchanged <= 1 or changed < 0.95", []),
        ("unchanged <= 1 or changed < 0.5", ["unchanged <= 1", "changed < 0.5"]),
        ("(unchanged <= 1 or changed < 1) and updated < 1", ["updated < 1"]),
        ("0.95 < avg < 1", []),
        ("0.98 <= avg < 1", ["0.98 <= avg"]),
        ("changed < unchanged and new > 0", []),
    ],
)
def test_conditions(text, failures):
    assert [str(f) for f in promotion.parse(text).condition.failures(RATIOS)] == failures


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "changed",
        "changed <",
        "1 < 2",
        "changed == 1",
        "not changed < 1",
        "changed < -1",
        "changed < 1; import os",
        "__import__('os').system('true') < 1",
        "changed.real < 1",
        "changed() < 1",
        "changed < 1 + 1",
        "changed < True",
        "changed < '1'",
        "changed < 1j",
        "changed < 1e999",
        "changed if 1 else 2",
        "[changed] < 1",
        "lambda: 0",
        "changed in avg",
        "(" * 900 + "changed < 1" + ")" * 20,
        "(" * 300 + "changed < 1" + ")" * 300,
        "a\0 < 1",
        "x" * 2000,
        "changed < 1 and",
        "changed & 1 < 1",
        "(changed := 1) < 1",
    ],
)
def test_anything_else_is_one_sentence(text, capsys):
    with pytest.raises(UserError) as e:
        promotion.parse(text)
    assert str(e.value).count("\n") == 0 and str(e.value).endswith(".")
    argv = ["promote", "--model=none", "--relative-to=none", f"--if={text}"]
    assert ckl.main(argv) == 2 and capsys.readouterr().err.startswith("ckl: The condition")


def test_a_name_that_is_near_is_offered():
    with pytest.raises(UserError, match="names 'unchangd'.*Did you mean 'unchanged'"):
        promotion.parse("unchangd < 1")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("study"), ("vanilla", "lora"))


def test_two_runs_are_compared_by_the_newest_facts(root, capsys):
    runs = [f"--model={root / INTERVALS[1] / 'vanilla'}", f"--relative-to={root / 'initial'}"]
    assert ckl.main(["promote", *runs, "--if=unchanged <= 1.1 at n >= 1"]) == 0
    assert "may ship: unchanged 1.096 [1.096, 1.096], n = " in capsys.readouterr().out
    assert ckl.main(["promote", *runs, "--if=unchanged <= 1.05 and changed < 2 at n >= 1"]) == 1
    said = capsys.readouterr().out
    failed = "unchanged <= 1.05 does not hold of unchanged 1.096 [1.096, 1.096], n = "
    assert f"should not ship: {failed}" in said
    assert f"facts of {INTERVALS[3]}" in said
    first = [*runs, f"--interval={INTERVALS[0]}"]
    within = "--if=unchanged > 1.0599 and unchanged < 1.06 at n >= 1"
    assert ckl.main(["promote", *first, within]) == 0
    capsys.readouterr()
    for argv, sentence in (
        ([*runs, "--if=changed < 1", "--interval=0801"], "were not both put to facts of '0801'"),
        ([f"--model={root}", runs[1], "--if=changed < 1"], "root"),
    ):
        assert ckl.main(["promote", *argv]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and (sentence == "root" or sentence in err)


def test_one_fact_has_no_interval():
    score = promotion.Score(0.9, float("nan"), float("nan"), 1)
    decided = promotion.parse("changed < 1 at n >= 1").judge({"changed": score})
    assert decided["verdict"] == "not enough evidence"
    assert decided["reasons"] == ["changed is of 1 item; an interval needs 2"]


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("changed < 9 at n >= 1000", "; the condition asks for 1,000"),
        ("deleted < 1 at n >= 1", "deleted is of 0 items; the condition asks for 1"),
        ("unchanged < 9", "; the condition asks for 20"),  # the default
    ],
)
def test_few_facts_are_not_enough_evidence(root, capsys, condition, reason):
    runs = [f"--model={root / INTERVALS[1] / 'vanilla'}", f"--relative-to={root / 'initial'}"]
    assert ckl.main(["promote", *runs, f"--if={condition}"]) == 3
    said = capsys.readouterr().out
    assert "has not enough evidence to ship: " in said and reason in said


def test_a_study_without_facts_has_not_enough():
    verdict = promotion.too_few(promotion.parse("unchanged < 1.1"), {})
    assert verdict["verdict"] == gate.TOO_FEW and "unchanged is of 0" in verdict["reasons"][0]


def test_the_interval_of_a_single_fact_is_none(tmp_path):
    condition = promotion.parse("unchanged < 1.1 at n >= 1")
    losses = {("i", "unchanged"): Losses(*[np.array([2.0])] * 4)}
    verdict = promotion.Verdict(
        "a", "b", "i", condition.judge(promotion.ratios(losses, losses, "i"))
    )
    path = promotion.write_verdicts([verdict], tmp_path)
    assert "NaN" not in path.read_text() and verdict.json()["scores"]["unchanged"]["n"] == 1


def test_other_facts_are_not_compared(root, tmp_path):
    other = write_run(tmp_path / "other", "Diff", 3, [3])
    path = other / "probes" / "rows_000010.jsonl"
    path.write_text(path.read_text().replace('"tokens": 3', '"tokens": 4'))
    with pytest.raises(UserError, match="were evaluated on different unchanged facts"):
        promotion.compare_runs(other, root / "initial", promotion.parse("changed < 1"))


def test_the_interval_of_a_ratio_is_paired():
    """Facts differ far more than the two models do, so an unpaired interval would be wide."""
    rng = np.random.default_rng(0)
    tokens, cost = np.full(200, 5.0), rng.gamma(2.0, 10.0, 200)
    ones = np.ones(200)
    new, last = (Losses(nll, tokens, nll, ones) for nll in (cost + rng.normal(0.5, 0.1, 200), cost))
    found = promotion.ratios({("i", "changed"): new}, {("i", "changed"): last}, "i")["changed"]
    assert found.value == pytest.approx(np.exp(0.1), rel=0.01) and found.n == 200
    assert found.low < found.value < found.high < 1.01 * found.low


@pytest.mark.usefixtures("undrawn")
def test_each_method_of_a_study_is_judged_against_its_own_last_model(root):
    verdicts = promotion.compare_study(root, promotion.parse("unchanged <= 1.0001 at n >= 1"))
    assert [v.verdict for v in verdicts] == [gate.SHIP] * 2
    assert verdicts[0].last == f"Diff after {INTERVALS[2]}"
    condition = promotion.parse("changed < 0.9 at n >= 1")
    (verdict,) = promotion.compare_study(root, condition, ("lora",))
    assert verdict.verdict == gate.HOLD
    assert verdict.found["scores"]["changed"]["value"] == pytest.approx(1 / 1.1)
    path = promotion.write_verdicts(verdicts, root)
    page = write_report(root).read_text()
    path.unlink()
    gate_table = page.partition('id="gate"')[2].partition("</table>")[0]
    scores = sum(len(verdict.found["scores"]) for verdict in verdicts)
    assert gate_table.count(" after ") == 2 * scores  # each row stands alone when filtered
    assert verdicts[0].sentence() in page and "of whole intervals" in page
    with pytest.raises(UserError, match="has no model of 'full' after"):
        promotion.compare_study(root, promotion.parse("changed < 1"), ("full",))
    with pytest.raises(UserError, match="There is no folder .*gone; give the MODEL_DIR"):
        promotion.compare_runs(root / "gone", root, condition)
