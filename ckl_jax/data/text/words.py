"""Tokenizers that separate words by blanks, line by line."""

import functools
import importlib.metadata
from collections.abc import Callable

from ckl_jax.errors import if_missing, refuse_unknown


class Tokenizer:
    """A function from text to tokenised text; `backend` is its library and version."""

    def __init__(self, words: Callable[[str], str], backend: str):
        self._words, self.backend = words, backend

    def __call__(self, text: str) -> str:
        """Returns the text with one blank between words; lines stay, blank ones do not."""
        lines = (self._words(line) for line in text.split("\n"))
        return "\n".join(line for line in lines if line)


@functools.cache
def make_tokenizer(name: str, language: str = "en") -> Tokenizer:
    """Makes a tokenizer.

    Args:
      name: "moses" (by sacremoses; nothing is escaped, dashes are not split), or "none".
      language: ISO 639-1 code, of its abbreviations and contractions.

    Raises:
      UserError: there is none of that name, or its package is not installed.
    """
    refuse_unknown(name, ("moses", "none"), f"No tokenizer is called {name!r}; there are")
    if name == "none":
        return Tokenizer(lambda line: " ".join(line.split()), "none")
    with if_missing(
        "Tokenising needs the package 'sacremoses': pip install 'ckl-jax[text]', or give "
        "tokenised text and --tokenizer none."
    ):
        from sacremoses import MosesTokenizer
    moses = MosesTokenizer(language)

    def words(line: str) -> str:
        return moses.tokenize(line, escape=False, return_str=True) if line.strip() else ""

    return Tokenizer(words, f"sacremoses {importlib.metadata.version('sacremoses')}")
