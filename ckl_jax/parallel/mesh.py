"""One device mesh for any device kind, and the `Partitioner` that a run is configured with.

The mesh has three axes: `data` splits the batch, `fsdp` splits the batch and the `embed` axis of
parameters (each device holds a slice and gathers a layer when it needs it), `model` splits heads,
mlp and vocabulary. `parallel.shardings` says what that means for each array.
"""

import collections
import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.experimental import mesh_utils
from jax.sharding import AxisType, Mesh, NamedSharding

from ckl_jax import checks
from ckl_jax.errors import UserError, refuse_unknown
from ckl_jax.parallel.shardings import (  # noqa: F401 (gin files and jobs name them here)
    BATCH_AXES,
    MESH_AXES,
    Rules,
    axis_size,
    batch_sharding,
    like_params,
    logical_to_shardings,
    params_logical_axes,
    partition_spec,
    replicated,
    standard_logical_axis_rules,
)


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
    full = _unfilled(sizes)
    rest = math.prod(size for size in full if size != -1)
    if -1 in full and num_devices % rest == 0:
        full[full.index(-1)] = num_devices // rest
    if -1 in full or math.prod(full) != num_devices:
        devices = "the one device" if num_devices == 1 else f"the {num_devices} devices"
        raise UserError(
            f"MESH_SHAPE is {_by_name({} if sizes is None else sizes)}, which does not use up "
            f"{devices}; choose sizes whose product is their number, or -1 for one size."
        )
    return tuple(full)


def _unfilled(sizes: Mapping[str, int] | Sequence[int] | None) -> list[int]:
    """The sizes of `MESH_AXES`, of which one may be -1; does not query the devices."""
    sizes = _by_name({} if sizes is None else sizes)
    checks.require_int(-1, **{f"MESH_SHAPE: {name}": size for name, size in sizes.items()})
    # An explicit -1 elsewhere takes the rest, so that `data` must not.
    default_data = 1 if -1 in sizes.values() else -1
    full = [sizes.get(name, default_data if name == "data" else 1) for name in MESH_AXES]
    if any(size == 0 or size < -1 for size in full) or full.count(-1) > 1:
        raise UserError(f"MESH_SHAPE is {dict(sizes)}: sizes are positive, and at most one is -1.")
    return full


def _by_name(sizes: Mapping[str, int] | Sequence[int]) -> Mapping[str, int]:
    if not isinstance(sizes, Mapping):
        checks.require_ints(-1, MESH_SHAPE=sizes)
        if len(sizes) != len(MESH_AXES):
            raise UserError(f"MESH_SHAPE is {list(sizes)}; give one size for each of {MESH_AXES}.")
        return dict(zip(MESH_AXES, sizes, strict=True))
    for name in sizes:
        refuse_unknown(name, MESH_AXES, f"Unknown mesh axis {name!r}; the axes are")
    return sizes


def build_mesh(
    sizes: Mapping[str, int] | Sequence[int] | None = None,
    devices: Sequence[jax.Device] | None = None,
    slices: Mapping[str, int] | None = None,
) -> Mesh:
    """Returns a mesh with the axes `MESH_AXES` over `devices` (default: all of them).

    Args:
      sizes: see `mesh_sizes`; with `slices`, of one slice.
      slices: by how many slices each axis is longer. Slices are what a slow network joins: TPU
        slices, or else processes. None says nothing of them.
    """
    devices = jax.devices() if devices is None else devices
    # jax.make_mesh defaults to Explicit axes, under which Flax's logical constraints fail.
    axis_types = (AxisType.Auto,) * len(MESH_AXES)
    if slices is not None:
        grid = _hybrid_grid(sizes, mesh_sizes({"data": 1, **slices}, _product(slices)), devices)
        return Mesh(grid, MESH_AXES, axis_types=axis_types)
    shape = mesh_sizes(sizes, len(devices))
    return jax.make_mesh(shape, MESH_AXES, axis_types=axis_types, devices=devices)


