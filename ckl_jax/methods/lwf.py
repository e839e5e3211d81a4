"""LwF: learning without forgetting (Li & Hoiem 2016, arXiv:1606.09282), with old data absent.

Differs from vanilla training in one seam: the loss (equations 2 and 3), on the tokens of a language
model. The model before an update is the teacher of the model that is updated: on each target token
of the new text the student's distribution is held to the teacher's, both at a temperature.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method
from ckl_jax.models.base import BaseTransformerModel, Batch


def lwf(weight: float = 1.0, temperature: float = 2.0) -> Method:
    """Every parameter trains, and on the new text the Initial model is imitated.

    Args:
      weight: of the teacher's loss; the paper's lambda_o, 1 there.
      temperature: of both distributions, 2 in the paper.

    Raises:
      UserError: a number is out of range.
    """
    return Method(name="lwf", loss=Distillation(weight, temperature))


@dataclasses.dataclass(frozen=True)
class Distillation:
    """The cross entropy plus the distillation loss against the model before the update.

    Attributes:
      weight: of its loss, beside the cross entropy's 1.
      temperature: of both distributions; the loss is multiplied by its square, so that gradients
        keep their size (Hinton et al. 2015).
    """

    weight: float = 1.0
    temperature: float = 2.0

    def __post_init__(self) -> None:
        checks.require_number("a finite number, 0 or more", 0.0, **{"lwf.weight": self.weight})
        checks.require_positive(**{"lwf.temperature": self.temperature})

    def __call__(self, student: BaseTransformerModel, teacher: BaseTransformerModel) -> Callable:
        """The loss of `student` with distillation from `teacher`.

        Args:
          student: the model that trains, with its method in it.
          teacher: the same model without the method.

        Returns:
          `(student's parameters, teacher's, batch, dropout key) -> (summed loss, sums)`.

        Raises:
          UserError: the model has a loss of its own: one that masks text anew, or remembers what
            came before it, which both would have to do alike.
        """
        # Distillation replaces `loss_fn`; a model that overrides it (masking, memory) would lose
        # its own.
        if type(student).loss_fn is not BaseTransformerModel.loss_fn:
            raise UserError(
                f"LwF is not offered for a {type(student.config).__name__}, whose "
                f"{type(student).__name__} has a loss of its own; choose another method, or a T5 "
                "or GPT-2."
            )

        # `before` carries no gradient: the runner passes it outside of the differentiated argument.
        def loss_fn(params: Any, before: Any, batch: Batch, dropout_rng: jax.Array | None = None):
            known = teacher.logits(before, batch)
            logits = student.logits(params, batch, dropout_rng)
            extra = self.weight * teacher_losses(logits, known, self.temperature)
            return student.sums_of(logits, batch, extra)

        return loss_fn


def teacher_losses(student: jax.Array, teacher: jax.Array, temperature: float) -> jax.Array:
    """temperature^2 KL(teacher || student) of each token.

    Args:
      student, teacher: logits [B, T, V] float32.

    Returns:
      [B, T] float32, 0 where both agree.
    """
    # KL rather than the paper's cross entropy: both have the same gradient, and KL is 0 where both
    # agree.
    known = jax.nn.log_softmax(teacher / temperature)
    learned = jax.nn.log_softmax(student / temperature)
    return temperature**2 * jnp.sum(jnp.exp(known) * (known - learned), axis=-1)
