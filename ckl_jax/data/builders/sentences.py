"""Sentences of a paragraph, by Wikimedia's sentencex, and the form in which texts are compared."""

import re
from collections.abc import Callable

from ckl_jax.errors import UserError

Split = Callable[[str], list[str]]
# Punctuation, but for that between digits: 3.5 and 35, 9:30 and 930 are different.
_PUNCTUATION = re.compile(r"[^\w\s]+(?!\d)|(?<!\d)[^\w\s]+")


def sentence_splitter(language: str = "en") -> Split:
    """Returns the splitter of a language; languages that it does not know use those near them.

    Raises:
      UserError: the library is not installed.
    """
    try:
        import sentencex
    except ImportError as e:
        raise UserError(
            "Splitting sentences needs the package sentencex; pip install 'ckl-jax[data]'."
        ) from e

    def split(paragraph: str) -> list[str]:
        return [s for piece in sentencex.segment(language, paragraph) if (s := piece.strip())]

    return split


def normalise(text: str) -> str:
    """Lower-case words with single blanks and no punctuation; "" if nothing is left."""
    return " ".join(_PUNCTUATION.sub("", text).lower().split())
