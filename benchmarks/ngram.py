"""Word losses of an n-gram model (interpolated modified Kneser-Ney), as a dump for `ckl staleness`.

    python -m benchmarks.ngram --train TRAIN.jsonl.gz --test TEST.jsonl.gz \
      --vocabulary vocabulary.model --out dumps/ngram

It predicts the tokens of a vocabulary, so that no word is unknown; a word's loss is the sum over
its tokens. Smoothing is that of Chen and Goodman (1999), section 3.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses
from ckl_jax.data.text.documents import read_documents
from ckl_jax.data.text.vocabularies import Vocabulary

_UNSEEN = -1


class _Order(NamedTuple):
    """The U distinct n-grams of one order, and how often each history's words were counted."""

    keys: np.ndarray  # [U] int64, sorted: history * (vocabulary + 1) + token
    discounted: np.ndarray  # [U] float64, counts less their discount
    totals: np.ndarray  # [histories] float64, sums of counts
    backoff: np.ndarray  # [histories] float64, sums of discounts


class NGram:
    """Interpolated modified Kneser-Ney over token ids.

    Args:
      texts: token ids of each document, from 0 to vocab_size - 1.
      order: n, 1 or more; a document begins with n - 1 padding tokens.
    """

    def __init__(self, texts: Iterable[Sequence[int]], vocab_size: int, order: int = 5):
        self._size, self._padding = vocab_size + 1, order - 1  # padding is the token vocab_size
        tokens, real = self._stream(texts)
        is_start = tokens == vocab_size
        ids = [np.zeros(len(tokens), np.int64)]  # of the n-gram that ends at each place
        tables = []
        for _ in range(order):
            history = np.concatenate([[0], ids[-1][:-1]])
            keys, inverse = np.unique(history * self._size + tokens, return_inverse=True)
            tables.append(keys)
            ids.append(inverse)
        self._orders = []
        for n, keys in enumerate(tables, 1):
            here = ids[n][real]
            counts = np.bincount(here, minlength=len(keys)).astype(float)
            if n < order:
                # In how many contexts an n-gram is; of one that begins a document, how often.
                _, first = np.unique(ids[n + 1][real], return_index=True)
                contexts = np.bincount(here[first], minlength=len(keys)).astype(float)
                places = np.flatnonzero(real)
                begins = np.zeros(len(keys), bool)
                begins[here] = is_start[places - n + 1]
                counts = np.where(begins, counts, contexts)
            self._orders.append(self._smooth(keys, counts, len(tables[n - 2]) if n > 1 else 1))

    def losses(self, text: Sequence[int]) -> np.ndarray:
        """[tokens] float64: -log p of each token, in nats."""
        tokens, real = self._stream([text])
        history = np.zeros(len(tokens), np.int64)
        probability = np.full(len(tokens), 1.0 / (self._size - 1))
        for order in self._orders:
            keys = np.where(history == _UNSEEN, _UNSEEN, history * self._size + tokens)
            at = np.minimum(np.searchsorted(order.keys, keys), len(order.keys) - 1)
            seen = order.keys[at] == keys
            totals = np.where(history == _UNSEEN, 0.0, order.totals[history])
            known = totals > 0
            totals = np.where(known, totals, 1.0)
            mine = np.where(seen, order.discounted[at], 0.0) / totals
            rest = order.backoff[history] / totals
            probability = np.where(known, mine + rest * probability, probability)
            history = np.concatenate([[0], np.where(seen, at, _UNSEEN)[:-1]])
        return -np.log(probability[real])

    def _stream(self, texts: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """All texts in one array, padding before each, and which places are not padding."""
        padding = np.full(self._padding, self._size - 1)
        parts = [part for text in texts for part in (padding, np.asarray(text, np.int64))]
        tokens = np.concatenate(parts)
        return tokens, tokens != self._size - 1

    def _smooth(self, keys: np.ndarray, counts: np.ndarray, histories: int) -> _Order:
        n1, n2, n3, n4 = (np.count_nonzero(counts == c) for c in (1, 2, 3, 4))
        if not (n1 and n2 and n3):
            raise SystemExit(
                "There is too little text: no n-grams that occur once, twice or thrice."
            )
        y = n1 / (n1 + 2 * n2)
        discounts = [0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        taken = np.asarray(discounts)[np.minimum(counts, 3).astype(int)]
        history = keys // self._size
        return _Order(
            keys,
            counts - taken,
            np.bincount(history, counts, minlength=histories),
            np.bincount(history, taken, minlength=histories),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", required=True, help="documents to learn from, JSONL")
    parser.add_argument("--test", required=True, help="documents to score, JSONL")
    parser.add_argument("--vocabulary", required=True, help="a SentencePiece model")
    parser.add_argument("--out", required=True, help="folder of the dump")
    parser.add_argument("--order", type=int, default=5)
    args = parser.parse_args()
    vocabulary = Vocabulary(args.vocabulary)

    def encode(text: str) -> tuple[list[str], list[Any]]:
        words = text.split()
        return words, vocabulary.encode_many(words)

    trained = ([t for ids in encode(d.text)[1] for t in ids] for d in read_documents(args.train))
    model = NGram(trained, vocabulary.vocab_size, args.order)
    writer = DumpWriter(args.out, {"model": f"{args.order}-gram"})
    nats = words_read = 0
    for document in sorted(read_documents(args.test), key=lambda d: (d.date, d.id)):
        words, ids = encode(document.text)
        sizes = np.array([len(x) for x in ids], np.int32)
        losses = model.losses([t for x in ids for t in x])
        nll = np.add.reduceat(losses, np.cumsum(sizes) - sizes).astype(np.float32)
        starts = np.zeros(len(words), np.int32)
        writer.add(WordLosses(document.id, document.date, words, nll, sizes, starts))
        nats, words_read = nats + nll.sum(dtype=float), words_read + len(words)
    writer.flush()
    print(f"{words_read:,} words, perplexity {np.exp(nats / words_read):.1f}")


if __name__ == "__main__":
    main()
