"""Replay: a few per cent of every epoch are earlier data (Ibrahim et al. 2024, section 4.2).

Differs from vanilla training in one seam: the data mixture.
"""

from ckl_jax import checks
from ckl_jax.data.tasks.epochs import Mixture
from ckl_jax.methods.method import Method


def replay(fraction: float = 0.05) -> Method:
    """Mixes rows of D0 into each epoch, drawn anew each time.

    Args:
      fraction: of an epoch's rows that are of D0. The paper tried 0.5 to 50 % and recommends 1 to 5
        %, more the more the new corpus differs.

    Raises:
      UserError: the fraction is not between 0 and 1.
    """
    checks.require_number("a number in [0, 1)", 0.0, 1.0, **{"replay.fraction": fraction})
    # `Mixture` counts review rows per new row: a fraction s of the whole is s / (1 - s) of the new.
    return Method(name="replay", mixture=Mixture(fraction / (1.0 - fraction), decay=1.0))
