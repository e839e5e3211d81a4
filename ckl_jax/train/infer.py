"""`t5x infer`: writes answers or scores of many inputs as JSON lines, in resumable chunks."""

import contextlib
import dataclasses
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from ckl_jax import checks, files
from ckl_jax.errors import UserError
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.models.beam_rules import RULES
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes.answering import EncoderDecoderGenerator
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.train.inputs import Example, InferenceData
from ckl_jax.train.opening import identity
from ckl_jax.train.restore import RestoredModel
from ckl_jax.train.resume_check import refuse_foreign

MODES = ("predict", "predict_with_aux", "score")


def infer(
    *,
    mode: str = "predict",
    model: EncoderDecoderModel,
    dataset_cfg: InferenceData,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    output_dir: str,
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
    partitioner: Partitioner | None = None,
    checkpoint_period: int = 10,
    shard_id: int = 0,
    num_shards: int = 1,
    beam_size: int = 2,
    rule: str | None = None,
    generator_cls: type[EncoderDecoderGenerator] = EncoderDecoderGenerator,
) -> list[Path]:
    """Writes `<task>-<mode>.jsonl-<shard>-of-<shards>`, a line for each input, in order.

    A line is {"inputs": {"inputs_pretokenized": ..., "targets_pretokenized": ...}, "prediction":
    ...}, or "score" (log likelihood of the targets) in its place; "predict_with_aux" adds
    {"aux": {"scores": log probability of the prediction, by the search's rule}}. While it runs,
    finished chunks lie in `tmp-<file>/`; started again, it does only the others. At the end the
    chunks become the file, and `<file>.COMPLETED` says that it is whole.

    Args:
      mode: "predict", "predict_with_aux" or "score".
      model: the base model; the method is put into it here.
      dataset_cfg: the inputs.
      restore_checkpoint_cfg: the checkpoint; with the mode "all", each one's files are in
        `<output_dir>/checkpoint_<step>/`.
      output_dir: where the files go.
      method: the one that trained the checkpoint.
      partitioner: mesh and rules.
      checkpoint_period: batches in a chunk.
      shard_id: does the inputs whose number is `shard_id` modulo `num_shards`.
      num_shards: number of such processes.
      beam_size, rule: of the search, see `probes.closed_book.ClosedBook`.
      generator_cls: decodes and scores.

    Returns:
      The files.

    Raises:
      UserError: something in the configuration or the files does not fit, or `output_dir` holds
        results of other parameters, inputs or settings, or files of others.
    """
    _check(mode, shard_id, num_shards, checkpoint_period)
    checks.require_size(**{"infer.beam_size": beam_size})
    checks.require_choice((*RULES, None), **{"infer.rule": rule})
    if mode != "score" and dataset_cfg.lengths()[1] < 2:
        raise UserError(
            "INFER_LENGTHS['targets'] counts the start token and is "
            f"{dataset_cfg.lengths()[1]}; give 2 or more."
        )
    refuse_foreign(output_dir, "INFER_OUTPUT_DIR")
    restored = RestoredModel(model, method, partitioner, restore_checkpoint_cfg)
    restored.partitioner.check_batch_size(dataset_cfg.batch_size, "INFER_BATCH_SIZE")
    examples = dataset_cfg.examples(
        checks.need_vocabulary(restored.model.input_vocabulary, "inputs that are text"),
        joined=mode == "score" and "inputs" not in generator_cls.task_features,
    )
    # Before any parameters are loaded.
    if mode == "score" and any(example.targets is None for example in examples):
        raise UserError(
            f"{dataset_cfg.source} has inputs without targets: mode 'score' needs a "
            "target for each."
        )
    name = f"{dataset_cfg.task}-{mode}.jsonl-{shard_id:05}-of-{num_shards:05}"
    generator = generator_cls(
        restored.model, dataset_cfg.batch_size, rule, put_batch=restored.partitioner.put_whole
    )
    if mode != "score":
        generator.check_search()
        for given in {"beam_size", "num_return"} & _arguments(model.decode_fn).keys():
            raise UserError(
                f"{given} of the search has no effect here: bind infer.infer.beam_size."
            )
    # Every `num_shards`-th input from `shard_id` on, as tf.data's `shard` takes them: shards differ
    # by one input at most.
    job = _Job(generator, mode, dataset_cfg.lengths(), beam_size, examples[shard_id::num_shards])
    job.say_what_is_cut()
    # In inputs: a multiple of the batch size, so that only the last chunk has a batch that is not
    # full.
    chunk = checkpoint_period * dataset_cfg.batch_size
    written = []
    with restored.partitioner.on_mesh():
        for path in restored.paths:
            several = restore_checkpoint_cfg.mode == "all"
            folder = Path(output_dir) / Path(path).name if several else Path(output_dir)
            params = restored.load(path)
            settings = {
                "checkpoint": path,
                **identity(restored.model, params),
                "mode": mode,
                "inputs": len(job.examples),
                "inputs_digest": job.digest(),
                # All that decides what a chunk file contains; a second start with another value is
                # refused.
                "chunk": chunk,
                "lengths": list(job.lengths),
                "beam_size": beam_size,
                "rule": rule,
                "decoding": [_bound(restored.model.decode_fn), _bound(generator_cls)],
                "task": dataset_cfg.source,
            }
            output = _Output(folder / name, settings)
            if not output.completed:
                restored.describe(output_dir)
                # p=params binds this checkpoint's parameters; a plain closure would see the last
                # ones of the loop.
                output.run(lambda start, p=params: job.lines(p, start, chunk), len(job.examples))
            lines = "line" if len(job.examples) == 1 else "lines"
            print(f"{output.path}: {len(job.examples)} {lines}", flush=True)
            written.append(output.path)
    return written


