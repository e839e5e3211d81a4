"""Learning-rate schedules: functions of the number of steps taken (0 at the first step).

All take a Python int or an int array and return a float32 scalar, so they go into
`adafactor_hf(learning_rate=...)` or any optax transformation.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.errors import UserError

Schedule = Callable[[jax.Array | int], jax.Array]

FACTORS = (
    "constant",
    "linear_warmup",
    "linear_decay",
    "rsqrt_decay",
    "rsqrt_normalized_decay",
    "decay_every",
    "cosine_decay",
)


def constant(rate: float, total_steps: int | None = None) -> Schedule:
    """The same rate at every step; `total_steps` is taken so that all are called alike."""
    del total_steps
    _check_rate(rate)
    return lambda step: jnp.full(jnp.shape(step), rate, jnp.float32)


def warmup_linear_to_fraction(
    peak: float, total_steps: int, warmup_fraction: float = 0.1, end_fraction: float = 0.5
) -> Schedule:
    """Linear warm-up, then linear decay to a fraction of the peak.

    The schedule described in "Towards Continual Knowledge Learning of Language Models" (Jang et
    al., ICLR 2022, section 4): warm-up over the first 10 % of the steps, decay to half. The paper
    does not say where warm-up starts; here step 0 already has `peak / warmup_steps`, so that no
    step is lost, and the peak is reached on the last warm-up step.

    Args:
      peak: the highest rate.
      total_steps: number of steps of the run; the last one has `end_fraction * peak`, and so has
        any step after it.
      warmup_fraction: of `total_steps`, in [0, 1).
      end_fraction: of `peak`.

    Raises:
      ValueError: total_steps below 1 or warmup_fraction out of range.
    """
    _check(peak, total_steps, warmup_fraction)
    warmup_steps = max(1, round(warmup_fraction * total_steps))
    decay_steps = max(1, total_steps - warmup_steps)

    def rate(step):
        # Counted after the step, so that the first step has a rate above 0.
        done = jnp.asarray(step, jnp.float32) + 1.0
        rising = done / warmup_steps
        progress = jnp.clip((done - warmup_steps) / decay_steps, 0.0, 1.0)
        return peak * jnp.where(done < warmup_steps, rising, 1.0 - (1.0 - end_fraction) * progress)

    return rate


def continued(
    total_steps: int, schedule: Callable[..., Schedule], before: int = 0, after: int = 0
) -> Schedule:
    """One schedule spread over several updates; this run follows its own part of it.

    The paper's starts again with every update, which it suspects of some of the forgetting (CKL,
    section 5.2).

    Args:
      total_steps: number of steps of this run.
      schedule: `total_steps=n -> schedule`, over the steps of all updates.
      before: steps of the updates before this one.
      after: steps of those that will follow.

    Raises:
      ValueError: as `schedule`.
      UserError: before or after is not a number of steps.
    """
    checks.require_int(0, **{"continued.before": before, "continued.after (STEPS_AFTER)": after})
    whole = schedule(total_steps=before + total_steps + after)
    # The run counts its own steps from 0; the schedule counts those of all updates.
    return lambda step: whole(jnp.asarray(step) + before)


def warmup_cosine(
    peak: float,
    total_steps: int,
    warmup_fraction: float = 0.08,
    start: float = 1e-7,
    end: float = 3e-7,
) -> Schedule:
    """Linear warm-up, then cosine decay to 0, as in public Transformer-XL recipes.

    Args:
      peak: the highest rate, at the end of the warm-up.
      total_steps: number of steps of the run; the last one has `end`.
      warmup_fraction: of `total_steps`, in [0, 1).
      start: the rate of the first step.
      end: the rate of the last one.

    Raises:
      ValueError: total_steps below 1 or warmup_fraction out of range.
      UserError: a rate is not a number.
    """
    _check(peak, total_steps, warmup_fraction)
    checks.require_number("a finite number, 0 or more", 0.0, start_rate=start, end_rate=end)
    top = max(1.0, warmup_fraction * total_steps)
    down = max(1.0, total_steps - 1.0 - top)

    def rate(step):
        step = jnp.asarray(step, jnp.float32)
        rising = start + (peak - start) * step / top
        progress = jnp.clip((step - top) / down, 0.0, 1.0)
        # Half a cosine: `peak` at step `top`, `end` at the last step.
        falling = end + (peak - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
        return jnp.where(step < top, rising, falling)

    return rate


def warmup_cosine_to_fraction(
    peak: float, total_steps: int, warmup_fraction: float = 0.01, end_fraction: float = 0.1
) -> Schedule:
    """Linear warm-up, then decay to a fraction of the peak along half a cosine.

    Warming up again and decaying again is what Ibrahim et al. 2024 ("Simple and Scalable Strategies
    to Continually Pre-train Large Language Models", section 4) found to learn a new corpus as well
    as training from nothing, with a few per cent of replay against forgetting. Arguments and errors
    are those of `warmup_linear_to_fraction`.
    """
    _check_rate(peak)
    start = peak / max(1.0, warmup_fraction * total_steps)  # no step is lost
    return warmup_cosine(peak, total_steps, warmup_fraction, start, end_fraction * peak)


def onecycle(
    peak: float, total_steps: int, warmup_fraction: float = 0.1, anneal: str = "linear"
) -> Schedule:
    """One cycle: linear rise to the peak, then decay to 0 (Smith 2018; TemporalWiki, section 4.1).

    From `peak / 25` at the first step to `peak` at the last one of the warm-up, then to
    `peak / 250000` at the last step: the shape of PyTorch's `OneCycleLR`. TemporalWiki does not say
    how it came down.

    Args:
      peak: the highest rate.
      total_steps: number of steps of the run.
      warmup_fraction: of `total_steps`, in [0, 1).
      anneal: "linear", or "cosine" (up as well as down, as PyTorch's).

    Raises:
      ValueError: total_steps below 1 or warmup_fraction out of range.
      UserError: peak is not a number, or anneal is neither.
    """
    _check(peak, total_steps, warmup_fraction)
    checks.require_choice(("linear", "cosine"), ONECYCLE_ANNEAL=anneal)
    start, low = peak / 25.0, peak / 25.0 / 1e4
    # PyTorch counts steps from 0, so the peak is at the last step of the warm-up.
    top = max(warmup_fraction * total_steps - 1.0, 0.0)
    down = max(total_steps - 1.0 - top, 1.0)

    def between(first, last, progress):
        progress = jnp.clip(progress, 0.0, 1.0)
        if anneal == "cosine":
            # Maps [0, 1] to itself, flat at both ends.
            progress = 0.5 * (1.0 - jnp.cos(jnp.pi * progress))
        return first + (last - first) * progress

    def rate(step):
        step = jnp.asarray(step, jnp.float32)
        # Without warm-up `top` is 0, and the quotient must not be NaN: `where` evaluates both
        # sides.
        rising = between(start, peak, step / max(top, 1e-6))
        return jnp.where(step < top, rising, between(peak, low, (step - top) / down))

    return rate


def warmup_decay_legacy(
    peak: float, total_steps: int, warmup_fraction: float = 0.1, multiplier: float = 8.0
) -> Schedule:
    """The schedule that the released TemporalWiki code really follows: DeepSpeed's WarmupDecayLR.

    Over `S = multiplier * total_steps` steps: up logarithmically, `peak ln(i + 1) / ln(w)`, during
    the first `w = warmup_fraction * S`, then linearly to 0 at S. A run of `total_steps` spends 80 %
    of its steps in warm-up at the default multiplier and ends at 0.972 peak.

    Args:
      peak: the highest rate.
      total_steps: number of steps of the run.
      warmup_fraction: of S.
      multiplier: S / total_steps; 8 for GPT-2 and 6 for T5, the batch of one device.

    Raises:
      ValueError: total_steps below 1.
      UserError: peak or multiplier is not a number, or out of range.
    """
    _check(peak, total_steps)
    checks.require_number("a finite number, 1 or more", 1.0, WARMUP_DECAY_MULTIPLIER=multiplier)
    # The number of steps that the released code expects, larger than the number it runs.
    horizon = multiplier * total_steps
    # ln(1) = 0 would divide by zero.
    warmup = max(2.0, warmup_fraction * horizon)

    def rate(step):
        step = jnp.asarray(step, jnp.float32)
        # DeepSpeed's warm-up is logarithmic by default: 0 at step 0, 1 at step `warmup - 1`.
        rising = jnp.log(step + 1.0) / math.log(warmup)
        falling = jnp.maximum(0.0, (horizon - step) / max(1.0, horizon - warmup))
        return peak * jnp.where(step < warmup, rising, falling)

    return rate


def onecycle_legacy(peak: float, total_steps: int, multiplier: float = 1.0) -> Schedule:
    """The one-cycle schedule that the released continual-knowledge-learning code really follows.

    A linear one-cycle over `S = multiplier * total_steps` steps, of which only the first
    `total_steps` are taken: up from `peak / 25` during the first 10 % of S, then down towards
    `peak / 250000` at step `S - 1`. The code overstates S, so its peak comes late and its last rate
    stays high: multiplier 2 peaks after 20 % and ends at 0.556 peak, 3 after 30 % and at 0.741,
    4 after 40 % and at 0.833.

    Args:
      peak: the highest rate.
      total_steps: number of steps of the run.
      multiplier: S / total_steps, at least 1.

    Raises:
      ValueError: total_steps below 1, or fewer than 20 steps in S (no room for warm-up).
      UserError: peak or multiplier is not a number, or out of range.
    """
    _check(peak, total_steps)
    checks.require_number("a finite number, 1 or more", 1.0, ONECYCLE_MULTIPLIER=multiplier)
    return _onecycle(peak, round(multiplier * total_steps))


def _onecycle(peak: float, cycle_steps: int) -> Schedule:
    if cycle_steps < 20:
        raise ValueError(f"a one-cycle schedule needs 20 steps or more, got {cycle_steps}")
    start, low = peak / 25.0, peak / 25.0 / 1e4
    top = 0.1 * cycle_steps - 1.0

    def rate(step):
        # PyTorch's scheduler raises past its last step; the rate stays at its end here.
        step = jnp.minimum(jnp.asarray(step, jnp.float32), cycle_steps - 1)
        rising = start + (peak - start) * step / top
        falling = peak + (low - peak) * (step - top) / (cycle_steps - 1 - top)
        return jnp.where(step <= top, rising, falling)

    return rate


def t5x_factors(
    factors: str = "constant * linear_warmup * rsqrt_decay",
    base_learning_rate: float = 0.5,
    warmup_steps: float = 1000,  # steps may be written as 1e4
    decay_factor: float = 0.5,
    steps_per_decay: float = 20000,
    steps_per_cycle: float = 100000,
    step_offset: float = 0,
    min_learning_rate: float = 1e-8,
) -> Schedule:
    """T5X's `create_learning_rate_scheduler`: a product of named factors.

    Args:
      factors: names joined by `*`, out of `FACTORS`.
      base_learning_rate: the value of `constant` (and a factor inside `linear_decay`).
      warmup_steps: length of warm-up; the rsqrt decays are flat until then.
      decay_factor: of `decay_every`; slope of `linear_decay`.
      steps_per_decay: of `decay_every`.
      steps_per_cycle: of `cosine_decay`.
      step_offset: step that counts as 0.
      min_learning_rate: lower bound of the product.

    Raises:
      ValueError: an unknown factor.
    """
    # As in T5X: names joined by `*`.
    names = [name.strip() for name in factors.split("*")]
    unknown = sorted(set(names) - set(FACTORS))
    if unknown:
        raise ValueError(
            f"unknown learning rate factor {unknown[0]!r}; known: {', '.join(FACTORS)}"
        )

    def rate(step):
        step = jnp.maximum(0.0, jnp.asarray(step, jnp.float32) - step_offset)
        cycles = jnp.maximum(0.0, (step - warmup_steps) / steps_per_cycle)
        # T5X's formulas, term by term, in float32.
        late = jnp.sqrt(jnp.maximum(step, warmup_steps))
        decaying = 1.0 + decay_factor * (warmup_steps - step)
        values = {
            "constant": base_learning_rate,
            "linear_warmup": jnp.minimum(1.0, step / warmup_steps),
            "linear_decay": base_learning_rate * jnp.minimum(step / warmup_steps, decaying),
            "rsqrt_decay": 1.0 / late,
            "rsqrt_normalized_decay": math.sqrt(warmup_steps) / late,
            "decay_every": decay_factor ** (step // steps_per_decay),
            "cosine_decay": 0.5 * (1.0 + jnp.cos(jnp.pi * (cycles % 1.0))),
        }
        product = math.prod(values[name] for name in names)
        # The bound holds during warm-up too, so the first rate is not 0.
        return jnp.maximum(product, min_learning_rate).astype(jnp.float32)

    return rate


def _check_rate(peak):
    if peak is None:
        raise UserError("LEARNING_RATE is None; give a finite number, 0 or more.")
    checks.require_number("a finite number, 0 or more", 0.0, LEARNING_RATE=peak)


def _check(peak, total_steps, warmup_fraction=0.0):
    if total_steps < 1:
        raise ValueError(f"total_steps must be at least 1, got {total_steps}")
    _check_rate(peak)
    if not 0 <= warmup_fraction < 1:
        raise ValueError(f"warmup_fraction must be in [0, 1), got {warmup_fraction}")
