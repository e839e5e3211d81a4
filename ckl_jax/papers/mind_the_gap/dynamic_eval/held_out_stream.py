"""The loss of held-out documents, read as running text with a memory, during training."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.data.tasks.contiguous_batches import ContiguousSource, contiguous_source
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes.answering import fetch
from ckl_jax.train.held_out import HeldOutTasks, Scores, perplexity
from ckl_jax.train.vocabulary_check import check_task_vocabulary

_WORDS = "tokens_per_word"  # a feature with one entry a word


@dataclasses.dataclass(frozen=True)
class StreamLoss(HeldOutTasks):
    """An evaluation of `train.train.train`: "training_eval/<task>" of each task of documents.

    Every token of every document is scored after what is before it, in the chunk and in the
    memory; the ends of documents are not. Perplexities by word can be compared between
    vocabularies, those by token cannot.

    Attributes:
      memory_length: slots of the memory; None is the model's own.
      documents: of each task at most, spread over it evenly; None is all.
    """

    batch_size: int = 8
    memory_length: int | None = None
    documents: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_int(HELD_OUT_DOCUMENTS=self.documents, EVAL_MEMORY_LENGTH=self.memory_length)

    def __call__(
        self, model: BaseTransformerModel, partitioner: Partitioner
    ) -> Callable[[Any, int, bool], Scores]:
        """Opens the tasks; returns `(params, step, last) -> scores`."""
        partitioner.check_batch_size(self.batch_size, "The batch_size of StreamLoss")
        sources = {Path(name).name: self._source(name, model) for name in self.tasks}

        def chunk(params: Any, memory: Any, batch: Any) -> tuple[jax.Array, jax.Array, Any]:
            losses, memory = model.stream_losses(params, batch, memory)
            weights = batch["decoder_loss_weights"]
            return (losses * weights).sum(-1), weights.sum(-1), memory

        # The memory is donated: it is the largest array, and is replaced every time.
        compiled = jax.jit(chunk, donate_argnums=1)
        start = jax.jit(
            lambda: model.initial_memory(self.batch_size, self.memory_length),
            out_shardings=partitioner.batch_sharding,
        )

        def sums(params: Any, source: ContiguousSource) -> tuple[float, float]:
            memory, total = start(), np.zeros(2)
            for step in range(len(source)):
                batch = partitioner.put_whole(source[step])
                *batch_sums, memory = compiled(params, memory, batch)
                # float64 on the host: sums of millions of tokens.
                total += [np.sum(x, dtype=np.float64) for x in fetch(tuple(batch_sums))]
            return tuple(total)

        def evaluate(params: Any, step: int, last: bool) -> Scores:
            del step, last
            return {
                f"training_eval/{name}": _scores(*sums(params, source), words)
                for name, (source, words) in sources.items()
            }

        return evaluate

    def _source(self, name: str, model: BaseTransformerModel) -> tuple[ContiguousSource, int]:
        """The contiguous batches of a task, and its number of words (0 if unknown)."""
        checks.require_lengths(self.task_feature_lengths, features=("targets",))
        task = self.dataset(name).open(name)
        check_task_vocabulary(task, name, model.output_vocabulary)
        source = contiguous_source(
            task,
            getattr(model.output_vocabulary, "eos_id", 1),
            self.batch_size,
            self.task_feature_lengths["targets"],
            most=self.documents,
            score_eos=False,
        )
        if _WORDS not in task.features:
            return source, 0
        return source, int(task.row_lengths(source.rows, (_WORDS,))[_WORDS].sum())


def _scores(loss: float, tokens: float, words: int) -> dict[str, float]:
    mean = loss / max(tokens, 1.0)
    by_word = {"word_perplexity": perplexity(loss / words), "words": words} if words else {}
    return {"loss": mean, "perplexity": perplexity(mean), "tokens": tokens, **by_word}
