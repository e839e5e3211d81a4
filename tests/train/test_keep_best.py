import json

import pytest

from ckl_jax.checkpoints.restore import complete_steps
from ckl_jax.cli import t5x

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
