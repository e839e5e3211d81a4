"""From cached tasks and a plan to batches: random access by step, prefetched by grain."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.converters import Converter, converter_of
from ckl_jax.data.tasks.epochs import EpochPlan
from ckl_jax.errors import UserError

Batch = dict[str, np.ndarray]


class BatchSource:
    """The batches of a run, by step. Stateless: `source[step]` is always the same.

    With several hosts, each builds the rows of the global batch that its devices hold, [b, ...].
    """

    def __init__(
        self,
        plan: EpochPlan,
        tasks: Sequence[CachedTask],
        lengths: Mapping[str, int],
        *,
        rows: np.ndarray | None = None,
        convert: Converter | None = None,
    ):
        """Binds a plan to its corpora.

        Args:
          plan: which rows come when.
          tasks: the new corpus, then (if the plan replays) the old one, then that of earlier
            phases: the order of the plan's `source` values.
          lengths: of each feature that is read: {"inputs": S, "targets": T}.
          rows: int [b], which rows of a batch this host builds, see `Partitioner.process_rows`;
            None is all.
          convert: makes the batch; None is that of an encoder-decoder.

        Raises:
          UserError: a corpus is missing or has other rows than the plan.
        """
        for name, planned, i in (
            ("main", plan.main, 0),
            ("replay", plan.replay, 1),
            ("review", plan.review, 2),
        ):
            cached = len(tasks[i]) if i < len(tasks) and tasks[i] is not None else 0
            if planned != cached:
                raise UserError(
                    f"The plan's corpus {name!r} has {planned} rows and the cached task {cached}; "
                    "make the plan from the tasks that are trained on."
                )
        self.plan, self.tasks, self.lengths = plan, tuple(tasks), dict(lengths)
        self._convert = convert or converter_of(("inputs", "targets"))
        self._mine = slice(None) if rows is None else rows

    def __len__(self) -> int:
        return self.plan.total_steps

    def shapes(self) -> Batch:
        """Arrays of the shapes and dtypes of this host's part of a batch."""
        return self[0]

    def iterate(self, start_step: int = 0) -> Iterator[Batch]:
        """The batches from `start_step` on, read ahead; see `iterate`."""
        return iterate(self, start_step)

    def __getitem__(self, step: int) -> Batch:
        """Returns this host's rows of the batch of `step`."""
        source, index, valid = (column[self._mine] for column in self.plan.rows(step))
        features = {n: np.zeros((len(index), size), np.int32) for n, size in self.lengths.items()}
        sizes = {n: np.zeros(len(index), np.int64) for n in self.lengths}
        for i in np.unique(source[valid]):
            rows = np.flatnonzero(valid & (source == i))
            # An earlier corpus may lack a feature of the new one: its rows are 0.
            has = {n: size for n, size in self.lengths.items() if n in self.tasks[i].features}
            for name, tokens in self.tasks[i].batch(index[rows], has).items():
                features[name][rows] = tokens
            for name, lengths in self.tasks[i].row_lengths(index[rows], has).items():
                sizes[name][rows] = np.minimum(lengths, self.lengths[name])
        return self._convert(features, sizes, valid)


def iterate(
    source: BatchSource, start_step: int = 0, *, threads: int = 2, prefetch: int = 8
) -> Iterator[Batch]:
    """Yields the batches of `source` from `start_step` on, prefetched by threads.

    Args:
      start_step: the step to resume at.
      threads: how many batches are built at a time; 0 builds them here, without grain.
      prefetch: how many finished batches may wait.
    """
    if start_step >= len(source):
        return
    if not threads:
        yield from (source[step] for step in range(start_step, len(source)))
        return
    import grain

    dataset = grain.MapDataset.source(source)[start_step:]
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=max(prefetch, threads))
    yield from dataset.to_iter_dataset(options)
