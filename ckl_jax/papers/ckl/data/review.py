"""Decisions of a manual review of probe items, and the resulting files.

Probes that share a file of answers (NewLAMA-Easy and its parts) are reviewed as one. Decisions are
JSON: {"format", "benchmark", "decisions": {"new_lama/3": {"action": "keep" | "drop" | "edit", and
of an edit "statement", "question", "answers", "old_answers"}}}.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis import review_page
from ckl_jax.analysis.review_page import DROP, EDIT, KEEP
from ckl_jax.data.facts.ckl_files import PROBES, available_probes, normalize_blank, read_probe
from ckl_jax.data.facts.ckl_writer import write_answers, write_rows
from ckl_jax.data.facts.fact_probes import same_name
from ckl_jax.data.facts.probe import ProbeItem
from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import UserError, nearest
from ckl_jax.files import atomic_folder, write_json, write_jsonl
from ckl_jax.papers.ckl.data.benchmark import check_out

MADE_BY = "ckl data review"
EVIDENCE = "evidence.jsonl"


@dataclasses.dataclass(frozen=True)
class Reviewable:
    """The items of a folder to review."""

    probes: Mapping[str, Sequence[ProbeItem]]  # name -> items
    # (probe, id) -> key; items of several probes that are one have one key
    keys: Mapping[tuple[str, str], str]
    items: Mapping[str, ProbeItem]  # key -> item
    digest: str  # of what a reviewer sees; decisions are for items of one digest


def read_reviewable(directory: str | os.PathLike) -> Reviewable:
    """The probes of a folder in CKL's layout; raises `UserError` if none can be read."""
    names = available_probes(directory)
    if not names:
        raise UserError(
            f"{directory} has no probe, such as {PROBES['new_lama'].file}; give a folder in CKL's "
            "layout, as `ckl data benchmark` writes it."
        )
    probes = {name: read_probe(name, directory) for name in names}
    keys: dict[tuple[str, str], str] = {}
    items: dict[str, ProbeItem] = {}
    for name, several in probes.items():
        # NewLAMA-Easy and its parts share one file of answers, so one decision must hold for all.
        file = PROBES[name].read.answers
        leader = next((n for n in names if file and PROBES[n].read.answers == file), name)
        for item in several:
            key = f"{leader}/{item.id}"
            # The same id for another item: no shared decision.
            if key in items and items[key].input != item.input:
                key = f"{name}/{item.id}"
            keys[name, item.id] = key
            items.setdefault(key, item)
    seen = [[key, i.input, i.question, i.answers, i.old_answers] for key, i in items.items()]
    # Decisions name items by id; the digest refuses those of another build.
    digest = hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:16]
    return Reviewable(probes, keys, items, digest)


def read_evidence(directory: str | os.PathLike) -> list[dict[str, Any]]:
    """The rows of a folder's evidence, if any; raises `UserError` if a row lacks a field."""
    path = Path(directory) / EVIDENCE
    rows = []
    for where, row in numbered_rows(path) if os.path.lexists(path) else ():
        for field in ("probe", "id", "side", "answer", "sentence"):
            if not isinstance(row.get(field), str):
                raise UserError(f"{where}: the field {field!r} is missing or no text.")
        rows.append(row)
    return rows


# --- decisions


def read_decisions(path: str | os.PathLike, reviewable: Reviewable) -> dict[str, dict[str, Any]]:
    """Reads decisions and checks each; key -> decision, in the order of the file.

    Raises:
      UserError: the file is none of decisions, or of other items; a key or an action is unknown; an
        edit has not one blank, or no answer.
    """
    decisions = review_page.read_decisions(path, reviewable.digest)
    for key, decision in decisions.items():
        where = f"{path}, {key}"
        if key not in reviewable.items:
            raise UserError(f"{where}: there is no such item.{nearest(key, reviewable.items)}")
        if review_page.action_of(decision, where) == EDIT:
            # Raises for an edit that would leave no blank or no answer.
            edited(reviewable.items[key], decision, where)
    return decisions


