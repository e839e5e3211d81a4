"""Facts for decoder-only models: perplexity of "subject relation object", and answers.

TemporalWiki, section 4.2: zero-shot, the whole triple as it stands, cut to 25 tokens. Rows say the
loss of each fact; the formulas of perplexity are functions of them (`analysis.perplexity`). After
light-tuning (appendix F) the object is generated too: "subject relation" is continued.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.facts.fact_files import Fact, FactFile, read_all
from ckl_jax.data.text.byte_level import begins_with
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes.closed_book import judge
from ckl_jax.probes.continuing import DecoderOnlyGenerator
from ckl_jax.probes.losses import GroupLosses

_ALL, _OBJECT = 1, 2  # bits of the groups of tokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactProbes:
    """Settings of fact probing: which facts, and how to decode.

    Attributes:
      files: CSV files of `ckl data probes` or as published; see `data.facts.fact_files`.
      length: tokens of a fact at most, and of a prompt.
      batch_size: facts at once.
      answers: when to generate the object as well: at the "last" evaluation, "always" or "never".
      answer_tokens: of an answer at most; what follows its first full stop is left out.
      beam_size: of the search for answers; else it is as `decoding.beam_search` is bound.
    """

    files: tuple[str, ...] = ()
    length: int = 25
    batch_size: int = 32
    answers: str = "never"
    answer_tokens: int = 5
    beam_size: int = 2

    has_rows = True

    def __post_init__(self) -> None:
        checks.require_names(empty=True, FACT_PROBES=self.files)
        checks.require_size(FACT_LENGTH=self.length, FACT_BATCH_SIZE=self.batch_size)
        checks.require_size(ANSWER_TOKENS=self.answer_tokens, ANSWER_BEAMS=self.beam_size)
        checks.require_choice(("last", "always", "never"), FACT_ANSWERS=self.answers)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the probes; () is none."""
        return tuple(Path(file).stem for file in self.files)

    def __call__(self, model: DecoderOnlyModel, partitioner: Partitioner) -> "FactEvaluator":
        """The facts of this record on one model, an evaluation of `train.train.train`."""
        partitioner.check_batch_size(self.batch_size, "FACT_BATCH_SIZE")
        return FactEvaluator(self, model, partitioner.put_whole)


class FactEvaluator:
    """Evaluates the facts of a `FactProbes` on one model; caches tokens and compiled functions."""

    def __init__(self, config: FactProbes, model: DecoderOnlyModel, put_batch=None):
        """Reads the files.

        Args:
          put_batch: places a dict of host arrays on the devices; default: as they are.

        Raises:
          UserError: a file is missing or malformed, or the model is not a decoder-only model.
        """
        self.config = config
        self.vocabulary = checks.need_vocabulary(model.output_vocabulary, "facts")
        # Two groups: all tokens of the triple, and the object's.
        self._losses = GroupLosses(model, 2, config.length, config.batch_size, put_batch)
        self._generator = DecoderOnlyGenerator(model, config.batch_size, put_batch=put_batch)
        self._files = [(file, self._tokens(file.facts)) for file in read_all(config.files)]

    def _tokens(self, facts: Sequence[Fact]) -> list[tuple[list[int], list[int]]]:
        """The ids of each fact, and of each id whether it is (a part of) the object's."""
        # One call of the tokenizer for all facts, which is much faster than one for each.
        ids = self.vocabulary.encode_many([fact.text for fact in facts])
        first = begins_with(self.vocabulary)  # given, not predicted
        places = (self.vocabulary.offsets(fact.text) for fact in facts)
        return [
            ([*first, *row], [*(0 for _ in first), *mark_object(place, len(fact.prompt))])
            for row, place, fact in zip(ids, places, facts, strict=True)
        ]

    def __call__(self, params: Any, step: int, last: bool) -> Iterator[dict[str, Any]]:
        """Yields one row per fact, in the order of the files.

        Raises:
          UserError: the loss of a fact is not finite.
        """
        del step
        asks = self.config.answers == "always" or (self.config.answers == "last" and last)
        for file, tokens in self._files:
            ids, marks = zip(*tokens, strict=True)
            losses = self._losses(params, ids, marks)
            answers = self._answers(params, file.facts) if asks else [None] * len(ids)
            for fact, row, loss, texts in zip(file.facts, ids, losses, answers, strict=True):
                yield {"probe": file.name, **self._row(file, fact, row, loss, texts)}

    def _row(self, file: FactFile, fact: Fact, ids: Sequence[int], loss, answers) -> dict:
        (nll, object_nll), (tokens, object_tokens) = (map(float, values) for values in loss)
        if not math.isfinite(nll):
            raise UserError(
                f"{file.name}: the loss of the fact {fact.id!r} is {nll}; the model's parameters "
                "are not sound, evaluate another checkpoint."
            )
        row = {
            "item": fact.id,
            "interval": file.interval,
            "class": file.title,
            "kind": fact.kind,
            "relation": fact.relation,
            "input": fact.prompt,
            "answers": [fact.object],
            "old_answers": list(fact.old_objects),
            "nll": nll,
            "tokens": int(tokens),
            "object_nll": object_nll,
            "object_tokens": int(object_tokens),
            "truncated": int(len(ids) > self.config.length),
        }
        if answers is None:
            return row
        return row | judge(answers, answers, (fact.object,), fact.old_objects)

    def _answers(self, params: Any, facts: Sequence[Fact]) -> Iterator[list[str]]:
        """Continuations of each prompt up to the first full stop, best first."""
        prompts = self.vocabulary.encode_many([fact.prompt for fact in facts])
        config = self.config
        answers = self._generator.answers(
            # Generators count a start token, hence + 1.
            params,
            prompts,
            config.length,
            config.answer_tokens + 1,
            config.beam_size,
        )
        for texts in answers:
            yield [text.partition(".")[0].strip() for text in texts]


def mark_object(offsets: Sequence[tuple[int, int]], start: int) -> list[int]:
    """The groups of each token of a fact: every token counts, and those of the object also apart.

    Args:
      offsets: [start, end) in characters of each token.
      start: where the object begins, with the space before it: that is (a part of) its first token.
    """
    # A token that straddles the border counts as the object's.
    return [_ALL | _OBJECT * (end > start) for _, end in offsets]
