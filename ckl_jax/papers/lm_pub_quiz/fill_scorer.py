"""Scores of an encoder-decoder: what LM-PUB-QUIZ lacks, defined here.

Two options, both in the form of span infilling that T5 is trained on:

- "answer": the statement with its answers as sentinels goes in, and what is scored is each answer
  and the sentinel behind it, log p(answer, <extra_id_1> | statement, <extra_id_0>). The sentinel
  stands for the end: without it "New" would always be likelier than "New York".
- "statement": a lone `<extra_id_0>` goes in, and the whole statement is scored the same way, which
  is as near as T5 comes to the likelihood that a causal model gives.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.data.facts.statements import Statement
from ckl_jax.data.tasks.converters import pad_rows
from ckl_jax.data.text.spans import mask_spans
from ckl_jax.errors import UserError
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.papers.lm_pub_quiz.scorers import Array, Scorer, TokenScores, from_answers_on, roles_at
from ckl_jax.papers.lm_pub_quiz.settings import TARGETS

# Sizes are rounded up to powers of two from here on, so that few shapes are compiled.
_MIN_SIZE = 8


@dataclasses.dataclass
class EncoderDecoderScorer(Scorer):
    """Scores statements by an encoder-decoder.

    Attributes:
      model: the model; its vocabularies have sentinels.
      target: "answer" or "statement", see above.
      batch_size: options in a batch; None is 64 on CPUs and 512 elsewhere.
      put_batch: places a dict of host arrays on the devices; default: as they are.
    """

    model: EncoderDecoderModel
    params: Any
    target: str = "answer"
    batch_size: int | None = None
    put_batch: Callable[[dict], dict] | None = None

    def __post_init__(self) -> None:
        checks.require_choice(TARGETS, target=self.target)
        if self.batch_size is None:
            self.batch_size = 64 if jax.default_backend() == "cpu" else 512
        checks.require_size(batch_size=self.batch_size)
        self._step = jax.jit(self.model.score_options)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that scores depend on."""
        return {"target": self.target, "dtype": str(self.model.config.dtype)}

    def masked(self, statement: Statement) -> tuple[str, str]:
        """The text that goes in, and the text that is scored, sentinels and all."""
        whole = (0, len(statement.text))
        spans = statement.answers if self.target == "answer" else (whole,)
        return mask_spans(statement.text, spans)

    def token_scores(
        self, statements: Sequence[Statement], conditional: bool = False
    ) -> TokenScores:
        """Scores of every token of the targets but for the first sentinel.

        With `conditional` those from the answer's first token on.

        Raises:
          UserError: a target has more answers than there are sentinels; see `require_statements`.
        """
        if conditional:
            require_statements(self.target)
        texts = [self.masked(statement) for statement in statements]
        # With target "answer" all options of an instance have the same encoder input; each distinct
        # one is encoded once, and `rows` says which input belongs to which statement.
        inputs = list(dict.fromkeys(text for text, _ in texts))
        number = {text: i for i, text in enumerate(inputs)}
        rows = np.array([number[text] for text, _ in texts])
        # T5 was trained with EOS at the end of the encoder's input; the targets need none, because
        # the last sentinel ends them.
        encoded = _pad(self._encode(self.model.input_vocabulary, inputs, end=True))
        targets = _pad(self._encode(self.model.output_vocabulary, [t for _, t in texts]))
        values = np.zeros(targets.shape, np.float32)
        for part, batch in self._batches(rows, encoded, targets):
            if self.put_batch is not None:
                batch = self.put_batch(batch)
            # The batch is filled up with repeated rows; those after len(part) are thrown away.
            batch_values = jax.device_get(self._step(self.params, batch))[: len(part)]
            values[part, : batch_values.shape[1]] = batch_values
        # 0 is the padding id of T5's vocabularies, never a token of a text.
        scored = targets != 0
        scored[:, 0] = False  # the first sentinel, which is given
        values = np.where(scored, values, np.float32(0))
        ids = np.where(targets != 0, targets, -1)
        result = TokenScores(values[:, 1:], scored[:, 1:], ids[:, 1:])
        return from_answers_on(result, map(self.roles, statements)) if conditional else result

    def _encode(self, vocabulary: Any, texts: Sequence[str], end: bool = False) -> list[list[int]]:
        rows = vocabulary.encode_many(texts)
        return [[*ids, vocabulary.eos_id] for ids in rows] if end else rows

    def _batches(
        self, rows: Array, encoded: Array, targets: Array
    ) -> Iterator[tuple[Array, dict[str, Array]]]:
        """Yields the places of options, of one rounded length, and their batch."""
        size = self.batch_size
        # Batches hold targets of one rounded length: little padding, and one compiled program for
        # each power of two.
        lengths = np.array([_rounded(int(n)) for n in (targets != 0).sum(axis=1)])
        for length in np.unique(lengths):
            group = np.flatnonzero(lengths == length)
            for start in range(0, len(group), size):
                # `np.flatnonzero` keeps the order of the statements.
                part = group[start : start + size]
                # Options of a sentence are neighbours, so a batch has few inputs.
                inputs, place = np.unique(rows[part], return_inverse=True)
                yield (
                    part,
                    {
                        "encoder_input_tokens": _fill(encoded[inputs], _rounded(len(inputs))),
                        "input_of_row": _fill(place.astype(np.int32), size),
                        "decoder_target_tokens": _fill(targets[part, :length], size),
                    },
                )

    def roles(self, statement: Statement) -> tuple[list[int], list[int]]:
        """The scored tokens of the subject and of the answer."""
        vocabulary, target = self.model.output_vocabulary, self.masked(statement)[1]
        if self.target == "answer":
            # Minus the first sentinel, which is not scored, and the last one, which is not part of
            # the answer.
            return [], list(range(len(vocabulary.encode(target)) - 2))
        # Spans are counted in the statement, offsets in the target, which has the sentinel's text
        # before it.
        shift = target.index(statement.text)
        # [1:] leaves out the first sentinel, as `token_scores` does.
        offsets = [(a - shift, b - shift) for a, b in vocabulary.offsets(target)[1:]]
        return roles_at(statement, offsets)


CONDITIONAL, STATEMENTS = "--conditional (conditional_score)", "add --target statement"


def require_statements(
    target: str, conditional: str = CONDITIONAL, statements: str = STATEMENTS
) -> None:
    """Raises `UserError` where scores from the answer on would be those of all tokens.

    Args:
      conditional, statements: what the user calls that setting, and how to score statements.
    """
    if target == TARGETS[0]:
        raise UserError(
            f"{conditional} is of whole statements; an encoder-decoder's answers are scored given "
            f"their statement anyway: leave it out, or {statements}."
        )


def _pad(rows: Sequence[Sequence[int]]) -> Array:
    """[len(rows), L] int32, zeros behind each."""
    if any(not row for row in rows):
        raise UserError("a statement has no token to score")
    return pad_rows(rows, _rounded(max(map(len, rows))))


def _rounded(size: int) -> int:
    """The next power of two, `_MIN_SIZE` or more."""
    return max(_MIN_SIZE, 1 << (size - 1).bit_length())


def _fill(array: Array, size: int) -> Array:
    """The same with its first entry repeated behind it, up to `size` entries."""
    # Repeated, not zeros, so that no row is padding alone.
    return np.concatenate([array, np.repeat(array[:1], size - len(array), axis=0)])
