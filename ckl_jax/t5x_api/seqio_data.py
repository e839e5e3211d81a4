"""Batches and inputs from SeqIO tasks; the only module that reads them.

Training streams: T5X's tasks may be larger than any cache. The order is a function of the seed. A
run that is started again goes on with the iterator's saved state, or reads again what it has seen.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ckl_jax.config.quiet_imports import quiet_imports
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.errors import UserError, nearest
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.t5x_api.task_errors import explained, load_vocabulary
from ckl_jax.train.inputs import Example

FEATURES = (
    "encoder_input_tokens",
    "decoder_input_tokens",
    "decoder_target_tokens",
    "decoder_loss_weights",
    "encoder_segment_ids",
    "decoder_segment_ids",
)
_PRETOKENIZED = ("inputs_pretokenized", "targets_pretokenized")


def import_seqio(needed_for: str = "SeqIO tasks need") -> Any:
    """Imports SeqIO, TensorFlow kept off the accelerators; raises `UserError` without SeqIO."""
    try:
        with quiet_imports():
            import seqio
            import tensorflow as tf
    except ImportError as e:
        raise UserError(
            f"{needed_for} seqio and TensorFlow ({e}); install `ckl-jax[seqio]`, or give the "
            "folder of a cached task ('ckl data prepare'), which needs neither."
        ) from e
    # TensorFlow reserves all memory of the GPUs that it sees.
    tf.config.set_visible_devices([], "GPU")
    return seqio


def get_task(name: Any) -> Any:
    """SeqIO's task or mixture of a name, or `name` itself if it is one; `UserError` if none."""
    seqio = import_seqio(
        f"MIXTURE_OR_TASK_NAME: {name!r} is no cached task's folder, and SeqIO tasks need"
    )
    try:
        # gin files may bind a Task object instead of a name.
        return seqio.get_mixture_or_task(name) if isinstance(name, str) else name
    except ValueError as e:
        known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
        raise UserError(
            f"MIXTURE_OR_TASK_NAME: there is neither a cached task's folder nor a SeqIO task or "
            f"mixture {name!r}; import the module that registers it in a gin file."
            + nearest(str(name), known)
        ) from e


def dataset_of(cfg: Any, *, epochs: int | None, seed: int | None, partitioner: Partitioner) -> Any:
    """The tf.data of a `DatasetConfig` in an encoder-decoder's features, not batched.

    It is this process's shard of the examples, of those that `partitioner` makes.

    Raises:
      UserError: no such task or split, or it is to be read from a cache that is not there.
    """
    get_task(cfg.mixture_or_task_name)
    seqio = import_seqio()
    if cfg.task_feature_lengths is None:
        raise UserError(f"TASK_FEATURE_LENGTHS of {cfg.task_name} is None; give both lengths.")
    check_split(cfg)
    with explained_task(cfg):
        return seqio.get_dataset(
            cfg.mixture_or_task_name,
            task_feature_lengths=dict(cfg.task_feature_lengths),
            feature_converter=seqio.EncDecFeatureConverter(
                pack=cfg.pack, use_custom_packing_ops=cfg.use_custom_packing_ops
            ),
            dataset_split=cfg.split,
            use_cached=cfg.use_cached,
            shuffle=cfg.shuffle,
            num_epochs=epochs,
            # Each process reads its own shard of the examples, except where several processes hold
            # the same rows of a batch.
            shard_info=seqio.ShardInfo(*partitioner.data_shard()),
            seed=seed,
            verbose=False,
        )


def explained_task(cfg: Any, doing: str = "") -> contextlib.AbstractContextManager[None]:
    """`task_errors.explained` of a `DatasetConfig`."""
    where = f"Task {cfg.task_name!r}, split {cfg.split!r}{doing}"
    return explained(where, get_task(cfg.mixture_or_task_name))


