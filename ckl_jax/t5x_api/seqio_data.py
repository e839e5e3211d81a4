"""Batches, evaluations and inputs of SeqIO tasks: the one module of the package that reads them.

Training streams: T5X's tasks may be larger than any cache. The order is a function of the seed, so
a run that is started again skips what it has seen.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ckl_jax.data.vocabularies import digest_of
from ckl_jax.errors import UserError, nearest
from ckl_jax.jobs.inputs import Example
from ckl_jax.jobs.quiet import quiet_imports
from ckl_jax.probes.answering import fetch
from ckl_jax.t5x_api.metrics import of_batch, of_sums, summarize
from ckl_jax.t5x_api.task_errors import explained, load_vocabulary

_FEATURES = (
    "encoder_input_tokens",
    "decoder_input_tokens",
    "decoder_target_tokens",
    "decoder_loss_weights",
    "encoder_segment_ids",
    "decoder_segment_ids",
)
_PRETOKENIZED = ("inputs_pretokenized", "targets_pretokenized")


def import_seqio() -> Any:
    """SeqIO, with TensorFlow kept from the accelerators.

    Raises:
      UserError: it is not installed.
    """
    try:
        with quiet_imports():
            import seqio
            import tensorflow as tf
    except ImportError as e:
        raise UserError(
            f"SeqIO tasks need seqio and TensorFlow ({e}); install `ckl-jax[seqio]`, or give the "
            "folder of a cached task ('ckl data prepare'), which needs neither."
        ) from e
    tf.config.set_visible_devices([], "GPU")
    return seqio


def get_task(name: Any) -> Any:
    """A task or mixture of SeqIO's registry, or `name` itself if it is one.

    Raises:
      UserError: there is none of that name.
    """
    seqio = import_seqio()
    try:
        return seqio.get_mixture_or_task(name) if isinstance(name, str) else name
    except ValueError as e:
        known = [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]
        raise UserError(
            f"MIXTURE_OR_TASK_NAME: there is neither a cached task's folder nor a SeqIO task or "
            f"mixture {name!r}; import the module that registers it in a gin file."
            + nearest(str(name), known)
        ) from e


def dataset_of(cfg: Any, *, epochs: int | None, seed: int | None) -> Any:
    """The tf.data of a `DatasetConfig` in an encoder-decoder's features, not batched.

    Raises:
      UserError: no such task or split, or it is to be read from a cache that is not there.
    """
    seqio = import_seqio()
    get_task(cfg.mixture_or_task_name)
    if cfg.task_feature_lengths is None:
        raise UserError(f"TASK_FEATURE_LENGTHS of {cfg.task_name} is None; give both lengths.")
    check_split(cfg)
    with explained(_where(cfg)):
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
            shard_info=seqio.ShardInfo(jax.process_index(), jax.process_count()),
            seed=seed,
            verbose=False,
        )


def _where(cfg: Any) -> str:
    return f"Task {cfg.task_name!r}, split {cfg.split!r}"


def check_split(cfg: Any) -> None:
    """Raises `UserError` unless a task, or a task of a mixture, has the split."""
    task = get_task(cfg.mixture_or_task_name)
    with explained(f"Task {cfg.task_name!r}"):
        splits = sorted({s for part in getattr(task, "tasks", [task]) for s in part.splits})
    if cfg.split not in splits and "[" not in cfg.split:  # TFDS slices such as "train[:90%]"
        raise UserError(
            f"Task {cfg.task_name!r} has no split {cfg.split!r}; it has {', '.join(splits)}."
            + nearest(cfg.split, splits)
        )


class TaskStream:
    """The training batches of a SeqIO task; the counterpart of `data.pipeline.BatchSource`."""

    def __init__(self, cfg: Any, total_steps: int | None, seed: int, model: Any):
        if total_steps is None:
            raise UserError("A SeqIO task has no number of rows: set TRAIN_STEPS, not EPOCHS.")
        check_vocabulary(cfg, model)
        processes = jax.process_count()
        if cfg.batch_size % processes:
            raise UserError(
                f"BATCH_SIZE {cfg.batch_size} is not a multiple of the {processes} processes."
            )
        self.plan = StreamPlan(cfg.batch_size, total_steps)
        self._rows = cfg.batch_size // processes
        dataset = dataset_of(cfg, epochs=None, seed=seed)
        self._dataset = dataset.map(
            lambda example: {name: example[name] for name in _FEATURES if name in example}
        ).batch(self._rows, drop_remainder=True)
        self._where = _where(cfg)

    def __len__(self) -> int:
        return self.plan.total_steps

    def shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of this process's part of a batch."""
        return {
            name: jax.ShapeDtypeStruct(tuple(spec.shape), _dtype(name))
            for name, spec in self._dataset.element_spec.items()
        }

    def iterate(self, start_step: int) -> Iterator[dict[str, np.ndarray]]:
        """Batches from `start_step` on."""
        empty = True
        with explained(self._where):
            for batch in self._dataset.skip(start_step).prefetch(4).as_numpy_iterator():
                empty = False
                yield {name: np.asarray(value, _dtype(name)) for name, value in batch.items()}
        if empty:
            raise UserError(f"The task has fewer rows than a batch of {self._rows}.")


