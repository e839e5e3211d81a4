"""Builds plan, parameters and optimizer from the records that gin files bind."""

import contextlib
import dataclasses
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental.layout import Format, Layout

from ckl_jax import checks
from ckl_jax.checkpoints import architectures, scan_layout
from ckl_jax.checkpoints.assignment import Assignment, AssignmentMap, assign, some
from ckl_jax.checkpoints.layout import T5X_NAMES, tree_digest
from ckl_jax.checkpoints.restore import (
    ORIGIN,
    PREFIX,
    find_checkpoint,
    is_remote,
    read_json_item,
    restore_params,
    step_of,
)
from ckl_jax.data.text.byte_level import unused_ids
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_folder, os_errors, write_file, write_json
from ckl_jax.methods.method import Method
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.optim.adafactor import T5_SCANNED, Stacked
from ckl_jax.optim.clipping import clip_by_global_norm
from ckl_jax.parallel.mesh import Partitioner, params_logical_axes
from ckl_jax.train import adapters
from ckl_jax.trees.partition import merge, split
from ckl_jax.trees.paths import APART, STACKED, flatten, unflatten

_IN_CHECKPOINT = T5X_NAMES["params"] + "/"
_BASE = "base"  # of a MODEL_DIR: the checkpoint that the run started from


def make_optimizer(
    model: BaseTransformerModel,
    method: Method,
    optimizer: Callable[..., optax.GradientTransformation],
    schedule: optax.Schedule,
    clip_norm: float | None,
) -> optax.GradientTransformation:
    """The method's optimizer, or else the run's own, after clipping by global norm.

    What the method wraps around it sees gradients before the clip and updates at the very end.
    """
    if method.tx is not None:
        tx = _transformation(method, "tx", method.tx(schedule))
    elif stacked := _stacked(model, method):
        tx = optimizer(schedule, stacked=stacked)
    else:
        tx = optimizer(schedule)
    # First in the chain: gradients are clipped before the optimizer sees them.
    tx = optax.chain(clip_by_global_norm(clip_norm), tx) if clip_norm else tx
    return _transformation(method, "wrap", method.wrap(tx)) if method.wrap else tx


def _transformation(method: Method, seam: str, made: Any) -> optax.GradientTransformation:
    if not isinstance(made, optax.GradientTransformation):
        raise UserError(
            f"{seam} of method {method.name!r} returned {made!r}; give an optax transformation."
        )
    return made


def _stacked(model: BaseTransformerModel, method: Method) -> Stacked:
    """The stacked axes of trainable leaves; () if none is stacked, as in side networks."""
    if not model.config.scan_layers:
        return ()
    shapes = jax.eval_shape(model.init, jax.random.key(0))["params"]
    paths = flatten(split(shapes, method.trainable)[0])
    # Adafactor factors the last two axes of an array; stacked layers have one axis more, which must
    # not be taken for one of them.
    return tuple(pair for pair in T5_SCANNED if any(re.search(pair[0], p) for p in paths))


