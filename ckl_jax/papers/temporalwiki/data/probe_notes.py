"""Checks that dumps, diffset and probes belong together, and notes for the user.

Dumps of another wiki or date are refused; dates that only look wrong, and classes that end with
nothing, are told.
"""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path

from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data.diffsets import read_manifest
from ckl_jax.papers.temporalwiki.data.dumps import date_of, open_dump, wiki_of
from ckl_jax.papers.temporalwiki.data.probe_filters import MAX_OBJECT_FRACTION
from ckl_jax.papers.temporalwiki.data.probe_rows import TEXTS_OF, Job

_FEW = 20  # facts that a class should have


def check_wikipedia(job: Job) -> None:
    """Raises `UserError` if the Wikipedia dump is of another wiki or date than the diffset's."""
    new_dump = read_manifest(job.diffset)["new"]
    dump = open_dump(job.wikipedia, spans=False)
    made = new_dump["wiki"] or wiki_of(new_dump["name"]), new_dump["date"]
    for ours, theirs in zip((dump.wiki, dump.date), made, strict=True):
        if ours and theirs and ours != theirs:
            raise UserError(
                f"The Wikipedia dump {job.wikipedia} is of {ours}, and the new dump of the diffset "
                f"{job.diffset}, {new_dump['name']}, of {theirs}; give that one as --wikipedia, or "
                "another --diffset."
            )


def misdated(job: Job) -> str:
    """A note on a Wikidata dump that is nearer to the diffset's other date, or "".

    Wikidata's dumps are of other days than Wikipedia's, so no date is wrong for sure.
    """
    manifest = read_manifest(job.diffset)
    dates = {side: (manifest.get(side) or {}).get("date", "") for side in ("old", "new")}
    for path, side, other in ((job.old, "old", "new"), (job.new, "new", "old")):
        # Three dates: of the dump, of its own side, of the other side.
        days = [_day(date) for date in (date_of(path), dates[side], dates[other])]
        if None not in days and abs(days[0] - days[2]) < abs(days[0] - days[1]):
            return (
                f"The {side} Wikidata dump {path} ({date_of(path)}) is nearer to the diffset's "
                f"{other} date, {dates[other]}, than to its {side} one, {dates[side]}: facts and "
                "texts are not of the same time."
            )
    return ""


def _day(date: str) -> int | None:
    try:
        return datetime.date.fromisoformat(date).toordinal()
    except ValueError:
        return None


def capped(job: Job, title: str, filters: Mapping[str, int]) -> str:
    """A note on a class of which the caps leave few facts, or ""."""
    before, left = filters["rule 2"], filters["rule 3"]
    if title not in ("unchanged", "changed") or not 0 < 2 * left < before or left >= _FEW:
        return ""
    return (
        f"The caps leave {left} of {before} {title} facts: at most {job.relation_cap:g} of them "
        f"may have one relation (--relation-cap), {job.subject_cap:g} one subject (--subject-cap) "
        f"and {MAX_OBJECT_FRACTION:g} one object."
    )


def emptied(
    job: Job, title: str, kinds: Sequence[str], steps: Mapping[str, int], filters: Mapping[str, int]
) -> str:
    """A note on classes that lost all their facts, or "".

    Nor is one due on deleted or ended facts of a diffset that keeps no deletions.

    Args:
      steps, filters: how many facts there were after each; of `probe_stages` and `probe_filters`.
    """

    def total(step: str) -> int:
        return sum(steps.get(f"{kind} {step}", 0) for kind in kinds)

    sources = TEXTS_OF[kinds[0]]
    if "deleted" in sources and not read_manifest(job.diffset)["options"]["deletions"]:
        return ""
    if not total("all"):
        return ""
    if not total("initial"):
        fraction = f"--unchanged-fraction {job.unchanged_fraction:g}"
        return f"No {title} fact became a probe: none of {total('all'):,} was drawn ({fraction})."
    reasons = _reasons(job, sources, total, filters)
    why = max(reasons, key=reasons.get)  # the first of equals
    return (
        f"No {title} fact became a probe: of {total('initial'):,} the most, {reasons[why]:,}, were "
        f"dropped in one step: {why}."
    )


def _reasons(
    job: Job, sources: tuple[str, ...], total, filters: Mapping[str, int]
) -> dict[str, int]:
    """Counts the facts dropped by each step, by the reason."""
    place = "in the page map" if job.page_map else f"on {job.rules.site}"
    lost = {f"no page of their subject {place}": total("initial") - total("with a page")}
    if sources != ("page",):
        which = " or ".join("new" if source == "diffset" else "deleted" for source in sources)
        text = f"no {which} text of that page in the diffset"
        lost[text] = total("with a page") - total(f"page in {' or '.join(sources)}")
    for what in ("subject", "relation", "object"):
        lost[f"no label of their {what} in language {job.rules.language}"] = total(
            f"{what} without a label"
        )
    return lost | {
        f"no such page in {Path(job.wikipedia).name}": total("with labels") - total("text found"),
        "the text of their page does not name their object": total("text found") - total("aligned"),
        "another fact has the same words": total("aligned") - filters["distinct"],
        "subject in object, or object in subject": filters["distinct"] - filters["rule 1"],
        "an object of more than five words": filters["rule 1"] - filters["rule 2"],
    }


def too_few(title: str, drawn: int, wanted: int) -> str:
    """A note on facts to tune on, if there are fewer than requested; else ""."""
    if drawn >= wanted:
        return ""
    return (
        f"Light tuning has {drawn:,} {title} facts and not {wanted:,}: no more are of the probes' "
        "relations, of a subject of their own and no probes."
    )
