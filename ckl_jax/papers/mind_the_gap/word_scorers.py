"""Losses of the words of documents, by kind of model.

A row is what the model reads at once, a window of a document, and the tokens whose losses it gives:

- a decoder reads overlapping windows: each but the first gives the losses of its last `stride`
  tokens, which therefore see at least `window - stride` tokens before them;
- a masked model reads a row for each token, which is hidden with those behind it in its word
  (`within_word_l2r`, Kauf & Ivanova 2023), with as much text on both sides as the window holds. A
  word's loss is the negative pseudo log-likelihood;
- an encoder-decoder reads a row for each word, with a sentinel in its place and text on both sides,
  and a word's loss is -log p(word, next sentinel | first sentinel), the form of span infilling that
  T5 is trained on. The second sentinel stands for the word's end: with it the probabilities of all
  spans add up to 1.

Only losses of decoders make up the probability of a text. Those of models of one kind compare.
"""

import abc
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax import checks
from ckl_jax.data.process_pool import batches
from ckl_jax.data.tasks.chunks import StreamDocument, buckets
from ckl_jax.data.tasks.converters import decoder_only_batch, pad_rows
from ckl_jax.data.tasks.word_losses import WordLosses
from ckl_jax.errors import UserError
from ckl_jax.models.base import token_losses
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.masked import MaskedModel
from ckl_jax.train.opening import Opened

_MIN_TARGET = 8  # lengths of targets are powers of two from here on: few shapes are compiled


class Row(NamedTuple):
    """What a model reads at once, in places of a document's tokens.

    Attributes:
      document: its number among those that are scored at once.
      start, stop: the tokens that are read; -1 is the token before the document.
      first, end: the tokens that are scored.
      hidden: the end of the hidden tokens, which begin with `first`.
    """

    document: int
    start: int
    stop: int
    first: int
    end: int
    hidden: int = 0


