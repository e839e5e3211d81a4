"""LwF: learning without forgetting (Li & Hoiem 2016, arXiv:1606.09282), with old data absent.

Differs from vanilla training in one seam: the loss. See `models.distillation`.
"""

from ckl_jax.methods.method import Method
from ckl_jax.models.distillation import Distillation


def lwf(weight: float = 1.0, temperature: float = 2.0) -> Method:
    """Every parameter trains, and on the new text the Initial model is imitated.

    Args:
      weight: of the teacher's loss; the paper's lambda_o, 1 there.
      temperature: of both distributions, 2 in the paper.

    Raises:
      UserError: a number is out of range.
    """
    return Method(name="lwf", loss=Distillation(weight, temperature))
