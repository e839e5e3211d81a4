import json

import pytest

from ckl_jax.checkpoints.restore import complete_steps
from ckl_jax.checkpoints.store import KeepBest
from ckl_jax.cli import t5x
from ckl_jax.errors import UserError
from ckl_jax.t5x_api.metrics import T5XMetrics
from ckl_jax.train.evaluations import check_best, check_metric
from ckl_jax.train.step_metrics import StepMetrics

GIN = """
from __gin__ import dynamic_registration
from ckl_jax.checkpoints import store
from ckl_jax.train import configs
configs.SaveCheckpointConfig.keep_best = @store.KeepBest()
store.KeepBest:
    metric = 'inference_eval/updated_lama/{metric}'
    mode = '{mode}'
"""


@pytest.mark.slow
def test_the_best_by_a_probe_stays_besides_the_newest(tiny, tmp_path):
    extra = tmp_path / "best.gin"
    kept = {}
    for mode in ("max", "min"):
        extra.write_text(GIN.format(metric="f1", mode=mode))
        run = tmp_path / mode
        argv = tiny.argv("vanilla", run, str(extra), EPOCHS=3, LEARNING_RATE=3e-3)
        assert t5x.main(["train", *argv]) == 0
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        scores = {r["step"]: r["f1"] for r in rows if r["split"] == "inference_eval/updated_lama"}
        scores.pop(0)  # what training started from has no checkpoint here
        assert len(set(scores.values())) > 1  # else the test would show nothing
        sign = 1 if mode == "max" else -1
        best = max(scores, key=lambda step: (sign * scores[step], step))  # noqa: B023
        kept[mode] = complete_steps(run)
        assert kept[mode] == sorted({best, max(scores)})
    assert kept["max"] != kept["min"]


def test_the_best_by_a_number_of_training_needs_no_evaluation():
    check_best(KeepBest("train/loss"), (), StepMetrics())
    check_best(KeepBest("train/non_padding_fraction/decoder"), (), T5XMetrics())
    with pytest.raises(UserError, match="'train/loss', a number of training.* set PATIENCE to No"):
        check_best(KeepBest("train/loss", patience=2), (), StepMetrics())
    with pytest.raises(UserError, match="'train/nosuch', which no evaluation has"):
        check_best(KeepBest("train/nosuch", patience=2), (), StepMetrics())
    # Of an evaluation without `names` it is not known what it evaluates.
    for metric, evaluations in (("em", ()), ("train/lossy", ()), ("train/lossy", (object(),))):
        with pytest.raises(UserError, match=f"'{metric}', which no evaluation has"):
            check_best(KeepBest(metric), evaluations, StepMetrics())
    check_best(KeepBest("em"), (object(),), StepMetrics())


def test_a_number_that_a_probe_has_not_is_named_after_its_first_evaluation():
    scores = {"inference_eval/quiz": {"em": 1.0, "f1": 2.0}}
    for fits in (None, KeepBest("inference_eval/quiz/f1"), KeepBest("held_out/loss")):
        check_metric(fits, scores)
    with pytest.raises(UserError, match="'inference_eval/quiz/emm'.*quiz has em, f1. Did you mean"):
        check_metric(KeepBest("inference_eval/quiz/emm"), scores)


@pytest.mark.slow
def test_training_stops_when_no_better_evaluation_comes(tiny, tmp_path, capsys):
    run = tmp_path / "run"
    # Better by 200 points than the first is no evaluation.
    more = {"BEST_METRIC": "inference_eval/updated_lama/f1", "THRESHOLD": 200.0, "PATIENCE": 2}
    argv = ["train", *tiny.argv("vanilla", run, "ckl_best.gin", EPOCHS=6, **more)]
    assert t5x.main(argv) == 0
    summary = json.loads((run / "summary.json").read_text())
    steps = summary["steps_per_epoch"]
    assert summary["steps"] == sum(steps[:3]) and summary["best_step"] in complete_steps(run)
    assert f"2 evaluations: stopped at step {sum(steps[:3])}." in capsys.readouterr().out
    assert t5x.main(argv) == 0
    assert "nothing to do" in capsys.readouterr().out
    # Without its summary, as if it had been killed: it writes that, and trains no further.
    (run / "summary.json").unlink()
    assert t5x.main(argv) == 0
    assert json.loads((run / "summary.json").read_text())["steps"] == sum(steps[:3])
    argv = ["train", *tiny.argv("vanilla", tmp_path / "b", "ckl_best.gin", BEST_METRIC="emm")]
    assert t5x.main(argv) == 2
    assert "'emm', which no evaluation has" in capsys.readouterr().err
