"""Dumps that are not in the order of page ids: pages in buckets by id, each sorted in memory."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ckl_jax.data.builders.wiki_xml import Page, twice
from ckl_jax.files import os_errors, read_jsonl


def write_buckets(pages: Iterable[Page], folder: Path, count: int) -> None:
    """Writes page p to `folder`/(p.id modulo `count`).jsonl."""
    with os_errors(folder), contextlib.ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        files = [
            stack.enter_context(open(bucket(folder, i), "w", encoding="utf-8"))
            for i in range(count)
        ]
        for page in pages:
            row = json.dumps(dataclasses.asdict(page), ensure_ascii=False)
            files[page.id % count].write(row + "\n")


def bucket(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.jsonl"


def read_bucket(path: Path, dump: str | os.PathLike) -> Iterator[Page]:
    """Yields the pages of a bucket by id.

    Raises:
      UserError: an id is there twice.
    """
    last = None
    for page in sorted((Page(**row) for row in read_jsonl(path)), key=lambda p: p.id):
        if last and page.id == last.id:
            raise twice(dump, last, page)
        last = page
        yield page
