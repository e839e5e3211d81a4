"""The mean square of gradients on training text, for Krause's rule (`optim.krause`)."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ckl_jax import checks
from ckl_jax.data.compressed import read_arrays
from ckl_jax.data.tasks.cached import CachedTask, find_task
from ckl_jax.data.tasks.chunks import Segment, StreamDocument
from ckl_jax.errors import UserError
from ckl_jax.files import as_json, atomic_write, parse_json
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.papers.mind_the_gap.dynamic_eval.runner import StreamConfig, StreamRunner, UpdateConfig
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train.vocabulary_check import check_task_vocabulary
from ckl_jax.trees.paths import flatten, unflatten

_ABOUT = "about"


@dataclasses.dataclass(frozen=True)
class GradientStatistics:
    """The text on which gradients are collected.

    Attributes:
      task: a cached task with `targets`, by folder or by name in `cache_dirs`: training text.
      batches: N, chunks; their documents are spread over the task evenly.
    """

    task: str | None = None
    batches: int = 200
    cache_dirs: Sequence[str] = ()

    def __post_init__(self) -> None:
        checks.require_size(STATISTICS_BATCHES=self.batches)

    def open(self) -> CachedTask:
        """Opens the task; raises `UserError` if there is none."""
        if self.task is None:
            raise UserError(
                "The optimizer krause.rms_decay needs gradients on training text; give "
                "STATISTICS_TASK, a cached task."
            )
        if (folder := find_task(self.task, self.cache_dirs)) is not None:
            return CachedTask.open(folder)
        raise UserError(
            f"STATISTICS_TASK {self.task!r} is not a cached task; give its folder, or the folder "
            "that it lies in as CACHE_DIRS."
        )


def sum_of_squares() -> optax.GradientTransformation:
    """An optax transformation with zero updates whose state sums the squares of all gradients."""

    # A transformation, so that the compiled step of the stream serves unchanged.
    def update(grads, state, params=None):
        del params
        sums = jax.tree.map(lambda s, g: s + jnp.square(g), state, grads)
        return jax.tree.map(jnp.zeros_like, grads), sums

    return optax.GradientTransformation(lambda p: jax.tree.map(jnp.zeros_like, p), update)


def collect(
    settings: GradientStatistics,
    path: str | Path,
    about: dict[str, Any],
    model: BaseTransformerModel,
    trainable: Any,
    frozen: Any,
    stream: StreamConfig,
    reduction: str,
    partitioner: Partitioner,
) -> tuple[Any, int]:
    """The mean square of each trainable number's gradient, parameters fixed.

    Args:
      path: a file that keeps it; one that was collected in the same way is taken as it is.
      about: what else decides it, JSON values.
      model: with its method in it.
      trainable, frozen: the parameters.
      reduction: of a chunk's loss.

    Returns:
      MS, a tree like `trainable`, and N.

    Raises:
      UserError: the task is missing, empty or of another vocabulary, or a gradient is not finite.
    """
    task = settings.open()
    check_task_vocabulary(task, settings.task, model.output_vocabulary)
    settings_of = {**dataclasses.asdict(settings), **dataclasses.asdict(stream)}
    about = as_json({**about, **settings_of, "reduction": reduction, "made": task.manifest})
    # A resumed run does not collect again; statistics of other settings are overwritten.
    if (kept := _read(path, about, trainable)) is not None:
        return kept
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), (trainable, frozen)
    )
    updates = UpdateConfig(reduction=reduction)
    tx = sum_of_squares()
    runner = StreamRunner(model, *shapes, stream, updates, tx, partitioner)
    documents = list(_documents(task, settings.batches, stream.chunk_len))
    # Chunks, with the last and shorter one of each document: N of the mean.
    count = sum(-(-len(d.tokens) // stream.chunk_len) for d in documents)
    state = runner.start(trainable)
    # One segment, because no checkpoint is needed in between.
    segments = iter([Segment(documents, True)])
    for _, end in runner.run(state, frozen, segments, lambda document, tokens: None):
        state = end
    # The state of `sum_of_squares` is the tree of sums itself.
    mean = {p: np.asarray(x) / count for p, x in flatten(state.opt_state).items()}
    if not all(np.isfinite(x).all() for x in mean.values()):
        raise UserError(f"A gradient on {settings.task!r} is not finite; check the checkpoint.")
    with atomic_write(path, "wb") as f:
        # The settings are stored as a text array, so the file needs no pickle.
        np.savez(f, **{_ABOUT: np.array(json.dumps([about, count])), **mean})
    return _put(mean, trainable), count


def _read(path: str | Path, about: dict[str, Any], like: Any) -> tuple[Any, int] | None:
    if not Path(path).exists():
        return None
    try:
        kept = read_arrays(path)
        held, count = parse_json(str(kept.pop(_ABOUT)))
    except (KeyError, ValueError, TypeError) as e:
        raise UserError(f"{path} is damaged ({e}); delete it, and it is made again.") from e
    return (_put(kept, like), count) if held == about else None


def _put(flat: dict[str, np.ndarray], like: Any) -> Any:
    return jax.tree.map(lambda x, at: jax.device_put(x, at.sharding), unflatten(flat), like)


def _documents(task: CachedTask, batches: int, chunk_len: int) -> Iterator[StreamDocument]:
    """Evenly spread rows of a task that amount to `batches` chunks, if it has so many."""
    mean = task.manifest["features"]["targets"]["tokens"] / len(task)
    rows = min(len(task), batches)  # every row is a chunk at least
    left = batches
    order = np.unique(np.linspace(0, len(task) - 1, rows).astype(np.int64))
    if mean > chunk_len:  # fewer are needed: spread these
        order = order[:: max(1, int(mean // chunk_len))]
    for number in order.tolist():
        # The last document is cut so that there are exactly `batches` chunks.
        tokens = np.array(task.row(number)["targets"][: left * chunk_len], np.int32)
        if not left or not len(tokens):
            continue
        left -= -(-len(tokens) // chunk_len)
        yield StreamDocument(number, "", "", (), tokens, np.zeros(0, np.int32))
