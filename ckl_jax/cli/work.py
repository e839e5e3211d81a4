"""Options of commands that distribute their work over processes or a Beam pipeline."""

import os
from typing import Annotated

from tyro.conf import arg

from ckl_jax import checks

Workers = Annotated[int, arg(help="Processes; 0 is one for each core.")]
Beam = Annotated[
    str | None,
    arg(
        metavar="OPTIONS",
        help="Run as an Apache Beam pipeline with these options: --beam='--runner=...', or "
        "--beam=''.",
    ),
]
RecordLimit = Annotated[
    int,
    arg(help="Bytes of a line or row of a document or corpus, at most; a longer one is an error."),
]
Overwrite = Annotated[bool, arg(help="Replace what --out holds.")]


def count_workers(workers: int) -> int:
    """The number of processes; raises `UserError` for one that no machine has."""
    checks.require_int(0, 4096, **{"--workers": workers})
    return workers or len(os.sched_getaffinity(0))
