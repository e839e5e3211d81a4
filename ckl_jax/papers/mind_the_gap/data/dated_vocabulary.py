"""A SentencePiece vocabulary for one arm of a comparison, trained on a random part of its text."""

import dataclasses
import os
import random
from collections.abc import Iterator
from typing import Annotated

from tyro.conf import arg

from ckl_jax import checks
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.text.documents import read_documents
from ckl_jax.data.text.vocabularies import Vocabulary, train_vocabulary

TOKENS = 50_259  # of the paper's vocabularies
MAX_BYTES = 15_000_000_000  # of text that the paper's were trained on, at most


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatedVocabulary:
    """Settings of a vocabulary, including those that the paper leaves open.

    Attributes:
      size: Tokens, of which 256 are bytes and three are special; a small corpus can yield fewer.
      max_bytes: Bytes of text that are read, which SentencePiece holds in memory; of a larger
        corpus, documents are drawn at random.
      model_type: SentencePiece's model type, unigram or bpe.
      character_coverage: Fraction of the characters that get a token.
      normalizer: SentencePiece's normalisation rule, such as nfkc.
      byte_fallback: Write unknown characters as bytes.
      seed: Random seed of the draw.
    """

    size: Annotated[int, arg(name="vocab-size")] = TOKENS
    max_bytes: int = MAX_BYTES
    model_type: Annotated[str, arg(name="type")] = "unigram"
    character_coverage: Annotated[float, arg(name="coverage")] = 1.0
    normalizer: str = "identity"
    byte_fallback: Annotated[
        bool, arg(help="Make characters without a token unknown, in place of bytes.")
    ] = True
    seed: int = 0

    def __post_init__(self):
        least = 300 if self.byte_fallback else 5
        checks.require_int(least, 2**31 - 1, **{"--vocab-size": self.size})
        checks.require_int(1, max_bytes=self.max_bytes)

    def train(
        self,
        documents: str | os.PathLike,
        path: str | os.PathLike,
        record_limit: int = RECORD_BYTES,
    ) -> Vocabulary:
        """Trains on the lines of a JSONL(.gz) file of documents, and writes a `.model` file.

        Raises:
          UserError: the file is missing or malformed, or has too little text.
        """
        lines = sampled_lines(documents, self.max_bytes, self.seed, record_limit)
        names = ("model_type", "byte_fallback", "character_coverage", "normalizer")
        options = {name: getattr(self, name) for name in names}
        return train_vocabulary(lines, path, self.size, max_lines=None, **options)


def sampled_lines(
    documents: str | os.PathLike, max_bytes: int, seed: int = 0, record_limit: int = RECORD_BYTES
) -> Iterator[str]:
    """Yields the lines of documents, of about `max_bytes` of text at most, drawn from all alike."""
    # Two readings: the fraction must be known before the first document is drawn.
    total = sum(len(d.text.encode()) for d in read_documents(documents, record_limit))
    fraction = max_bytes / max(total, 1)
    rng = random.Random(f"vocabulary {seed}")
    for document in read_documents(documents, record_limit):
        if fraction >= 1 or rng.random() < fraction:
            yield from document.text.split("\n")
