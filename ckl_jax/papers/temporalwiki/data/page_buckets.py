"""Dumps that are not in the order of page ids: pages in buckets by id, each sorted in memory."""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ckl_jax.data.buckets import bucket_path, write_rows
from ckl_jax.files import read_jsonl
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page, twice


def write_pages(pages: Iterable[Page], folder: Path, count: int) -> None:
    """Writes each page to the bucket of its id modulo `count`."""
    write_rows(((page.id, dataclasses.asdict(page)) for page in pages), folder, count)


def read_pages_by_id(folder: Path, number: int, dump: str | os.PathLike) -> Iterator[Page]:
    """Yields the pages of a bucket by id.

    Raises:
      UserError: an id is there twice.
    """
    last = None
    pages = (Page(**row) for row in read_jsonl(bucket_path(folder, number)))
    for page in sorted(pages, key=lambda p: p.id):
        if last and page.id == last.id:
            raise twice(dump, last, page)
        last = page
        yield page
