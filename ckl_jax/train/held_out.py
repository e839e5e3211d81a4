"""Perplexity of held-out text during training: rows by item, and their sums as metrics."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes.answering import fetch
from ckl_jax.train.configs import DatasetConfig

Scores = dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class HeldOutTasks:
    """Cached tasks that are evaluated while a model trains.

    Attributes:
      tasks: by folder or by name in `cache_dirs`; () evaluates nothing.
      task_feature_lengths: as in training.
      cache_dirs: folders of cached tasks.
      batch_size: rows at once.
    """

    tasks: Sequence[str] = ()
    task_feature_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cache_dirs: Sequence[str] = ()
    batch_size: int = 64

    def __post_init__(self) -> None:
        checks.require_names(empty=True, HELD_OUT_TASKS=self.tasks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks; () is nothing to evaluate."""
        return tuple(Path(task).name for task in self.tasks)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the metrics."""
        return tuple(f"training_eval/{name}" for name in self.names)

    def dataset(self, name: str) -> DatasetConfig:
        """Settings for reading the rows of a task."""
        return DatasetConfig(
            mixture_or_task_name=name,
            task_feature_lengths=self.task_feature_lengths,
            batch_size=self.batch_size,
            cache_dirs=self.cache_dirs,
        )


@dataclasses.dataclass(frozen=True)
class Perplexity(HeldOutTasks):
    """An evaluation of `train.train.train`: "training_eval/<task>" of each task.

    Perplexity is exp of the mean loss over all tokens of the rows, without smoothing, z-loss and
    dropout. (TemporalWiki's code took the mean over batches of their means.)

    Attributes:
      rows: of each task at most, spread over it evenly.
    """

    rows: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.require_size(HELD_OUT_ROWS=self.rows)

    def __call__(
        self, model: BaseTransformerModel, partitioner: Partitioner
    ) -> Callable[[Any, int, bool], Scores]:
        """Opens the tasks; returns `(params, step, last) -> scores`."""
        partitioner.check_batch_size(self.batch_size, "The batch_size of held_out.Perplexity")
        sources = {name: self._source(name, model) for name in self.tasks}

        def sums(params: Any, batch: Any) -> tuple[jax.Array, jax.Array]:
            # [B] each: the loss of a row in nats, and how many tokens it sums over. Sums go to the
            # host, so the mean is over all tokens and does not depend on how rows are batched.
            return -model.score_batch(params, batch), batch["decoder_loss_weights"].sum(-1)

        # The batches of all tasks have one shape.
        compiled = jax.jit(sums)

        def evaluate(params: Any, step: int, last: bool) -> Scores:
            del step, last
            return {
                f"training_eval/{Path(name).name}": _scores(
                    # `fetch` collects the parts of an array that other processes hold.
                    fetch(compiled(params, partitioner.put_whole(batch)))
                    for batch in source()
                )
                for name, source in sources.items()
            }

        return evaluate

    def _source(self, name: str, model: BaseTransformerModel) -> Callable[[], Iterator[Any]]:
        dataset = self.dataset(name)
        task = dataset.open(name)
        convert, lengths = dataset.reading(model, [task])

        def batches() -> Iterator[Any]:
            # Evenly over the task, both ends included; `unique` drops the duplicates of a task with
            # fewer rows than wanted.
            chosen = np.unique(np.linspace(0, len(task) - 1, self.rows).astype(np.int64))
            for start in range(0, len(chosen), self.batch_size):
                yield _batch(task, chosen[start : start + self.batch_size], self.batch_size)

        def _batch(task: CachedTask, part: np.ndarray, size: int) -> Any:
            # The last batch repeats its rows up to the size; the mask below gives the copies a
            # weight of 0.
            index = np.resize(part, size)
            batch = task.batch(index, lengths)
            tokens = {
                # Rows are cut at the model's lengths, so are their token counts.
                n: np.minimum(x, lengths[n])
                for n, x in task.row_lengths(index, lengths).items()
            }
            return convert(batch, tokens, np.arange(size) < len(part))

        return batches


def _scores(batches: Iterator[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    losses, tokens = (float(np.sum(parts)) for parts in zip(*batches, strict=True))
    mean = losses / max(tokens, 1.0)
    return {"loss": mean, "perplexity": perplexity(mean), "tokens": tokens}


def perplexity(loss: float) -> float:
    """exp of a mean loss in nats, capped so that it stays finite."""
    # math.exp overflows beyond 709, and a diverged model's loss can be larger.
    return math.exp(min(loss, 700.0))
