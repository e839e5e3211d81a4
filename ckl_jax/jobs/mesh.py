"""One device mesh for any device kind, and the shardings that logical axis names give on it.

The mesh has three axes: `data` splits the batch, `fsdp` splits the batch and the `embed` axis of
parameters (each device holds a slice and gathers a layer when it needs it), `model` splits heads,
mlp and vocabulary. Parameters carry logical axis names; a list of rules maps those to mesh axes.
"""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax.linen import partitioning
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ckl_jax.errors import UserError, nearest
from ckl_jax.trees import keys

MESH_AXES = ("data", "fsdp", "model")
BATCH_AXES = ("data", "fsdp")

MeshAxes = str | tuple[str, ...] | None
Rules = Sequence[tuple[str, MeshAxes]]


def mesh_sizes(
    sizes: Mapping[str, int] | Sequence[int] | None, num_devices: int
) -> tuple[int, int, int]:
    """Returns the sizes of `MESH_AXES`, with the one that is -1 filled.

    Args:
      sizes: sizes by axis name (an axis left out has size 1; if none is -1 and `data` is left
        out, `data` is filled), or the three sizes in the order of `MESH_AXES`; None puts every
        device on `data`.
      num_devices: the number of devices to use up.

    Raises:
      UserError: unknown axis, more than one -1, or a product that is not `num_devices`.
    """
    if sizes is None:
        sizes = {}
    if not isinstance(sizes, Mapping):
        if len(sizes) != len(MESH_AXES):
            raise UserError(f"mesh_shape {list(sizes)} needs one size for each of {MESH_AXES}.")
        sizes = dict(zip(MESH_AXES, sizes, strict=True))
    for name in sizes:
        if name not in MESH_AXES:
            raise UserError(
                f"Unknown mesh axis {name!r}; the axes are {', '.join(MESH_AXES)}."
                + nearest(name, MESH_AXES)
            )
    default_data = 1 if -1 in sizes.values() else -1
    full = [sizes.get(name, default_data if name == "data" else 1) for name in MESH_AXES]
    if any(size == 0 or size < -1 for size in full) or full.count(-1) > 1:
        raise UserError(f"mesh_shape {dict(sizes)}: sizes are positive, and at most one is -1.")
    rest = math.prod(size for size in full if size != -1)
    if -1 in full and num_devices % rest == 0:
        full[full.index(-1)] = num_devices // rest
    if -1 in full or math.prod(full) != num_devices:
        shape = ", ".join(f"{n}={s}" for n, s in zip(MESH_AXES, full, strict=True))
        raise UserError(
            f"The mesh ({shape}) does not use up the {num_devices} devices; "
            "choose sizes whose product is the number of devices, or -1 for one of them."
        )
    return tuple(full)


