"""The published and the legacy schedules, by their numbers."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.optim import schedules


def values(schedule, steps):
    return np.asarray(jax.vmap(schedule)(jnp.arange(steps)))


def test_warmup_takes_a_tenth_and_decay_ends_at_half():
    rates = values(schedules.warmup_linear_to_fraction(1e-3, 1000), 1000)
    assert rates.argmax() == 99
    np.testing.assert_allclose(
        rates[[0, 49, 99, 549, 999]], [1e-5, 5e-4, 1e-3, 7.5e-4, 5e-4], rtol=1e-6
    )
    assert (np.diff(rates[:100]) > 0).all() and (np.diff(rates[99:]) < 0).all()


def test_half_a_cosine_down_to_a_tenth():
    rates = values(schedules.warmup_cosine_to_fraction(1e-3, 1000), 1000)
    assert rates.argmax() == 10 and rates[0] == pytest.approx(1e-4)
    share = 0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * (np.arange(1000) - 10) / 989))
    np.testing.assert_allclose(rates[10:], 1e-3 * share[10:], rtol=1e-5)


def test_rate_stays_at_the_end_after_the_end():
    schedule = schedules.warmup_linear_to_fraction(1.0, 10, end_fraction=0.25)
    assert float(schedule(10_000)) == pytest.approx(0.25)


def test_one_step_and_no_warmup_are_possible():
    assert float(schedules.warmup_linear_to_fraction(1.0, 1)(0)) == 1.0
    assert float(schedules.warmup_linear_to_fraction(1.0, 100, warmup_fraction=0.0)(0)) == 1.0


# run: rows, micro-batch, devices, accumulation, epochs of the schedule, divisor, real steps,
#      S / real steps, where the peak is, last rate / peak
LEGACY = {
    "full, 4 epochs": (375_000, 5, 4, 3, 4, 2, 25_000, 2.0, 0.20, 0.556),
    "small": (37_500, 5, 4, 3, 8, 3, 5_000, 3.0, 0.30, 0.741),
    "half": (18_750, 5, 4, 3, 8, 3, 2_500, 3.0, 0.30, 0.741),
    "RecAdam, small": (37_500, 3, 4, 5, 8, 3, 5_000, 3.33, 0.333, 0.778),
    "8-epoch schedule stopped at 4": (375_000, 5, 4, 3, 8, 2, 25_000, 4.0, 0.40, 0.833),
    "GPT-2": (37_500, 5, 4, 3, 8, 1, 5_000, 1.0, 0.10, 0.002),
}


@pytest.mark.parametrize("run", LEGACY)
def test_legacy_one_cycle_peaks_late_and_ends_high(run):
    rows, micro_batch, devices, parts, epochs, divisor, steps, multiple, peak_at, end = LEGACY[run]
    # The S of the released code: it counts batches before they are divided among devices.
    batches = math.ceil(rows / micro_batch)
    cycle = epochs * (batches // (devices * parts // divisor) + 1)
    assert cycle / steps == pytest.approx(multiple, abs=0.01)
    rates = values(schedules.onecycle_legacy(1.0, steps, cycle / steps), steps)
    assert rates[0] == pytest.approx(1 / 25)
    assert rates.max() == pytest.approx(1.0, abs=1e-3)
    assert rates.argmax() / steps == pytest.approx(peak_at, abs=0.002)
    assert rates[-1] == pytest.approx(end, abs=0.0006)


@pytest.mark.parametrize("multiplier,end", [(2, 0.556), (3, 0.741), (10 / 3, 0.778), (4, 0.833)])
def test_legacy_multiplier_alone_gives_the_last_rate(multiplier, end):
    rate = float(schedules.onecycle_legacy(1.0, 25_000, multiplier)(24_999))
    assert rate == pytest.approx(end, abs=0.0006)


def test_a_complete_one_cycle_ends_at_its_minimum():
    rates = values(schedules.onecycle_legacy(1.0, 1000), 1001)
    np.testing.assert_allclose(rates[-2:], 4e-6, rtol=1e-2)
    assert rates.argmax() == 99


def test_t5x_factors():
    pretrain = schedules.t5x_factors("constant * rsqrt_decay", 1.0, warmup_steps=10_000)
    assert float(pretrain(0)) == pytest.approx(0.01)
    assert float(pretrain(40_000)) == pytest.approx(0.005)
    default = schedules.t5x_factors()
    assert float(default(0)) == pytest.approx(1e-8)
    assert float(default(500)) == pytest.approx(0.5 * 0.5 / 1000**0.5)
    every = schedules.t5x_factors("constant*decay_every", 1.0, steps_per_decay=10)
    assert float(every(25)) == pytest.approx(0.25)
    cosine = schedules.t5x_factors(
        "constant * cosine_decay", 1.0, warmup_steps=10, steps_per_cycle=100
    )
    assert float(cosine(60)) == pytest.approx(0.5, abs=1e-6)
    flat = schedules.t5x_factors("rsqrt_normalized_decay", warmup_steps=100)
    assert float(flat(400)) == pytest.approx(0.5)
    decay = schedules.t5x_factors("linear_decay", 1.0, warmup_steps=10, decay_factor=0.01)
    assert float(decay(20)) == pytest.approx(0.9)
    shifted = schedules.t5x_factors("linear_warmup", warmup_steps=10, step_offset=100)
    assert float(shifted(105)) == pytest.approx(0.5)


def test_constant_is_constant():
    assert values(schedules.constant(0.3), 3).tolist() == pytest.approx([0.3] * 3)


@pytest.mark.parametrize(
    "make,text",
    [
        (lambda: schedules.t5x_factors("constant * cosin"), "'cosin'; known: constant"),
        (lambda: schedules.warmup_linear_to_fraction(1.0, 0), "total_steps"),
        (lambda: schedules.warmup_linear_to_fraction(1.0, 10, 1.5), "warmup_fraction"),
        (lambda: schedules.onecycle_legacy(1.0, 5), "20 steps"),
    ],
)
def test_wrong_arguments_are_named(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("anneal", ["linear", "cosine"])
def test_one_cycle_equals_torch(anneal):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        1e-4,
        total_steps=50,
        pct_start=0.1,
        cycle_momentum=False,
        anneal_strategy={"linear": "linear", "cosine": "cos"}[anneal],
    )
    expected = []
    for _ in range(50):
        expected.append(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()
    found = values(schedules.onecycle(1e-4, 50, anneal=anneal), 50)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-10)
    assert np.isfinite(values(schedules.onecycle(1e-4, 3), 3)).all()


def test_the_released_temporalwiki_schedule_ends_in_its_warm_up():
    rates = values(schedules.warmup_decay_legacy(1.0, 12_000), 12_000)
    assert rates.argmax() / 12_000 == pytest.approx(0.8, abs=1e-3)
    assert rates[-1] == pytest.approx(0.972, abs=5e-4)
    assert rates[99] == pytest.approx(np.log(100) / np.log(9600), rel=1e-5)


def test_a_schedule_that_goes_on_is_the_part_of_one_over_all_updates():
    whole = values(schedules.warmup_linear_to_fraction(1e-3, 100), 100)
    kind = functools.partial(schedules.warmup_linear_to_fraction, 1e-3)
    parts = [schedules.continued(60, kind, after=40), schedules.continued(40, kind, before=60)]
    found = np.concatenate([values(part, n) for part, n in zip(parts, (60, 40), strict=True)])
    np.testing.assert_allclose(found, whole, rtol=1e-6)
    with pytest.raises(UserError, match="STEPS_AFTER"):
        schedules.continued(10, kind, after=-1)