class WordScorer(abc.ABC):
    """Scores documents; a subclass says what a row is.

    Attributes:
      window: tokens of a row, special ones included.
      stride: tokens that each further window of a document scores; None where there is no such
        number.
    """

    scheme: ClassVar[str]
    default_window: ClassVar[int] = 128  # a row for each token or word is much to compute

    def __init__(self, opened: Opened, window: int | None, stride: int | None, batch_size: int):
        self.model, self._opened, self._batch_size = opened.model, opened, batch_size
        # A T5's positions are relative, without a limit.
        limit = getattr(self.model.config, "max_positions", math.inf)
        self.window = min(limit, self.default_window) if window is None else window
        checks.require_int(8, **{"--window": self.window})
        checks.require_int(1, **{"--stride": stride, "--batch-size": batch_size})
        self.stride = self._stride(stride)
        if self.window > limit or (self.stride is not None and self.stride >= self.window):
            raise UserError(
                f"--window {self.window} --stride {self.stride}: the window holds at most the "
                f"{limit} positions of the model, and the stride is smaller than the window."
            )
        self._lengths = buckets(self.window)  # the few row lengths for which the step is compiled
        self._step = jax.jit(self._losses)

    def __call__(self, documents: Sequence[StreamDocument]) -> Iterator[WordLosses]:
        rows = [row for i, d in enumerate(documents) for row in self._rows(i, d)]
        losses = [np.zeros(len(d.tokens), np.float32) for d in documents]
        begins = [np.zeros(len(d.tokens), np.int32) for d in documents]
        rows.sort(key=self._shape)
        for shape, mine in itertools.groupby(rows, key=self._shape):
            for part in batches(mine, lambda _: 1, self._batch_size):
                missing = self._batch_size - len(part)  # one batch size is compiled
                batch = self._batch(documents, [*part, *part[-1:] * missing], *shape)
                for row, found in zip(part, self._run(batch), strict=False):
                    span = slice(row.first, row.end)
                    losses[row.document][span] = self._of_tokens(row, found)
                    begins[row.document][span] = max(row.start, 0)
        for document, nll, begin in zip(documents, losses, begins, strict=True):
            yield document.losses(nll, begin)

    def _run(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        with self._opened.on_mesh():
            put = self._opened.put_batch
            return jax.device_get(self._step(self._opened.params, put(batch) if put else batch))

    def _length(self, size: int) -> int:
        return next(length for length in self._lengths if length >= size)

    def _stride(self, stride: int | None) -> int | None:
        if stride is not None:
            kind = type(self.model).__name__
            raise UserError(f"--stride is of decoder-only models; leave it out for a {kind}.")
        return None

    @abc.abstractmethod
    def _rows(self, number: int, document: StreamDocument) -> Iterator[Row]:
        """The rows that give the loss of each token once."""

    @abc.abstractmethod
    def _shape(self, row: Row) -> tuple[int, ...]:
        """The lengths for which the step of a row is compiled."""

    @abc.abstractmethod
    def _batch(
        self, documents: Sequence[StreamDocument], rows: Sequence[Row], *shape: int
    ) -> dict[str, np.ndarray]:
        """The arrays of rows of one shape."""

    @abc.abstractmethod
    def _losses(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """[B, ...] losses in nats."""

    @abc.abstractmethod
    def _of_tokens(self, row: Row, found: np.ndarray) -> np.ndarray:
        """[end - first], the losses of a row's scored tokens."""


class CausalWordScorer(WordScorer):
    """Of decoder-only models, in overlapping windows."""

    scheme, default_window = "causal", 1024

    def _stride(self, stride: int | None) -> int:
        return max(self.window // 2, 1) if stride is None else stride

    def _rows(self, number: int, document: StreamDocument) -> Iterator[Row]:
        total = len(document.tokens)
        end = min(self.window - 1, total)
        yield Row(number, -1, end, 0, end)
        while end < total:
            first, end = end, min(end + self.stride, total)
            yield Row(number, end - self.window, end, first, end)

    def _shape(self, row: Row) -> tuple[int]:
        return (self._length(row.stop - row.start),)

    def _batch(self, documents, rows, length):
        start = self.model.start_id
        # Qwen and others begin a text with nothing; the end of the text before it stands there.
        before = self.model.vocabulary.eos_id if start is None else start
        tokens = [
            [
                *[before] * (row.start < 0),
                *documents[row.document].tokens[max(row.start, 0) : row.stop],
            ]
            for row in rows
        ]
        return decoder_only_batch(pad_rows(tokens, length, None), np.array(list(map(len, tokens))))

    def _losses(self, params, batch):
        return self.model.per_token(token_losses, params, batch)[0]

    def _of_tokens(self, row, found):
        # Position j of a row predicts the token after it.
        return found[row.first - row.start - 1 : row.end - row.start - 1]


class MaskedWordScorer(WordScorer):
    """Of masked models: pseudo log-likelihoods, within each word from left to right."""

    scheme = "within_word_l2r"

    def _rows(self, number: int, document: StreamDocument) -> Iterator[Row]:
        total, room = len(document.tokens), self.window - 2
        for i, hidden in enumerate(np.repeat(np.cumsum(document.counts), document.counts).tolist()):
            start = max(0, min(i - room // 2, total - room))
            yield Row(number, start, min(start + room, total), i, i + 1, hidden)

    def _shape(self, row: Row) -> tuple[int]:
        return (self._length(row.stop - row.start + 2),)

    def _batch(self, documents, rows, length):
        vocabulary = self.model.vocabulary
        tokens = np.zeros((len(rows), length), np.int32)
        segments = np.zeros_like(tokens)
        for i, row in enumerate(rows):
            text = documents[row.document].tokens[row.start : row.stop].copy()
            text[row.first - row.start : row.hidden - row.start] = vocabulary.mask_id
            tokens[i, : len(text) + 2] = [vocabulary.bos_id, *text, vocabulary.eos_id]
            segments[i, : len(text) + 2] = 1
        targets = [[documents[row.document].tokens[row.first]] for row in rows]
        places = [[row.first - row.start + 1] for row in rows]  # behind [CLS]
        return {
            "encoder_input_tokens": tokens,
            "encoder_segment_ids": segments,
            "encoder_positions": np.broadcast_to(np.arange(length, dtype=np.int32), tokens.shape),
            "target_positions": np.array(places, np.int32),
            "targets": np.array(targets, np.int32),
        }

    def _losses(self, params, batch):
        return -self.model.score_positions(params, batch)

    def _of_tokens(self, row, found):
        return found


class InfillingWordScorer(WordScorer):
    """Of encoder-decoders: each word in place of a sentinel."""

    scheme = "word_infilling"

    def __init__(self, opened: Opened, window: int | None, stride: int | None, batch_size: int):
        super().__init__(opened, window, stride, batch_size)
        vocabulary = self.model.output_vocabulary
        if not getattr(vocabulary, "extra_ids", 0) > 1:
            raise UserError(
                "The model's vocabulary has no sentinels <extra_id_0> and <extra_id_1>, with which "
                "an encoder-decoder fills in words; give a model that has them, such as a T5."
            )
        self._sentinels = vocabulary.sentinel(0), vocabulary.sentinel(1)

    def _rows(self, number: int, document: StreamDocument) -> Iterator[Row]:
        total, room = len(document.tokens), self.window - 2
        for end, count in zip(np.cumsum(document.counts).tolist(), document.counts, strict=True):
            # A word longer than a window is filled in by parts.
            for first in range(end - int(count), end, room):
                before = min(first, max(room // 2, room - (total - end)))
                stop = min(total, end + room - before)
                yield Row(number, first - before, stop, first, min(first + room, end), end)

    def _shape(self, row: Row) -> tuple[int, int]:
        seen = row.stop - row.start - (row.hidden - row.first)
        target = max(_MIN_TARGET, 1 << (row.end - row.first + 1).bit_length())
        return self._length(seen + 2), target

    def _batch(self, documents, rows, length, target_length):
        first, second = self._sentinels
        inputs, targets = [], []
        for row in rows:
            text = documents[row.document].tokens
            left, right = text[row.start : row.first], text[row.hidden : row.stop]
            inputs.append([*left, first, *right, self.model.output_vocabulary.eos_id])
            targets.append([first, *text[row.first : row.end], second])
        return {
            "encoder_input_tokens": pad_rows(inputs, length, None),
            "decoder_target_tokens": pad_rows(targets, target_length, None),
            "input_of_row": np.arange(len(rows), dtype=np.int32),
        }

    def _losses(self, params, batch):
        losses = -self.model.score_options(params, batch)
        # Without padding, so that the last one is the second sentinel's.
        return jnp.where(batch["decoder_target_tokens"] != 0, losses, 0.0)

    def _of_tokens(self, row, found):
        size = row.end - row.first
        tokens = found[1 : 1 + size].copy()
        tokens[-1] += found[1 + size]
        return tokens


_SCORERS = {
    DecoderOnlyModel: CausalWordScorer,
    MaskedModel: MaskedWordScorer,
    EncoderDecoderModel: InfillingWordScorer,
}


def make_word_scorer(
    opened: Opened, window: int | None, stride: int | None, batch_size: int
) -> WordScorer:
    """The scorer of a model's kind.

    Raises:
      UserError: the model is of another kind, the window is longer than its positions, or --stride
        is given for a model whose windows do not slide.
    """
    for kind, scorer in _SCORERS.items():
        if isinstance(opened.model, kind):
            return scorer(opened, window, stride, batch_size)
    raise UserError(
        f"No scorer knows a {type(opened.model).__name__}; give its dump of word losses in place "
        "of the model."
    )
