"""Mix-Review: earlier data mixed in, less of it every epoch (He et al. 2021; CKL §4.1).

Differs from vanilla training in one seam: the data mixture.
"""

from ckl_jax.data.tasks.epochs import Mixture
from ckl_jax.methods.method import Method


def mix_review(
    ratio: float = 4.0,
    decay: float = 0.7,
    legacy_frozen_sample: bool = False,
    review_phases: bool = True,
) -> Method:
    """Adds `ratio * decay**epoch` times as many rows of D0 as D1 has to each epoch.

    Args:
      ratio: review rows per new row in epoch 0. (CKL's text exchanges the names of the two.)
      decay: factor per epoch.
      legacy_frozen_sample: review the sample of epoch 0 in every epoch, as the released trainer
        did.
      review_phases: in a second update, review the whole corpus of the first in every epoch too, if
        it is named (`DatasetConfig.review_task_name`).
    """
    mixture = Mixture(ratio, decay, legacy_frozen_sample, review_phases)
    return Method(name="mix_review", mixture=mixture)
