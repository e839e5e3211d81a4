"""Tasks of EleutherAI's lm-evaluation-harness, run on a decoder-only model in JAX.

The harness makes the requests and the metrics; here is what it needs of a model, as its own
`HFLM` answers it. Importing this module needs the package `lm_eval`.
"""

import functools
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import lm_eval
import numpy as np
from lm_eval import evaluator
from lm_eval.api.model import TemplateLM
from lm_eval.tasks import TaskManager, get_task_dict
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from ckl_jax.data.text.byte_level import begins_with
from ckl_jax.errors import UserError, nearest

# Standard errors by processes that are forked beside JAX's threads may hang.
os.environ.setdefault("DISABLE_MULTIPROC", "1")
# It asks git for the version of the working folder, which complains where there is none.
evaluator.get_git_commit_hash = lambda: None

_LONGEST = 4096  # tokens of a request, if the model has as many positions
_SHORTEST = 32  # tokens of a row; longer ones are padded to a power of 2
_TOKENS = 4096  # of a batch
_NEW_TOKENS = 256  # of an answer, where the task does not say
Results = dict[str, dict[str, list[float | None]]]


class HarnessModel(TemplateLM):
    """A decoder-only model as the harness sees one."""

    def __init__(self, model: Any, params: Any):
        super().__init__()
        self.model, self.params = model, params
        self.max_length = min(_LONGEST, model.config.max_positions)
        self._score = jax.jit(self._token_scores)
        self._continue = jax.jit(self._continued, static_argnums=3)

    @property
    def eot_token_id(self) -> int:
        return self.model.vocabulary.eos_id

    @property
    def prefix_token_id(self) -> int:
        start = self.model.start_id
        return self.eot_token_id if start is None else start

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_) -> list[int]:
        vocabulary = self.model.vocabulary
        (ids,) = vocabulary.encode_many([string])
        return [*ids] if add_special_tokens is False else [*begins_with(vocabulary), *ids]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_
    ) -> list[tuple[float, bool]]:
        rows = [(context + end)[-(self.max_length + 1) :] for _, context, end in requests]
        log_likelihoods: list[Any] = [None] * len(rows)
        for indices, ids in self._batches([row[:-1] for row in rows]):
            targets = np.zeros_like(ids)
            for line, index in enumerate(indices):
                targets[line, : len(rows[index]) - 1] = rows[index][1:]
            scores, is_best = jax.device_get(self._score(self.params, ids, targets))
            for line, index in enumerate(indices):
                end = len(rows[index]) - 1
                span = slice(max(0, end - len(requests[index][2])), end)
                total = float(scores[line, span].sum(dtype=np.float64))
                log_likelihoods[index] = (total, bool(is_best[line, span].all()))
        return log_likelihoods

    def loglikelihood_rolling(self, requests: Sequence[Any], **_) -> list[float]:
        log_likelihoods = []
        for request in requests:
            windows = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0], add_special_tokens=False),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            parts = [(None, *make_disjoint_window(window)) for window in windows]
            log_likelihoods.append(
                math.fsum(total for total, _ in self._loglikelihood_tokens(parts))
            )
        return log_likelihoods

    def generate_until(self, requests: Sequence[Any], **_) -> list[str]:
        texts = []
        for request in requests:
            prompt, settings = request.args
            if settings.get("do_sample") or settings.get("num_beams", 1) != 1:
                raise UserError("Tasks that sample answers or search beams cannot be run here.")
            new = min(int(settings.get("max_gen_toks", _NEW_TOKENS)), self.max_length // 2)
            ids = self.tok_encode(prompt)[-(self.max_length - new) :] or [self.prefix_token_id]
            row = np.zeros((1, min(_padded(len(ids)), self.max_length - new)), np.int32)
            row[0, : len(ids)] = ids
            tokens = self._continue(self.params, row, np.array([len(ids)], np.int32), new)
            text = self.model.vocabulary.decode(np.asarray(tokens)[0, 0].tolist())
            until = settings.get("until") or []
            for end in [until] if isinstance(until, str) else until:
                text = text.split(end)[0] if end else text
            texts.append(text)
        return texts

    def _batches(self, rows: Sequence[list[int]]) -> Iterator[tuple[list[int], np.ndarray]]:
        """(places, [B, T] int32) of rows of a like length, longest first; few shapes."""
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        while order:
            width = min(_padded(len(rows[order[0]])), self.max_length)
            size = max(1, _TOKENS // width)
            indices, order = order[:size], order[size:]
            ids = np.zeros((size, width), np.int32)
            for line, index in enumerate(indices):
                ids[line, : len(rows[index])] = rows[index]
            yield indices, ids

    def _token_scores(self, params: Any, ids: jax.Array, targets: jax.Array) -> Any:
        def score(logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, jax.Array]:
            log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
            mine = jnp.take_along_axis(log_probs, targets[..., None], -1)[..., 0]
            return mine, jnp.argmax(logits, -1) == targets

        batch = {"decoder_input_tokens": ids, "decoder_target_tokens": targets}
        return self.model.per_token(score, params, batch)

    def _continued(self, params: Any, row: jax.Array, lengths: jax.Array, new: int) -> jax.Array:
        return self.model.predict(params, row, new, prompt_lengths=lengths, beam_size=1).tokens


def _padded(length: int) -> int:
    return max(_SHORTEST, 1 << (length - 1).bit_length())


def check(tasks: Sequence[str], include_path: str | None) -> None:
    """Raises `UserError` for a task that the harness lacks or whose data are missing.

    Args:
      include_path: folder with task files of the user's own, or None.
    """
    if include_path is not None and not Path(include_path).is_dir():
        raise UserError(f"--harness-tasks {include_path}: there is no such folder.")
    manager = _manager(tuple(tasks), include_path)
    for name in tasks:
        if not manager.match_tasks([name]):
            known = nearest(name, manager.all_tasks)
            raise UserError(f"--harness {name}: lm-evaluation-harness has no such task.{known}")
        try:
            get_task_dict([name], manager)
        except Exception as e:  # whatever reading data from a file or the hub raises
            why = str(e).strip().split("\n")[0][:200]
            raise UserError(f"--harness {name}: its data cannot be loaded ({why}).") from e


@functools.cache
def _manager(tasks: tuple[str, ...], include_path: str | None) -> TaskManager:
    if include_path is not None:
        own = TaskManager(include_path=include_path, include_defaults=False)
        if all(own.match_tasks([name]) for name in tasks):
            return own
    return TaskManager(include_path=include_path)  # reads thousands of files


def run_tasks(
    model: Any,
    params: Any,
    tasks: Sequence[str],
    include_path: str | None,
    limit: int | None = None,
) -> Results:
    """The results of tasks: {task: {metric: [value, standard error or None, items]}}.

    Args:
      model, params: a decoder-only model.
      tasks, include_path: see `check`.
      limit: items of each task, at most.
    """
    evaluation = lm_eval.simple_evaluate(
        HarnessModel(model, params),
        tasks=list(tasks),
        task_manager=_manager(tuple(tasks), include_path),
        limit=limit,
        bootstrap_iters=1000,
        log_samples=False,
    )
    results: Results = {}
    for task, metrics in evaluation["results"].items():
        for name, value in metrics.items():
            metric, _, _ = name.partition(",")
            if metric.endswith(("_stderr", "sample_len")) or not isinstance(value, int | float):
                continue
            error = metrics.get(name.replace(metric, f"{metric}_stderr", 1))
            error = error if isinstance(error, int | float) else None
            items = evaluation["n-samples"].get(task, {}).get("effective")
            if items is not None:  # else a group's mean
                results.setdefault(task, {})[metric] = [float(value), error, items]
    return results
