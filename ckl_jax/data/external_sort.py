"""Documents in the canonical order of a stream, with bounded memory: sorted runs, then a merge."""

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from ckl_jax.data.documents import Document, canonical_key, read_documents, write_documents
from ckl_jax.data.process_pool import batches

RUN_CHARACTERS = 1 << 26


def in_canonical_order(
    documents: Iterable[Document], run_characters: int = RUN_CHARACTERS
) -> Iterator[Document]:
    """Yields documents by `documents.canonical_key`.

    Args:
      documents: in any order.
      run_characters: of text that are sorted in memory at once; more goes through files in the
        folder for temporary files.
    """
    runs = (
        sorted(run, key=canonical_key)
        for run in batches(documents, lambda d: len(d.text) + 200, run_characters)
    )
    first = next(runs, [])
    second = next(runs, None)
    if second is None:
        yield from first
        return
    with tempfile.TemporaryDirectory(prefix="ckl-sort-") as folder:
        paths = [Path(folder) / f"{i:05d}.jsonl.gz" for i in range(2)]
        write_documents(paths[0], first, level=1)
        write_documents(paths[1], second, level=1)
        del first, second
        for run in runs:
            paths.append(Path(folder) / f"{len(paths):05d}.jsonl.gz")
            write_documents(paths[-1], run, level=1)
        yield from heapq.merge(*map(read_documents, paths), key=canonical_key)
