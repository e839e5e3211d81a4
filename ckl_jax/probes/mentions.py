"""Counts mentions of names in corpora, such as of answers or subjects of probes."""

import collections
from collections.abc import Collection, Iterable, Iterator, Mapping

from ckl_jax.probes.metrics import normalize_answer


def count_mentions(
    names: Collection[str], corpora: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, int]]:
    """Counts names in texts; both are normalised as answers are.

    Args:
      names: looked for as sequences of whole words; those that normalise to nothing are never
        mentioned.
      corpora: {name: texts}, each read once.

    Returns:
      {corpus: {name: mentions}}, all names in each.
    """
    # {normalised words: the names that they are of}; several spellings may normalise alike.
    by_words: dict[tuple[str, ...], list[str]] = collections.defaultdict(list)
    for name in dict.fromkeys(names):
        if words := tuple(normalize_answer(name).split()):
            by_words[words].append(name)
    # {first word: lengths of names that begin with it}: a text is scanned once, whatever the number
    # of names.
    lengths: dict[str, list[int]] = collections.defaultdict(list)
    for words in by_words:
        if len(words) not in lengths[words[0]]:
            lengths[words[0]].append(len(words))
    by_corpus = {}
    for corpus, texts in corpora.items():
        counts = dict.fromkeys(names, 0)
        for words in _mentioned(texts, by_words, lengths):
            for name in by_words[words]:
                counts[name] += 1
        by_corpus[corpus] = counts
    return by_corpus


def _mentioned(
    texts: Iterable[str], by_words: Collection[tuple[str, ...]], lengths: Mapping[str, list[int]]
) -> Iterator[tuple[str, ...]]:
    """Yields the word sequence of each mention."""
    for text in texts:
        words = normalize_answer(text).split()
        for i, word in enumerate(words):
            for length in lengths.get(word, ()):
                some = tuple(words[i : i + length])
                if len(some) == length and some in by_words:
                    yield some
