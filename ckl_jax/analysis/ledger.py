"""The fact ledger: the state of each fact at each evaluation, relative to the Initial model.

A fact is one item of a probe. It is *right* when the model's first answer matches a current one
(EM), and *old* when it matches an answer that used to be right (UpdatedLAMA). Its state is the
first that applies:

    kept         right now, and right at Initial
    updated      right now, and Initial gave the old answer
    learned      right now, and Initial gave neither
    stale        the old answer is still (or again) given
    forgotten    neither now, but Initial gave the right or the old answer
    never known  neither now, neither then

States partition the facts; kept + updated + learned are the facts that EM counts, and
kept + forgotten those that Initial knew, where there are no old answers.
"""

import collections
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.analysis import labels
from ckl_jax.analysis.bases import bases_of, stand_in_note
from ckl_jax.analysis.rows import ProbedRun, Scored, base_of, in_order, initial_scores
from ckl_jax.analysis.sections import Section
from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.errors import UserError, refuse_unknown

STATES = ("kept", "updated", "learned", "stale", "forgotten", "never known")
BY_INTEREST = ("forgotten", "stale", "updated", "learned", "kept", "never known")
MEANING = (
    "Relative to the model before: kept (right then and now), updated (from the old answer), "
    "learned, stale (the old answer is still given), forgotten, never known."
)
_WIDTH = 44


def fact_states(now: Scored, initial: Scored) -> np.ndarray:
    """[N] index into STATES of each fact.

    Raises:
      UserError: the two evaluations have different items, or one has no answers.
    """
    if not (now.answered and initial.answered):
        raise UserError(
            "The rows say what facts cost but not what was answered, which the states of facts are "
            "made of; probe with FACT_ANSWERS = 'always', or give an --initial that has answers."
        )
    if now.items != initial.items:
        raise UserError(
            f"The runs were probed with different items ({len(now.items)} and "
            f"{len(initial.items)}); probe both with the same files."
        )
    return states(now.em > 0, now.em_old > 0, initial.em > 0, initial.em_old > 0)


def states(
    right: np.ndarray, old: np.ndarray, was_right: np.ndarray, was_old: np.ndarray
) -> np.ndarray:
    """[N] index into STATES of each fact.

    Args:
      right, old: [N] bool, whether the right and the old answer is given now.
      was_right, was_old: the same at Initial.
    """
    conditions = [right & was_right, right & was_old, right, old, was_right | was_old]
    # `np.select` takes the first condition that holds, the order of STATES; 5 is "never known".
    return np.select(conditions, range(5), default=5)


def counts(states: np.ndarray) -> dict[str, int]:
    """{state: facts}, all states present."""
    return dict(zip(STATES, np.bincount(states, minlength=len(STATES)).tolist(), strict=True))


