"""Inputs of `t5x infer`: a probe, a file of inputs, or a cached task, as token rows."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.compressed import text_lines
from ckl_jax.data.facts.ckl_files import PROBES, read_probe
from ckl_jax.data.facts.probe import Probe
from ckl_jax.data.json_rows import numbered_values
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.errors import UserError, nearest
from ckl_jax.train.vocabulary_check import check_task_vocabulary

_TEXT = (".txt", ".jsonl")


@dataclasses.dataclass(frozen=True)
class Example:
    """One input.

    Attributes:
      shown: what the output file says of it: `inputs_pretokenized`, `targets_pretokenized`.
      inputs, targets: token ids with EOS; no targets where none are known.
    """

    shown: dict[str, str]
    inputs: Sequence[int]
    targets: Sequence[int] | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceData:
    """The inputs of an inference.

    Attributes:
      mixture_or_task_name: a probe (a record, or a name such as `invariant_lama`), a `.txt` file
        (an input a line), a `.jsonl` file (a string, or {"inputs": ..., "targets": ...}, a line),
        or a cached task: its folder, or its name in `cache_dirs`.
      task_feature_lengths: {"inputs": S, "targets": T}; None takes a probe's published lengths.
        T counts the start token of a decode.
      batch_size: inputs at once.
      probe_dir: folder of the probes.
      cache_dirs: folders of cached tasks.
    """

    mixture_or_task_name: str | Probe
    task_feature_lengths: Mapping[str, int] | None = None
    batch_size: int = 32
    probe_dir: str = "."
    cache_dirs: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.mixture_or_task_name, str | Probe):
            raise UserError(
                f"INFER_INPUTS is {self.mixture_or_task_name!r}; give the name of a probe, a .txt "
                "or .jsonl file, or a cached task."
            )
        checks.require_size(INFER_BATCH_SIZE=self.batch_size)
        if self.task_feature_lengths is not None:
            checks.require_lengths(self.task_feature_lengths, "INFER_LENGTHS")

    @property
    def source(self) -> str:
        """The name of the input."""
        given = self.mixture_or_task_name
        return given.name if isinstance(given, Probe) else given

    @property
    def task(self) -> str:
        """The name in the output file's name."""
        return Path(self.source).name.removesuffix(".jsonl").removesuffix(".txt")

    def lengths(self) -> tuple[int, int]:
        """(S, T)."""
        given = self.task_feature_lengths
        if given is None:
            if probe := self._probe():
                return probe.input_length, probe.target_length
            raise UserError(
                f"INFER_LENGTHS is not set, and INFER_INPUTS, {self.mixture_or_task_name!r}, is "
                "not a probe, which would have its own."
                f"{nearest(self.mixture_or_task_name, PROBES)} Else give it as "
                "--gin.INFER_LENGTHS=\"{'inputs': 50, 'targets': 10}\"."
            )
        return given["inputs"], given["targets"]

    def examples(self, vocabulary: Any, *, joined: bool = False) -> list[Example]:
        """Reads all inputs.

        Args:
          vocabulary: of the model.
          joined: input and target of a file's line are tokenized as one text, of which a
            decoder-only model scores the second part.

        Raises:
          UserError: no such probe, file or task; a malformed line; an empty file; a task of packed
            rows or running text.
        """
        name = self.source
        if probe := self._probe():
            rows = (
                # A fact may have several right answers; the first one is the target to score.
                _example(vocabulary, item.input, item.answers[0])
                for item in read_probe(probe, self.probe_dir)
            )
        elif name.endswith(_TEXT):
            rows = _read_file(_joined if joined else _example, vocabulary, name)
        else:
            rows = _read_task(vocabulary, self._open())
        examples = list(rows)
        if not examples:
            raise UserError(f"{name} has no inputs: it is empty.")
        return examples

    def _probe(self) -> Probe | None:
        given = self.mixture_or_task_name
        return given if isinstance(given, Probe) else PROBES.get(given)

    def _open(self) -> CachedTask:
        name = self.mixture_or_task_name
        for folder in (Path(name), *(Path(root) / name for root in self.cache_dirs)):
            if (folder / "manifest.json").exists():
                return CachedTask.open(folder)
        known = [*PROBES, *(p.name for r in self.cache_dirs for p in Path(r).glob("*"))]
        raise UserError(
            f"{name!r} is neither a probe nor a .txt or .jsonl file nor a cached task in "
            f"{list(self.cache_dirs)}.{nearest(name, known)}"
        )


def _example(vocabulary: Any, text: str, target: str | None) -> Example:
    shown = {"inputs_pretokenized": text}
    eos = [vocabulary.eos_id]
    if target is None:
        return Example(shown, vocabulary.encode(text) + eos, None)
    shown["targets_pretokenized"] = target
    return Example(shown, vocabulary.encode(text) + eos, vocabulary.encode(target) + eos)


def _joined(vocabulary: Any, text: str, target: str | None) -> Example:
    example = _example(vocabulary, text, target)
    if target is None:
        return example
    # Tokens of the target alone may be others: Llama's tokenizer puts a blank before every text.
    ids, places = vocabulary.encode(text + target), vocabulary.offsets(text + target)
    first = next((i for i, (_, end) in enumerate(places) if end > len(text)), len(ids))
    eos = [vocabulary.eos_id]
    return dataclasses.replace(example, inputs=ids[:first] + eos, targets=ids[first:] + eos)


def _read_file(
    example: Callable[[Any, str, str | None], Example], vocabulary: Any, path: str
) -> Iterator[Example]:
    if path.endswith(".txt"):
        # A blank line is an input too: line n of the output is of line n.
        yield from (example(vocabulary, line.strip(), None) for line in text_lines(path))
        return
    for where, row in numbered_values(path):
        row = {"inputs": row} if isinstance(row, str) else row
        row = row if isinstance(row, dict) else {}
        values = []
        for feature in ("inputs", "targets"):
            # Both names: plain files say "inputs", seqio's "inputs_pretokenized".
            value = row.get(feature, row.get(f"{feature}_pretokenized"))
            if isinstance(value, dict):  # a line that `t5x infer` wrote
                value = value.get(f"{feature}_pretokenized")
            values.append(value)
        if not isinstance(values[0], str) or not isinstance(values[1], str | None):
            raise UserError(
                f"{where}: no text in 'inputs'; a row is a string or "
                '{"inputs": "...", "targets": "..."}.'
            )
        yield example(vocabulary, *values)


def _read_task(vocabulary: Any, task: CachedTask) -> Iterator[Example]:
    # Ids of another vocabulary would be read as other words without any error.
    check_task_vocabulary(task, os.fspath(task.directory), vocabulary)
    if "inputs" not in task.features or "segments" in task.features:
        kind = "packed rows" if "segments" in task.features else "running text, without inputs"
        raise UserError(
            f"{task.directory} has {kind}, and `t5x infer` asks one input a row; give a task with "
            "inputs that are not packed, or a .jsonl file."
        )
    for i in range(len(task)):
        row = task.row(i)
        shown = {f"{f}_pretokenized": vocabulary.decode(ids, False) for f, ids in row.items()}
        yield Example(shown, row["inputs"], row.get("targets"))
