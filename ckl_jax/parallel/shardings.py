"""From logical axis names to the shardings of parameters, optimizer state and batches on a mesh.

Parameters carry logical axis names; a list of rules maps those to mesh axes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import linen as nn
from flax.linen import partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ckl_jax.errors import UserError, nearest
from ckl_jax.trees import keys

# Ordered by how much they communicate, as `jax.make_mesh` expects: `model` most, hence last.
MESH_AXES = ("data", "fsdp", "model")
BATCH_AXES = ("data", "fsdp")

MeshAxes = str | tuple[str, ...] | None
Rules = Sequence[tuple[str, MeshAxes]]


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
    # First the pair of axes, for parameters; an activation has spent both on its batch.
    width = BATCH_AXES if parameter_partitioning_dims == 2 else "fsdp"
    rules = [
        ("batch", BATCH_AXES),
        # What is looked up in the embedding: its columns as the table's, its rows by what is left.
        ("lookup", "data" if parameter_partitioning_dims == 1 else None),
        ("lookup_embed", width),
        ("vocab", "model"),
        ("mlp", "model"),
        ("heads", "model"),
        ("joined_kv", "model"),
    ]
    if activation_partitioning_dims == 2:
        # Before the next rule of the same name: the first one whose mesh axes are free wins.
        rules.append(("embed", "model"))
    rules.append(("embed", width))
    replicated = (
        "embed kv relpos_buckets abspos_buckets length layers stack mlp_activations "
        "lora_rank memory joined_kv_heads"
    )
    # Every axis must have a rule: `partition_spec` refuses names that none mentions.
    rules += [(name, None) for name in replicated.split()]
    extra = [
        (name, tuple(axes) if isinstance(axes, list) else axes) for name, axes in additional_rules
    ]
    return (*extra, *rules)


def partition_spec(names: Sequence[str | None], rules: Rules, where: str = "") -> PartitionSpec:
    """The mesh axes of an array of logical `names`; raises `UserError` if no rule has a name."""
    # flax would silently replicate an unknown name.
    known = [name for name, _ in rules]
    for name in names:
        if name is not None and name not in known:
            raise UserError(
                f"{where or 'An array'} has the logical axis {name!r}, which no rule maps to a "
                f"mesh axis; add ({name!r}, None) to the additional rules." + nearest(name, known)
            )
    return nn.logical_to_mesh_axes(tuple(names), rules)


def axis_size(mesh: Mesh, axes: MeshAxes) -> int:
    axes = (axes,) if isinstance(axes, str) else axes or ()
    return math.prod(mesh.shape[axis] for axis in axes)


def _is_names(value: Any) -> bool:
    return value is None or isinstance(value, (tuple, PartitionSpec))


def logical_to_shardings(mesh: Mesh, rules: Rules, logical_axes: Any, shapes: Any) -> Any:
    """Returns the tree of `NamedSharding`s of a tree of parameters.

    Args:
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
        # XLA would pad an axis that does not divide; here it is refused with the parameter's name.
        parts = axis_size(mesh, axes)
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
    # flax's PartitionSpecs -> plain tuples, which `logical_to_shardings` takes for leaves.
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

    A leaf whose path ends in a parameter's path is split like that parameter if it has its shape,
    and like the axes that it keeps if it lacks one, as the factored moments of Adafactor do. Every
    other leaf (counts) is replicated.

    Args:
      tree: abstract optimizer state, e.g. `jax.eval_shape(tx.init, params)`.
      params: abstract parameters.
      param_shardings: their shardings, a tree of the same structure.
    """
    shardings = jax.tree.leaves(param_shardings, is_leaf=lambda x: isinstance(x, NamedSharding))
    by_name = {
        name: (leaf.shape, sharding)
        for (name, leaf), sharding in zip(keys.named_leaves(params), shardings, strict=True)
    }

    def sharding_of(path, leaf):
        parts = keys.components(path)
        # Optax puts its own components before a parameter's path: "0/mu/decoder/...".
        for start in range(len(parts)):
            shape, sharding = by_name.get("/".join(parts[start:]), (None, None))
            if shape is None:
                continue
            if shape == leaf.shape:
                return sharding
            dropped = _dropped_axis(shape, leaf.shape, "v_col" in parts[:start])
            if dropped is not None:
                # A spec may be shorter than the rank: missing entries are replicated.
                spec = [*sharding.spec, *(None,) * (len(shape) - len(sharding.spec))]
                return NamedSharding(mesh, PartitionSpec(*spec[:dropped], *spec[dropped + 1 :]))
        return replicated(mesh)

    return jax.tree_util.tree_map_with_path(sharding_of, tree)


def _dropped_axis(shape: tuple[int, ...], kept: tuple[int, ...], first: bool) -> int | None:
    """The axis without which `shape` is `kept`; of several the first or the last; None if none.

    Rows keep all but the last axis and columns all but the one before: for a square parameter
    sizes do not distinguish them.
    """
    axes = [i for i in range(len(shape)) if shape[:i] + shape[i + 1 :] == kept]
    return None if not axes else axes[0] if first else axes[-1]
