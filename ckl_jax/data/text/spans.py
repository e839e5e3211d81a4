"""Salient span masking (SSM): replaces entities and dates by sentinels.

The paper names the objective (REALM's, for T5) and its length of 350 tokens; its masking code was
never released. Here a chunk's i-th span becomes `<extra_id_i>` in the input, and the output is
`<extra_id_0> first span <extra_id_1> second span <extra_id_2>`.
"""

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence

from ckl_jax.data.text.documents import Document
from ckl_jax.data.text.taggers import EntityFinder, Span
from ckl_jax.errors import UserError

SENTINELS = 100
_SENTINEL = re.compile(r"<extra_id_(\d+)>")
# Capitals of the Latin, Greek and Cyrillic scripts, as a class of a regular expression has them.
CAPITALS = "".join(
    letter for letter in map(chr, (*range(0x530), *range(0x1E00, 0x1F00))) if letter.isupper()
)
# Quotation marks and Markdown's emphasis may stand on both sides, marks of footnotes before it.
_SENTENCE_END = re.compile(
    rf"(?<=[.!?])(?:\[\^?\w{{1,20}}\])*[\"”')*_]*\s+(?=(?:[*_]{{1,3}}|[\"“'(])*[{CAPITALS}0-9])|\n+"
)
_ABBREVIATION = re.compile(rf"\b(?:[{CAPITALS}]|Mr|Mrs|Ms|Dr|Prof|St)\.$")


def split_sentences(text: str) -> list[str]:
    """Splits at line ends and at full stops before a capital; keeps initials and titles whole."""
    sentences, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        before = text[start : match.start()]
        if "\n" not in match[0] and _ABBREVIATION.search(before):
            continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    return [s for s in [*sentences, text[start:].strip()] if s]


def chunk(text: str, length: int) -> Iterator[str]:
    """Yields parts of `text` of at most `length` words, cut between sentences where possible.

    A length of 0 yields single sentences.
    """
    sentences = split_sentences(text)
    if not length:
        yield from sentences
        return
    pieces = [p for s in sentences for p in _split_long(s, length)]
    kept: list[str] = []
    for piece in pieces:
        if kept and len(" ".join([*kept, piece]).split()) > length:
            yield " ".join(kept)
            kept = []
        kept.append(piece)
    if kept:
        yield " ".join(kept)


def _split_long(sentence: str, length: int) -> list[str]:
    """Halves a sentence between words until its parts fit."""
    words = sentence.split()
    if len(words) <= max(length, 1):
        return [sentence]
    half = len(words) // 2
    parts = " ".join(words[:half]), " ".join(words[half:])
    return [p for part in parts for p in _split_long(part, length)]


def with_names(
    text: str, names: Iterable[str], spans: Sequence[Span]
) -> list[Span | tuple[int, int]]:
    """Adds occurrences of `names` in `text`, which replace spans inside them."""
    longest = sorted(names, key=lambda name: (-len(name), name))
    pattern = r"(?<!\w)(?:{})(?!\w)".format("|".join(map(re.escape, longest)))
    matches = [m.span() for m in re.finditer(pattern, text)] if longest else []
    named = [(a, b) for a, b in matches if not any(s[0] <= a and b <= s[1] for s in spans)]
    kept = [s for s in spans if all(s[1] <= start or end <= s[0] for start, end in named)]
    return sorted([*kept, *named])


def mask_spans(text: str, spans: Sequence[Span | tuple[int, int]]) -> tuple[str, str]:
    """Replaces spans by sentinels.

    Args:
      spans: (start, end, ...) in order, none overlapping another, at most 100.

    Returns:
      input and output; the output ends with the sentinel that would come next, if there is one.
      No spans give the text itself and "".
    """
    if len(spans) > SENTINELS:
        raise ValueError(f"{len(spans)} spans, but only {SENTINELS} sentinels")
    masked, target, position = [], [], 0
    for i, (start, end, *_) in enumerate(spans):
        if start < position or end <= start:
            raise ValueError("spans must be in order and must not overlap")
        masked += [text[position:start], f"<extra_id_{i}>"]
        target += [f"<extra_id_{i}>", text[start:end]]
        position = end
    if spans and len(spans) < SENTINELS:
        target.append(f"<extra_id_{len(spans)}>")
    return "".join([*masked, text[position:]]), " ".join(target)


def fill_spans(masked: str, target: str) -> str:
    """Inverse of `mask_spans`: inserts the spans of `target` into `masked`."""
    parts = _SENTINEL.split(target)
    spans = dict(zip(parts[1::2], (p[1:].removesuffix(" ") for p in parts[2::2]), strict=True))
    return _SENTINEL.sub(lambda m: spans.get(m[1], m[0]), masked)


def salient_rows(
    text: str,
    finder: EntityFinder,
    *,
    max_spans: int | None = None,
    rows_per_chunk: str = "one",
    parts: int = 1,
    keep_spanless: bool = False,
    seed: int = 0,
) -> Iterator[dict[str, str]]:
    """Yields the training rows of one chunk of text.

    Args:
      max_spans: spans per row; None masks all (at most 100), 1 a single one as REALM does.
      rows_per_chunk: "one" row, whose spans are drawn by a generator seeded with `seed` and the
        text if there are more than `max_spans`; or "all_spans", as many rows as it takes for every
        span to be masked in one.
      parts: of "all_spans", at least as many rows, if there are as many spans: each masks a part.
      keep_spanless: also yield chunks without a span, with an empty output.

    Yields:
      {"input", "output", "original"}.
    """
    if rows_per_chunk not in ("one", "all_spans"):
        raise UserError(f"rows_per_chunk is {rows_per_chunk!r}; give 'one' or 'all_spans'.")
    if has_sentinel(text):
        raise ValueError("the text already holds a sentinel")
    spans = finder.find(text)
    if not spans:
        if keep_spanless:
            yield {"input": text, "output": "", "original": text}
        return
    size = min(max_spans or SENTINELS, SENTINELS)
    count = -(-len(spans) // size)
    if rows_per_chunk == "one" and count > 1:
        draw = random.Random(hashlib.sha256(f"{seed} {text}".encode()).digest())
        groups = [sorted(draw.sample(spans, size))]
    else:  # neighbours fall into different rows
        count = max(count, min(parts, len(spans)))
        groups = [spans[i::count] for i in range(count)]
    for group in groups:
        masked, target = mask_spans(text, group)
        yield {"input": masked, "output": target, "original": text}


def masked_rows(
    documents: Iterable[Document],
    finder: EntityFinder,
    words: int,
    max_spans: int | None = None,
    parts: int = 1,
    keep_spanless: bool = False,
) -> Iterator[dict[str, str]]:
    """Yields rows that mask every span of the documents once; chunks have up to `words` words."""
    for document in documents:
        for piece in chunk(document.text, words):
            yield from salient_rows(
                piece,
                finder,
                max_spans=max_spans,
                rows_per_chunk="all_spans",
                parts=parts,
                keep_spanless=keep_spanless,
            )


def has_sentinel(text: str) -> bool:
    """Whether a text already contains a sentinel."""
    return _SENTINEL.search(text) is not None
