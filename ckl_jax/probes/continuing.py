"""Continuations and their scores by a decoder-only model; `answering` serves encoder-decoders."""

import sys
from collections.abc import Iterator, Sequence

import numpy as np

from ckl_jax.data.tasks.converters import decoder_only_batch, pad_rows
from ckl_jax.data.text.byte_level import begins_with
from ckl_jax.probes.answering import EncoderDecoderGenerator


class DecoderOnlyGenerator(EncoderDecoderGenerator):
    """Continues prompts and scores given continuations; arguments as for `EncoderDecoderGenerator`.

    The target length counts a start token, as it does there. Scores do not count an end of text.
    Rows come with EOS, as for an encoder-decoder, and lose it here. A prompt begins with what the
    family puts before every text, such as Llama's `<s>`. One that is too long is cut behind that;
    an empty one becomes EOS alone.
    """

    task_features = ("targets",)

    @property
    def first(self) -> list[int]:
        """What is put before the ids of every prompt."""
        return begins_with(self.model.vocabulary)

    def _bare(self, row: Sequence[int]) -> list[int]:
        ended = bool(len(row)) and row[-1] == self.model.vocabulary.eos_id
        return list(row[:-1] if ended else row)

    def _prompt(self, row: Sequence[int], length: int) -> list[int]:
        first, row = self.first[:length], self._bare(row)
        row = row[len(first) :] if row[: len(first)] == first else row
        # The end of a prompt is what the answer continues, so that the start is cut.
        start = max(0, len(row) - (length - len(first)))
        return [*first, *row[start:]] or [self.model.vocabulary.eos_id]

    def _input_size(self, row: Sequence[int]) -> int:
        return len(self._prompt(row, sys.maxsize))

    def _target_size(self, row: Sequence[int]) -> int:
        return len(self._bare(row))

    def _prompts(
        self, rows: Sequence[Sequence[int]], length: int
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        prompts = [self._prompt(row, length) for row in rows]
        for start in range(0, len(prompts), self.batch_size):
            part = prompts[start : start + self.batch_size]
            # The last prompt again, and not an empty row, which has no token to continue from.
            filled = part + [part[-1]] * (self.batch_size - len(part))
            lengths = np.array([len(prompt) for prompt in filled], np.int32)
            yield len(part), {"tokens": pad_rows(filled, length, None), "lengths": lengths}

    def _pairs(
        self,
        inputs: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        lengths: tuple[int, int],
    ) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        prompts = [self._prompt(row, lengths[0]) for row in inputs]
        rows = [
            # One row holds prompt and target; the weights below leave the prompt out.
            prompt + self._bare(target)[: lengths[1]]
            for prompt, target in zip(prompts, targets, strict=True)
        ]
        for start in range(0, len(rows), self.batch_size):
            part = rows[start : start + self.batch_size]
            missing = self.batch_size - len(part)
            padded = pad_rows(part + [[]] * missing, sum(lengths), None)
            batch = decoder_only_batch(padded, np.array([len(r) for r in part] + [0] * missing))
            given = [len(p) for p in prompts[start : start + self.batch_size]] + [0] * missing
            # Position t of the targets holds the row's token t + 1: the first token of the target
            # stands at len(prompt) in the row.
            place = np.arange(sum(lengths))[None] + 1
            batch["decoder_loss_weights"] *= place >= np.array(given)[:, None]
            yield len(part), batch
