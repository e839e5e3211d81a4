"""T5X's two evaluations of SeqIO tasks: the loss on a split, and the tasks' own metrics."""

import functools
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ckl_jax.errors import UserError
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes.answering import fetch
from ckl_jax.t5x_api.metrics import of_batch, of_sums, summarize
from ckl_jax.t5x_api.seqio_data import (
    FEATURES,
    dataset_of,
    dtype_of,
    explained_task,
    get_task,
    import_seqio,
    say_what_is_left_out,
    tasks_of,
)


class TrainEvaluation:
    """The loss of a split under teacher forcing, as T5X's `training_eval`."""

    def __init__(self, cfg: Any, steps: int, model: Any, partitioner: Partitioner):
        def step(params, batch):
            # No dropout key: the model runs without dropout.
            return {**of_sums(*model.loss_fn(params, batch, None)), **of_batch(batch)}

        self._step, self._put, self._rows = jax.jit(step), partitioner.put_batch, cfg.batch_size
        rows = len(partitioner.process_rows(cfg.batch_size))
        say_what_is_left_out("training_eval", cfg)
        # The tasks of a mixture apart, each repeated until there are enough batches.
        self._parts = [
            (
                one,
                dataset_of(one, epochs=None, seed=cfg.seed, partitioner=partitioner)
                # Of this process's rows; drop_remainder keeps one shape.
                .batch(rows, drop_remainder=True)
                .take(steps),
            )
            for one in tasks_of(cfg)
        ]

    def __call__(self, params: Any, step: int, last: bool) -> dict[str, dict[str, float]]:
        """{"training_eval/<task>": metrics}."""
        del step, last
        scores = {}
        for cfg, dataset in self._parts:
            sums, began = [], time.monotonic()
            with explained_task(cfg, ", training_eval"):
                for batch in dataset.as_numpy_iterator():
                    batch = {n: np.asarray(batch[n], dtype_of(n)) for n in FEATURES if n in batch}
                    # Numbers of one batch at a time: these evaluations are short.
                    sums.append(jax.device_get(self._step(params, self._put(batch))))
            if sums:
                seconds = time.monotonic() - began
                scores[f"training_eval/{cfg.task_name}"] = summarize(sums, seconds, self._rows)
        return scores


class InferenceEvaluation:
    """The task's own metrics on a split, by SeqIO's evaluator; it writes its files itself."""

    def __init__(
        self, cfg: Any, evaluator_cls: Any, model: Any, put_whole: Callable[..., Any], folder: str
    ):
        seqio = import_seqio()
        get_task(cfg.mixture_or_task_name)
        # T5X's gin files bind `seqio.Evaluator` with its loggers; this is for those that bind none.
        make = evaluator_cls or functools.partial(
            seqio.Evaluator, logger_cls=[seqio.TensorBoardLogger, seqio.JSONLogger]
        )
        self._put, self._rows = put_whole, cfg.batch_size
        self.scores: dict[str, Any] = {}  # of the newest evaluation, by task
        first, self._explained = jax.process_index() == 0, functools.partial(explained_task, cfg)
        with self._explained():
            self.evaluator = make(
                mixture_or_task_name=cfg.mixture_or_task_name,
                feature_converter=seqio.EncDecFeatureConverter(pack=False),
                eval_split=cfg.split,
                use_cached=cfg.use_cached,
                seed=cfg.seed,
                sequence_length=cfg.task_feature_lengths and dict(cfg.task_feature_lengths),
                # Without a folder SeqIO makes no loggers: only the first process writes.
                log_dir=folder if first else None,
                use_memory_cache=cfg.use_memory_cache,
            )
        say_what_is_left_out("inference_eval", cfg, [t.name for t in self.evaluator.eval_tasks])
        if hasattr(self.evaluator, "_loggers"):  # what they cannot write is named before they try
            self.evaluator._loggers = (check_metrics, *self.evaluator._loggers)
        # A lambda, so that optional arguments of the method, which are not arrays, stay at their
        # defaults.
        self._predict = jax.jit(lambda params, batch: model.predict_batch_with_aux(params, batch))
        self._score = jax.jit(model.score_batch)

    def __call__(self, params: Any, step: int, last: bool) -> dict[str, Any]:
        del last
        if not self.evaluator.eval_tasks:
            return {}
        with self._explained(f", evaluation at step {step}"):
            metrics, _ = self.evaluator.evaluate(
                # Every process predicts, for they share the computation; one computes metrics.
                compute_metrics=jax.process_index() == 0,
                step=step,
                predict_fn=functools.partial(self._run, self._predicted, params),
                score_fn=functools.partial(self._run, self._scored, params),
                predict_with_aux_fn=functools.partial(self._run_with_aux, params),
            )
            # SeqIO returns a future; None where no metrics were computed.
            self.scores = metrics.result() if metrics is not None else {}
        return {f"inference_eval/{task}": _numbers(scores) for task, scores in self.scores.items()}

    def _predicted(self, params: Any, batch: Any) -> list[list[int]]:
        return fetch(self._predict(params, batch)[0]).tolist()

    def _scored(self, params: Any, batch: Any) -> list[float]:
        return fetch(self._score(params, batch)).tolist()

    def _run(self, function: Callable, params: Any, dataset: Any) -> list[tuple[int, Any]]:
        results = []
        for indices, batch in self._batches(dataset):
            # The batch has rows beyond `indices` if it was filled up.
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
        """(indices of the examples, batch on the devices); the last batch is padded."""
        for indices, examples in dataset.batch(self._rows).as_numpy_iterator():
            batch = {}
            # Without segment numbers: evaluation rows are not packed.
            for name in FEATURES[:4]:
                value = np.asarray(examples[name], dtype_of(name))
                batch[name] = np.resize(value, (self._rows, *value.shape[1:]))
            yield [int(i) for i in indices], self._put(batch)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numeric metrics of a task."""
    # A MetricValue has `value`; a task may also return plain numbers.
    values = {name: getattr(value, "value", value) for name, value in metrics.items()}
    return {name: float(np.asarray(v).item()) for name, v in values.items() if _is_number(v)}


def check_metrics(task_name: str, metrics: Mapping[str, Any], **unused: Any) -> None:
    """A logger of SeqIO's that raises `UserError` for a metric that is neither number nor summary.

    Args:
      task_name: of the task whose metrics they are.
      metrics: `seqio.metrics.MetricValue`s by name; what is none was made a Scalar by SeqIO.
      **unused: what else loggers get.
    """
    del unused
    scalar = import_seqio().metrics.Scalar
    for name, metric in metrics.items():
        if isinstance(metric, scalar) and not _is_number(metric.value):
            raise UserError(
                f"Task {task_name!r}: its metric {name!r} is {_shortened(metric.value)}, which is "
                "not a number; let its metric function return a number, or seqio.metrics.Text and "
                "the like."
            )


def _is_number(value: Any) -> bool:
    value = np.asarray(value)
    kinds = (np.integer, np.floating, np.bool_)
    # jnp's, which knows bfloat16 as a floating type.
    return value.size == 1 and any(jnp.issubdtype(value.dtype, kind) for kind in kinds)


def _shortened(value: Any) -> str:
    return textwrap.shorten(repr(value), 60, placeholder=" ...")
