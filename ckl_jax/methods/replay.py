"""Replay: a few per cent of every epoch are earlier data (Ibrahim et al. 2024, section 4.2).

Differs from vanilla training in one seam: the data mixture.
"""

from ckl_jax import checks
from ckl_jax.data.tasks.epochs import Mixture
from ckl_jax.methods.method import Method


def replay(share: float = 0.05) -> Method:
    """Mixes rows of D0 into each epoch, drawn anew each time.

    Args:
      share: of an epoch's rows that are of D0. The paper tried 0.5 to 50 % and recommends 1 to 5 %,
        more the more the new corpus differs.

    Returns:
      The method.

    Raises:
      UserError: the share is not between 0 and 1.
    """
    checks.require_number("a number in [0, 1)", 0.0, 1.0, **{"replay.share": share})
    # `Mixture` counts review rows per new row: a fraction s of the whole is s / (1 - s) of the new.
    return Method(name="replay", mixture=Mixture(share / (1.0 - share), decay=1.0))
