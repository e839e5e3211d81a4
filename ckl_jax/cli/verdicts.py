"""Whether an updated model may replace the last: what commands take and return."""

from collections.abc import Sequence
from typing import Annotated, Any

from tyro.conf import arg

Condition = Annotated[str, arg(metavar="CONDITION")]


def decide(verdicts: Sequence[Any]) -> tuple[int, dict[str, Any]]:
    """Prints TemporalWiki's verdicts.

    Returns:
      The exit code, 1 if one is against its model, else 3 if one is for want of facts, and the
      verdicts.
    """
    from ckl_jax.analysis import gate

    for verdict in verdicts:
        print(verdict.sentence())
    kinds = {verdict.verdict for verdict in verdicts}
    worst = next(v for v in (gate.HOLD, gate.TOO_FEW, gate.SHIP) if v in kinds)
    return gate.EXIT_CODES[worst], {"verdicts": [verdict.json() for verdict in verdicts]}
