"""T5X's scalars: its names, and what they mean by its `compute_base_metrics`."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.t5 import Transformer
from ckl_jax.t5x_api import metrics
from ckl_jax.train.metrics_log import Fetched
from ckl_jax.train.telemetry import Telemetry
from tests.helpers import TINY
from tests.tiny import read_rows

# T5X's (commit cc342d4): models.compute_base_metrics and trainer.train_with_lr of a packed batch.
OF_T5X = {
    "accuracy",
    "cross_ent_loss",
    "cross_ent_loss_per_all_target_tokens",
    "effective_batch_size/decoder",
    "effective_batch_size/encoder",
    "learning_rate",
    "learning_rate/current",
    "loss",
    "loss_per_all_target_tokens",
    "loss_per_nonpadding_target_token",
    "non_padding_fraction/decoder",
    "non_padding_fraction/encoder",
    "non_padding_fraction/loss_weights",
    "non_padding_fraction/overall",
    "timing/seconds",
    "timing/seqs",
    "timing/seqs_per_second",
    "timing/seqs_per_second_per_core",
    "timing/steps_per_second",
    "timing/target_tokens_per_second",
    "timing/target_tokens_per_second_per_core",
    "timing/uptime",
    "z_loss",
    "z_loss_per_all_target_tokens",
}


class Model(EncoderDecoderModel):
    """Its logits are the parameters."""

    def logits(self, params, batch, dropout_rng=None):
        return params


def logits():
    return 3.0 * jax.random.normal(jax.random.key(0), (4, 6, TINY.vocab_size))


def packed(seed):
    rng = np.random.default_rng(seed)
    segments = np.array([[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1], [1, 2, 3, 3, 0, 0], [0] * 6])
    tokens = rng.integers(3, TINY.vocab_size, segments.shape) * (segments > 0)
    return {
        "encoder_input_tokens": tokens,
        "decoder_input_tokens": tokens,
        "decoder_target_tokens": tokens,
        "decoder_loss_weights": (segments > 0).astype(np.float32),
        "encoder_segment_ids": segments,
        "decoder_segment_ids": segments,
    }


def test_packed_examples_are_the_runs_of_each_row():
    rng = np.random.default_rng(0)
    for _ in range(20):
        counts = rng.integers(0, 4, (5, 4))
        rows = [np.repeat(np.arange(1, 5), row)[:8] for row in counts]
        ids = np.stack([np.pad(row, (0, 8 - len(row))) for row in rows])
        expected = sum(len(set(row) - {0}) for row in ids.tolist())
        assert metrics.packed_examples(jnp.asarray(ids)) == expected


def test_rows_have_the_names_and_the_means_of_t5x():
    model = Model(Transformer(TINY), z_loss=1e-2, loss_normalizing_factor=None)
    maker, steps, sums = metrics.T5XMetrics(), [], []
    for number in range(2):
        batch = {n: jnp.asarray(x) for n, x in packed(number).items()}
        if number:  # the second has fewer tokens
            batch["decoder_loss_weights"] = batch["decoder_loss_weights"].at[1, 2:].set(0.0)
        value, found = model.loss_fn(logits(), batch)
        sums.append({**found, "objective": value})
        step = metrics.of_sums(value, found) | maker.of_step(batch, jnp.float32(number + 1))
        numbers = {name: float(x) for name, x in step.items()}
        steps.append(Fetched(number, {**numbers, "gradient_norm": 3.0}, 0.25))
    row = maker.row(steps, 4)
    assert row.keys() >= OF_T5X
    total = {name: float(sum(s[name] for s in sums)) for name in sums[0]}
    assert row["loss"] == pytest.approx(total["objective"] / 2)
    assert row["z_loss"] == pytest.approx(total["z_loss"] / 2, rel=1e-5)
    assert row["cross_ent_loss"] == pytest.approx((total["loss"] - total["z_loss"]) / 2, rel=1e-5)
    assert row["accuracy"] == pytest.approx(total["correct"] / total["tokens"])
    assert row["loss_per_nonpadding_target_token"] == pytest.approx(total["loss"] / total["tokens"])
    assert row["loss_per_all_target_tokens"] == pytest.approx(total["loss"] / 48)
    assert row["z_loss_per_all_target_tokens"] == pytest.approx(total["z_loss"] / 48)
    assert row["non_padding_fraction/loss_weights"] == pytest.approx((15 + 11) / 48)
    assert row["non_padding_fraction/encoder"] == row["non_padding_fraction/overall"] == 15 / 24
    assert row["effective_batch_size/decoder"] == 2 + 1 + 3
    assert (row["learning_rate"], row["learning_rate/current"]) == (1.5, 2.0)
    assert (row["timing/seconds"], row["timing/seqs"]) == (0.5, 8)
    assert row["timing/steps_per_second"] == 4 and row["timing/seqs_per_second"] == 16
    assert row["timing/target_tokens_per_second"] == 48 / 0.5


def test_a_loss_that_is_a_mean_is_shown_as_it_is_optimised():
    model = Model(Transformer(TINY), z_loss=1e-2)
    batch = {n: jnp.asarray(x) for n, x in packed(0).items()}
    value, sums = model.loss_fn(logits(), batch)
    row = metrics.summarize([metrics.of_sums(value, sums) | metrics.of_batch(batch)], 1.0, 4)
    assert row["loss"] == pytest.approx(float(value) / 15)
    assert row["loss"] == pytest.approx(row["loss_per_nonpadding_target_token"])
    assert row["z_loss"] == pytest.approx(float(sums["z_loss"]) / 15, rel=1e-5)


def test_rows_that_are_not_packed_are_counted_by_their_tokens():
    batch = {n: jnp.asarray(x) for n, x in packed(0).items() if "segment" not in n}
    found = metrics.of_batch(batch)
    assert found["filled/encoder_input_tokens"] == 15
    assert found["examples/decoder_target_tokens"] == 3  # the last row is padding


def test_a_checkpoint_out_of_turn_has_a_row_too(tmp_path):
    """As of a run that is stopped: after it the mean begins anew."""

    class Means(metrics.T5XMetrics):
        def row(self, steps, rows):
            return {"loss": np.mean([step.numbers["loss"] for step in steps])}

    plan = SimpleNamespace(batch_size=4, epochs=None)
    run = SimpleNamespace(last_step=6, total_steps=6, metrics=Means(), rate=lambda step: 0.1)
    run.source = SimpleNamespace(plan=plan)
    settings = dict(name="run", step=0, seconds=0.0, cpu_seconds=0.0, log_period=6, services=())
    seams = dict(progress="silent", is_boundary=lambda step: False, diverged=None)
    with Telemetry(run, tmp_path, **settings, **seams) as telemetry:
        for step in range(1, 7):
            telemetry.step(
                step, dict.fromkeys(("loss", "tokens", "gradient_norm"), np.float32(step))
            )
            if step == 4:
                telemetry.pause()
        telemetry.pause()
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["loss"]) for row in rows] == [(4, 2.5), (6, 5.5)]
