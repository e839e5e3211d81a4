"""Part-of-speech taggers by name: proper nouns, nouns, verbs and numbers.

TemporalWiki cites spaCy for this and its code used NLTK. The default needs neither: it knows proper
nouns (as `taggers.HeuristicFinder` finds them) and numbers only. TextBlob's knows all four without
a download; on the test part of the English Web Treebank its F1 is 0.75 on proper nouns, 0.82 on
nouns and 0.92 on numbers.
"""

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from ckl_jax.data.text.sentences import NUMBER_WORDS
from ckl_jax.data.text.taggers import HeuristicFinder, load_spacy
from ckl_jax.errors import UserError, if_missing, nearest

PROPER_NOUNS, NOUNS, VERBS, NUMBERS = "proper_nouns", "nouns", "verbs", "numbers"
CLASSES = (PROPER_NOUNS, NOUNS, VERBS, NUMBERS)
TAGGERS = ("heuristic", "textblob", "spacy", "nltk")
Word = tuple[int, int, str]  # start, end, class

_NUMBER = re.compile(
    rf"(?<![\w.,])\d+(?:[.,]\d+)*(?![\w])|\b(?:{'|'.join(NUMBER_WORDS)})\b", re.IGNORECASE
)
_UNIVERSAL = {"PROPN": PROPER_NOUNS, "NOUN": NOUNS, "VERB": VERBS, "NUM": NUMBERS}
_PENN = {"NNP": PROPER_NOUNS, "NNPS": PROPER_NOUNS, "NN": NOUNS, "NNS": NOUNS, "CD": NUMBERS}


class WordTagger(Protocol):
    """Finds words by class.

    Attributes:
      backend: name and version; marks made by different ones are not mixed.
      classes: those that it knows.
    """

    backend: str
    classes: tuple[str, ...]

    def tag(self, texts: Iterable[str]) -> Iterator[list[Word]]:
        """Yields the words of each text that belong to one of `classes`."""
        ...


class HeuristicTagger:
    """Proper nouns by how the corpus capitalises each word; numbers by form."""

    classes = (PROPER_NOUNS, NUMBERS)

    def __init__(self, finder: HeuristicFinder):
        self._finder = finder
        self.backend = finder.backend

    def tag(self, texts: Iterable[str]) -> Iterator[list[Word]]:
        for text in texts:
            names = [(*span, PROPER_NOUNS) for span in self._finder.find_proper_nouns(text)]
            yield sorted(names + [(*m.span(), NUMBERS) for m in _NUMBER.finditer(text)])


class SpacyTagger:
    """spaCy's parts of speech."""

    classes = CLASSES

    def __init__(self, model: str = "en_core_web_sm"):
        """Loads a spaCy pipeline; raises `UserError` if spaCy or the pipeline is not installed."""
        self._pipeline, self.backend = load_spacy(
            model, "tagger", exclude=["parser", "ner", "lemmatizer"]
        )

    def tag(self, texts: Iterable[str]) -> Iterator[list[Word]]:
        for document in self._pipeline.pipe(texts):
            yield [
                (t.idx, t.idx + len(t), _UNIVERSAL[t.pos_])
                for t in document
                if t.pos_ in _UNIVERSAL
            ]


class PennTagger:
    """The Penn tags of words between spaces, by a function of a text's words."""

    classes = CLASSES

    def __init__(self, tag: Callable[[list[str]], Iterable[Sequence[str]]], backend: str):
        """Takes `words -> (word, tag) of each`, and its name and version."""
        self._tag, self.backend = tag, backend

    def tag(self, texts: Iterable[str]) -> Iterator[list[Word]]:
        for text in texts:
            words = list(re.finditer(r"\S+", text))
            tags = [tag for _, tag in self._tag([word[0] for word in words])]
            classes = zip(words, map(_class_of_penn, tags), strict=True)
            yield [(*word.span(), name) for word, name in classes if name]


def _nltk_tagger() -> PennTagger:
    """NLTK's tagger as TemporalWiki's code calls it."""
    try:
        import nltk

        nltk.pos_tag(["word"])
    except (ImportError, LookupError) as e:
        raise UserError(
            "The tagger 'nltk' needs the package nltk and its data: pip install nltk, then "
            "python -m nltk.downloader averaged_perceptron_tagger_eng; or use 'heuristic'."
        ) from e
    return PennTagger(nltk.pos_tag, f"nltk-{nltk.__version__}")


def _textblob_tagger() -> PennTagger:
    """TextBlob's bundled lexicon and rules, for English."""
    with if_missing(
        "The tagger 'textblob' needs the package textblob: install ckl-jax[analysis], or use "
        "'heuristic'."
    ):
        from textblob.en import parser
    return PennTagger(parser.find_tags, f"textblob-{importlib.metadata.version('textblob')}")


def _class_of_penn(tag: str) -> str:
    return VERBS if tag.startswith("VB") else _PENN.get(tag, "")


def make_tagger(name: str, texts: Iterable[str]) -> WordTagger:
    """Returns a tagger: `heuristic` (fitted on `texts`) or another of `TAGGERS`.

    spaCy's may name its pipeline: `spacy:<pipeline>`.

    Raises:
      UserError: there is none of that name, or it is not installed.
    """
    kind, _, model = name.partition(":")
    if kind == "heuristic":
        return HeuristicTagger(HeuristicFinder.fit(texts))
    if kind == "spacy":
        return SpacyTagger(model or "en_core_web_sm")
    if kind == "nltk":
        return _nltk_tagger()
    if kind == "textblob":
        return _textblob_tagger()
    raise UserError(
        f"No tagger is called {name!r}; there are {', '.join(TAGGERS)}.{nearest(kind, TAGGERS)}"
    )