def _dtype(name: str) -> Any:
    return np.float32 if name.endswith("weights") else np.int32


class StreamPlan:
    """What `data.epochs.EpochPlan` says of a run, for a stream without ends: one epoch."""

    def __init__(self, batch_size: int, total_steps: int):
        self.batch_size, self.total_steps, self.epochs = batch_size, total_steps, 1
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
        if name not in features or vocabulary is None:
            continue
        theirs = features[name].vocabulary
        load_vocabulary(theirs, f"The vocabulary of {name} of task {cfg.task_name!r}")
        if not _same(theirs, vocabulary) and theirs.vocab_size != 0:
            raise UserError(
                f"The vocabulary of {name} of task {cfg.task_name!r} ({_described(theirs)}) is not "
                f"the model's ({_described(vocabulary)}); bind VOCABULARY to the task's."
            )


def _same(theirs: Any, vocabulary: Any) -> bool:
    """Whether two vocabularies are one, of SeqIO's kind or of this project's."""
    if theirs == vocabulary:
        return True
    digest = digest_of(vocabulary)
    return digest is not None and digest == digest_of(theirs)


def _described(vocabulary: Any) -> str:
    path = getattr(vocabulary, "sentencepiece_model_file", getattr(vocabulary, "path", ""))
    name = f"{type(vocabulary).__name__} {path}".strip()
    return f"{name}, {vocabulary.vocab_size} ids with {getattr(vocabulary, 'extra_ids', 0)} extra"


