"""Perplexity of past text while a model trains on a stream (Mind the Gap, Figure 9)."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks, files
from ckl_jax.data.tasks.dated_task import DatedTask
from ckl_jax.data.tasks.word_losses import WordLosses
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.papers.mind_the_gap.analysis.past_text import START
from ckl_jax.papers.mind_the_gap.dynamic_eval.runner import StreamConfig, StreamRunner, UpdateConfig
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train.vocabulary_check import check_task_vocabulary

FOLDER = "forgetting"
_UNITS = {"year": 4, "month": 7}
_PERIOD = 1000  # documents that are read at once


@dataclasses.dataclass(frozen=True)
class PastText:
    """Dated tasks of the past, scored statically at the end of every month of the stream.

    Attributes:
      tasks: by folder or by name in `cache_dirs`; () measures nothing.
      unit: what a period is: "year" or "month".
      batch_size: documents that are scored at once.
      seen: whether the model was trained on them; said in the rows.
    """

    tasks: Sequence[str] = ()
    cache_dirs: Sequence[str] = ()
    unit: str = "year"
    batch_size: int = 4
    seen: bool = False

    def __post_init__(self) -> None:
        checks.require_names(empty=True, PAST_TASKS=self.tasks)
        checks.require_choice(_UNITS, PAST_UNIT=self.unit)
        checks.require_size(PAST_BATCH_SIZE=self.batch_size)
        checks.require_bool(PAST_SEEN=self.seen)


class Forgetting:
    """Scores past text and writes `forgetting/rows_<documents>.jsonl`.

    Args:
      model: with its method in it.
      params: `jax.ShapeDtypeStruct`s of all parameters, with shardings.
      stream: how it is read, as the stream that is learned from.

    Raises:
      UserError: a task is missing or of another vocabulary.
    """

    def __init__(
        self,
        past: PastText,
        model: BaseTransformerModel,
        params: Any,
        stream: StreamConfig,
        partitioner: Partitioner,
        folder: str | Path,
    ):
        self.past, self._folder = past, Path(folder) / FOLDER
        self._tasks = {name: DatedTask.find(name, past.cache_dirs) for name in past.tasks}
        for name, task in self._tasks.items():
            check_task_vocabulary(task.task, name, model.output_vocabulary)
        # With a memory that passes from document to document their order matters: one row.
        batch_size = past.batch_size if stream.reset_at_doc else 1
        stream = dataclasses.replace(stream, batch_size=batch_size)
        self._runner = StreamRunner(model, {}, params, stream, UpdateConfig(), None, partitioner)

    def measure(self, params: Any, snapshot: str, documents: int) -> None:
        """Scores all tasks and writes their rows.

        Args:
          snapshot: the month whose end it is, or "start".
          documents: that were learned from.
        """
        # Zero-padded, so that names sort by documents.
        path = self._folder / f"rows_{documents:09}.jsonl"
        if snapshot == START and path.exists():  # the checkpoint is the same
            return
        rows = [
            {"snapshot": snapshot, "documents": documents, "task": Path(name).name, **row}
            for name, task in self._tasks.items()
            for row in self._rows(task, params)
        ]
        files.write_jsonl(path, rows)

    def _rows(self, task: DatedTask, params: Any) -> Iterator[dict[str, Any]]:
        sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])

        def take(document: WordLosses, tokens: int) -> None:
            del tokens
            entry = sums[document.date[: _UNITS[self.past.unit]]]
            entry[0] += len(document.words)
            entry[1] += float(document.nll.sum(dtype="f8"))

        segments = self._runner.segments(task, 0, _PERIOD)
        for _ in self._runner.run(self._runner.start({}), params, segments, take):
            pass
        for period, (words, nll) in sums.items():
            yield {"period": period, "words": words, "nll": nll, "seen": self.past.seen}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields the rows of all snapshots, the first snapshot first."""
        for path in sorted(self._folder.glob("rows_*.jsonl")):
            yield from files.read_jsonl(path)
