"""Which checkpoints stay, by T5X's rules."""

import gin
import pytest

from ckl_jax.errors import UserError
from ckl_jax.t5x_api import checkpoints, utils


def kept(values, keep, **settings):
    best = checkpoints.SaveBestCheckpointer(**settings).keep_best(keep)
    return sorted({max(values), *best.stay(values)})


def t5x(values, keep, mode="max", keep_without=True, period=None):
    """T5X's rule after a save, in its own order of doing: what `_remove_old_checkpoints` leaves."""
    existing, left = sorted(values), set(values)
    if period:
        existing = [s for s in existing[:-1] if s % period] + existing[-1:]
    if len(existing) <= keep + 1:
        return sorted(left)
    candidates = existing[:-1]
    if keep_without:
        candidates = [s for s in candidates if values[s] is not None]
    worst = float("-inf") if mode == "max" else float("inf")
    order = sorted(
        candidates, key=lambda s: worst if values[s] is None else values[s], reverse=mode != "max"
    )
    return sorted(left - set(order[: max(0, len(candidates) - keep)]))


VALUES = {10: 0.3, 20: None, 30: 0.9, 40: 0.1, 50: 0.5, 60: None, 70: 0.2}


@pytest.mark.parametrize("keep", [1, 2, 4])
@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize("keep_without", [True, False])
@pytest.mark.parametrize("period", [None, 20])
def test_the_best_stay_as_in_t5x(keep, mode, keep_without, period):
    found = kept(
        VALUES,
        keep,
        metric_mode=mode,
        keep_checkpoints_without_metrics=keep_without,
        force_keep_period=period,
    )
    assert found == t5x(VALUES, keep, mode, keep_without, period)


def test_gin_files_name_the_classes():
    plain = utils.SaveCheckpointConfig(keep=3, checkpointer_cls=checkpoints.Checkpointer)
    native = utils.CheckpointConfig(plain).save
    assert (native.keep, native.keep_best) == (3, None)
    manager = checkpoints.OrbaxCheckpointManagerInterface
    unmonitored = utils.SaveCheckpointConfig(keep=3, checkpoint_manager_cls=manager)
    assert utils.CheckpointConfig(unmonitored).save.keep == 3
    monitored = "a_test.manager_of_a_test.metric_name_to_monitor = 'training_eval/x/loss'"
    with gin.unlock_config():  # another test may have loaded gin files
        bound = gin.external_configurable(manager, "manager_of_a_test", module="a_test")
        gin.parse_config(monitored)
    try:
        best = utils.SaveCheckpointConfig(keep=3, checkpoint_manager_cls=bound)
        native = utils.CheckpointConfig(best).save
    finally:
        gin.clear_config()
    assert (native.keep, native.keep_best.metric) == (1, "training_eval/x/loss")
    with pytest.raises(UserError, match="checkpointer_cls is not offered"):
        utils.SaveCheckpointConfig(checkpointer_cls=dict)
    with pytest.raises(UserError, match="metric_mode"):
        checkpoints.SaveBestCheckpointer(metric_mode="mean")
