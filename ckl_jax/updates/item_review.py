"""The review of an update's items by a person, before they are used."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from ckl_jax import files
from ckl_jax.analysis import review_page
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.errors import UserError, nearest
from ckl_jax.updates.items import Item

_ACTIONS = (review_page.KEEP, review_page.DROP)


def write_review(items: list[Item], path: Path, command: str) -> None:
    """Writes the page of an update's items.

    Args:
      command: that goes on with the update, shown on the page.
    """
    page = review_page.html(
        [_shown(item) for item in items],
        digest=_digest(items),
        name=path.parent.name,
        command=f"{command} --decisions decisions.json",
        actions=_ACTIONS,
        sides={"text": "Evidence in the training text"},
    )
    files.write_file(path, page)


def apply(items: list[Item], path: Path) -> list[Item]:
    """Returns the items without those that a file of decisions drops.

    Raises:
      UserError: the file holds no decisions on these items, or drops them all.
    """
    by_id = {item.id: item for item in items}
    dropped = set()
    for key, decision in review_page.read_decisions(path, _digest(items)).items():
        if key not in by_id:
            raise UserError(f"{path}, {key}: there is no such item.{nearest(key, by_id)}")
        if review_page.action_of(decision, f"{path}, {key}", _ACTIONS) == review_page.DROP:
            dropped.add(key)
    left = [item for item in items if item.id not in dropped]
    if not left:
        raise UserError(f"{path} drops all {len(items)} items; keep some.")
    return left


def _shown(item: Item) -> dict[str, Any]:
    others = "; ".join(c for c in item.candidates[1:] if c != item.old)
    evidence = {"side": "text", "answer": "new", "sentence": item.evidence}
    evidence |= {"date": item.date, "title": "", "document": item.document, "sentences": ""}
    return {
        "key": item.id,
        "probe": item.tag,
        "id": item.id,
        "statement": item.cloze(BLANK),
        "question": "",
        "answers": [item.answer],
        "old": [item.old] if item.old else [],
        "relation": "",
        "date": item.date,
        "note": f"other candidates: {others}",
        "evidence": [evidence] if item.evidence else [],
    }


def _digest(items: list[Item]) -> str:
    seen = json.dumps([dataclasses.asdict(item) for item in items])
    return hashlib.sha256(seen.encode()).hexdigest()[:16]
