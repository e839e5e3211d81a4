"""Changes of predictions between epochs: CKL's Table 12 (appendix H)."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.rows import Scored
from ckl_jax.analysis.sections import Section
from ckl_jax.analysis.study import Entry, Study
from ckl_jax.data.facts.ckl_files import BLANK, known_probe
from ckl_jax.errors import UserError

# An item, and what was answered after each epoch: {"probe", "question", "answer", "predictions":
# {label of a model: [answers]}}.
Change = dict[str, Any]
_PAIR = ("vanilla", "modular")  # the items are the second one's
_ITEMS = 5  # of a probe at most


def table_12(study: Study, probes: Sequence[str]) -> tuple[list, dict]:
    """Sections and numbers of Table 12.

    The paper picks items that Modular gets right in the end and Initial got wrong; in all that it
    prints, Vanilla is wrong in the end. Here such items come first, then those that Vanilla gets
    right too; within each, in the order of the file.

    Args:
      study: with the runs of both methods, probed after every epoch.

    Raises:
      UserError: one of them was not run.
    """
    entries = {e.key: e for e in study.methods}
    if missing := [key for key in _PAIR if key not in entries]:
        raise UserError(
            f"Table 12 shows {' beside '.join(_PAIR)}, and {missing[0]} was not run; leave "
            "--methods out."
        )
    pair = [entries[key] for key in _PAIR]
    histories = {e.key: _history(e, probes) for e in pair}
    asked = [histories[entry.key][0] for entry in pair]
    # The columns are epochs, which both runs must have.
    if asked[0] != asked[1]:
        note = ", and ".join(
            f"{e.run.path} after the epochs {', '.join(f'{x:g}' for x in epochs)}"
            for e, epochs in zip(pair, asked, strict=True)
        )
        raise UserError(
            f"Rows of probes are missing: there are those of {note}; remove the folder that lacks "
            "some, and start again."
        )
    epochs = [f"{epoch:g}" for epoch in asked[0]]
    sections, numbers = [], {"examples": [], "changed": {}}
    for probe in probes:
        changes, counts = _picked(study, pair, histories, probe)
        sections.append(_section(probe, changes, counts, epochs, [e.label for e in pair]))
        numbers["examples"] += changes
    rows = []
    for entry in pair:
        fractions = _changed_fractions(entry, histories[entry.key], probes)
        numbers["changed"][entry.key] = fractions
        rows += [
            [entry.label, known_probe(p).long, *fractions[p]] for p in probes if p in fractions
        ]
    headers = ["Method", "Probe", *(f"epoch {a} → {b}" for a, b in zip(["0", *epochs], epochs))]  # noqa: B905
    sections.append(Section("Answers that changed from one epoch to the next (%)", headers, rows))
    return sections, numbers


History = tuple[list[float], list[dict[str, Scored]]]


def _history(entry: Entry, probes: Sequence[str]) -> History:
    """The epochs at which a run was probed, and its scores then."""
    run = entry.run
    # Step 0 is before the first epoch.
    steps = [step for step in run.steps if step]
    kept = [{p: s for p, s in run.at(step).items() if p in probes} for step in steps]
    return [run.epoch_at(step) for step in steps], kept


def _picked(
    study: Study, pair: Sequence[Entry], histories: dict[str, History], probe: str
) -> tuple[list[Change], tuple[int, int]]:
    """The items shown, and the numbers of all items and of those Vanilla misses."""
    last = [e.scores.get(probe) for e in (*pair, study.initial)]
    if any(scored is None for scored in last):
        return [], (0, 0)
    right = last[-2].em > 0
    # last holds (beside, shown, Initial).
    wanted = np.flatnonzero(right & (last[-1].em == 0))
    missed = [i for i in wanted if last[0].em[i] == 0]
    chosen = [*missed, *(i for i in wanted if i not in set(missed))][:_ITEMS]
    changes = []
    for i in chosen:
        row = last[-2].rows[i]
        old = row.get("old_answers") or ()
        answer = f"{old[0]} → {row['answers'][0]}" if old else row["answers"][0]
        said = {
            e.label: [scores[probe].rows[i]["predictions"][0] for scores in histories[e.key][1]]
            for e in pair
        }
        question = row.get("input", "").replace(BLANK, "____")
        about = {"probe": probe, "question": question, "answer": answer}
        changes.append({**about, "predictions": said})
    return changes, (len(wanted), len(missed))


def _section(
    probe: str,
    changes: Sequence[Change],
    counts: tuple[int, int],
    epochs: Sequence[str],
    models: Sequence[str],
) -> Section:
    headers = ["Item", "Answer", "Model", *(f"epoch {epoch}" for epoch in epochs)]
    rows = []
    for change in changes:
        for n, (label, said) in enumerate(change["predictions"].items()):
            shown = (change["question"], change["answer"]) if n == 0 else ("", "")
            rows.append([*shown, label, *said])
    note = (
        f"{labels.count(counts[0], 'item')} that {models[-1]} gets right in the end and Initial "
        f"did not; {models[0]} gets {counts[1]:,} of them wrong."
    )
    return Section(known_probe(probe).long, headers, rows, notes=[note])


def _changed_fractions(
    entry: Entry, history: History, probes: Sequence[str]
) -> dict[str, list[Any]]:
    """{probe: percent of items whose first answer differs from the epoch before}.

    The first is None where the run was not evaluated before its first epoch.
    """
    before = entry.run.at(0) if 0 in entry.run.steps else {}
    fractions: dict[str, list[Any]] = {}
    for probe in probes:
        said = [
            np.array([row["predictions"][0] for row in scores[probe].rows], object)
            if probe in scores
            else None
            for scores in (before, *history[1])
        ]
        if any(answers is not None for answers in said[1:]):
            fractions[probe] = [
                None if a is None or b is None else 100.0 * float(np.mean(a != b))
                for a, b in itertools.pairwise(said)
            ]
    return fractions
