"""The page for reviewing a probe's items by hand (keep, drop, edit): one HTML file, no network.

Items may be hostile. They lie in the page as JSON without "<", the script makes text nodes of them,
and a Content Security Policy allows that script alone and no connection.
"""

import json
import os
from pathlib import Path
from typing import Any

from ckl_jax.analysis.sections import render
from ckl_jax.files import write_file
from ckl_jax.papers.ckl.data.review import FORMAT, Reviewable, read_evidence, read_reviewable


def write(directory: str | os.PathLike, out: str | os.PathLike = "") -> Path:
    """Writes the page of the probes in a folder of CKL's layout.

    Args:
      directory: with probes, and perhaps `evidence.jsonl`.
      out: the page; "" is review.html in the folder.

    Returns:
      Its path.

    Raises:
      UserError: see `review.read_reviewable`; or the page cannot be written.
    """
    reviewable = read_reviewable(directory)
    path = Path(out or Path(directory) / "review.html")
    write_file(path, html(reviewable, read_evidence(directory), Path(directory).resolve().name))
    return path


def html(reviewable: Reviewable, evidence: list[dict[str, Any]], name: str) -> str:
    """The page; see `write`. `name` is the folder's name in the title."""
    from markupsafe import Markup

    items = _items(reviewable, evidence)
    data = {"format": FORMAT, "benchmark": reviewable.digest, "items": items}
    return render(
        "papers/ckl/analysis/review.html",
        "papers/ckl/analysis/review.js",
        title=f"Review of {name}",
        data=Markup(_embedded(data)),
    )


def _embedded(value: Any) -> str:
    """JSON with `</` escaped, so that it cannot end its script element."""
    return json.dumps(value, ensure_ascii=True).replace("<", "\\u003c")


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
