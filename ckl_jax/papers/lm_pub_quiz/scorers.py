"""Scores of every token of a statement.

A causal model scores a token given all before it (LM-PUB-QUIZ; Ploner et al. 2024, section 2.2).
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.data.facts.statements import Span, Statement
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.papers.lm_pub_quiz import tries

Array = np.ndarray
_AHEAD = 2  # batches that the host is ahead of the device


class StatementError(UserError):
    """A statement that cannot be scored; `number` is its place among those that were given."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number = number


@dataclasses.dataclass(frozen=True)
class TokenScores:
    """Scores of S statements of at most L tokens, special tokens left out."""

    values: Array  # [S, L] float32 log probabilities; 0 where there is nothing to score
    scored: Array  # [S, L] bool
    ids: Array  # [S, L] int32; -1 behind a statement


class Scorer:
    """What the scorers of a model (`model`) have in common."""

    def roles(self, statement: Statement) -> tuple[list[int], list[int]]:
        """The scored tokens of the subject and of the answer."""
        return roles_at(statement, self.model.output_vocabulary.offsets(statement.text))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The tokens of scored ids."""
        return self.model.output_vocabulary.pieces(ids)


@dataclasses.dataclass
class CausalScorer(Scorer):
    """Scores statements by a causal model, each distinct prefix once.

    Attributes:
      model: the model; its vocabulary encodes the statements.
      bos: begin with the model's `start_id` (BOS; EOS of a Transformer-XL), so that the first token
        is scored too; None does so where it has one. Published GPT-2 scores are without.
      width: nodes that a row of the model holds; None is 512, and 256 on CPUs, where a GPT-2 small
        takes a fifth less time so.
      batch_size: rows in a batch; None is 1 on CPUs, where a row is work enough, and 16 elsewhere.
      put_batch: places a dict of host arrays on the devices; default: as they are.
    """

    model: DecoderOnlyModel
    params: Any
    bos: bool | None = None
    width: int | None = None
    batch_size: int | None = None
    put_batch: Callable[[dict], dict] | None = None

    def __post_init__(self) -> None:
        if self.bos is None:
            self.bos = self.model.start_id is not None
        if self.bos and self.model.start_id is None:
            raise UserError(f"{self.model.vocabulary!r} has no BOS; score without it.")
        on_cpu = jax.default_backend() == "cpu"
        if self.batch_size is None:
            self.batch_size = 1 if on_cpu else 16
        if self.width is None:
            self.width = 256 if on_cpu else 512
        checks.require_size(width=self.width, batch_size=self.batch_size)
        # One jitted function for all relations: rows and batches have fixed sizes, so it is
        # compiled once for each row width.
        self._step = jax.jit(self.model.score_tree)
        self.tokens_seen = 0  # nodes that the model saw, padding apart

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that scores depend on, under LM-PUB-QUIZ's names."""
        return {"ensure_bos_token_added": self.bos, "dtype": str(self.model.config.dtype)}

    def encode(self, statements: Sequence[Statement]) -> list[list[int]]:
        """Token ids of each statement, without BOS.

        Raises:
          StatementError: a statement exceeds the model's positions, or has no token to score.
        """
        vocabulary, max_positions = self.model.vocabulary, self.model.config.max_positions
        encoded = vocabulary.encode_many([s.text for s in statements])
        for number, (statement, ids) in enumerate(zip(statements, encoded, strict=True)):
            if len(ids) + self.bos > max_positions + 1:  # the last token is scored, not seen
                raise too_long(number, statement, len(ids), max_positions)
            # The first token of the input has no score: nothing comes before it.
            if len(ids) + self.bos < 2:
                raise nothing_to_score(number, statement)
        return encoded

    def token_scores(
        self, statements: Sequence[Statement], conditional: bool = False
    ) -> TokenScores:
        """Scores of every token, or with `conditional` of those from the answer's first one on.

        See `encode` for the errors.
        """
        first = [self.model.start_id] if self.bos else []
        sequences = [first + ids for ids in self.encode(statements)]
        # Options of a sentence share its beginning, which the trie holds, and the model sees, once.
        trie = tries.Trie.of(sequences)
        scores = self._score(trie)
        # `paths` is -1 after a statement's end, which as an index reads the last node; `where` then
        # throws that value away.
        values = np.where(trie.paths >= 0, scores[trie.paths], np.float32(0))
        ids = np.where(trie.paths >= 0, trie.tokens[trie.paths], -1)
        scored = trie.paths >= 0
        # The root: BOS, or without BOS the first token of the statement.
        scored[:, 0] = False
        # Column 0 is BOS, which is not a token of the statement; `roles` count without it.
        cut = slice(int(self.bos), None)
        result = TokenScores(values[:, cut], scored[:, cut], ids[:, cut])
        return from_answers_on(result, map(self.roles, statements)) if conditional else result

    def _score(self, trie: tries.Trie) -> Array:
        """[N] float32: the log probability of each node after its path; 0 of roots."""
        scores = np.zeros(len(trie.tokens), np.float32)
        put = self.put_batch or (lambda batch: batch)
        started = (
            (rows, self._step(self.params, put(batch))) for rows, batch in self._batches(trie)
        )
        for rows, result in in_order(started):
            # The result has rows of padding after the last real one.
            for row, values in zip(rows, result, strict=False):
                scores[row.nodes] = values[: len(row.nodes)]
        return scores

    def _batches(self, trie: tries.Trie) -> Iterator[tuple[list[tries.Row], dict[str, Array]]]:
        longest = trie.paths.shape[1]
        # Rounded up to a multiple: a row must hold any sequence whole.
        width = self.width * -(-longest // self.width)
        edges = 2 * width  # with fewer children a node, a row is full of nodes first
        rows = list(tries.rows(trie, width, edges))
        for start in range(0, len(rows), self.batch_size):
            some = rows[start : start + self.batch_size]
            self.tokens_seen += sum(len(row.tokens) for row in some)
            # The last batch repeats its first row, so that one shape is compiled; `zip` in `_score`
            # ignores the copies.
            padded = [*some, *[some[0]] * (self.batch_size - len(some))]
            yield (
                some,
                {
                    "decoder_input_tokens": _pad([r.tokens for r in padded], width),
                    "decoder_positions": _pad([r.positions for r in padded], width),
                    # Padding sees itself alone: every position has one to attend to.
                    "decoder_subtree_ends": _pad([r.ends for r in padded], width, own=True),
                    "edge_parents": _pad([r.parents for r in padded], edges),
                    "edge_targets": _pad([r.targets for r in padded], edges),
                },
            )


def too_long(number: int, statement: Statement, tokens: int, max_positions: int) -> StatementError:
    """The error of a statement that exceeds the model's positions."""
    return StatementError(
        number,
        f"the statement {statement.text[:60]!r}... has {tokens} tokens, more than the model's "
        f"{max_positions} positions",
    )


def nothing_to_score(number: int, statement: Statement) -> StatementError:
    """The error of a statement without a token to score."""
    return StatementError(number, f"the statement {statement.text!r} has no token to score")


def in_order(started: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yields (what, host arrays) for (what, arrays on devices), the devices a little ahead."""
    pending: collections.deque = collections.deque()
    for item in started:
        pending.append(item)
        # `started` dispatches without waiting; only here does the host wait, for the oldest batch,
        # while the device already has the next ones.
        if len(pending) > _AHEAD:
            what, result = pending.popleft()
            yield what, jax.device_get(result)
    for what, result in pending:
        yield what, jax.device_get(result)


def from_answers_on(
    scores: TokenScores, roles: Iterable[tuple[Sequence[int], Sequence[int]]]
) -> TokenScores:
    """The scores without those before the first token of each statement's answer."""
    # Without any answer token (an empty label) everything is scored.
    starts = [min(answer, default=0) for _, answer in roles]
    place = np.arange(scores.scored.shape[1])
    scored = scores.scored & (place >= np.array(starts)[:, None])
    return TokenScores(np.where(scored, scores.values, np.float32(0)), scored, scores.ids)


def _pad(arrays: Sequence[Array], length: int, own: bool = False) -> Array:
    """[len(arrays), length]: zeros behind each; with `own` numbers by which each sees itself."""
    padded = np.zeros((len(arrays), length), np.int32)
    if own:
        padded += np.arange(1, length + 1, dtype=np.int32)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return padded


def roles_at(statement: Statement, offsets: Sequence[Span]) -> tuple[list[int], list[int]]:
    """The tokens of a statement's subject and of its answer, by [start, end) of each token."""
    subject, answer = statement.subjects, statement.answers
    return tokens_of_spans(offsets, subject), tokens_of_spans(offsets, answer)


def tokens_of_spans(offsets: Sequence[Span], spans: Sequence[Span]) -> list[int]:
    """The tokens of labels: from the first to the last that has a character of a span.

    Args:
      offsets: [start, end) in characters of each token.
      spans: those of the labels.
    """
    tokens = []
    for start, end in spans:
        # Any overlap counts: GPT-2's tokens include the space before a word, T5's can cross the
        # label's end.
        inside = [i for i, (a, b) in enumerate(offsets) if a < end and b > start]
        if inside:
            # Tokens of width 0 between two others belong to the label as well.
            tokens += range(inside[0], inside[-1] + 1)
    return tokens
