"""KILT's training files as cached tasks, made where a gin file names them (CKL, appendix F)."""

import sys
from collections.abc import Mapping
from typing import Any

import jax

from ckl_jax import checks
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.files import write_json
from ckl_jax.papers.ckl.data.kilt import CUT, count_cut, cut_sentence, known_relations, prepare_kilt


def cached_kilt(
    name: str, folder: str, out: str, vocabulary: Any, lengths: Mapping[str, int]
) -> str:
    """Makes the cached task of a data set; gin binds it in place of a task's name.

    How many inputs and answers are longer than the lengths, and are cut, goes to stderr and to the
    task's `cut.json`. How many of Zero-Shot RE's dev records ask a relation that is trained on goes
    to stderr, if any do.

    Args:
      name: one of `papers.ckl.data.kilt.KILT_SETS`.
      folder: of KILT's files.
      out: of cached tasks.
      lengths: {"inputs": S, "targets": T} at which the task is read.

    Raises:
      UserError: as `prepare_kilt`, or the lengths are none.
    """
    checks.require_lengths(lengths)
    task = prepare_kilt(name, folder, out, vocabulary)
    # Counted at every start: the lengths belong to the run, not to the task.
    opened = CachedTask.open(task)
    cut = count_cut(opened, lengths)
    if jax.process_index() == 0:
        write_json(task / CUT, {"rows": len(opened), "lengths": dict(lengths), "cut": cut})
        if any(cut.values()):
            print(f"KILT {name}, train: {cut_sentence(task)}", file=sys.stderr, flush=True)
        known, records = known_relations(folder) if name == "structured_zeroshot" else (0, 0)
        if known:
            print(
                f"KILT {name}: {known:,} of the dev file's {records:,} records ask a relation that "
                f"{folder}'s training file has, so they are not zero-shot.",
                file=sys.stderr,
                flush=True,
            )
    return str(task)
