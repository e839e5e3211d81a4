"""Token rows to answers or scores in batches; used by probes and by `t5x infer`."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ckl_jax.data.tasks.converters import encoder_decoder_batch, pad_rows
from ckl_jax.errors import UserError
from ckl_jax.models.encoder_decoder import EncoderDecoderModel

_SENTINEL = re.compile(r"<extra_id_\d+>")


class EncoderDecoderGenerator:
    """Decodes answers and scores targets with an encoder-decoder; caches compiled functions.

    Args:
      model: the model with its method in it.
      batch_size: rows at once; the last batch is padded.
      rule: "hf" or "t5x", the beam search's; None is what the model's `decode_fn` does.
      options: further arguments of the search, such as `length_penalty`.
      put_batch: places a dict of host arrays on the devices; default: as they are.

    Attributes:
      all_decodes: whether all that was decoded for an input is its answer, and not the first.
    """

    all_decodes = False

    task_features = ("inputs", "targets")  # of the rows that the model must be made for

    first: Sequence[int] = ()  # what is put before the ids of every input

    def __init__(
        self,
        model: EncoderDecoderModel,
        batch_size: int,
        rule: str | None = None,
        options: Mapping[str, Any] | None = None,
        put_batch=None,
    ):
        if getattr(model, "task_features", self.task_features) != self.task_features:
            raise UserError(
                f"{type(self).__name__} is not for a {type(model.config).__name__}: an "
                "encoder-decoder takes answering.EncoderDecoderGenerator, a decoder-only model "
                "continuing.DecoderOnlyGenerator (infer.infer.generator_cls; see "
                "temporalwiki_infer.gin)."
            )
        self.model, self.batch_size = model, batch_size
        self._options = dict(options or {}) | ({} if rule is None else {"rule": rule})
        self._put = put_batch or (lambda batch: batch)
        # Jitted once per generator and compiled once per shape: batches are padded to one size.
        self._predict = jax.jit(self._search, static_argnums=(2, 3))
        self._score = jax.jit(model.score_batch)

    def check_search(self) -> None:
        """Raises `UserError` if the model's `decode_fn` cannot be called as answers need it."""
        decode_fn = self.model.decode_fn
        try:
            inspect.signature(decode_fn).bind_partial(beam_size=1, num_return=1, **self._options)
        except TypeError as e:
            name = getattr(decode_fn, "__name__", repr(decode_fn))
            raise UserError(
                f"{type(self.model).__name__}.decode_fn is {name}, which does not fit ({e}); give "
                "@decoding.beam_search."
            ) from e

    def _search(self, params: Any, batch: Any, length: int, beams: int) -> Any:
        """Tokens [B, R, L] and scores [B, R], best first."""
        # A decoder-only model's batches have the lengths of prompts too.
        lengths = {"prompt_lengths": batch["lengths"]} if "lengths" in batch else {}
        options = {"beam_size": beams, "num_return": beams, **lengths, **self._options}
        decoded = self.model.predict(params, batch["tokens"], length, **options)
        return decoded.tokens, decoded.scores

    def _text(self, ids: np.ndarray) -> str:
        return clean(self.model.output_vocabulary.decode(ids))

    def answers(
        self,
        params: Any,
        rows: Sequence[Sequence[int]],
        source_length: int,
        target_length: int,
        beams: int,
    ) -> Iterator[list[str]]:
        """Yields the answers to each row, best first; see `scored_answers`."""
        scored = self.scored_answers(params, rows, source_length, target_length, beams)
        yield from (texts for texts, _ in scored)

    def scored_answers(
        self,
        params: Any,
        rows: Sequence[Sequence[int]],
        source_length: int,
        target_length: int,
        beams: int,
    ) -> Iterator[tuple[list[str], list[float]]]:
        """Yields the decoded strings of each row of token ids and their scores, best first.

        Args:
          rows: inputs with EOS; longer ones than `source_length` are cut.
          source_length: S.
          target_length: counts the start token, as Hugging Face's does.
          beams: how many beams to search, and answers to return.
        """
        for part, batch in self._prompts(rows, source_length):
            # Hugging Face's `max_length` counts the start token, `predict` does not: hence - 1.
            decoded = self._predict(params, self._put(batch), target_length - 1, beams)
            tokens, scores = (values[:part] for values in fetch(decoded))
            for row, row_scores in zip(tokens, scores, strict=True):
                yield [self._text(ids) for ids in row], row_scores.tolist()

    def scores(
        self,
        params: Any,
        inputs: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        lengths: tuple[int, int],
    ) -> Iterator[float]:
        """Yields the log likelihood of each row's target.

        Args:
          inputs, targets: token ids with EOS.
          lengths: (S, T).
        """
        for part, batch in self._pairs(inputs, targets, lengths):
            yield from map(float, fetch(self._score(params, self._put(batch)))[:part])

    def cut(
        self,
        inputs: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        lengths: tuple[int, int],
    ) -> tuple[int, int]:
        """Returns how many inputs and how many targets are longer than (S, T), and cut."""
        source, target = lengths
        long_inputs = sum(self._input_size(row) > source for row in inputs)
        return long_inputs, sum(self._target_size(row) > target for row in targets)

    def _input_size(self, row: Sequence[int]) -> int:
        return len(row)

    def _target_size(self, row: Sequence[int]) -> int:
        return len(row)

    def _prompts(
        self, rows: Sequence[Sequence[int]], length: int
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yields what `_search` takes, and how many of its rows are prompts."""
        tokens = pad_rows(rows, length)
        for start in range(0, len(tokens), self.batch_size):
            part = tokens[start : start + self.batch_size]
            yield len(part), {"tokens": self._filled(part)}

    def _pairs(
        self,
        inputs: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        lengths: tuple[int, int],
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yields batches of the model's features, and how many of their rows are scored."""
        sources, golds = pad_rows(inputs, lengths[0]), pad_rows(targets, lengths[1])
        for start in range(0, len(sources), self.batch_size):
            source, gold = (x[start : start + self.batch_size] for x in (sources, golds))
            valid = np.arange(self.batch_size) < len(source)
            missing = [(0, self.batch_size - len(source)), (0, 0)]
            batch = encoder_decoder_batch(self._filled(source), np.pad(gold, missing), valid)
            yield len(source), batch

    def _filled(self, tokens: np.ndarray) -> np.ndarray:
        """`tokens` with the rows that a batch lacks."""
        padded = np.pad(tokens, ((0, self.batch_size - len(tokens)), (0, 0)))
        padded[len(tokens) :, 0] = self.model.input_vocabulary.eos_id  # an empty row sees nothing
        return padded


def fetch(tree: Any) -> Any:
    """Fetches arrays to every process as numpy, whole even if sharded over processes."""
    # `process_allgather` would compile and copy for nothing.
    if jax.process_count() == 1:
        return jax.device_get(tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)


def clean(text: str) -> str:
    """Removes sentinels and outer blanks from a decoded answer."""
    return _SENTINEL.sub(" ", text).strip()