def _check(mode: str, shard_id: int, num_shards: int, checkpoint_period: int) -> None:
    checks.require_choice(MODES, INFER_MODE=mode)
    checks.require_size(INFER_SHARDS=num_shards)
    checks.require_size(**{"infer.checkpoint_period": checkpoint_period})
    if not 0 <= shard_id < num_shards:
        raise UserError(
            f"--shard_id={shard_id} is not in 0 to {num_shards - 1}: INFER_SHARDS is {num_shards}."
        )


def _bound(function: Any) -> str:
    """A function or class, with the arguments that gin or a partial gives it."""
    arguments = sorted(_arguments(function).items())
    function = getattr(function, "func", function)
    return f"{function.__module__}.{function.__qualname__} {arguments}"


def _arguments(function: Any) -> dict[str, Any]:
    given = dict(getattr(function, "keywords", {}))
    if "gin" not in sys.modules:
        return given
    from ckl_jax.config import gin_config

    return given | gin_config.bound_to(getattr(function, "func", function))


@dataclasses.dataclass(frozen=True)
class _Job:
    """Inputs to output lines."""

    generator: EncoderDecoderGenerator
    mode: str
    lengths: tuple[int, int]
    beam_size: int
    examples: Sequence[Example]

    def say_what_is_cut(self) -> None:
        """A score of the beginning of a target would pass for that of the whole."""
        inputs = [example.inputs for example in self.examples]
        targets = [example.targets or () for example in self.examples if self.mode == "score"]
        counts = self.generator.cut(inputs, targets, self.lengths)
        for name, count, length in zip(("inputs", "targets"), counts, self.lengths, strict=True):
            if count:
                print(
                    f"{count} of {len(inputs)} {name} have more tokens than INFER_LENGTHS["
                    f"{name!r}], {length}, and are cut.",
                    flush=True,
                )

    def digest(self) -> str:
        """Of the inputs and targets."""
        digest = hashlib.sha256()
        for example in self.examples:
            tokens = [[*map(int, ids)] for ids in (example.inputs, example.targets or ())]
            digest.update(repr((example.shown, tokens)).encode())
        return digest.hexdigest()[:16]

    def lines(self, params: Any, start: int, count: int) -> Iterator[dict[str, Any]]:
        part = self.examples[start : start + count]
        inputs = [example.inputs for example in part]
        if self.mode == "score":
            targets = [example.targets for example in part]
            scores = self.generator.scores(params, inputs, targets, self.lengths)
            results = ({"score": score} for score in scores)
        else:
            results = self._predictions(params, inputs)
        for example, result in zip(part, results, strict=True):
            yield {"inputs": example.shown, **result}

    def _predictions(self, params: Any, inputs: list) -> Iterator[dict[str, Any]]:
        scored = self.generator.scored_answers(params, inputs, *self.lengths, self.beam_size)
        for texts, scores in scored:
            # T5X's flag: all candidates of the beam, not only the best one.
            every = self.generator.all_decodes
            line = {"prediction": texts if every else texts[0]}
            if self.mode == "predict_with_aux":
                line["aux"] = {"scores": scores if every else scores[0]}
            yield line


