"""What is new in a page: TemporalWiki's Algorithm 1, and the function that its authors released.

Cost is linear in the characters of both versions (the released function's is not).
"""

import dataclasses
import difflib
import re
from collections.abc import Sequence

from ckl_jax.data.builders.sentences import Split, normalise

NEW, PARAGRAPH, SENTENCES, LEGACY = "new", "paragraph", "sentences", "legacy"
DELETED, DELETED_PAGE = "deleted", "deleted_page"
KINDS = (NEW, PARAGRAPH, SENTENCES, LEGACY, DELETED, DELETED_PAGE)
_LEGACY_IGNORED = re.compile(r"[^\w\s]")


@dataclasses.dataclass(frozen=True)
class Change:
    """A piece of text and what it is.

    Attributes:
      kind: one of `KINDS`: a new article, a paragraph without any known sentence, the sentences of
        a paragraph that are not known, what the released function gives, sentences that are gone,
        an article that is gone.
      text: of the new version; of the old one for what is gone.
    """

    kind: str
    text: str


def diff(old: Sequence[str], new: Sequence[str], split: Split) -> list[Change]:
    """Algorithm 1 (p. 4) on two versions of an article that was there before.

    For each new paragraph: nothing if the old version has it or all of its sentences; the whole
    paragraph if the old version has none of its sentences; else the sentences that it has not.
    Sentences are compared as `normalise` gives them and wherever they stand, so text that moved
    within the article is not new.

    Args:
      old, new: paragraphs.
      split: paragraph -> sentences.
    """
    known = set(map(normalise, old))
    changed = [p for p in new if (key := normalise(p)) and key not in known]
    if not changed:
        return []
    sentences = {normalise(s) for p in old for s in split(p)}
    changes = (_change(split(p), p, sentences) for p in changed)
    return [c for c in changes if c]


def _change(sentences: list[str], paragraph: str, known: set[str]) -> Change | None:
    keys = [normalise(s) for s in sentences]
    fresh = [s for s, key in zip(sentences, keys, strict=True) if key and key not in known]
    if not fresh:
        return None
    if len(fresh) == sum(map(bool, keys)):
        return Change(PARAGRAPH, paragraph)
    return Change(SENTENCES, " ".join(fresh))


def deletions(old: Sequence[str], new: Sequence[str], split: Split) -> list[Change]:
    """What the old version has and the new one has not, by the same rules (not in the paper)."""
    return [Change(DELETED, change.text) for change in diff(new, old, split)]


def legacy_diff(old: str, new: str) -> str:
    """The released function: loses what is new before the first and after the last known paragraph.

    Args:
      old, new: texts with a paragraph on each line.

    Returns:
      The text of the diffset; "" for none. Its exact form also depends on Python's `difflib`.
    """
    old_lines, new_lines = old.split("\n"), new.split("\n")
    anchors = _legacy_anchors(
        *([_legacy_key(p) for p in lines] for lines in (old_lines, new_lines))
    )
    pieces: list[str] = []
    for (i, j), (next_i, next_j) in zip(anchors, anchors[1:], strict=False):
        if next_j == j + 1:
            continue
        gap = new_lines[j + 1 : next_j]  # nothing, yet a piece, where a repeated line leads back
        if next_i == i + 1:
            pieces.append(". ".join(gap))
        elif kept := _legacy_differ(old_lines[i + 1 : next_i], gap):
            pieces.append(kept)
    return ". ".join(pieces)


def _legacy_key(paragraph: str) -> str:
    return _LEGACY_IGNORED.sub("", paragraph).lower()


def _legacy_anchors(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Greedy pairs of equal paragraphs; the second place is the first in the whole new text."""
    anchors, j = [], 0
    for i, key in enumerate(old):
        if key in new[j:]:
            j = new.index(key)
            anchors.append((i, j))
    return anchors


def _legacy_differ(old: list[str], new: list[str]) -> str:
    sides = (". ".join(side).split(".") for side in (old, new))
    lines = (line for line in difflib.Differ().compare(*sides) if line[0] != "?" and "+" in line)
    return ". ".join(line.replace("+ ", "") for line in lines)
