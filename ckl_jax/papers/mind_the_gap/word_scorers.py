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

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
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
    """What a model reads at once, in places of a document's tokens."""

    document: int  # its number among those that are scored at once
    # start, stop: the tokens that are read; -1 is the token before the document
    start: int
    stop: int
    # first, end: the tokens that are scored
    first: int
    end: int
    size: int  # how many tokens the model reads, special ones included
    hidden: int = 0  # the end of the hidden tokens, which begin with `first`
    at: int = 0  # where the losses of a row begin with that of `first`
    target: int = 0  # length of the decoder's target, if there is one


Texts = Sequence[tuple[Row, np.ndarray]]  # rows, each with the tokens of its document


class CausalWordScorer:
    """Of decoder-only models, in overlapping windows; other kinds derive from it.

    Attributes:
      window: tokens of a row, special ones included.
      stride: tokens that each further window of a document scores; None where windows do not slide.
    """

    scheme, default_window, slides = "causal", 1024, True

    def __init__(self, opened: Opened, window: int | None, stride: int | None, batch_size: int):
        self.model, self._opened, self._batch_size = opened.model, opened, batch_size
        # A T5's positions are relative, without a limit.
        limit = getattr(self.model.config, "max_positions", math.inf)
        self.window = min(limit, self.default_window) if window is None else window
        checks.require_int(8, **{"--window": self.window})
        checks.require_int(1, checks.MAX_ROWS, **{"--stride": stride, "--batch-size": batch_size})
        if stride is not None and not self.slides:
            kind = type(self.model).__name__
            raise UserError(f"--stride is of decoder-only models; leave it out for a {kind}.")
        self.stride = (stride or self.window // 2) if self.slides else None
        if self.window > limit or (self.slides and self.stride >= self.window):
            raise UserError(
                f"--window {self.window} --stride {self.stride}: the window holds at most the "
                f"{limit} positions of the model, and the stride is smaller than the window."
            )
        self._lengths = buckets(self.window)  # the few row lengths for which the step is compiled
        self._step = jax.jit(self._losses)

    def __call__(self, documents: Sequence[StreamDocument]) -> Iterator[WordLosses]:
        losses = [np.zeros(len(d.tokens), np.float32) for d in documents]
        begins = [np.zeros(len(d.tokens), np.int32) for d in documents]
        rows = sorted(
            (row for i, d in enumerate(documents) for row in self._rows(i, d)), key=self._shape
        )
        for shape, mine in itertools.groupby(rows, key=self._shape):
            for part in batches(mine, lambda _: 1, self._batch_size):
                missing = self._batch_size - len(part)  # one batch size is compiled
                texts = [(row, documents[row.document].tokens) for row in part]
                batch = self._batch([*texts, *texts[-1:] * missing], *shape)
                for row, values in zip(part, self._run(batch), strict=False):
                    span, size = slice(row.first, row.end), row.end - row.first
                    losses[row.document][span] = values[row.at : row.at + size]
                    if row.target:  # the second sentinel's
                        losses[row.document][row.end - 1] += values[row.at + size]
                    begins[row.document][span] = max(row.start, 0)
        for document, nll, begin in zip(documents, losses, begins, strict=True):
            yield document.losses(nll, begin)

    def _run(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        with self._opened.on_mesh():
            batch = self._opened.put_batch(batch)
            return jax.device_get(self._step(self._opened.params, batch))

    def _shape(self, row: Row) -> tuple[int, int]:
        """The lengths for which the step of a row is compiled."""
        return next(length for length in self._lengths if length >= row.size), row.target

    def _rows(self, number: int, document: StreamDocument) -> Iterator[Row]:
        """The rows that give the loss of each token once."""
        total, end = len(document.tokens), 0
        while end < total:
            first, end = end, min(end + (self.stride if end else self.window - 1), total)
            start = max(end - self.window, -1)
            at = first - start - 1
            yield Row(number, start, end, first, end, size=end - start, at=at)

    def _batch(self, texts: Texts, length: int, target: int) -> dict[str, np.ndarray]:
        """The arrays of rows of one shape."""
        start = self.model.start_id
        # Qwen and others begin a text with nothing; the end of the text before it stands there.
        before = [self.model.vocabulary.eos_id if start is None else start]
        rows = [before * (r.start < 0) + [*text[max(r.start, 0) : r.stop]] for r, text in texts]
        return decoder_only_batch(pad_rows(rows, length, None), np.array(list(map(len, rows))))

    def _losses(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        """[B, ...] losses in nats; position j of a row predicts the token after it."""
        return self.model.per_token(token_losses, params, batch)[0]


class MaskedWordScorer(CausalWordScorer):
    """Of masked models: pseudo log-likelihoods, within each word from left to right."""

    scheme, default_window, slides = "within_word_l2r", 128, False

    def _rows(self, number: int, document: StreamDocument) -> Iterator[Row]:
        total, room = len(document.tokens), self.window - 2
        for i, hidden in enumerate(np.repeat(np.cumsum(document.counts), document.counts).tolist()):
            start = max(0, min(i - room // 2, total - room))
            stop = min(start + room, total)
            size = stop - start + 2
            yield Row(number, start, stop, i, i + 1, hidden=hidden, size=size)

    def _batch(self, texts: Texts, length: int, target: int) -> dict[str, np.ndarray]:
        vocabulary, rows = self.model.vocabulary, []
        for row, text in texts:
            shown = text[row.start : row.stop].copy()
            shown[row.first - row.start : row.hidden - row.start] = vocabulary.mask_id
            rows.append([vocabulary.bos_id, *shown, vocabulary.eos_id])
        sizes, line = np.array([[len(row)] for row in rows]), np.arange(length, dtype=np.int32)
        return {
            "encoder_input_tokens": pad_rows(rows, length, None),
            "encoder_segment_ids": (line < sizes).astype(np.int32),
            "encoder_positions": np.broadcast_to(line, (len(rows), length)),
            # Behind [CLS].
            "target_positions": np.array([[r.first - r.start + 1] for r, _ in texts], np.int32),
            "targets": np.array([[text[row.first]] for row, text in texts], np.int32),
        }

    def _losses(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return -self.model.score_positions(params, batch)


class InfillingWordScorer(CausalWordScorer):
    """Of encoder-decoders: each word in place of a sentinel."""

    scheme, default_window, slides = "word_infilling", 128, False

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
        ends = np.cumsum(document.counts).tolist()
        for word_end, count in zip(ends, document.counts, strict=True):
            # A word longer than a window is filled in by parts.
            for first in range(word_end - int(count), word_end, room):
                before = min(first, max(room // 2, room - (total - word_end)))
                stop, end = min(total, word_end + room - before), min(first + room, word_end)
                target = max(_MIN_TARGET, 1 << (end - first + 1).bit_length())
                size = before + stop - word_end + 2
                more = {"hidden": word_end, "size": size, "at": 1, "target": target}
                yield Row(number, first - before, stop, first, end, **more)

    def _batch(self, texts: Texts, length: int, target: int) -> dict[str, np.ndarray]:
        (first, second), end = self._sentinels, self.model.output_vocabulary.eos_id
        shown = [
            [*text[row.start : row.first], first, *text[row.hidden : row.stop], end]
            for row, text in texts
        ]
        filled = [[first, *text[row.first : row.end], second] for row, text in texts]
        return {
            "encoder_input_tokens": pad_rows(shown, length, None),
            "decoder_target_tokens": pad_rows(filled, target, None),
            "input_of_row": np.arange(len(texts), dtype=np.int32),
        }

    def _losses(self, params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return -self.model.score_options(params, batch)


def make_word_scorer(opened: Opened, *settings: Any) -> CausalWordScorer:
    """The scorer of a model's kind; `settings` are window, stride and batch size.

    Raises:
      UserError: the model is of another kind, the window is longer than its positions, or --stride
        is given for a model whose windows do not slide.
    """
    match opened.model:
        case DecoderOnlyModel():
            return CausalWordScorer(opened, *settings)
        case MaskedModel():
            return MaskedWordScorer(opened, *settings)
        case EncoderDecoderModel():
            return InfillingWordScorer(opened, *settings)
    raise UserError(
        f"No scorer knows a {type(opened.model).__name__}; give its dump of word losses in place "
        "of the model."
    )
