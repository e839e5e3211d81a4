"""Sentences of a paragraph, by Wikimedia's sentencex, and the form in which texts are compared."""

import re
from collections.abc import Callable

from ckl_jax.errors import UserError

Split = Callable[[str], list[str]]
_PUNCTUATION = re.compile(r"[^\w\s]+")
# The same but for that between digits: 3.5 and 35, 9:30 and 930 are different.
_BETWEEN_DIGITS = re.compile(r"\d[^\w\s]+\d")
_OTHER_PUNCTUATION = re.compile(r"[^\w\s]+(?!\d)|(?<!\d)[^\w\s]+")  # slower
_NOT_ALPHANUMERIC = bytes(c for c in range(128) if not chr(c).isalnum())


def sentence_splitter(language: str = "en") -> Split:
    """Returns the splitter of a language; unknown languages use a related one.

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
    """Lower-case words separated by single blanks, without punctuation; may be ""."""
    unwanted = _OTHER_PUNCTUATION if _BETWEEN_DIGITS.search(text) else _PUNCTUATION
    return " ".join(unwanted.sub("", text).lower().split())


def letters(text: str) -> bytes:
    """Lower-case ASCII letters and digits only: equal for texts that `normalise` makes equal.

    It is some twenty times as fast, and so finds out quickly what is certainly not in a text.
    """
    return text.lower().encode("ascii", "ignore").translate(None, _NOT_ALPHANUMERIC)
