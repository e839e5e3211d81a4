"""RecAdam: Adam annealed from "stay at the start" to "learn" (Chen et al. 2020; CKL §4.1).

Differs from vanilla training in one seam: the optax transformation. See `optim.recadam` for it.
"""

import functools

from ckl_jax.methods.method import Method
from ckl_jax.optim.recadam import recadam as recadam_tx


def recadam(
    gamma: float = 5000.0,
    k: float = 0.5,
    t0: float = 250.0,
    anneal: str = "sigmoid",
    penalty: str = "proximal",
    legacy_adam: bool = False,
) -> Method:
    """RecAdam with CKL's hyper-parameters.

    Args:
      gamma: strength of the pull to the initial parameters.
      k: slope of the annealing.
      t0: step at which the two objectives weigh the same.
      anneal: "sigmoid", "linear" or "constant".
      penalty: "proximal" (implicit step, stable at any rate) or "explicit" (RecAdam's own step;
        refused where learning rate * gamma makes it diverge).
      legacy_adam: never pull, which is what the released code did on T5 and GPT-2: its parameter
        grouping looked for the model's type in parameter names that do not hold it.
    """
    # Waits for the run's learning-rate schedule, its only missing argument.
    tx = functools.partial(
        recadam_tx, gamma=gamma, k=k, t0=t0, anneal=anneal, penalty=penalty, legacy_adam=legacy_adam
    )
    return Method(name="recadam", tx=tx)