class TrainEvaluation:
    """The loss of a split under teacher forcing, as T5X's `training_eval`."""

    def __init__(self, cfg: Any, steps: int, model: Any, put_batch: Callable[..., Any]):
        def step(params, batch):
            return {**of_sums(*model.loss_fn(params, batch, None)), **of_batch(batch)}

        self._step, self._put, self._rows = jax.jit(step), put_batch, cfg.batch_size
        rows = cfg.batch_size // jax.process_count()
        # The tasks of a mixture apart, each repeated until there are enough batches.
        self._datasets = {
            one.task_name: dataset_of(one, epochs=None, seed=cfg.seed)
            .batch(rows, drop_remainder=True)
            .take(steps)
            for one in tasks_of(cfg)
            if cfg.split in get_task(one.mixture_or_task_name).splits
        }

    def __call__(self, params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
        """{"training_eval/<task>": metrics}."""
        del step, last
        scores = {}
        for name, dataset in self._datasets.items():
            found, began = [], time.monotonic()
            with explained(f"Task {name!r}, training_eval"):
                for batch in dataset.as_numpy_iterator():
                    batch = {n: np.asarray(batch[n], _dtype(n)) for n in _FEATURES if n in batch}
                    found.append(jax.device_get(self._step(params, self._put(batch))))
            if found:
                seconds = time.monotonic() - began
                scores[f"training_eval/{name}"] = summarize(found, seconds, self._rows)
        return scores


class InferenceEvaluation:
    """The task's own metrics on a split, by SeqIO's evaluator; it writes its files itself."""

    def __init__(
        self, cfg: Any, evaluator_cls: Any, model: Any, put_whole: Callable[..., Any], folder: str
    ):
        seqio = import_seqio()
        get_task(cfg.mixture_or_task_name)
        make = evaluator_cls or functools.partial(
            seqio.Evaluator, logger_cls=[seqio.TensorBoardLogger, seqio.JSONLogger]
        )
        self._put, self._rows = put_whole, cfg.batch_size
        self.scores: dict[str, Any] = {}  # of the newest evaluation, by task
        first, self._where = jax.process_index() == 0, _where(cfg)
        with explained(self._where):
            self.evaluator = make(
                mixture_or_task_name=cfg.mixture_or_task_name,
                feature_converter=seqio.EncDecFeatureConverter(pack=False),
                eval_split=cfg.split,
                use_cached=cfg.use_cached,
                seed=cfg.seed,
                sequence_length=cfg.task_feature_lengths and dict(cfg.task_feature_lengths),
                log_dir=folder if first else None,
                use_memory_cache=cfg.use_memory_cache,
            )
        self._predict = jax.jit(lambda params, batch: model.predict_batch_with_aux(params, batch))
        self._score = jax.jit(model.score_batch)

    def __call__(self, params: Any, step: int, last: bool) -> dict[str, Any]:
        del last
        if not self.evaluator.eval_tasks:
            return {}
        with explained(f"{self._where}, evaluation at step {step}"):
            metrics, _ = self.evaluator.evaluate(
                compute_metrics=jax.process_index() == 0,
                step=step,
                predict_fn=functools.partial(self._run, self._predicted, params),
                score_fn=functools.partial(self._run, self._scored, params),
                predict_with_aux_fn=functools.partial(self._run_with_aux, params),
            )
            self.scores = metrics.result() if metrics is not None else {}
        return {f"inference_eval/{task}": _numbers(found) for task, found in self.scores.items()}

    def _predicted(self, params: Any, batch: Any) -> list[list[int]]:
        return fetch(self._predict(params, batch)[0]).tolist()

    def _scored(self, params: Any, batch: Any) -> list[float]:
        return fetch(self._score(params, batch)).tolist()

    def _run(self, function: Callable, params: Any, dataset: Any) -> list[tuple[int, Any]]:
        results = []
        for indices, batch in self._batches(dataset):
            results += zip(indices, function(params, batch), strict=False)
        return results

    def _run_with_aux(self, params: Any, dataset: Any) -> tuple[list[Any], dict[str, list[Any]]]:
        results, scores = [], []
        for indices, batch in self._batches(dataset):
            tokens, aux = fetch(self._predict(params, batch))
            results += zip(indices, tokens.tolist(), strict=False)
            scores += aux["scores"].tolist()[: len(indices)]
        return results, {"scores": scores}

    def _batches(self, dataset: Any) -> Iterator[tuple[list[int], dict[str, Any]]]:
        """(numbers of the examples, batch on the devices); the last one is filled up."""
        for indices, examples in dataset.batch(self._rows).as_numpy_iterator():
            batch = {}
            for name in _FEATURES[:4]:
                value = np.asarray(examples[name], _dtype(name))
                batch[name] = np.resize(value, (self._rows, *value.shape[1:]))
            yield [int(i) for i in indices], self._put(batch)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Those of a task's metrics that are numbers."""
    values = {name: getattr(value, "value", value) for name, value in metrics.items()}
    return {n: float(v) for n, v in values.items() if np.ndim(v) == 0 and np.isreal(v)}


def tasks_of(cfg: Any) -> list[Any]:
    """The `DatasetConfig`s of a mixture's tasks that have the split; of a task, `cfg` itself."""
    task = get_task(cfg.mixture_or_task_name)
    parts = getattr(task, "tasks", None)
    if parts is None:
        return [cfg]
    return [
        dataclasses.replace(cfg, mixture_or_task_name=part.name, module=None)
        for part in parts
        if cfg.split in part.splits
    ]


class TaskInputs:
    """The inputs of `t5x infer` out of a SeqIO task; the counterpart of `jobs.inputs`."""

    def __init__(self, cfg: Any, model: Any):
        self._cfg = cfg
        check_vocabulary(cfg, model)
        self.batch_size = cfg.batch_size
        self.mixture_or_task_name = self.task = cfg.task_name

    def lengths(self) -> tuple[int, int]:
        """(S, T); T counts the start token of a decode."""
        lengths = self._cfg.task_feature_lengths
        if lengths is None:
            raise UserError("TASK_FEATURE_LENGTHS is None; give {'inputs': S, 'targets': T}.")
        return lengths["inputs"], lengths["targets"] + 1

    def examples(self, vocabulary: Any) -> list[Example]:
        """All inputs, in the order of the task."""
        del vocabulary
        cfg = self._cfg
        task = get_task(cfg.mixture_or_task_name)
        check_split(cfg)
        with explained(_where(cfg)):
            dataset = task.get_dataset(
                sequence_length=dict(cfg.task_feature_lengths or {}),
                split=cfg.split,
                use_cached=cfg.use_cached,
                shuffle=False,
                num_epochs=1,
                seed=cfg.seed,
            )
            return [_example(row) for row in dataset.as_numpy_iterator()]


def _example(row: Mapping[str, Any]) -> Example:
    shown = {name: _text(row[name]) for name in _PRETOKENIZED if name in row}
    targets = row.get("targets")
    return Example(shown, row["inputs"].tolist(), None if targets is None else targets.tolist())


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
