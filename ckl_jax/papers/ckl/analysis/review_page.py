"""The page on which a person reviews the probes in a folder of CKL's layout."""

import os
from pathlib import Path
from typing import Any

from ckl_jax.analysis import review_page
from ckl_jax.files import write_file
from ckl_jax.papers.ckl.data.review import Reviewable, read_evidence, read_reviewable


def write_page(directory: str | os.PathLike, out: str | os.PathLike = "") -> Path:
    """Writes the page of the probes in a folder of CKL's layout; returns its path.

    Args:
      directory: with probes, and perhaps `evidence.jsonl`.
      out: the page; "" is review.html in the folder.

    Raises:
      UserError: see `review.read_reviewable`; or the page cannot be written.
    """
    reviewable = read_reviewable(directory)
    page = review_page.html(
        _items(reviewable, read_evidence(directory)),
        digest=reviewable.digest,
        name=Path(directory).resolve().name,
        command="ckl data review DIR --apply decisions.json --out DIR2",
        sides={"D0": "Evidence in D0", "D1": "Evidence in D1"},
    )
    path = Path(out or Path(directory) / "review.html")
    write_file(path, page)
    return path


def _items(reviewable: Reviewable, evidence: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sentences: dict[str, list[dict[str, Any]]] = {}
    shown = ("side", "answer", "sentence", "date", "title", "document", "sentences")
    for row in evidence:
        # Evidence of an item that several probes share is shown once, at its one key.
        key = reviewable.keys.get((row["probe"], row["id"]))
        sentences.setdefault(key or "", []).append({name: row.get(name, "") for name in shown})
    return [
        {
            "key": key,
            "probe": item.probe,
            "id": item.id,
            "statement": item.input,
            "question": item.question,
            "answers": item.answers,
            "old": item.old_answers,
            "relation": item.relation,
            "date": item.meta.get("date", ""),
            "note": item.meta.get("note", ""),
            "evidence": sentences.get(key, []),
        }
        for key, item in reviewable.items.items()
    ]
