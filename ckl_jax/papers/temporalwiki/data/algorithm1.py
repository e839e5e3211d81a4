"""New text of a page: TemporalWiki's Algorithm 1, and the function that its authors released.

Cost is linear in the characters of both versions (the released function's is not).
"""

import dataclasses
import difflib
import re
from collections.abc import Collection, Sequence

from ckl_jax.data.text.sentences import Split, comparison_key, letters
from ckl_jax.papers.temporalwiki.data.edits import Edit, OldSentences

NEW, PARAGRAPH, SENTENCES, LEGACY = "new", "paragraph", "sentences", "legacy"
DELETED, DELETED_PAGE = "deleted", "deleted_page"
KINDS = (NEW, PARAGRAPH, SENTENCES, LEGACY, DELETED, DELETED_PAGE)
_LEGACY_IGNORED = re.compile(r"[^\w\s]")


@dataclasses.dataclass(frozen=True)
class Change:
    """A part of text and its kind.

    Attributes:
      kind: one of `KINDS`: a new article, a paragraph without any known sentence, the sentences of
        a paragraph that are not known, what the released function gives, sentences that are gone,
        an article that is gone.
      text: of the new version; of the old one for what is gone.
      edits: of each sentence that is new, in order; () of whole articles and of what is gone.
    """

    kind: str
    text: str
    edits: tuple[Edit, ...] = dataclasses.field(default=(), compare=False)


def diff(old: Sequence[str], new: Sequence[str], split: Split, edits: bool = True) -> list[Change]:
    """Algorithm 1 (p. 4) on two versions of an article.

    For each new paragraph: nothing if the old version has it or all of its sentences; the whole
    paragraph if the old version has none of its sentences; else the sentences that it has not.
    Sentences are compared by `comparison_key` and wherever they stand, so text that moved within
    the article is not new.

    Args:
      old, new: paragraphs.
      split: paragraph -> sentences.
      edits: classify the new sentences too, against the old ones that are gone.
    """
    kept = set(old)
    candidates = [p for p in new if p not in kept]  # the same letter by letter: certainly known
    if not candidates:
        return []
    known = _Known(old, set(new), split)
    # Sentences without letters or digits have the key "" and are left out.
    keyed = [[(s, key) for s in split(p) if (key := comparison_key(s))] for p in candidates]
    added = [
        (paragraph, fresh, len(fresh) == len(sentences))
        for paragraph, sentences in zip(candidates, keyed, strict=True)
        if (fresh := known.lacks(sentences)) and not known.paragraph(paragraph)
    ]
    if not edits or not added:
        return [_change(*pair) for pair in added]
    kept = {key for sentences in keyed for _, key in sentences}
    gone = [s for s in known.went if comparison_key(s) not in kept]
    old_sentences = OldSentences(gone, [s for _, fresh, _ in added for s in fresh], (*old, *new))
    return [_change(*pair, old_sentences) for pair in added]


def _change(
    paragraph: str, fresh: list[str], whole: bool, gone: OldSentences | None = None
) -> Change:
    text = paragraph if whole else " ".join(fresh)
    edits, at = [], 0
    for sentence in fresh if gone else ():
        start = text.index(sentence, at)
        at = start + len(sentence)
        edits.append(gone.edit(sentence, start))
    return Change(PARAGRAPH if whole else SENTENCES, text, tuple(edits))