def build_mesh(
    sizes: Mapping[str, int] | Sequence[int] | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> Mesh:
    """Returns a mesh with the axes `MESH_AXES` over `devices` (default: all of them)."""
    devices = jax.devices() if devices is None else devices
    shape = mesh_sizes(sizes, len(devices))
    # jax.make_mesh defaults to Explicit axes, under which Flax's logical constraints fail.
    axis_types = (AxisType.Auto,) * len(MESH_AXES)
    return jax.make_mesh(shape, MESH_AXES, axis_types=axis_types, devices=devices)


def standard_logical_axis_rules(
    activation_partitioning_dims: int = 1,
    parameter_partitioning_dims: int = 1,
    additional_rules: Rules = (),
) -> tuple[tuple[str, MeshAxes], ...]:
    """Returns (logical axis, mesh axes) pairs in order of priority.

    T5X's standard rules, with the `fsdp` axis added. A name may occur twice: for one array each
    mesh axis is used once, and a pair whose mesh axis is taken passes to the next pair.

    Args:
      activation_partitioning_dims: 2 also splits `embed` of activations over `model`.
      parameter_partitioning_dims: 2 also splits `embed` of parameters over `data`.
      additional_rules: pairs with priority over all others.
    """
    for dims in (activation_partitioning_dims, parameter_partitioning_dims):
        if dims not in (1, 2):
            raise UserError(f"Logical axis rules: partitioning dims are 1 or 2, not {dims}.")
    rules = [
        ("batch", BATCH_AXES),
        ("vocab", "model"),
        ("mlp", "model"),
        ("heads", "model"),
        ("joined_kv", "model"),
    ]
    if activation_partitioning_dims == 2:
        rules.append(("embed", "model"))
    # First the pair of axes, for parameters; an activation has spent both on its batch.
    rules.append(("embed", BATCH_AXES if parameter_partitioning_dims == 2 else "fsdp"))
    replicated = (
        "embed kv relpos_buckets abspos_buckets length layers stack mlp_activations "
        "lora_rank memory"
    )
    rules += [(name, None) for name in replicated.split()]
    extra = [
        (name, tuple(axes) if isinstance(axes, list) else axes) for name, axes in additional_rules
    ]
    return (*extra, *rules)


def partition_spec(names: Sequence[str | None], rules: Rules, where: str = "") -> PartitionSpec:
    """Returns the mesh axes of an array whose dimensions have the logical `names`.

    Raises:
      UserError: a name that no rule mentions.
    """
    known = [name for name, _ in rules]
    for name in names:
        if name is not None and name not in known:
            raise UserError(
                f"{where or 'An array'} has the logical axis {name!r}, which no rule maps to a "
                f"mesh axis; add ({name!r}, None) to the additional rules." + nearest(name, known)
            )
    return nn.logical_to_mesh_axes(tuple(names), rules)


def _axis_size(mesh: Mesh, axes: MeshAxes) -> int:
    axes = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(mesh.shape[axis] for axis in axes)


def _is_names(value: Any) -> bool:
    return value is None or isinstance(value, (tuple, PartitionSpec))


def logical_to_shardings(mesh: Mesh, rules: Rules, logical_axes: Any, shapes: Any) -> Any:
    """Returns the tree of `NamedSharding`s of a tree of parameters.

    Args:
      mesh: the device mesh.
      rules: see `standard_logical_axis_rules`.
      logical_axes: tree with the structure of `shapes`; a leaf is a tuple (or PartitionSpec) of
        logical names, one for each dimension.
      shapes: tree of arrays or `jax.ShapeDtypeStruct`s.

    Raises:
      UserError: the two trees differ, a name is unknown, or a dimension does not divide by the
        mesh axes it is split over; the message names the parameter.
    """
    names_of = dict(keys.named_leaves(logical_axes, is_leaf=_is_names))

    def sharding(path, leaf):
        path = keys.name(path)
        if path not in names_of:
            raise UserError(f"Parameter {path} has no logical axis names in `params_axes`.")
        return _named_sharding(mesh, rules, path, names_of[path], leaf.shape)

    return jax.tree_util.tree_map_with_path(sharding, shapes)


def _named_sharding(mesh, rules, path, names, shape) -> NamedSharding:
    names = names or ()
    if len(names) != len(shape):
        raise UserError(
            f"Parameter {path} has {len(shape)} dimensions {tuple(shape)} but the logical axes "
            f"{tuple(names)}."
        )
    spec = partition_spec(names, rules, f"Parameter {path}")
    for name, size, axes in zip(names, shape, spec, strict=True):
        parts = _axis_size(mesh, axes)
        if size % parts:
            raise UserError(
                f"Parameter {path}: its axis {name!r} of size {size} does not divide into {parts} "
                f"parts (mesh axis {axes!r}); choose another mesh shape or replicate the axis "
                f"with the rule ({name!r}, None)."
            )
    return NamedSharding(mesh, spec)


def params_logical_axes(variables: Mapping[str, Any]) -> Any:
    """Returns the logical axis names in a model's `params_axes` collection, as a nested dict."""
    if "params_axes" not in variables:
        raise UserError("The model emits no `params_axes` collection: its parameters need names.")
    names = partitioning.get_axis_names(variables["params_axes"])
    return jax.tree.map(tuple, _plain(names), is_leaf=lambda x: isinstance(x, PartitionSpec))


def _plain(tree: Any) -> Any:
    return {k: _plain(v) for k, v in tree.items()} if isinstance(tree, Mapping) else tree


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of an array whose leading axis is the batch."""
    return NamedSharding(mesh, PartitionSpec(BATCH_AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of an array that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def like_params(tree: Any, params: Any, param_shardings: Any, mesh: Mesh) -> Any:
    """Returns shardings for a tree that holds copies of the parameters, such as optimizer state.

    A leaf whose path ends in a parameter's path and that has its shape is sharded like that
    parameter; every other leaf (counts, factored moments) is replicated.

    Args:
      tree: abstract optimizer state, e.g. `jax.eval_shape(tx.init, params)`.
      params: abstract parameters.
      param_shardings: their shardings, a tree of the same structure.
      mesh: the device mesh.
    """
    shardings = jax.tree.leaves(param_shardings, is_leaf=lambda x: isinstance(x, NamedSharding))
    by_name = {
        name: (leaf.shape, sharding)
        for (name, leaf), sharding in zip(keys.named_leaves(params), shardings, strict=True)
    }

    def sharding_of(path, leaf):
        parts = keys.components(path)
        for start in range(len(parts)):
            shape, sharding = by_name.get("/".join(parts[start:]), (None, None))
            if shape == leaf.shape:
                return sharding
        return replicated(mesh)

    return jax.tree_util.tree_map_with_path(sharding_of, tree)


@dataclasses.dataclass(frozen=True)
class Partitioner:
    """Mesh and rules of a run, with T5X's arguments; builds the mesh when it is first asked for.

    Attributes:
      num_partitions: size of the `model` axis; `data` takes the rest.
      model_parallel_submesh: T5X's TPU tile; its product is taken as `num_partitions`.
      mesh_shape: sizes by axis name, one may be -1; not together with the two above.
      logical_axis_rules: pairs; None is `standard_logical_axis_rules()`.
    """

    num_partitions: int | None = None
    model_parallel_submesh: Sequence[int] | None = None
    mesh_shape: Mapping[str, int] | Sequence[int] | None = None
    logical_axis_rules: Rules | None = None

    def __post_init__(self):
        given = [
            name
            for name in ("num_partitions", "model_parallel_submesh", "mesh_shape")
            if getattr(self, name) is not None
        ]
        if len(given) > 1:
            raise UserError(f"Partitioner: {' and '.join(given)} exclude each other; bind one.")

    @functools.cached_property
    def mesh(self) -> Mesh:
        if self.mesh_shape is not None:
            return build_mesh(self.mesh_shape)
        model = self.num_partitions or math.prod(self.model_parallel_submesh or (1,))
        return build_mesh({"data": -1, "model": model})

    @functools.cached_property
    def rules(self) -> Rules:
        return tuple(self.logical_axis_rules or standard_logical_axis_rules())

    @property
    def batch_parts(self) -> int:
        """The number of parts that a global batch is split into."""
        return _axis_size(self.mesh, BATCH_AXES)

    @property
    def batch_sharding(self) -> NamedSharding:
        return batch_sharding(self.mesh)

    @property
    def replicated(self) -> NamedSharding:
        return replicated(self.mesh)

    def axis_rules(self) -> contextlib.AbstractContextManager[None]:
        """A `with` block in which the model's logical constraints mean this mesh."""
        return nn.logical_axis_rules(self.rules)

    def check_batch_size(self, batch_size: int, name: str = "BATCH_SIZE") -> None:
        """Raises `UserError` if a global batch does not divide over the mesh."""
        if batch_size % self.batch_parts:
            raise UserError(
                f"{name} {batch_size} does not divide into {self.batch_parts} parts, the "
                f"product of the mesh axes {BATCH_AXES}; use a multiple."
            )

    def params_shardings(self, logical_axes: Any, params: Any) -> Any:
        """Returns the shardings of `params`, see `logical_to_shardings`."""
        return logical_to_shardings(self.mesh, self.rules, logical_axes, params)

    def state_shardings(self, state: Any, params: Any, param_shardings: Any) -> Any:
        """Returns the shardings of optimizer state, see `like_params`."""
        return like_params(state, params, param_shardings, self.mesh)

    def put_batch(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Returns the global batch on the devices.

        Args:
          batch: this process's rows of each feature, [B / processes, ...].
        """
        sharding = self.batch_sharding
        return {
            name: jax.make_array_from_process_local_data(sharding, value)
            for name, value in batch.items()
        }
