import numpy as np
import pytest

from ckl_jax.analysis import gate
from ckl_jax.analysis.gate import Score
from ckl_jax.errors import UserError
from ckl_jax.updates import scores
from ckl_jax.updates.settings import Update


def judge(condition, **known):
    return scores.parse(condition).judge(known)["verdict"]


@pytest.mark.parametrize(
    "condition, verdict",
    [
        ("new >= 0.3", gate.SHIP),
        ("new >= 0.45", gate.HOLD),  # the value is 0.5, its interval begins at 0.4
        ("new <= 0.55", gate.HOLD),
        ("new <= 0.6 at n >= 100", gate.SHIP),
        ("new >= 0.3 at n >= 101", gate.TOO_FEW),
        ("new >= 0.3 and kept_loss <= 0.02", gate.TOO_FEW),  # no kept facts
    ],
)
def test_conditions_hold_of_whole_intervals_of_enough_items(condition, verdict):
    assert judge(condition, new=Score(0.5, 0.4, 0.6, 100)) == verdict


@pytest.mark.parametrize("text", ["newest > 1", "new", "1 < 2", "new > x", "", "new.x > 1"])
def test_what_is_no_condition_is_one_sentence(text):
    with pytest.raises(UserError, match="condition"):
        scores.parse(text)


@pytest.mark.parametrize(
    "text", ["new > 7", "new > 1", "kept < 0", "kept_loss > 1", "fuar < 0", "2 < new_gain < 3"]
)
def test_what_can_never_hold_is_refused(text):
    with pytest.raises(UserError, match=r"can never hold: .* is -?[01] to "):
        scores.parse(text)
    scores.parse(f"{text} or kept >= 1 and kept_loss >= 1")


@pytest.mark.parametrize(
    "text",
    [
        "new >= 0.9 and new <= 0.1",
        "0.5 < new < 0.5",
        "new <= 0.1 and kept >= 0.5 and new > kept",
        "new > 0.5 and (new < 0.1 or 0.2 > new)",
        "(new > 0.5 and new < 0.4) or (kept < 0.2 and kept > 0.3)",
    ],
)
def test_parts_that_contradict_each_other_are_refused(text):
    with pytest.raises(UserError, match="can never hold: .* contradicts its other parts; give"):
        scores.parse(text)
    scores.parse(f"{text} or new > 0.9")
    scores.parse("new >= 0.5 and new <= 0.5 and (new < 0.1 or kept > 0.5)")


def test_more_items_than_there_can_be_are_refused(tmp_path):
    def settings(condition):
        return Update(out=str(tmp_path), ship_if=condition, max_items=20)

    for condition, most in (("new > 0 at n >= 21", "20"), ("new_text < 1 at n >= 301", "300")):
        with pytest.raises(UserError, match=f"at most {most} .*; give a smaller number"):
            settings(condition)
    settings("new > 0 and old_text < 1 at n >= 20")
    settings(scores.DEFAULT)  # a trial of a few items ends with "not enough evidence"


def test_a_bound_may_be_negative():
    gate = scores.parse("new_gain >= -0.05 and -0.1 < kept_loss < .5")
    assert not gate.condition.failures({"new_gain": (-0.04, 0.1), "kept_loss": (-0.09, 0.0)})
    assert gate.condition.failures({"new_gain": (-0.06, 0.1), "kept_loss": (-0.09, 0.0)})
    for bad in ("new > -kept", "new > --kept_loss", "new > -True"):
        with pytest.raises(UserError, match="not a comparison"):
            scores.parse(bad)


def test_scores_by_hand():
    tags = ["new"] * 4 + ["changed"] * 2 + ["kept"] * 4
    right = np.array([[0, 0, 0, 1, 0, 0, 1, 1, 1, 1], [1, 1, 0, 1, 1, 0, 1, 1, 0, 1]], bool)
    old = np.array([[0] * 10, [0] * 5 + [1] + [0] * 4], bool)
    texts = {
        "new": np.array([[[20.0, 10], [30, 10]], [[10, 10], [20, 10]]]),
        "old": np.ones((2, 0, 2)),
    }
    found = {name: score.value for name, score in scores.scores(tags, right, old, texts).items()}
    assert found == pytest.approx(
        {
            "new": 0.75,
            "new_gain": 0.5,
            "changed": 0.5,
            "changed_gain": 0.5,
            "stale": 0.5,
            "kept": 0.75,
            "kept_loss": 0.25,
            "fuar": 0.25,
            "new_text": np.exp(-1.0),
        }
    )
    assert scores.scores(tags, right, old, texts)["kept"].n == 4


def test_where_nothing_is_gained_there_is_no_ratio():
    right = np.array([[1, 0, 1, 1], [0, 0, 1, 1]], bool)
    texts = {name: np.ones((2, 0, 2)) for name in ("new", "old")}
    tags = ["kept", "new", "new", "kept"]
    found = scores.scores(tags, right, np.zeros((2, 4), bool), texts)
    assert found["fuar"].value == np.inf and found["fuar"].n == 2
    verdict = scores.parse("fuar <= 9").judge(found)
    assert verdict["verdict"] == gate.HOLD and "fuar no gain" in verdict["reasons"][0]
    assert verdict["scores"]["fuar"]["value"] is None
    assert "fuar" not in scores.scores(tags[1:3], right[:, 1:3], np.zeros((2, 2), bool), texts)