class _Known:
    """The paragraphs and sentences of an old version, computed on demand.

    Most of a page stays. So only the paragraphs that went are split into sentences; what is not
    among those is looked for in the letters of the others, and those that have it (perhaps as a
    part of a sentence) are split. If there is too much to look for, all are.
    """

    _SEARCHES = 32  # of the whole text, so that cost stays linear

    def __init__(self, old: Sequence[str], new: Collection[str], split: Split):
        self._old, self._split, self._searches = old, split, 0
        self._sentences: set[str] = set()
        self.went: list[str] = []  # the sentences of paragraphs that went
        for paragraph in old:
            if paragraph not in new:
                self.went += self._add(paragraph)
        self._stayed = [p for p in old if p in new]
        self._letters: list[bytes] | None = None  # of each of them
        self._all_letters = b""
        self._paragraphs: set[str] | None = None
        # A cheap necessary condition: `letters` is much faster than `comparison_key`.
        self._paragraph_letters = set(map(letters, old))

    def lacks(self, sentences: Sequence[tuple[str, str]]) -> list[str]:
        """Those of (sentence, its key) that the old version has not."""
        return [s for s, key in sentences if not self.sentence(key)]

    def _add(self, paragraph: str) -> list[str]:
        sentences = self._split(paragraph)
        self._sentences.update(map(comparison_key, sentences))
        return sentences

    def paragraph(self, paragraph: str) -> bool:
        if letters(paragraph) not in self._paragraph_letters:
            return False
        if self._paragraphs is None:
            self._paragraphs = set(map(comparison_key, self._old))
        return comparison_key(paragraph) in self._paragraphs

    def sentence(self, key: str) -> bool:
        return key in self._sentences or self._look_for(key) and key in self._sentences

    def _look_for(self, key: str) -> bool:
        """Adds the paragraphs that may contain `key`; returns whether there are any."""
        if self._letters is None:
            self._letters = list(map(letters, self._stayed))
            self._all_letters = b"\n".join(self._letters)
        # b"" is in every text: beyond the limit all paragraphs that stayed are split at once.
        self._searches += 1
        wanted = b"" if self._searches > self._SEARCHES else letters(key)
        if wanted not in self._all_letters:
            return False
        for i, text in enumerate(self._letters):
            if wanted in text and self._stayed[i]:
                self._add(self._stayed[i])
                # Split once.
                self._stayed[i] = ""
        if not wanted:
            self._letters, self._all_letters = [], b"\n"
        return True


def deletions(old: Sequence[str], new: Sequence[str], split: Split) -> list[Change]:
    """The deleted text, by the same rules (not in the paper)."""
    # The same algorithm with the versions exchanged: what is "new" in the old one is gone.
    return [Change(DELETED, change.text) for change in diff(new, old, split, edits=False)]


def legacy_diff(old: str, new: str) -> str:
    """The released function, which loses new text before the first and after the last known
    paragraph.

    Args:
      old, new: texts with a paragraph on each line.

    Returns:
      The text of the diffset; "" for none. Its exact form also depends on Python's `difflib`.
    """
    old_lines, new_lines = old.split("\n"), new.split("\n")
    sides = ([_LEGACY_IGNORED.sub("", p).lower() for p in side] for side in (old_lines, new_lines))
    anchors = _legacy_anchors(*sides)
    pieces: list[str] = []
    for (i, j), (next_i, next_j) in zip(anchors, anchors[1:], strict=False):
        # Only the gaps between consecutive anchors are looked at, hence the losses at head and
        # tail.
        if next_j == j + 1:
            continue
        gap = new_lines[j + 1 : next_j]  # nothing, yet a piece, where a repeated line leads back
        if next_i == i + 1:
            pieces.append(". ".join(gap))
        else:  # "" too, where sentences were only deleted
            pieces.append(_legacy_differ(old_lines[i + 1 : next_i], gap))
    return ". ".join(pieces)


def _legacy_anchors(old: list[str], new: list[str]) -> list[tuple[int, int]]:
    """Greedy pairs of equal paragraphs; the second position is the first in the whole new text."""
    anchors, j = [], 0
    for i, key in enumerate(old):
        if key in new[j:]:
            # Of the whole list, as released: with repeated paragraphs j jumps back.
            j = new.index(key)
            anchors.append((i, j))
    return anchors


def _legacy_differ(old: list[str], new: list[str]) -> str:
    # Split at every full stop, "U.S." included, as released.
    sides = (". ".join(side).split(".") for side in (old, new))
    # A "+" anywhere in the line, not only Differ's mark: "C++" leaks unchanged sentences.
    lines = (line for line in difflib.Differ().compare(*sides) if line[0] != "?" and "+" in line)
    return ". ".join(line.replace("+ ", "") for line in lines)
