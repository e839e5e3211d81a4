"""From the records of a gin file to what the loop runs on: plan, parameters, optimizer."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item, restore_params, some
from ckl_jax.data.epochs import EpochPlan
from ckl_jax.data.pipeline import BatchSource
from ckl_jax.errors import UserError
from ckl_jax.jobs.configs import DatasetConfig
from ckl_jax.jobs.mesh import Partitioner, params_logical_axes
from ckl_jax.methods.method import Method
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.optim.adafactor import T5_SCANNED
from ckl_jax.optim.clipping import clip_by_global_norm
from ckl_jax.trees.partition import split
from ckl_jax.trees.paths import flatten, unflatten


def make_source(
    dataset: DatasetConfig, method: Method, epochs: int, vocabulary: Any
) -> BatchSource:
    """Opens the tasks and plans which rows come when.

    Raises:
      UserError: a task is missing, empty, or was made with another vocabulary; the method reviews
        earlier data and none is named.
    """
    tasks = [dataset.open(dataset.mixture_or_task_name)]
    replay = 0
    if method.mixture is not None:
        if dataset.replay_task_name is None:
            raise UserError(
                f"Method {method.name!r} reviews earlier data; bind "
                "DatasetConfig.replay_task_name to the cached task of D0."
            )
        tasks.append(dataset.open(dataset.replay_task_name))
        replay = len(tasks[1])
    digest = getattr(vocabulary, "digest", None)
    for task in tasks:
        made_with = task.meta.get("vocabulary_digest")
        if digest and made_with and digest != made_with:
            raise UserError(
                f"Task {dataset.mixture_or_task_name!r} was tokenised with another vocabulary "
                f"({made_with[:12]}) than the model's ({digest[:12]}); prepare it again."
            )
    plan = EpochPlan(
        len(tasks[0]), replay, method.mixture, dataset.batch_size, epochs, dataset.seed
    )
    if dataset.batch_size > plan.epoch_rows(0):
        raise UserError(
            f"BATCH_SIZE {dataset.batch_size} exceeds the {plan.epoch_rows(0)} rows of an epoch of "
            f"{dataset.mixture_or_task_name!r}: the batch would be padding; give a smaller one."
        )
    return BatchSource(
        plan, tasks, dataset.task_feature_lengths,
        process_index=jax.process_index(), process_count=jax.process_count(),
    )  # fmt: skip


def make_optimizer(
    model: EncoderDecoderModel,
    method: Method,
    optimizer: Callable[..., optax.GradientTransformation],
    schedule: optax.Schedule,
    clip_norm: float | None,
) -> optax.GradientTransformation:
    """The method's transformation, or the run's own, behind the clip of the global norm."""
    if method.tx is not None:
        tx = method.tx(schedule)
    elif model.config.scan_layers:
        tx = optimizer(schedule, stacked=T5_SCANNED)
    else:
        tx = optimizer(schedule)
    return optax.chain(clip_by_global_norm(clip_norm), tx) if clip_norm else tx


@dataclasses.dataclass
class Shapes:
    """What is known of the parameters before any is allocated.

    Attributes:
      params: tree of `jax.ShapeDtypeStruct` with shardings, all parameters.
      trainable, frozen: its two parts.
    """

    params: Any
    trainable: Any
    frozen: Any


def param_shapes(model: EncoderDecoderModel, method: Method, partitioner: Partitioner) -> Shapes:
    """Shapes, shardings and the split of a model's parameters, without allocating them."""
    variables = jax.eval_shape(model.init, jax.random.key(0))
    params = variables["params"]
    shardings = partitioner.params_shardings(params_logical_axes(variables), params)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), params, shardings
    )
    return Shapes(params, *split(params, method.trainable))