def difference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Compares the states [N] of the same facts in two runs.

    Returns:
      matrix[i, j], how many facts are in STATES[i] and STATES[j]; and the facts that differ.
    """
    n = len(STATES)
    # Pairs of states as one number, i * n + j, so that one pass counts them all.
    matrix = np.bincount(a * n + b, minlength=n * n).reshape(n, n)
    return matrix, np.flatnonzero(a != b).tolist()


def describe(
    run_dir: str | Path,
    *,
    initial: str | Path | None = None,
    diff: str | Path | None = None,
    state: str | None = None,
    limit: int = 20,
) -> str:
    """The ledger of a run as text: counts at each evaluation, then facts.

    Args:
      run_dir: a MODEL_DIR with probe rows.
      initial: MODEL_DIR of the Initial model; default, the run's own rows of step 0, else those
        of the run it started from.
      diff: another MODEL_DIR; the facts whose state differs are listed. Without `initial`, the
        states of each run are relative to what that run started from.
      state: list the facts of this state only.
      limit: facts listed of each probe.

    Raises:
      UserError: a folder without rows, an unknown state, or runs that do not fit together.
    """
    if limit < 0:
        raise UserError(f"--limit is {limit}; give 0 or more.")
    # "never-known" and "never_known" are easier to type in a shell.
    if state is not None:
        state = state.replace("_", " ").replace("-", " ")
        refuse_unknown(state, STATES, f"No state {state!r}; choose from")
    run = ProbedRun.open(run_dir)
    # Its last evaluation: that of the finished model.
    given = ProbedRun.open(initial).last if initial else None
    before = given or _initial(run)
    if diff is None:
        return "\n".join([*_timeline(run, before), *_facts(run, before, state, limit)])
    other = ProbedRun.open(diff)
    base = base_of(run)
    is_base = base is not None and base.path.resolve() == other.path.resolve()
    # Comparing a run with its own base needs one Initial model for both.
    then = given or (before if is_base else _initial(other))
    return "\n".join(_compare(run, other, before, then, state, limit))


def rows(run_dir: str | Path, initial: str | Path | None = None) -> list[dict[str, Any]]:
    """The facts of a run's last evaluation: their probe rows with `probe`, `state` and `before`.

    Args:
      run_dir, initial: see `describe`.

    Raises:
      UserError: see `describe`; or the two share no probe.
    """
    run = ProbedRun.open(run_dir)
    before = ProbedRun.open(initial).last if initial else _initial(run)
    facts = [
        {**row, "probe": name, "state": STATES[state], "before": earlier["predictions"][0]}
        for name, now in run.last.items()
        if name in before
        for row, state, earlier in zip(
            now.rows, fact_states(now, before[name]), before[name].rows, strict=True
        )
    ]
    if not facts:
        raise UserError(f"{run_dir} and the model before it share no probe.")
    return facts


def _initial(run: ProbedRun) -> dict[str, Scored]:
    scores = initial_scores(run)
    if scores is None:
        raise UserError(
            f"{run.path} has no rows of step 0 and does not say what it started from; give "
            "--initial MODEL_DIR."
        )
    for note in stand_in_note(run):
        warnings.warn(note, stacklevel=3)
    return scores


def _timeline(run: ProbedRun, before: Mapping[str, Scored]) -> list[str]:
    tables: dict[str, list] = {}
    for step in run.steps:
        for probe, now in run.at(step).items():
            if probe in before:
                states = counts(fact_states(now, before[probe]))
                row = [f"{run.epoch_at(step):.3g}", str(step), *states.values()]
                tables.setdefault(probe, []).append(row)
    if not tables:
        raise UserError(f"{run.path} and its Initial model share no probe; probe both alike.")
    lines = [f"{run.path}: facts relative to the Initial model"]
    for probe in (p for p in in_order(before) if p in tables):
        facts = labels.count(len(before[probe].items), "fact")
        table = Section(headers=["epoch", "step", *STATES], rows=tables[probe])
        lines += ["", f"{before[probe].probe.long} ({facts})", *table.text()]
    return lines


def _facts(run: ProbedRun, before, state: str | None, limit: int) -> list[str]:
    lines = []
    for probe in (p for p in in_order(run.last) if p in before):
        now, then = run.last[probe], before[probe]
        states = fact_states(now, then)
        if state is None:  # some of each state, rather than the most frequent one only
            chosen = _taken_in_turn(np.flatnonzero(states != len(STATES) - 1), states)
            kind = " ever known, some of each state" if chosen else " ever known"
        else:
            chosen, kind = np.flatnonzero(states == STATES.index(state)), f" {state}"
        of = f"{len(chosen)} of {labels.count(len(states), 'fact')}"
        lines += ["", f"{now.probe.long}: {of}{kind}"]
        lines += [
            f"  {STATES[states[i]]:<12}{_question(now, i)}  {_said(then, i)} -> {_said(now, i)}"
            f"  {_answer(now, i)}"
            for i in chosen[:limit]
        ]
        lines += _left_out(len(chosen), limit)
    return lines


def _taken_in_turn(chosen: Sequence[int], states: np.ndarray) -> list[int]:
    """One fact of each state, then the second of each, and so on."""
    seen: collections.Counter = collections.Counter()
    turns = []
    for i in chosen:
        # Sorting by (how many of this state came before, state, item) interleaves the states.
        turns.append((seen[states[i]], states[i], i))
        seen[states[i]] += 1
    return [i for _, _, i in sorted(turns)]


def _compare(
    run: ProbedRun, other: ProbedRun, before, then, state: str | None, limit: int
) -> list[str]:
    """Each run's facts are relative to its own Initial model: `before` and `then`."""
    lines = [f"A = {run.path}", f"B = {other.path}", *_two_bases(run, other, before is then)]
    # Both runs and both Initial models must have answered a probe.
    shared = set(run.last) & set(other.last) & set(before) & set(then)
    if not shared:
        raise UserError(f"{run.path} and {other.path} share no probe; probe both alike.")
    for probe in (p for p in in_order(run.last) if p in shared):
        first, second = run.last[probe], other.last[probe]
        # Facts are compared by position, so items must be the same in the same order.
        if first.items != second.items:
            raise UserError(
                f"{run.path} and {other.path} were put to different items of {probe}; probe both "
                "with the same files."
            )
        a, b = fact_states(first, before[probe]), fact_states(second, then[probe])
        matrix, changed = difference(a, b)
        summary = f"{len(changed)} of {labels.count(len(a), 'fact')}"
        verb = "differs" if 1 in (len(changed), len(a)) else "differ"
        rows = [[name, *row] for name, row in zip(STATES, matrix.tolist(), strict=True)]
        table = Section(headers=["A down, B across", *STATES], rows=rows)
        lines += ["", f"{first.probe.long}: {summary} {verb}", *table.text()]
        named = [i for i in changed if state in (None, STATES[a[i]], STATES[b[i]])]
        lines += [
            f"  {_question(first, i)}  {STATES[a[i]]} {_said(first, i)} | "
            f"{STATES[b[i]]} {_said(second, i)}  {_answer(first, i)}"
            for i in named[:limit]
        ]
        lines += _left_out(len(named), limit)
    return lines


def _two_bases(run: ProbedRun, other: ProbedRun, given: bool) -> list[str]:
    chains = [bases_of(r)[:1] for r in (run, other)]
    # Nothing to explain if both were compared with the same model.
    if given or not all(chains) or chains[0][0].is_same(chains[1][0]):
        return []
    paths = [chain[0].path for chain in chains]
    return [f"Each is relative to its own Initial model: A to {paths[0]}, B to {paths[1]}."]


def _left_out(count: int, limit: int) -> Sequence[str]:
    return [f"  ... and {count - limit} more (--limit)"] if count > limit else []


def _said(scored: Scored, i: int) -> str:
    return repr(scored.rows[i]["predictions"][0])


def _question(scored: Scored, i: int) -> str:
    text = str(scored.rows[i].get("input", "")).replace(BLANK, "____")
    return f"{text if len(text) <= _WIDTH else text[: _WIDTH - 1] + '…':<{_WIDTH}}"


def _answer(scored: Scored, i: int) -> str:
    row = scored.rows[i]
    old = row.get("old_answers") or []
    return f"(answer: {'; '.join(row['answers'][:2])}{f'; before: {old[0]}' if old else ''})"
