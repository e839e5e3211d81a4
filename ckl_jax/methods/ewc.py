"""EWC: elastic weight consolidation (Kirkpatrick et al. 2017, arXiv:1612.00796, equation 3).

Differs from vanilla training in two seams: what is wrapped around the optimizer
(`optim.fisher_pull`), and its initial state: the Fisher information of the Initial model on D0.
"""

import optax

from ckl_jax import checks
from ckl_jax.methods.method import Method, Start
from ckl_jax.optim import gradient_squares
from ckl_jax.optim.fisher_pull import fisher_pull


def ewc(strength: float = 10.0, examples: int = 1000) -> Method:
    """A pull to the Initial model, on each number as strong as D0 depends on it.

    Args:
      strength: lambda, relative to the loss, which is a mean over tokens where the Fisher
        information is a mean over examples.
      examples: rows of D0 of whose examples, one or a packed row's, the Fisher information is the
        mean.

    Raises:
      UserError: `strength` is negative, or `examples` below 1.
    """
    checks.require_size(**{"ewc.examples": examples})
    # The penalty enters as a gradient before the run's own optimizer, which then scales it with the
    # loss's.
    pull = fisher_pull(strength)

    def init_opt_state(opt_state, start: Start):
        # Taken at the Initial model, theta*, which is also the anchor of the pull.
        fisher, count = gradient_squares.of_examples(
            start.model.score_batch, start.trainable, start.frozen, start.examples(examples)
        )
        return gradient_squares.with_statistics(opt_state, fisher, count)

    return Method(
        name="ewc",
        wrap=lambda tx: optax.chain(pull, tx),
        init_opt_state=init_opt_state,
        # makes the runner open the corpus of D0
        reads_earlier_data=True,
    )