def load_params(path: str) -> dict[str, Any]:
    """All parameters of a checkpoint, as numpy arrays.

    A checkpoint of a method that freezes leaves holds the others only; the frozen ones come from
    the checkpoint that it names as its base, where that is or beside its own folder.

    Raises:
      UserError: no checkpoint, or its base is not there or not what it was.
    """
    found = find_checkpoint(path)
    params = flatten(restore_params(found))
    metadata = read_json_item(found, "metadata")
    missing = [p for p in metadata.get("frozen_paths") or [] if p not in params]
    base = metadata.get("base_checkpoint")
    if not (missing and base):
        return unflatten(params)
    moved = found.parent.parent / Path(base).name
    if not Path(base).exists() and moved.exists():
        base = str(moved)
    try:
        inherited = flatten(load_params(base))
    except UserError as e:
        raise UserError(f"Checkpoint {found} rests on the model in {base}: {e}") from e
    frozen = {p: inherited[p] for p in missing if p in inherited}
    digest = metadata.get("frozen_digest")
    if len(frozen) < len(missing) or (digest and tree_digest(unflatten(frozen)) != digest):
        raise UserError(
            f"Checkpoint {found} rests on {base}, which has been replaced since: its frozen "
            "parameters are others; restore that folder or train again."
        )
    return unflatten({**params, **frozen})


def check_vocabulary(model: EncoderDecoderModel) -> None:
    """Raises `UserError` if a vocabulary has ids that the model's embedding lacks."""
    rows = model.config.vocab_size
    for vocabulary in (model.input_vocabulary, model.output_vocabulary):
        size = getattr(vocabulary, "vocab_size", 0)
        if size > rows:
            raise UserError(
                f"{vocabulary!r} has {size} ids but T5Config.vocab_size is {rows}; set it to "
                f"{size} or more (a multiple of 128 runs fastest)."
            )


def initial_params(
    model: EncoderDecoderModel,
    shapes: Shapes,
    key: jax.Array,
    path: str | None,
    *,
    complete: bool = False,
    method: str | None = None,
) -> dict[str, Any]:
    """Parameters at the start of a run, on the devices.

    Args:
      model: with its method in it.
      shapes: of its parameters.
      key: initialises the leaves that no checkpoint has.
      path: checkpoint to start from, or None.
      complete: the checkpoint must have the method's own leaves too.
      method: the one that the checkpoint should be of, for the complaint; None is any.

    Raises:
      UserError: the checkpoint lacks parameters of the base model, has ones that the model lacks,
        or shapes differ; both lists are in the message.
    """
    wanted = flatten(shapes.params)
    stored = flatten(load_params(path)) if path else {}
    new = [p for p in wanted if p not in stored]
    if path:
        _check_fit(path, wanted, stored, [p for p in new if complete or not is_added(p)], method)
    params = {}
    if new:
        names = list(new)
        shardings = [wanted[p].sharding for p in names]

        def init(key):
            flat = flatten(model.init(key)["params"])
            return [flat[p] for p in names]

        made = jax.jit(init, out_shardings=shardings)(key)
        params.update(zip(names, made, strict=True))
    for p, value in stored.items():
        params[p] = jax.device_put(np.asarray(value, wanted[p].dtype), wanted[p].sharding)
    return unflatten({p: params[p] for p in wanted})


def is_added(path: str) -> bool:
    """Whether a parameter was added by a method, so that a base checkpoint need not have it."""
    return any(part.startswith(("lora_", "k_adapter_", "modular_")) for part in path.split("/"))


def _check_fit(
    path: str, wanted: dict, stored: dict, missing: list[str], method: str | None
) -> None:
    unexpected = [p for p in stored if p not in wanted]
    differing = [
        f"{p} {list(stored[p].shape)} instead of {list(wanted[p].shape)}"
        for p in stored
        if p in wanted and tuple(stored[p].shape) != tuple(wanted[p].shape)
    ]
    problems = [
        f"{what} ({len(names)}): {some(names)}"
        for what, names in (
            ("missing in it", missing), ("in it but not in the model", unexpected),
            ("of another shape", differing),
        )  # fmt: skip
        if names
    ]
    if problems:
        held = read_json_item(find_checkpoint(path), "metadata").get("method")
        other = method and held and held != method
        run = f"{path} holds a run of {held!r}, not {method!r}. " if other else ""
        raise UserError(
            f"{run}Checkpoint {path} does not fit the model: {'; '.join(problems)}. "
            "Use the gin file of the model that it was made with."
        )
