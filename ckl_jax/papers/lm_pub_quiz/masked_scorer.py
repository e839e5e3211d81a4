"""Scores of statements by masked models: one pass for every token, many passes in a row.

The pseudo log likelihood of a statement (Salazar et al. 2020) is the sum over its tokens of
log p(token | the others), each from a pass of its own in which the token is hidden. What else is
hidden in that pass is the scheme, `pll_metric` in LM-PUB-QUIZ's words:

- "within_word_l2r": the tokens behind it in the same word (Kauf & Ivanova 2023);
- "original": nothing (Salazar et al. 2020);
- "sentence_l2r": everything behind it, the end token too;
- "answer_l2r+word_l2r": of an answer, its tokens behind it, wherever the answer stands; else the
  word.

Passes are short and of many lengths; they are packed into common rows without seeing each
other, so that nothing is padded and one shape is compiled.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.data.facts.statements import Statement
from ckl_jax.models.masked import MaskedModel
from ckl_jax.papers.lm_pub_quiz import scorers
from ckl_jax.papers.lm_pub_quiz.scorers import Array
from ckl_jax.papers.lm_pub_quiz.settings import SCHEMES

_SHORT = 10  # tokens of a pass; says how many a row has room for


@dataclasses.dataclass
class MaskedScorer(scorers.Scorer):
    """Scores statements by a masked model.

    Attributes:
      model: the model; its vocabulary encodes the statements.
      pll_metric: one of SCHEMES.
      width: tokens of a row, in which several passes have room.
      batch_size: rows in a batch; None is 4 on CPUs and 128 elsewhere.
      put_batch: places a dict of host arrays on the devices; default: as they are.
    """

    model: MaskedModel
    params: Any
    pll_metric: str = SCHEMES[0]
    width: int = 128
    batch_size: int | None = None
    put_batch: Callable[[dict], dict] | None = None

    def __post_init__(self) -> None:
        checks.require_choice(SCHEMES, pll_metric=self.pll_metric)
        if self.batch_size is None:
            self.batch_size = 4 if jax.default_backend() == "cpu" else 128
        checks.require_size(width=self.width, batch_size=self.batch_size)
        self._step = jax.jit(self.model.score_positions)
        self.tokens_seen = 0  # tokens that the model saw, padding apart

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that scores depend on, under LM-PUB-QUIZ's names."""
        return {
            "pll_metric": self.pll_metric,
            "ensure_bos_token_added": True,
            "dtype": str(self.model.config.dtype),
        }

    def token_scores(
        self, statements: Sequence[Statement], conditional: bool = False
    ) -> scorers.TokenScores:
        """Scores of every token, or with `conditional` of the answers' tokens alone.

        Raises:
          StatementError: a statement exceeds the model's positions, or has no token to score.
        """
        # `argwhere` yields (statement, token) pairs sorted by statement: one pass for each.
        texts = _Texts.of(self.model.vocabulary, statements, conditional)
        self._check(texts, statements)
        passes = np.argwhere(texts.scored)
        values = np.zeros(texts.ids.shape, np.float32)
        # Rounded up to a multiple of `width`, with 2 tokens more for [CLS] and [SEP]: a statement
        # longer than a row makes all rows longer rather than fail.
        width = self.width * -(-(int(texts.lengths.max()) + 2) // self.width)
        # Passes of a row: an array needs one size, so it must be bounded; with shorter passes than
        # _SHORT a row stays partly empty.
        room = max(1, width // _SHORT)
        rows = list(_fill(texts.lengths[passes[:, 0]] + 2, width, room))
        batches = (rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size))
        # A generator: `in_order` pulls batches as the device finishes others.
        started = ((parts, self._run(texts, passes, parts, width, room)) for parts in batches)
        for parts, row_scores in scorers.in_order(started):
            for (start, stop), scores in zip(parts, row_scores, strict=False):
                # (statements, tokens) as an index of two arrays; scores after the row's passes are
                # padding.
                values[tuple(passes[start:stop].T)] = scores[: stop - start]
        return scorers.TokenScores(values, texts.scored, texts.ids)

    def _check(self, texts: "_Texts", statements: Sequence[Statement]) -> None:
        max_positions = self.model.config.max_positions
        # The first bad statement alone is reported.
        for bad in np.flatnonzero(texts.lengths + 2 > max_positions)[:1]:
            raise scorers.too_long(bad, statements[bad], texts.lengths[bad] + 2, max_positions)
        for bad in np.flatnonzero(~texts.scored.any(axis=1))[:1]:
            raise scorers.nothing_to_score(bad, statements[bad])

    def _run(self, texts, passes, parts: Sequence[tuple[int, int]], width: int, room: int) -> Any:
        """Starts a batch of rows; each part is the passes [start, stop) of one."""
        # A last, smaller batch is filled up with empty rows, so that one shape is compiled.
        filled = [*parts, *[(0, 0)] * (self.batch_size - len(parts))]
        batch = self._batch(texts, passes, filled, width, room)
        if self.put_batch is not None:
            batch = self.put_batch(batch)
        return self._step(self.params, batch)

    def _batch(self, texts, passes, parts, width: int, room: int) -> dict[str, Array]:
        sizes = [stop - start for start, stop in parts]
        # P passes in all rows of the batch, computed at once without a loop in Python; below, the
        # position of a pass is where its [CLS] stands in its row.
        row = np.repeat(np.arange(len(parts)), sizes)  # [P], of each pass
        number = np.concatenate([np.arange(n) for n in sizes])  # [P], in its row
        chosen = np.concatenate([passes[a:b] for a, b in parts])
        statement, place = chosen.T
        tokens, seen = self._hidden(texts, statement, place)  # [P, L + 2]
        lengths = texts.lengths[statement] + 2
        # Tokens before each pass in the whole batch, then less those before its row's first pass;
        # `row` is sorted, so searchsorted finds that first pass.
        before = np.cumsum(lengths) - lengths
        first = before - before[np.searchsorted(row, row)]  # [P], its place in its row
        # (pass, position) of every real token, to scatter them all into the rows in one assignment.
        own, at = np.nonzero(seen)
        where = row[own], first[own] + at
        shape = (len(parts), width)
        batch = {
            "encoder_input_tokens": np.zeros(shape, np.int32),
            # Attention is only between tokens of the same segment; 0 is padding, so passes count
            # from 1.
            "encoder_segment_ids": np.zeros(shape, np.int32),
            "encoder_positions": np.zeros(shape, np.int32),
            "target_positions": np.zeros((len(parts), room), np.int32),
            "targets": np.zeros((len(parts), room), np.int32),
        }
        batch["encoder_input_tokens"][where] = tokens[seen]
        batch["encoder_segment_ids"][where] = number[own] + 1
        batch["encoder_positions"][where] = at
        # + 1 for [CLS].
        batch["target_positions"][row, number] = first + place + 1
        batch["targets"][row, number] = texts.ids[statement, place]
        self.tokens_seen += len(own)
        return batch

    def _hidden(self, texts: "_Texts", statement: Array, place: Array) -> tuple[Array, Array]:
        """The tokens of passes, special ones and masks among them, and which there are."""
        vocabulary, length = self.model.vocabulary, texts.ids.shape[1]
        number = np.arange(len(statement))
        # Tokens here count from [CLS] = 0, `place` from the statement's first token.
        line = np.arange(length + 2)
        ends = texts.lengths[statement][:, None] + 1
        tokens = np.full((len(statement), length + 2), vocabulary.bos_id, np.int32)
        tokens[:, 1:-1] = texts.ids[statement]
        tokens[number, ends[:, 0]] = vocabulary.eos_id
        # The scored token itself is always among the hidden ones.
        behind = line[1:-1] >= place[:, None] + 1
        if self.pll_metric == "original":
            hidden = line[1:-1] == place[:, None] + 1
        elif self.pll_metric == "sentence_l2r":
            hidden = behind
            # LM-PUB-QUIZ masks the final special token too in this scheme.
            tokens[number, ends[:, 0]] = vocabulary.mask_id
        else:
            words = texts.words[statement]
            # `scored` matters with `conditional` alone: LM-PUB-QUIZ then masks only answer tokens
            # of the word.
            hidden = behind & (words == words[number, place][:, None]) & texts.scored[statement]
            if self.pll_metric.startswith("answer"):
                answers = texts.answers[statement]
                in_answer = answers[number, place][:, None]
                # Over all occurrences of the answer, as in LM-PUB-QUIZ: else the model could copy
                # it from another one.
                hidden = np.where(in_answer, answers & behind, hidden)
        tokens[:, 1:-1] = np.where(hidden, vocabulary.mask_id, tokens[:, 1:-1])
        # What stands after [SEP] is not read.
        return tokens, line <= ends


@dataclasses.dataclass(frozen=True)
class _Texts:
    """S statements of at most L tokens."""

    ids: Array  # [S, L] int32; -1 behind a statement
    words: Array  # [S, L] int32, the word of each token; -1 behind a statement
    # answers, scored: [S, L] bool, the tokens of the answer, and those to be scored
    answers: Array
    scored: Array
    lengths: Array  # [S] int

    @classmethod
    def of(cls, vocabulary: Any, statements: Sequence[Statement], conditional: bool) -> "_Texts":
        encoded = vocabulary.encode_words([s.text for s in statements])
        lengths = np.array([len(e.ids) for e in encoded])
        shape = (len(encoded), int(lengths.max()))
        ids, words = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
        answers = np.zeros(shape, bool)
        for i, (one, statement) in enumerate(zip(encoded, statements, strict=True)):
            ids[i, : lengths[i]], words[i, : lengths[i]] = one.ids, one.words
            # Offsets are in characters of the text, which is where the template's spans are too.
            answers[i, scorers.tokens_of_spans(one.offsets, statement.answers)] = True
        return cls(ids, words, answers, answers if conditional else ids >= 0, lengths)


def _fill(lengths: Array, width: int, room: int) -> Iterator[tuple[int, int]]:
    """Cuts passes into rows: yields [start, stop) of at most `room` and `width` tokens in all."""
    ends = np.cumsum(lengths)
    start = 0
    while start < len(ends):
        used = ends[start - 1] if start else 0
        # side="right": a pass that fills the row to the last token still fits.
        stop = int(np.searchsorted(ends, used + width, side="right"))
        yield start, (stop := min(stop, start + room))
        start = stop
