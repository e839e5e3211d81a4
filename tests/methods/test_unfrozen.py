"""What `unfrozen` leaves of a method: what it adds to the model, and nothing else."""

import pytest

from ckl_jax.methods import ewc, k_adapter, lora, method, mix_review, modular, recadam

METHODS = [
    method.vanilla(),
    method.initial(),
    recadam.recadam(),
    mix_review.mix_review(),
    lora.lora(),
    k_adapter.k_adapter(taps=(0, 1)),
    modular.modular(),
    ewc.ewc(),
    method.combine(lora.lora(), mix_review.mix_review()),
]


@pytest.mark.parametrize("given", METHODS, ids=lambda given: given.name)
def test_only_what_a_method_adds_stays(given):
    tuned, empty = method.unfrozen(given), method.Method(name=given.name)
    assert (tuned.dense, tuned.side) == (given.dense, given.side)
    for seam in set(method.SEAMS) - {"dense", "side"}:
        assert getattr(tuned, seam) == getattr(empty, seam), seam
    assert tuned.trains and tuned.name == given.name
    assert tuned.legacy_bypass_side == given.legacy_bypass_side