@dataclasses.dataclass
class Shapes:
    """Shapes and shardings of the parameters before allocation.

    Attributes:
      params: tree of `jax.ShapeDtypeStruct` with shardings, all parameters.
      trainable, frozen: its two parts.
      added: paths of the leaves that the method adds to the base model.
      own: those of them that are frozen and that no earlier update has trained, such as VeRA's
        random matrices: no base checkpoint has them, so that the run's own checkpoints do.
    """

    params: Any
    trainable: Any
    frozen: Any
    added: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()

    def split_frozen(self, frozen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """A tree of frozen leaves as two: the run's own, and those that its base has."""
        flat = flatten(frozen)
        own = {p: x for p, x in flat.items() if p in self.own}
        return unflatten(own), unflatten({p: x for p, x in flat.items() if p not in own})


def param_shapes(
    base_model: BaseTransformerModel,
    method: Method,
    partitioner: Partitioner,
    frozen_dtype: str = "float32",
) -> Shapes:
    """Shapes, shardings and the split of a model's parameters, without allocating them.

    Args:
      base_model: the model without the method.
      method: put into it here.
      partitioner: says how each parameter is split.
      frozen_dtype: of what does not train.
    """
    model = base_model.with_method(method)
    variables = jax.eval_shape(model.init, jax.random.key(0))
    params = variables["params"]
    shardings = partitioner.params_shardings(params_logical_axes(variables), params)
    params = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), params, shardings
    )
    added = own = frozenset()
    # Only then can the two models' parameters differ.
    if method.dense is not None or method.side:
        base = jax.eval_shape(base_model.init, jax.random.key(0))["params"]
        added = frozenset(flatten(params).keys() - flatten(base).keys())
    trainable, frozen = split(params, method.trainable)
    if own := added & flatten(frozen).keys():
        base = flatten(params).keys() - added
        own -= adapters.earlier_phases(own, added - own, base)
    frozen = {
        p: jax.ShapeDtypeStruct(x.shape, frozen_dtype, sharding=_by_layer(p, x))
        for p, x in flatten(frozen).items()
    }
    frozen = unflatten(frozen)
    return Shapes(merge(trainable, frozen), trainable, frozen, added, own)


def _by_layer(path: str, leaf: jax.ShapeDtypeStruct) -> Format | jax.sharding.Sharding:
    """Where a frozen leaf lies; stacked layers, [in, L, out], one after the other in memory.

    A scan takes a layer at a time. In the usual order of the axes it copies the whole stack first.
    """
    if not STACKED.fullmatch(path) or leaf.ndim < 2:
        return leaf.sharding
    return Format(Layout(major_to_minor=(1, 0, *range(2, leaf.ndim))), leaf.sharding)