def edited(item: ProbeItem, decision: Mapping[str, Any], where: str) -> ProbeItem:
    """The item with an edit applied; for errors see `read_decisions`."""
    statement = decision.get("statement", item.input)
    question = decision.get("question", item.question)
    for field, value in (("statement", statement), ("question", question)):
        if not isinstance(value, str):
            raise UserError(f"{where}: {field!r} is {str(value)[:40]!r}; give a text.")
    answers, old = (
        _several(decision, field, default, where)
        for field, default in (("answers", item.answers), ("old_answers", item.old_answers))
    )
    updated = PROBES[item.probe].read.updated
    if not answers or (updated and not old):
        raise UserError(f"{where}: {'answers' if not answers else 'old_answers'!r} has no answer.")
    # An answer that is right before and after says nothing about an update.
    if updated and same_name(answers, old):
        raise UserError(f"{where}: an answer is both among 'answers' and among 'old_answers'.")
    return dataclasses.replace(
        item,
        input=normalize_blank(" ".join(statement.split()), f"{where}, 'statement'"),
        question=" ".join(question.split()),
        answers=answers,
        old_answers=old if updated else (),
    )


def _several(
    decision: Mapping[str, Any], field: str, default: tuple[str, ...], where: str
) -> tuple[str, ...]:
    value = decision.get(field, list(default))
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UserError(f"{where}: {field!r} is {str(value)[:40]!r}; give a list of texts.")
    return tuple(dict.fromkeys(text for v in value if (text := " ".join(v.split()))))


# --- files


def apply(
    directory: str | os.PathLike,
    decisions: str | os.PathLike,
    out: str | os.PathLike,
    undecided: str = KEEP,
    *,
    replace: bool = False,
) -> dict[str, Any]:
    """Writes the probes of a folder after a review; returns the manifest.

    Args:
      directory: in CKL's layout.
      decisions: what its page exported.
      out: folder to write, in the same layout, with a manifest; a probe of which nothing is left is
        left out.
      undecided: "keep" or "drop" items without a decision.
      replace: a reviewed folder that is there may go.

    Raises:
      UserError: see `read_reviewable`, `read_decisions`; nothing is left; `out` cannot be written.
    """
    if undecided not in (KEEP, DROP):
        raise UserError(f"--undecided is {undecided!r}; it is {KEEP} or {DROP}.")
    if Path(out).resolve() == Path(directory).resolve():
        raise UserError(f"--out is {out}, the folder that was reviewed; give another.")
    check_out(out, MADE_BY, replace)
    reviewable = read_reviewable(directory)
    actions = read_decisions(decisions, reviewable)
    left = {name: _left(name, reviewable, actions, undecided) for name in reviewable.probes}
    if not any(left.values()):
        raise UserError(f"{decisions} leaves no item; nothing is written.")
    manifest = {
        "made_by": MADE_BY,
        "reviewed": os.fspath(directory),
        "benchmark": reviewable.digest,
        "undecided": undecided,
        "items": {name: len(items) for name, items in left.items()},
        "probes": {name: _counts(name, reviewable, actions, left[name]) for name in left},
    }
    with atomic_folder(out) as work:
        _write(work, left)
        kept = {(name, item.id) for name, items in left.items() for item in items}
        if evidence := read_evidence(directory):
            rows = [row for row in evidence if (row["probe"], row["id"]) in kept]
            write_jsonl(work / EVIDENCE, rows)
        write_json(work / "manifest.json", manifest)
    return manifest


def _left(
    name: str, reviewable: Reviewable, actions: Mapping[str, dict[str, Any]], undecided: str
) -> list[ProbeItem]:
    left = []
    for item in reviewable.probes[name]:
        key = reviewable.keys[name, item.id]
        decision = actions.get(key, {"action": undecided})
        if decision["action"] == EDIT:
            left.append(edited(item, decision, key))
        elif decision["action"] == KEEP:
            left.append(item)
    return left


def _counts(
    name: str, reviewable: Reviewable, actions: Mapping[str, dict[str, Any]], left: Sequence
) -> dict[str, int]:
    keys = [reviewable.keys[name, item.id] for item in reviewable.probes[name]]
    return {
        "items": len(left),
        "dropped": len(keys) - len(left),
        "edited": sum(actions.get(k, {}).get("action") == EDIT for k in keys),
        "undecided": sum(k not in actions for k in keys),
    }


def _write(work: Path, left: Mapping[str, Sequence[ProbeItem]]) -> None:
    """Writes each probe's rows, and each file of answers with all probes that share it."""
    together: dict[str, list[str]] = {}
    for name, items in left.items():
        if items:
            write_rows(name, work, items)
            together.setdefault(PROBES[name].read.answers, []).append(name)
    for names in together.values():
        # Reversed, so that the first probe's version of an item wins.
        items = {item.id: item for name in reversed(names) for item in left[name]}
        write_answers(names[0], work, list(items.values()))
