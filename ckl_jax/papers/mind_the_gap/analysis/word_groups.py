"""Groups of words for `staleness`: parts of speech, and topics of their documents."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ckl_jax import checks
from ckl_jax.data.tasks.word_losses import WordLosses
from ckl_jax.data.text.word_classes import WordTagger
from ckl_jax.errors import UserError, if_missing

OTHER = "other words"
_TOP_WORDS = 8


class PartsOfSpeech:
    """The classes of a tagger, and the words of no class.

    Attributes:
      names: of the groups.
      backend: of the tagger.
    """

    def __init__(self, tagger: WordTagger):
        self._tagger, self.backend = tagger, tagger.backend
        self.names = (*(name.replace("_", " ") for name in tagger.classes), OTHER)

    def weights(self, document: WordLosses) -> np.ndarray:
        """[G, W]; a word is of one group, that of the first tagged span which begins in it."""
        text = " ".join(document.words)
        # Characters of the words in the joined text, blanks included.
        ends = np.cumsum([len(word) + 1 for word in document.words])
        group = np.full(len(document.words), len(self.names) - 1)
        (tagged,) = self._tagger.tag([text])
        # Reversed, so that the first span of a word is written last and wins.
        for start, end, name in reversed(tagged):
            # A span may be of several words (a name).
            first, last = np.searchsorted(ends, [start, end - 1], side="right")
            group[first : last + 1] = self.names.index(name.replace("_", " "))
        # [G] indices -> one-hot [G, W].
        return np.eye(len(self.names))[:, group]


def require_scikit_learn() -> None:
    """Raises `UserError` if scikit-learn, which learns topics, is not installed."""
    with if_missing("Topics need scikit-learn: install ckl-jax[analysis], or give --topics 0."):
        import sklearn  # noqa: F401


class Topics:
    """Topics of latent Dirichlet allocation (Blei et al. 2003), by scikit-learn.

    Attributes:
      names: of the groups: a topic's number and its most probable words.
      assignment: "hard" counts a document's words in its most probable topic, "soft" in every topic
        by its probability.
    """

    def __init__(self, vectorizer: Any, model: Any, assignment: str):
        checks.require_choice(("hard", "soft"), **{"--topic-assignment": assignment})
        self._vectorizer, self._model, self.assignment = vectorizer, model, assignment
        vocabulary = vectorizer.get_feature_names_out()
        # Stable, so that names of topics do not depend on the sorting algorithm.
        best = np.argsort(-model.components_, axis=1, kind="stable")[:, :_TOP_WORDS]
        self.names = tuple(
            f"topic {i + 1}: {' '.join(vocabulary[row])}" for i, row in enumerate(best)
        )

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        topics: int = 50,
        assignment: str = "hard",
        seed: int = 0,
    ) -> "Topics":
        """Learns topics from (a sample of) the training documents, never from test documents.

        Left out are English stop words and words in fewer than five documents or in more than half.
        Of the others, the 20,000 most frequent count.

        Args:
          topics: K.

        Raises:
          UserError: scikit-learn is not installed, or no word is left.
        """
        checks.require_int(2, **{"--topics": topics})
        require_scikit_learn()
        from sklearn.decomposition import LatentDirichletAllocation
        from sklearn.feature_extraction.text import CountVectorizer

        vectorizer = CountVectorizer(
            stop_words="english",
            min_df=5,
            max_df=0.5,
            max_features=20_000,
            token_pattern=r"(?u)\b[^\W\d_]{2,}\b",
        )
        try:
            counts = vectorizer.fit_transform(texts)
        except ValueError as e:
            raise UserError(
                f"No topics of {len(texts)} documents ({e}); give more, or --topics 0."
            ) from e
        model = LatentDirichletAllocation(topics, learning_method="online", random_state=seed)
        return cls(vectorizer, model.fit(counts), assignment)

    def weights(self, document: WordLosses) -> np.ndarray:
        """[K, W], the same for all words of a document."""
        counts = self._vectorizer.transform([" ".join(document.words)])
        (weights,) = self._model.transform(counts)
        if self.assignment == "hard":
            weights = np.eye(len(self.names))[weights.argmax()]
        return np.repeat(weights[:, None], len(document.words), axis=1)
