"""Reads the files that updates have left, which may be damaged."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks, files
from ckl_jax.analysis import gate
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.dated_facts import check_day
from ckl_jax.data.facts.overlap import measure
from ckl_jax.data.facts.probe import ProbeItem
from ckl_jax.errors import UserError
from ckl_jax.updates import new_text
from ckl_jax.updates.items import Item
from ckl_jax.updates.new_text import Counts

_NUMBER, _OR_NULL = (int, float), type(None)
_SCORE = {**dict.fromkeys(("value", "low", "high"), (*_NUMBER, _OR_NULL)), "n": int}
_ITEM = {f.name: [str] if f.name == "candidates" else f.type for f in dataclasses.fields(Item)}
_STATE = {"question": str, "before": str, "after": str, "state": str}
_ASKED = {"answers": {"*": int}, "texts": {"new": [[_NUMBER]], "old": [[_NUMBER]]}}
# What the files of a registry hold, as far as it is read again.
_FIELDS = {
    "registry.json": {"model": str, "format": int},
    "update.json": {"base": (str, _OR_NULL), "method": str, "date": str, "since": (str, _OR_NULL)},
    "documents.json": {f.name: f.type for f in dataclasses.fields(Counts)},
    "overlap.json": {"exact": int, "items": int, "near": [int]},
    "before.json": _ASKED,
    "after.json": _ASKED,
    "verdict.json": {"verdict": str, "reasons": [str], "scores": {"*": _SCORE}},
    "items.jsonl": _ITEM,
    "ledger.jsonl": _ITEM | _STATE,
}
_DO = "restore the file, or remove the update's folder"


def read(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a registry; raises `UserError` if it is damaged."""
    record = files.read_json_object(folder / name)
    checks.require_fields(str(folder / name), record, _FIELDS[name], _DO)
    checks.refuse_newer(str(folder / name), record.get("ckl_jax"))
    if name == "registry.json":
        checks.require_text(**{f"model of {folder / name}": record["model"]})
    if name == "verdict.json":
        checks.require_choice(gate.EXIT_CODES, **{f"verdict of {folder / name}": record["verdict"]})
    if name == "documents.json":
        for day in ("first_date", "last_date"):
            where = f"{day} of {folder / name}"
            if record[day] and check_day(record[day], where) >= "9999":
                raise UserError(
                    f"{where} is {record[day]!r}, which is no day of a document; {_DO}."
                )
    return record


def overlap(
    items: Sequence[Item], trained: Iterable[Path], earlier: Iterable[Path]
) -> dict[str, Any]:
    """How many items stand in text, for overlap.json.

    Args:
      trained, earlier: files of documents of this update and of earlier ones.
    """
    probes = [ProbeItem(id=i.id, input=i.cloze(BLANK), answers=(i.answer,)) for i in items]
    if not probes:
        return {"items": 0, "exact": 0, "near": [], "earlier": 0}
    corpora = {
        name: (document.text for path in paths for document in new_text.read(path))
        for name, paths in {"trained": trained, "earlier": earlier}.items()
    }
    found = measure({"items": probes}, corpora)["items"]
    now = found["trained"]
    measured = {"items": now.items, "exact": now.exact, "near": now.near}
    return measured | {"earlier": found["earlier"].exact}


def described(overlap: dict[str, Any]) -> str:
    """How many questions of an `overlap.json` stand in the training text, as a sentence."""
    exact, nearly = overlap["exact"], max(0, sum(overlap["near"][-1:]) - overlap["exact"])
    said = (
        f"{exact:,} of {overlap['items']:,} questions stand in the training text word by word, "
        f"with their answers, and {nearly:,} nearly (more than 0.8 of their runs of three words in "
        "one text)"
    )
    if earlier := overlap.get("earlier"):  # older files have none
        said += f"; {earlier:,} stand word by word in what earlier updates trained on"
    if too_long := overlap.get("too_long"):
        said += (
            f". {too_long:,} more are longer than the model's {overlap['positions']} positions and "
            "are not asked"
        )
    return said + "."


def read_rows(folder: Path, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a file of an update, none if it was deleted; see `read`."""
    path = folder / name
    for number, row in enumerate(files.read_jsonl(path) if path.exists() else (), 1):
        checks.require_fields(f"{path}, row {number}", row, _FIELDS[name], _DO)
        if not row["candidates"]:
            raise UserError(f"{path}, row {number}: no candidates; {_DO}.")
        yield row


def read_items(folder: Path) -> list[Item]:
    """The items of an update; [] if they were deleted."""
    return [Item.of(row) for row in read_rows(folder, "items.jsonl")]
