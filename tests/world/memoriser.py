"""A planted model that has memorised its training text and knows nothing else."""

import collections
import re
from collections.abc import Iterable, Sequence

from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.probe import ProbeItem


def recited(items: Sequence[ProbeItem], texts: Iterable[str]) -> float:
    """The fraction of items that the text's most frequent continuation answers.

    The continuation is that of as many of the last words before the blank as stand in the text: an
    n-gram model of unbounded order.
    """
    corpus = " ".join(["", *_words("\n".join(texts)), ""])
    right = 0
    for item in items:
        ends: list[int] = []
        prompt = _words(item.input.split(BLANK)[0])
        for start in reversed(range(len(prompt))):
            known = f" {' '.join(prompt[start:])} "
            longer = [m.end() for m in re.finditer(re.escape(known), corpus)]
            if not longer:
                break
            ends = longer
        right += any(_continues(corpus, ends, _words(answer)) for answer in item.answers)
    return right / len(items)


def _continues(corpus: str, ends: Sequence[int], answer: Sequence[str]) -> bool:
    """Whether most places in the text go on with the answer's words."""
    follow = collections.Counter(" ".join(corpus[e : e + 200].split()[: len(answer)]) for e in ends)
    return bool(follow) and follow.most_common(1)[0][0] == " ".join(answer)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)