def _says(record: Path, settings: dict[str, Any]) -> bool:
    with contextlib.suppress(UserError):  # it is empty or damaged
        return files.read_json(record) == settings
    return False


class _Output:
    """An output file assembled from chunks.

    Raises:
      UserError: the place holds results of other settings, or files of others.
    """

    def __init__(self, path: Path, settings: dict[str, Any]):
        self.path, self.settings = path, settings
        self._done = path.with_name(path.name + ".COMPLETED")
        self._chunks = path.with_name("tmp-" + path.name)
        # The second is there while chunks are missing, the first when all is done.
        records = self._done, self._chunks / "settings.json"
        if not any(map(os.path.isfile, records)):
            for place in filter(os.path.lexists, (path, *self._chunks.glob("[!.]*"))):
                raise UserError(f"{place} is of no inference; choose another INFER_OUTPUT_DIR.")
        for record in records:
            if record.exists() and not _says(record, settings):
                raise UserError(
                    f"{record} belongs to an inference with other settings (checkpoint, "
                    "inputs or decoding) or to none; choose another INFER_OUTPUT_DIR or remove it."
                )

    @property
    def completed(self) -> bool:
        if not (self._done.exists() and self.path.exists()):
            return False
        with files.os_errors(self.path, "read"), open(self.path, "rb") as f:
            lines = sum(1 for _ in f)
        if lines != self.settings["inputs"]:
            raise UserError(
                f"{self.path} was complete and has {lines:,} lines now, not "
                f"{self.settings['inputs']:,}; remove it to write it again."
            )
        return True

    def run(self, lines, total: int) -> None:
        """Computes the missing chunks, then assembles the file.

        Args:
          lines: `start -> iterator` over the lines of the chunk that begins at input `start`.
          total: inputs.
        """
        starts = range(0, total, self.settings["chunk"])
        for start in starts:
            # Chunks are written atomically: one that exists is whole.
            if not self._chunk(start).exists():
                # On every process, for they compute together.
                rows = list(lines(start))
                if jax.process_index() == 0:
                    # Not before there are rows: what is refused until then leaves nothing.
                    files.write_json(self._chunks / "settings.json", self.settings)
                    files.write_jsonl(self._chunk(start), rows)
        if jax.process_index() == 0:
            self._merge(starts)

    def _chunk(self, start: int) -> Path:
        return self._chunks / f"chunk_{start:09}.jsonl"

    def _merge(self, starts: range) -> None:
        with files.atomic_write(self.path, "wb") as out:
            for start in starts:
                # Bytes, without parsing: large outputs merge at the speed of the disk.
                with open(self._chunk(start), "rb") as f:
                    shutil.copyfileobj(f, out)
        # In this order: an interruption leaves either chunks to merge again, or a complete file.
        files.write_json(self._done, self.settings)
        shutil.rmtree(self._chunks, ignore_errors=True)
