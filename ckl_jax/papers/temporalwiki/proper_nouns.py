"""The perplexity of proper nouns and of changed spans in running text (TemporalWiki, Figure 2)."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from ckl_jax import checks
from ckl_jax.data.tasks.word_marks import GROUPS, Marks, mark_rows
from ckl_jax.files import write_jsonl
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.papers.temporalwiki.analysis.text_losses import summarize
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes.losses import GroupLosses
from ckl_jax.train.held_out import HeldOutTasks, Scores


@dataclasses.dataclass(frozen=True)
class ProperNouns(HeldOutTasks):
    """An evaluation of `train.train.train`: "proper_noun_eval/<task>", and rows of every text.

    `<folder>/proper_nouns/rows_<step>.jsonl` says of each row of each task the summed loss and the
    counted tokens of each group; `papers.temporalwiki.analysis.text_losses` makes perplexities and
    their ratios to those of another model from them.

    Attributes:
      tasks: of running text. The paper has the diffset, and the rest of the snapshot (`ckl data
        nondiffset`).
      folder: MODEL_DIR.
      tagger: "heuristic", "spacy", "spacy:<pipeline>" or "nltk"; see `data.text.word_classes`.
      groups: of tokens: "proper_nouns", "all", "nouns", "verbs", "numbers", and "changed_spans" of
        tasks with marks (`ckl data rows --marks`). Those that a task does not have are left out.
      rows: of each task at most, spread over it evenly.
    """

    folder: str = "."
    tagger: str = "heuristic"
    groups: Sequence[str] = ("proper_nouns", "all", "changed_spans")
    rows: int = 10_000

    def __post_init__(self) -> None:
        checks.require_names(empty=True, PROPER_NOUN_TASKS=self.tasks)
        checks.require_names(GROUPS, PROPER_NOUN_GROUPS=self.groups)
        checks.require_size(PROPER_NOUN_ROWS=self.rows)
        checks.require_names(**{"PROPER_NOUN_TAGGER": (self.tagger,)})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is evaluated; () is nothing."""
        return tuple(f"proper_nouns_{Path(task).name}" for task in self.tasks)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits of the metrics."""
        return tuple(f"proper_noun_eval/{Path(task).name}" for task in self.tasks)

    def __call__(
        self, model: DecoderOnlyModel, partitioner: Partitioner
    ) -> Callable[[Any, int, bool], Scores]:
        """Tags the tasks; returns `(params, step, last) -> scores`.

        Raises:
          UserError: a task is missing or packed, or the tagger is not there, or the model is not
            a decoder-only model.
        """
        if not self.tasks:
            return lambda params, step, last: {}
        partitioner.check_batch_size(self.batch_size, "The batch_size of ProperNouns")
        width = self.task_feature_lengths["targets"]
        losses = GroupLosses(model, len(GROUPS), width, self.batch_size, partitioner.put_whole)
        # Tagged once: tags do not depend on the model.
        marks = {Path(name).name: self._marks(name, model, width) for name in self.tasks}

        def evaluate(params: Any, step: int, last: bool) -> Scores:
            del last
            rows = [
                {"task": task, "step": step, **row}
                for task, marked in marks.items()
                for row in self._rows(losses, params, marked)
            ]
            scores = summarize(rows)  # first: what is not finite is not written
            if jax.process_index() == 0:
                write_jsonl(Path(self.folder) / "proper_nouns" / f"rows_{step:06}.jsonl", rows)
            return {f"proper_noun_eval/{task}": values for task, values in scores.items()}

        return evaluate

    def _marks(self, name: str, model: DecoderOnlyModel, width: int) -> Marks:
        dataset = self.dataset(name)
        task = dataset.open(name)
        dataset.reading(model, [task])  # refuses one of another vocabulary
        vocabulary = checks.need_vocabulary(model.output_vocabulary, "proper nouns")
        return mark_rows(task, vocabulary, self.tagger, self.rows, width)

    def _rows(self, losses: GroupLosses, params: Any, marks: Marks) -> Iterator[dict[str, Any]]:
        """The row of each text: by group [summed loss, tokens]."""
        groups = [g for g in self.groups if g in marks.groups]
        measured = losses(params, marks.rows, marks.bits)
        for number, (sums, counts) in zip(marks.index.tolist(), measured, strict=True):
            values = {
                group: [float(sums[GROUPS.index(group)]), int(counts[GROUPS.index(group)])]
                for group in groups
            }
            yield {"row": number, "tagger": marks.backend, "losses": values}
