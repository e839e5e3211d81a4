"""T5X's assignment maps and partial restores: from stored arrays to wanted ones.

Pure functions on names. Names are those of the checkpoint: `target/...` for parameters,
`state/step`, `state/param_states/...`.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ckl_jax.errors import UserError, nearest

AssignmentMap = Sequence[tuple[str, str | None]]


@dataclasses.dataclass(frozen=True)
class Assignment:
    """The source of each wanted array."""

    sources: Mapping[str, str]  # wanted name -> stored name; several may share one
    fresh: tuple[str, ...]  # wanted names that no checkpoint fills: the caller initialises them
    unused: tuple[str, ...]  # stored names that nothing wants


def assign(
    wanted: Iterable[str],
    stored: Collection[str],
    assignment_map: AssignmentMap = (),
    *,
    strict: bool = True,
    fallback_to_scratch: bool = False,
    optional: Collection[str] = (),
    elsewhere: Collection[str] = (),
    differ: Callable[[str, str], str | None] = lambda wanted, stored: None,
    where: str = "The checkpoint",
) -> Assignment:
    r"""Maps wanted names to stored ones, as T5X's `RestoreCheckpointConfig` does.

    A wanted name that a rule matches (the first such rule, the whole name) comes from the stored
    name that the rule's replacement expands to, e.g. `(r"target/decoder/(.*)", r"target/\1")`;
    with None it is initialised instead. Other names come from their namesakes.

    Args:
      wanted: names in the new state.
      stored: names in the checkpoint.
      assignment_map: (regular expression over wanted names, replacement or None) pairs.
      strict: stored names that nothing wants are an error. Names that a rule dropped, or that
        it read from elsewhere, are not.
      fallback_to_scratch: wanted names that the checkpoint lacks are initialised.
      optional: wanted names that may be initialised in any case.
      elsewhere: names of the new state that are not wanted here (a run that starts its
        optimizer afresh does not read `state/...`): a rule may match them, to no effect.
      differ: (wanted name, stored name) -> how the two arrays differ, or None.
      where: the beginning of complaints, e.g. "Checkpoint /runs/a/checkpoint_10".

    Raises:
      UserError: a rule matches nothing, is not a regular expression, or names an array that is not
        stored; wanted names are missing, stored ones are left over, or shapes differ: all
        are listed.
    """
    # Ordered and without duplicates, so that errors list names in the order of the tree.
    wanted, stored = list(dict.fromkeys(wanted)), dict.fromkeys(stored)
    rules = [(compile_rule(pattern), replacement) for pattern, replacement in assignment_map]
    # {wanted name: stored name, or None to initialise}; the first rule that matches decides.
    by_rule = _apply(rules, wanted, elsewhere, stored, where)
    sources = {name: by_rule.get(name, name) for name in wanted}
    # None counts as present: a name that a rule drops is not missing.
    there = {*stored, None}
    dropped = [name for name, source in sources.items() if source is None]
    missing = [name for name, source in sources.items() if source not in there]
    # `optional`: leaves that a method added, which no base checkpoint has.
    may_lack = set(missing if fallback_to_scratch else optional)
    fresh = [name for name in missing if name in may_lack]
    sources = {name: source for name, source in sources.items() if source in stored}
    # What a rule drops, or reads from elsewhere, leaves its own namesake behind on purpose.
    used = {*sources.values(), *by_rule}
    unused = [name for name in stored if name not in used]
    differing = [text for text in (differ(*pair) for pair in sources.items()) if text]
    missing = [name for name in missing if name not in may_lack]
    _complain(where, missing, unused if strict else [], differing)
    return Assignment(sources, (*dropped, *fresh), tuple(unused))


def _apply(rules, wanted, elsewhere, stored, where: str) -> dict[str, str | None]:
    """Wanted name -> stored name or None, for the names that a rule matches."""
    # A rule that matches only names which are not read this time is not a mistake.
    sources, matched = {}, {_first_match(rules, name)[0] for name in elsewhere}
    for name in wanted:
        number, match = _first_match(rules, name)
        if match is None:
            continue
        matched.add(number)
        replacement = rules[number][1]
        sources[name] = None if replacement is None else _expand(match, replacement, stored, where)
    for number, (regex, _) in enumerate(rules):
        if number not in matched:
            raise UserError(
                f"Rule {regex.pattern!r} of assignment_map matches none of the {len(wanted)} names "
                f"of the new state (or earlier rules took them).{nearest(regex.pattern, wanted)}"
            )
    return sources


def _first_match(rules, name: str):
    for number, (regex, _) in enumerate(rules):
        # The whole name, as T5X matches: a rule for "a/b" must not take "a/b/c".
        match = regex.fullmatch(name)
        if match:
            return number, match
    return None, None


def compile_rule(pattern: str) -> re.Pattern:
    """A rule's pattern; raises `UserError` if it is not a regular expression."""
    try:
        return re.compile(pattern)
    except re.error as e:
        raise UserError(
            f"Rule {pattern!r} of assignment_map is not a regular expression: {e}."
        ) from e


def _expand(match: re.Match, replacement: str, stored: Collection[str], where: str) -> str:
    try:
        source = match.expand(replacement)
    except (re.error, IndexError) as e:
        raise UserError(
            f"Rule {match.re.pattern!r} of assignment_map has the replacement {replacement!r}: {e}."
        ) from e
    if source not in stored:
        raise UserError(
            f"{where} has no {source!r}, which rule {match.re.pattern!r} of assignment_map wants "
            f"for {match.string!r}.{nearest(source, stored)}"
        )
    return source


def _complain(where: str, missing: list[str], unused: list[str], differing: list[str]) -> None:
    problems = [
        (f"{title} ({len(names)}): {some(names)}", hint)
        for title, names, hint in (
            ("missing in it", missing, "fallback_to_scratch = True initialises what is missing"),
            ("in it but not in the model", unused, "strict = False ignores what the model lacks"),
            ("of another shape", differing, None),
        )
        if names
    ]
    if problems:
        hints = ["an assignment_map renames", *(hint for _, hint in problems if hint)]
        raise UserError(
            f"{where} does not fit the model: {'; '.join(text for text, _ in problems)}. Use the "
            f"gin file of the model that it was made with; else {', '.join(hints)}."
        )


def some(names: Sequence[str], separator: str = ", ", limit: int = 20) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return separator.join(names[:limit]) + more