def _hybrid_grid(sizes, slices: tuple[int, ...], devices: Sequence[jax.Device]) -> np.ndarray:
    """Devices [data, fsdp, model]: each axis varies within a slice first, then across slices."""
    count = math.prod(slices)
    # TPU slices have an index; on other devices a process stands for what a fast network joins.
    groups = {(getattr(d, "slice_index", None), d.process_index) for d in devices}
    by_slice = len({slice_ for slice_, _ in groups}) > 1
    num_slices = len({slice_ if by_slice else process for slice_, process in groups})
    if len(devices) % count or (num_slices != count and num_slices != 1):
        raise UserError(
            f"dcn_mesh_shape is of {count} slices; the {len(devices)} devices are of {num_slices} "
            f"{'slices' if by_slice else 'processes'}."
        )
    within = mesh_sizes(sizes, len(devices) // count)
    if num_slices == count > 1:
        return mesh_utils.create_hybrid_device_mesh(
            within, slices, devices, process_is_granule=not by_slice
        )
    # One process, such as a simulation: so many consecutive devices are a slice.
    # [slices..., within...] -> interleaved -> [data, fsdp, model], slices varying slowest in each.
    grid = np.array(devices).reshape(*slices, *within)
    axes = [axis for pair in zip(range(3), range(3, 6), strict=True) for axis in pair]
    return grid.transpose(axes).reshape([a * b for a, b in zip(slices, within, strict=True)])


def check_batch(batch_size: int, num_microbatches: int, parts: int) -> None:
    """Raises `UserError` if a batch does not divide into microbatches, or these over the mesh.

    Args:
      batch_size, num_microbatches: of a step.
      parts: that the mesh splits a batch into, see `Partitioner.batch_parts`.
    """
    checks.require_size(NUM_MICROBATCHES=num_microbatches)
    _check_divides(batch_size, parts)
    if batch_size % num_microbatches:
        raise UserError(
            f"NUM_MICROBATCHES={num_microbatches} does not divide BATCH_SIZE={batch_size}; choose "
            "one that does."
        )
    _check_divides(batch_size // num_microbatches, parts, "BATCH_SIZE / NUM_MICROBATCHES =")


def known_parts(sizes: Mapping[str, int] | Sequence[int] | None) -> int:
    """The parts that a mesh shape, see `mesh_sizes`, splits a batch into, as far as it says so."""
    axis_sizes = dict(zip(MESH_AXES, _unfilled(sizes), strict=True))
    return math.prod(max(1, axis_sizes[axis]) for axis in BATCH_AXES)


def _check_divides(batch_size: int, parts: int, name: str = "BATCH_SIZE") -> None:
    checks.require_size(**{name: batch_size})
    if batch_size % parts:
        raise UserError(
            f"{name} {batch_size} does not divide into {parts} parts, the "
            f"product of the mesh axes {BATCH_AXES}; use a multiple."
        )


def _product(sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.values())


def _named(shape: Mapping[str, int] | Sequence[int] | None) -> dict[str, int]:
    """T5X's mesh shapes, (data, model) or (replica, data, model), as sizes of our axes."""
    if shape is None or isinstance(shape, Mapping):
        return dict(shape or {})
    if len(shape) not in (2, 3):
        raise UserError(
            f"ici_mesh_shape and dcn_mesh_shape are (data, model) or (replica, data, model), not "
            f"{tuple(shape)}."
        )
    # T5X's replica axis only repeats data parallelism.
    return {"data": math.prod(shape[:-1]), "model": shape[-1]}


def _rows_of(indices: Iterable[tuple[slice, ...]], batch_size: int) -> np.ndarray:
    """The rows, ascending, of devices that hold these slices of a batch."""
    # Sets: devices along `model` hold the same rows.
    starts = {index[0].indices(batch_size)[:2] for index in indices}
    return np.concatenate([np.arange(start, stop) for start, stop in sorted(starts)])


def _nothing() -> None:
    pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partitioner:
    """Mesh and sharding rules of a run, with T5X's arguments; the mesh is built on first use.

    Attributes:
      num_partitions: size of the `model` axis; `data` takes the rest.
      model_parallel_submesh: T5X's TPU tile; its product is taken as `num_partitions`.
      mesh_shape: sizes by axis name, one may be -1; not together with the two above.
      ici_mesh_shape: T5X's mesh of one slice, (data, model) or (replica, data, model); `data` here
        is the product of its first ones. Sizes by axis name, one of them -1, do too.
      dcn_mesh_shape: in the same form, by how many slices each axis is longer.
      devices: to build the mesh of; None is all that there are.
      logical_axis_rules: pairs; None is `standard_logical_axis_rules()`.
      before_batch: called before a batch is put on the devices; it may raise, to end what asks.
    """

    num_partitions: int | None = None
    model_parallel_submesh: Sequence[int] | None = None
    mesh_shape: Mapping[str, int] | Sequence[int] | None = None
    logical_axis_rules: Rules | None = None
    ici_mesh_shape: Mapping[str, int] | Sequence[int] | None = None
    dcn_mesh_shape: Mapping[str, int] | Sequence[int] | None = None
    devices: Sequence[jax.Device] | None = None
    before_batch: Callable[[], None] = _nothing

    def __post_init__(self):
        checks.require_int(1, num_partitions=self.num_partitions)
        ways = ("num_partitions", "model_parallel_submesh", "mesh_shape", "ici_mesh_shape")
        given = [name for name in ways if getattr(self, name) is not None]
        if self.dcn_mesh_shape is not None and given not in ([], ["ici_mesh_shape"]):
            given.append("dcn_mesh_shape")
        if len(given) > 1:
            raise UserError(f"Partitioner: {' and '.join(given)} exclude each other; bind one.")

    @functools.cached_property
    def mesh(self) -> Mesh:
        if self.mesh_shape is not None:
            return build_mesh(self.mesh_shape, self.devices)
        if self.ici_mesh_shape is not None or self.dcn_mesh_shape is not None:
            within, slices = _named(self.ici_mesh_shape), _named(self.dcn_mesh_shape)
            return build_mesh(within, self.devices, slices or None)
        model = self.num_partitions or math.prod(self.model_parallel_submesh or (1,))
        return build_mesh({"data": -1, "model": model}, self.devices)

    @functools.cached_property
    def rules(self) -> Rules:
        return tuple(self.logical_axis_rules or standard_logical_axis_rules())

    @property
    def batch_parts(self) -> int:
        """The number of parts that a global batch is split into."""
        return axis_size(self.mesh, BATCH_AXES)

    @property
    def batch_sharding(self) -> NamedSharding:
        return batch_sharding(self.mesh)

    @property
    def replicated(self) -> NamedSharding:
        return replicated(self.mesh)

    @contextlib.contextmanager
    def on_mesh(self) -> Iterator[None]:
        """Context manager in which a model runs on this mesh, to which its logical axes refer."""
        with jax.set_mesh(self.mesh), nn.logical_axis_rules(self.rules):
            yield

    def check_batch_size(self, batch_size: int, name: str = "BATCH_SIZE") -> None:
        """Raises `UserError` if a global batch does not divide over the mesh."""
        _check_divides(batch_size, self.batch_parts, name)

    def params_shardings(self, logical_axes: Any, params: Any) -> Any:
        """Returns the shardings of `params`, see `logical_to_shardings`."""
        return logical_to_shardings(self.mesh, self.rules, logical_axes, params)

    def state_shardings(self, state: Any, params: Any, param_shardings: Any) -> Any:
        """Returns the shardings of optimizer state, see `like_params`."""
        return like_params(state, params, param_shardings, self.mesh)

    def process_rows(self, batch_size: int) -> np.ndarray:
        """Returns which rows of a global batch this process reads, ascending, int [b].

        They are the rows that its devices hold. Processes that the `model` axis joins hold, and
        read, the same ones.

        Raises:
          UserError: the batch does not divide over the mesh.
        """
        self.check_batch_size(batch_size)
        # Asked of the sharding, not computed from process numbers: device order is the mesh's.
        held = self.batch_sharding.addressable_devices_indices_map((batch_size,))
        return _rows_of(held.values(), batch_size)

    def data_shard(self) -> tuple[int, int]:
        """Returns (i, n): this process reads the i-th of n shards of a stream of examples.

        Raises:
          UserError: two processes hold some rows of a batch in common, and others not.
        """
        # One row for each part: rows that a process holds in common with others make one shard.
        held = collections.defaultdict(list)
        for device, index in self.batch_sharding.devices_indices_map((self.batch_parts,)).items():
            held[device.process_index].append(index)
        rows = {p: tuple(_rows_of(indices, self.batch_parts)) for p, indices in held.items()}
        shards = sorted(set(rows.values()))
        if len({len(shard) for shard in shards}) > 1 or sum(map(len, shards)) != self.batch_parts:
            raise UserError(
                f"The mesh {dict(self.mesh.shape)} gives two processes some rows of a batch in "
                "common and others not, and a SeqIO task is read in shards; let 'model' divide "
                "the devices of a process, or be a multiple of them."
            )
        return shards.index(rows[jax.process_index()]), len(shards)

    def put_batch(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Returns the global batch on the devices.

        Args:
          batch: this process's rows of each feature, [b, ...]; see `process_rows`.
        """
        self.before_batch()
        sharding, parts = self.batch_sharding, self.batch_parts
        # Parts of the batch that this process holds; b = held / parts of the global size.
        held = len(self.process_rows(parts))

        def put(value: np.ndarray) -> jax.Array:
            size = len(value) // held * parts
            rows = self.process_rows(size)

            def part(index: tuple[slice, ...]) -> np.ndarray:
                start, stop, _ = index[0].indices(size)
                first = np.searchsorted(rows, start)  # rows of one device are consecutive
                return value[first : first + stop - start]

            # Each device gets its own rows from this process's; no process ever has the whole
            # batch.
            return jax.make_array_from_callback((size, *value.shape[1:]), sharding, part)

        return {name: put(value) for name, value in batch.items()}

    def put_whole(self, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Puts a batch that every process holds whole, [B, ...], on the devices.

        Rows that do not divide among the devices are all on each of them, as in small evaluations.
        """
        self.before_batch()

        def put(value: np.ndarray) -> jax.Array:
            divides = len(value) % self.batch_parts == 0
            sharding = self.batch_sharding if divides else self.replicated
            return jax.make_array_from_callback(value.shape, sharding, value.__getitem__)

        return {name: put(value) for name, value in batch.items()}
