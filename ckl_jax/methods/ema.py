"""EMA: what an update leaves is the moving average of the parameters on its way.

Differs from vanilla training in one seam: what is wrapped around the optimizer. See
`optim.averaging`.
"""

import optax

from ckl_jax.methods.method import Method
from ckl_jax.optim.averaging import track_average


def ema(decay: float = 0.999) -> Method:
    """Plain training, evaluated and saved as an average that starts at the Initial model.

    Args:
      decay: of the average at each step, in [0, 1).

    Raises:
      UserError: `decay` is out of range.
    """
    # Last in the chain, because it must see the updates that are really added.
    average = track_average(decay)
    return Method(name="ema", wrap=lambda tx: optax.chain(tx, average))