def check_split(cfg: Any) -> None:
    """Raises `UserError` unless a task, or a task of a mixture, has the split."""
    task = get_task(cfg.mixture_or_task_name)
    with explained(f"Task {cfg.task_name!r}"):
        # A mixture has `tasks`, a task has not. Listing splits may run the user's code (a TFDS
        # builder, or a function).
        splits = sorted({s for part in getattr(task, "tasks", [task]) for s in part.splits})
    if cfg.split not in splits and "[" not in cfg.split:  # TFDS slices such as "train[:90%]"
        raise UserError(
            f"Task {cfg.task_name!r} has no split {cfg.split!r}; it has {', '.join(splits)}. "
            f"Give --gin.utils.DatasetConfig.split=\"'{splits[0]}'\"."
        )


class TaskStream:
    """Training batches of a SeqIO task; the counterpart of `data.tasks.pipeline.BatchSource`."""

    def __init__(
        self, cfg: Any, total_steps: int | None, seed: int, model: Any, partitioner: Partitioner
    ):
        if total_steps is None:
            raise UserError("A SeqIO task has no number of rows: set TRAIN_STEPS, not EPOCHS.")
        check_vocabulary(cfg, model)
        # Of the global batch; this process reads `_rows` of its rows.
        self.plan = StreamPlan(cfg.batch_size, total_steps)
        self._rows = len(partitioner.process_rows(cfg.batch_size))
        # epochs=None repeats the task without end.
        dataset = dataset_of(cfg, epochs=None, seed=seed, partitioner=partitioner)
        dataset = dataset.map(
            # Without positions, which the model derives, and what else a task's examples carry.
            lambda example: {name: example[name] for name in FEATURES if name in example}
        )
        self._dataset = dataset.batch(self._rows, drop_remainder=True).prefetch(4)
        self._explained = functools.partial(explained_task, cfg)
        with self._explained():  # before anything is compiled
            if next(iter(self._dataset), None) is None:
                raise UserError(f"The task has fewer rows than a batch of {self._rows}.")
        self._position = _Position(f"{cfg} {seed} {self._rows} {self._dataset.element_spec}")

    def __len__(self) -> int:
        return self.plan.total_steps

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of this process's part of a batch."""
        return {
            name: jax.ShapeDtypeStruct(tuple(spec.shape), dtype_of(name))
            for name, spec in self._dataset.element_spec.items()
        }

    def iterate(
        self, start_step: int, folder: str | None = None, step: int | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches from `start_step` on.

        Args:
          start_step: batches that have been read.
          folder, step: what `save_position` was given then; None reads those batches again.
        """
        with self._explained():
            iterator = iter(self._dataset)
            if start_step and (why := self._position.restore(iterator, folder, step)):
                print(
                    f"The position in the data {why}: reading {start_step:,} batches again.",
                    file=sys.stderr,
                )
                self._read_again(iterator, start_step)
            self._position.iterator = iterator
            for batch in iterator:
                yield {name: np.asarray(value, dtype_of(name)) for name, value in batch.items()}

    def save_position(self, folder: str, step: int) -> None:
        """Saves the state of the iterator for the checkpoint of `step` in `folder`."""
        self._position.save(folder, step)

    def _read_again(self, iterator: Iterator[Any], count: int) -> None:
        for _ in range(count):
            next(iterator)


class _Position:
    """The state of an iterator of tf.data in files beside the checkpoints, by process.

    Args:
      made_of: what the order of its batches depends on; with another state is not restored.
    """

    def __init__(self, made_of: str):
        self.iterator: Any = None
        part = f"-{jax.process_index():05}-of-{jax.process_count():05}"
        self._name = f"data_position_{{}}{part}".format
        self._made_of = hashlib.sha256(made_of.encode()).hexdigest()
        self._failed = False
        self._newest: int | None = None  # whose checkpoint may still be written

    def _record(self, step: int | None) -> str:
        import tensorflow as tf

        record = {"made_of": self._made_of, "step": step, "tensorflow": tf.__version__}
        return json.dumps(record)

    def save(self, folder: str, step: int) -> None:
        if self.iterator is None or self._failed:
            return
        import tensorflow as tf

        files = tf.io.gfile
        try:
            # Of those that are gone, and of a run that was killed in here.
            for path in files.glob(f"{folder}/{self._name('*')}*"):
                kept = path.rsplit("/", 1)[1].split("_")[2].split("-")[0]
                if kept != str(self._newest) and not files.exists(f"{folder}/checkpoint_{kept}"):
                    files.remove(path)
            self._newest = step
            files.makedirs(folder)
            prefix = f"{folder}/{self._name(step)}"
            tf.train.Checkpoint(iterator=self.iterator).write(prefix)
            with files.GFile(f"{prefix}.json", "w") as f:  # last: the rest is whole
                f.write(self._record(step))
        except tf.errors.OpError as e:
            self._failed = True
            print(
                f"The position in the data cannot be saved ({e.message.splitlines()[0]}); a "
                "restart reads again what it has seen.",
                file=sys.stderr,
            )

    def restore(self, iterator: Any, folder: str | None, step: int | None) -> str:
        """Restores the iterator's state; returns why it could not, or "" if it did."""
        if folder is None:
            return "was not saved"
        import tensorflow as tf

        prefix = f"{folder}/{self._name(step)}"
        try:
            with tf.io.gfile.GFile(f"{prefix}.json", "rb") as f:
                held = f.read().decode(errors="replace")
            if held != self._record(step):
                return "is of other data, another step or another version of TensorFlow"
            tf.train.Checkpoint(iterator=iterator).read(prefix).assert_consumed()
            return ""
        except tf.errors.NotFoundError:
            return "was not saved"
        except (tf.errors.OpError, IndexError):  # of files that are cut off, the latter
            return "is damaged"


def dtype_of(name: str) -> Any:
    return np.float32 if name.endswith("weights") else np.int32


class StreamPlan:
    """The counterpart of `data.tasks.epochs.EpochPlan` for an endless stream of unknown epochs."""

    def __init__(self, batch_size: int, total_steps: int):
        self.batch_size, self.total_steps, self.epochs = batch_size, total_steps, None
        self.steps_per_epoch = [total_steps]

    def is_last_of_epoch(self, step: int) -> bool:
        return step == self.total_steps - 1

    def epoch_of(self, step: int) -> int:
        del step
        return 0


def check_vocabulary(cfg: Any, model: Any) -> None:
    """Raises `UserError` unless the task's vocabularies are the model's."""
    features = get_task(cfg.mixture_or_task_name).output_features
    pairs = (("inputs", model.input_vocabulary), ("targets", model.output_vocabulary))
    for name, vocabulary in pairs:
        # Targets alone, for instance, in a task of a language model.
        if name not in features or vocabulary is None:
            continue
        theirs = features[name].vocabulary
        load_vocabulary(theirs, f"The vocabulary of {name} of task {cfg.task_name!r}")
        # SeqIO's PassThroughVocabulary may say a size of 0: ids that are ready.
        if not _same(theirs, vocabulary) and theirs.vocab_size != 0:
            raise UserError(
                f"The vocabulary of {name} of task {cfg.task_name!r} ({_described(theirs)}) is not "
                f"the model's ({_described(vocabulary)}); bind VOCABULARY to the task's."
            )


def _same(theirs: Any, vocabulary: Any) -> bool:
    """Whether two vocabularies, of SeqIO's kind or this project's, are equal."""
    # SeqIO compares the paths of SentencePiece models, and one file has many spellings.
    model = getattr(theirs, "sp_model", None)
    if theirs == vocabulary or (model and model == getattr(vocabulary, "sp_model", None)):
        return True
    # The same SentencePiece file through two classes has one digest.
    digest = digest_of(vocabulary)
    return digest is not None and digest == digest_of(theirs)


def _described(vocabulary: Any) -> str:
    path = getattr(vocabulary, "sentencepiece_model_file", getattr(vocabulary, "path", ""))
    name = f"{type(vocabulary).__name__} {path}".strip()
    return f"{name}, {vocabulary.vocab_size} ids with {getattr(vocabulary, 'extra_ids', 0)} extra"


def tasks_of(cfg: Any) -> list[Any]:
    """The `DatasetConfig`s of a mixture's tasks, or of a task, that have the split."""
    task = get_task(cfg.mixture_or_task_name)
    if not hasattr(task, "tasks"):
        return [cfg] if _has_split(task, cfg.split) else []
    return [
        # module=None: it has been imported by now.
        dataclasses.replace(cfg, mixture_or_task_name=part.name, module=None)
        for part in task.tasks
        if _has_split(part, cfg.split)
    ]


def _has_split(task: Any, split: str) -> bool:
    return split in task.splits or "[" in split  # TFDS slices such as "train[:90%]"


def say_what_is_left_out(job: str, cfg: Any, evaluated: Sequence[str] | None = None) -> None:
    """Prints which tasks lack the split, and which others are not `evaluated`."""
    task = get_task(cfg.mixture_or_task_name)
    tasks = getattr(task, "tasks", [task])
    with_split = [t.name for t in tasks if _has_split(t, cfg.split)]
    left_out = {
        f"no split {cfg.split!r}": [t.name for t in tasks if t.name not in with_split],
        "no metric_fns": [n for n in with_split if evaluated is not None and n not in evaluated],
    }
    for reason, names in left_out.items():
        if names and jax.process_index() == 0:
            verb = "have" if len(names) > 1 else "has"
            print(f"{job} leaves out {', '.join(names)}, which {verb} {reason}.", flush=True)


class TaskInputs:
    """The inputs of `t5x infer` out of a SeqIO task; the counterpart of `train.inputs`."""

    def __init__(self, cfg: Any, model: Any):
        self._cfg = cfg
        check_vocabulary(cfg, model)
        self.batch_size = cfg.batch_size
        self.source = self.task = cfg.task_name

    def lengths(self) -> tuple[int, int]:
        """(S, T); T counts the start token of a decode."""
        lengths = self._cfg.task_feature_lengths
        if lengths is None:
            raise UserError("TASK_FEATURE_LENGTHS is None; give {'inputs': S, 'targets': T}.")
        # T5X's "targets" counts what is generated; here the start token counts too.
        return lengths["inputs"], lengths["targets"] + 1

    def examples(self, vocabulary: Any, *, joined: bool = False) -> list[Example]:
        """All inputs, in the order of the task, as it tokenizes them."""
        del vocabulary, joined
        cfg = self._cfg
        task = get_task(cfg.mixture_or_task_name)
        check_split(cfg)
        if "inputs" not in task.output_features:
            raise UserError(f"Task {cfg.task_name!r} has no output feature 'inputs'.")
        with explained_task(cfg):
            # The task itself, not `seqio.get_dataset`: no feature converter, and the pretokenized
            # text stays.
            dataset = task.get_dataset(
                sequence_length=dict(cfg.task_feature_lengths or {}),
                split=cfg.split,
                use_cached=cfg.use_cached,
                shuffle=False,
                num_epochs=1,
                seed=cfg.seed,
            )
            return [_example(row, task.output_features) for row in dataset.as_numpy_iterator()]


def _example(row: Mapping[str, Any], features: Mapping[str, Any]) -> Example:
    shown = {name: _text(row[name]) for name in _PRETOKENIZED if name in row}
    # Targets that are no output feature may be there as text.
    targets = row["targets"].tolist() if "targets" in features else None
    return Example(shown, row["inputs"].tolist(), targets)


def _text(value: Any) -> str:
    # TensorFlow's strings arrive as bytes.
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