def put(value: Any, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    """An array where a leaf is to lie; split over the devices before its layout changes."""
    value = jax.device_put(value, leaf.sharding)
    return value if leaf.format.layout is None else jax.device_put(value, leaf.format)


def for_gradients(model: BaseTransformerModel, trainable: Any) -> BaseTransformerModel:
    """The model whose loss is differentiated by the trainable leaves, and by no others."""
    layers = (APART, STACKED)
    inside = (any(form.fullmatch(path) for form in layers) for path in flatten(trainable))
    return dataclasses.replace(model, frozen_head=all(inside))


def load_params(path: str) -> dict[str, Any]:
    """All parameters of a checkpoint, as numpy arrays.

    A checkpoint of a method that freezes leaves holds the others only; the frozen ones come from
    its base: see `base_of`.

    Raises:
      UserError: no checkpoint, or its base is not there or not what it was.
    """
    checkpoint = find_checkpoint(path)
    params = flatten(restore_params(checkpoint))
    metadata = read_json_item(checkpoint, "metadata")
    # Named in the metadata, so the model is not needed to know what is absent.
    missing = [p for p in metadata.get("frozen_paths") or [] if p not in params]
    base = base_of(checkpoint)
    if not (missing and base):
        return unflatten(params)
    try:
        # Recursively: the base may itself be an update with frozen parameters.
        inherited = flatten(load_params(base))
    except UserError as e:
        if not Path(base).exists():
            raise UserError(
                f"Checkpoint {checkpoint} needs the base model in {base}, which is not there any "
                f"more; put it there again, or beside {checkpoint.parent}, under its old name."
            ) from e
        raise UserError(f"Checkpoint {checkpoint} needs the base model in {base}: {e}") from e
    # The base may store its layers one by one, this run's checkpoint stacked, or the other way
    # round.
    inherited = scan_layout.convert(inherited, [*params, *missing])
    dtype = metadata.get("frozen_dtype", "float32")
    checks.require_choice(("float32", "bfloat16"), **{f"frozen_dtype of {checkpoint}": dtype})
    frozen = {p: np.asarray(inherited[p]).astype(dtype) for p in missing if p in inherited}
    # Checked even if all names are there: the base may have been trained again in the same folder.
    digest = metadata.get("frozen_digest")
    if len(frozen) < len(missing) or (digest and tree_digest(unflatten(frozen)) != digest):
        raise UserError(
            f"Checkpoint {checkpoint} needs the base model in {base}, which has been replaced: its "
            "frozen parameters differ; restore that folder or train again."
        )
    # In the type that models have parameters in, rounded as they were in training.
    return unflatten({**params, **{p: x.astype(np.float32) for p, x in frozen.items()}})


def base_of(checkpoint: Any) -> str | None:
    """The folder of the model that a checkpoint was trained from, even if the runs were moved.

    None for one that was trained from nothing.
    """
    metadata = read_json_item(checkpoint, "metadata")
    base = metadata.get("base_checkpoint")
    if not base:
        return None
    # The run's own copy first: what has the recorded path may have been trained again.
    there = [checkpoint.parent / _BASE, Path(base)]
    # Places where a base is found after the runs were moved or copied together.
    if way := metadata.get("base_from_model_dir"):
        # normpath, for the path between the two folders contains "..", and a symbolic link must not
        # be followed before it.
        there.append(Path(os.path.normpath(str(checkpoint.parent / way))))
    there.append(checkpoint.parent.parent / Path(base).name)
    return str(next((path for path in there if path.exists()), base))


def link_base(folder: str | Path, path: str) -> None:
    """Keeps the checkpoint at `path`, which a run in `folder` needs, in that folder too.

    Its files get a second name (hard links), which takes no room. On a file system without them, or
    if the folders lie on two, nothing is kept, and a line says so.

    Raises:
      UserError: the folder cannot be written.
    """
    checkpoint = find_checkpoint(path)
    if is_remote(folder) or is_remote(path):
        return
    try:
        with atomic_folder(Path(folder) / _BASE) as part:
            shutil.copytree(
                checkpoint, part / f"{PREFIX}{step_of(checkpoint) or 0}", copy_function=os.link
            )
            if read_json_item(checkpoint, "metadata").get("frozen_paths"):  # an update itself
                link_base(part, base_of(checkpoint))
    except shutil.Error:
        print(
            f"{folder} needs {path}, which lies on another file system and so is not kept in "
            f"{_BASE}/: move both together."
        )


def keep_origin(folder: str | Path, path: str | None, config: Any) -> None:
    """Keeps what an export needs: the Hugging Face config.json that lies beside the checkpoint at
    `path`, if any; for a new model that of its configuration, if there is one.

    Raises:
      UserError: it cannot be read, or the folder not be written.
    """
    if is_remote(folder) or (path and is_remote(path)):
        return
    target = Path(folder) / ORIGIN
    if path is None:
        with contextlib.suppress(UserError):  # Hugging Face has no such model
            form = architectures.of_config(config).require_hugging_face()
            write_json(target, form.config_to_hf(config))
    elif os.path.lexists(kept := Path(str(find_checkpoint(path))).parent / ORIGIN):
        with os_errors(kept, "read"):
            write_file(target, kept.read_bytes())


def check_model(model: Any, method: Any) -> None:
    """Raises `UserError` unless they are a model and a method."""
    if not hasattr(model, "with_method"):
        raise UserError(f"MODEL is {model!r}; give one such as @base.EncoderDecoderModel().")
    if not isinstance(method, Method):
        raise UserError(f"METHOD is {method!r}; give one such as @lora.lora().")


def check_vocabulary(model: BaseTransformerModel) -> None:
    """Raises `UserError` if a vocabulary has ids outside the model's embedding."""
    rows = model.config.vocab_size
    for vocabulary in (model.input_vocabulary, model.output_vocabulary):
        # Fewer ids than rows are common: embeddings are padded to a multiple of 128.
        size = getattr(vocabulary, "vocab_size", 0)
        if size > rows and size - unused_ids(vocabulary) > rows:
            raise UserError(
                f"{vocabulary!r} has {size} ids but {type(model.config).__name__}.vocab_size is "
                f"{rows}; set it to {size} or more (a multiple of 128 runs fastest)."
            )


def initial_params(
    model: BaseTransformerModel,
    shapes: Shapes,
    key: jax.Array,
    path: str | None,
    *,
    complete: bool = False,
    init: Callable[..., dict[str, jax.Array]] | None = None,
    method: str | None = None,
    assignment_map: AssignmentMap = (),
    strict: bool = True,
    fallback_to_scratch: bool = False,
) -> dict[str, Any]:
    """Parameters at the start of a run, on the devices.

    Args:
      model: with its method in it.
      shapes: of its parameters.
      key: initialises the leaves that no checkpoint has.
      path: checkpoint to start from, or None: one of this project or of T5X, its layers stacked
        or apart.
      complete: the checkpoint must have the leaves that the method adds too.
      init: the method's `init_params`, for leaves that no checkpoint has.
      method: the one that the checkpoint should be of, for the complaint; None is any.
      assignment_map, strict, fallback_to_scratch: as T5X's `RestoreCheckpointConfig` has them;
        see `checkpoints.assignment.assign`. Names are those of a checkpoint, `target/...`.

    Raises:
      UserError: the checkpoint lacks parameters of the base model, has ones that the model lacks,
        or shapes differ; both lists are in the message.
    """
    # Names as in a T5X checkpoint, "target/...", because the rules of an assignment_map are written
    # for those.
    wanted = {_IN_CHECKPOINT + p: x for p, x in flatten(shapes.params).items()}
    params = {}
    fresh = list(wanted)
    if path:
        stored = {_IN_CHECKPOINT + p: x for p, x in flatten(load_params(path)).items()}
        stored = scan_layout.convert(stored, wanted)
        added = {_IN_CHECKPOINT + p for p in shapes.added}
        if strict and not assignment_map:
            adapters.check_phase(path, wanted, stored, added)
        assignment = assign(
            wanted,
            stored,
            assignment_map,
            strict=strict,
            fallback_to_scratch=fallback_to_scratch,
            where=_where(path, method),
            optional=() if complete else added,
            elsewhere=_optimizer_names(wanted),
            differ=lambda p, source: _shapes_differ(p, wanted[p].shape, stored[source].shape),
        )
        if strict:
            adapters.check_settings(path, model.config)
        if not complete:
            _check_frozen(path, shapes, assignment)
            _tell_of_going_on(path, shapes, assignment)
        # Several leaves may be assigned from one source; after its last use the array is dropped,
        # so that the whole checkpoint is not held on the host beside the device copy.
        last_use = {source: p for p, source in assignment.sources.items()}
        for p, source in assignment.sources.items():
            value = stored.pop(source) if last_use[source] == p else stored[source]
            value = np.asarray(value).astype(wanted[p].dtype, copy=False)
            # One leaf at a time: the host needs memory for one cast copy only.
            params[p] = put(value, wanted[p])
        fresh = list(assignment.fresh)
    if fresh:
        formats = [wanted[p].format for p in fresh]

        names = [p.removeprefix(_IN_CHECKPOINT) for p in fresh]
        restored = {p.removeprefix(_IN_CHECKPOINT): x for p, x in params.items()}

        def make(key, restored):
            # XLA removes what is not among the outputs, so only the fresh leaves are really
            # computed.
            flat = flatten(model.init(key)["params"])
            own = init({**flat, **restored}, frozenset(names)) if init else {}
            _check_own(own, {p: flat[p] for p in names})
            # The method's own values before the model's.
            return [own.get(p, flat[p]) for p in names]

        # Restored leaves are passed only where `init` reads them.
        made = jax.jit(make, out_shardings=formats)(key, restored if init else {})
        params.update(zip(fresh, made, strict=True))
    return unflatten({p.removeprefix(_IN_CHECKPOINT): params[p] for p in wanted})


def _check_own(own: Any, fresh: Mapping[str, Any]) -> None:
    """Refuses what a method's `init_params` made, if it does not fit the new leaves."""
    if not isinstance(own, Mapping):
        raise UserError(f"init_params returned {own!r}; give a dictionary, {{path: array}}.")
    if stray := own.keys() - fresh.keys():
        names = some(sorted(map(str, stray)))
        raise UserError(f"init_params sets {names}, which are not new.")
    for path, value in own.items():
        if not isinstance(value, jax.Array | np.ndarray):
            raise UserError(f"init_params makes {path} a {type(value).__name__}; give an array.")
        forms = [(jnp.shape(x), jnp.result_type(x)) for x in (value, fresh[path])]
        if forms[0] != forms[1]:
            (shape, dtype), (wanted, of) = forms
            raise UserError(
                f"init_params makes {path} {list(shape)} {dtype}; the model's is {list(wanted)} "
                f"{of}."
            )


def _optimizer_names(wanted: Iterable[str]) -> list[str]:
    """Names of a T5X checkpoint's optimizer state, which is not restored but which rules may
    match.
    """
    # Of T5X's Adafactor; rules for them, as in published gin files, must not be reported as
    # matching nothing.
    slots = ("m", "v", "v_row", "v_col")
    params = [p.removeprefix(_IN_CHECKPOINT) for p in wanted]
    return ["state/step", *(f"state/param_states/{p}/{slot}" for p in params for slot in slots)]


def check_first_phase(shapes: Shapes, path: str | None) -> None:
    """Raises `UserError` for a later phase of a method; what it goes on from has yet to be made."""
    _refuse_phases(path, sorted(shapes.added & flatten(shapes.frozen).keys() - shapes.own))


def _refuse_phases(path: str | None, lacking: Sequence[str]) -> None:
    if lacking:
        raise UserError(
            f"{path} has no {some(lacking)}, which an earlier phase of the method adds; give the "
            "checkpoint of that phase, or leave the method's `phase` out."
        )


def _check_frozen(path: str, shapes: Shapes, assignment: Assignment) -> None:
    """Checks that frozen leaves, if the run's checkpoints do not store them, are in `path` under
    the same names.
    """
    names = [_IN_CHECKPOINT + p for p in flatten(shapes.frozen).keys() - shapes.own]
    elsewhere = [p for p in names if assignment.sources.get(p) != p]
    _refuse_phases(path, [p for p in elsewhere if p.removeprefix(_IN_CHECKPOINT) in shapes.added])
    if elsewhere:
        raise UserError(
            f"The method freezes {some(elsewhere)}, which an assignment_map or fallback_to_scratch "
            f"takes from elsewhere than {path}; run the method 'initial' with it first, and start "
            "from its checkpoint."
        )


def _tell_of_going_on(path: str, shapes: Shapes, assignment: Assignment) -> None:
    trainable, frozen = flatten(shapes.trainable), flatten(shapes.frozen)
    fresh = [p.removeprefix(_IN_CHECKPOINT) for p in assignment.fresh]
    further = adapters.continued_phase(trainable, frozen, fresh, set(shapes.added))
    if further and jax.process_index() == 0:
        kind, phase = further
        print(
            f"{path} holds {kind}_{phase}, which this run trains further; for an update with "
            f"parameters of its own give {kind}.{kind}.phase = {phase + 1}."
        )


def _where(path: str, method: str | None) -> str:
    held = read_json_item(find_checkpoint(path), "metadata").get("method")
    other = method and held and held != method
    run = f"{path} holds a run of {held!r}, not {method!r}. " if other else ""
    return f"{run}Checkpoint {path}"


def _shapes_differ(p: str, want: Sequence[int], have: Sequence[int]) -> str | None:
    same = tuple(want) == tuple(have)
    return None if same else f"{p} {list(have)} instead of {list(want)}"
