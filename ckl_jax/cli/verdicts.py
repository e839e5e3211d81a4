"""Whether an updated model may replace the last: what commands take and return."""

from collections.abc import Iterable
from typing import Annotated, Any

from tyro.conf import arg

Condition = Annotated[str, arg(metavar="CONDITION")]


def decide(verdicts: Iterable[Any]) -> tuple[int, dict[str, Any]]:
    """Prints the verdicts; exit code 1 if one is against its model."""
    verdicts = list(verdicts)
    for verdict in verdicts:
        print(verdict.sentence())
    told = [{"passes": v.passes, "sentence": v.sentence()} for v in verdicts]
    return int(not all(v.passes for v in verdicts)), {"verdicts": told}
