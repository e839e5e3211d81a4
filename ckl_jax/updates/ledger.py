"""What became of each fact of an update, and the scores of all."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import gate
from ckl_jax.analysis.ledger import STATES, states
from ckl_jax.updates import records
from ckl_jax.updates.scores import scores as estimate


def rows(folder: Path) -> list[dict[str, Any]]:
    """One row per item: the question, both models' answers, and the fact's state."""
    was, now = (records.read(folder, f"{n}.json") for n in ("before", "after"))
    probed = [
        i for i in records.read_items(folder) if i.id in was["answers"] and i.id in now["answers"]
    ]
    first, second = (np.array([a["answers"][i.id] for i in probed], int) for a in (was, now))
    has_old = np.array([bool(i.old) for i in probed], bool)
    old_before, old_after = has_old & (first == 1), has_old & (second == 1)
    indices = states(second == 0, old_after, first == 0, old_before)
    return [
        {
            **dataclasses.asdict(item),
            "question": item.question,
            "before": item.candidates[a],
            "after": item.candidates[b],
            "state": STATES[s],
        }
        for item, a, b, s in zip(probed, first, second, indices, strict=True)
    ]


def scores(folder: Path, rows: list[dict[str, Any]]) -> dict[str, gate.Score]:
    """The scores of an update, of the rows of its ledger and of held-out text."""
    names = ("before", "after")
    was, now = (records.read(folder, f"{n}.json")["texts"] for n in names)
    right = np.array([[row[n] == row["candidates"][0] for row in rows] for n in names])
    old = np.array([[bool(row["old"]) and row[n] == row["old"] for row in rows] for n in names])
    texts = {k: np.array([was[k], now[k]], float).reshape(2, -1, 2) for k in ("new", "old")}
    return estimate([row["tag"] for row in rows], right, old, texts)
