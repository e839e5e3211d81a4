"""`t5x precompile`: memory, FLOPs and communication of a train step, without allocating it."""

import dataclasses
import math
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.parallel import collectives, flops, topology
from ckl_jax.train import configs

_MEMORY = (
    ("argument_bytes", "argument_size_in_bytes"),
    ("output_bytes", "output_size_in_bytes"),
    ("alias_bytes", "alias_size_in_bytes"),
    ("temp_bytes", "temp_size_in_bytes"),
    ("code_bytes", "generated_code_size_in_bytes"),
)


def precompile(compile: bool = True, target: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Compiles the step of the run that `train(**arguments)` would do, and prints its report.

    Allocates no parameters, and reads no vocabulary, no checkpoint and no data: a task that is
    not there yet is stood in for by an empty one.

    Args:
      compile: False only traces shapes: parameters and optimizer state are counted in seconds.
      target: devices that need not be there, "v4-32" or "h100"; see `topology.devices`.
      **arguments: those of `train`.

    Returns:
      See `compile_report`; also {lower, compile}_seconds.
    """
    from ckl_jax.train.prepare import prepare
    from ckl_jax.train.train import for_prepare

    checks.require_bool(COMPILE=compile)
    # The same arguments and defaults as training, so that what is compiled is what would run.
    given = for_prepare(arguments)
    given["dataset"] = _StandInDataset.like(given["dataset"])
    if target is not None:
        # Descriptions of devices that XLA can compile for without any being there.
        described = topology.devices(target)
        given["partitioner"] = dataclasses.replace(given["partitioner"], devices=described)
    run = prepare(**{**given, "make_inputs": None})
    with run.partitioner.on_mesh():
        trees = {
            "params": run.shapes.params,
            "trainable": run.shapes.trainable,
            "opt_state": run.state_shapes.opt_state,
        }
        if not compile:
            report = count_trees(**trees)
            print(format_report(report), flush=True)
            return report
        print(
            "Compiling the train step, which takes minutes of a large model; --gin.COMPILE=False "
            "counts parameters alone, in seconds.",
            file=sys.stderr,
            flush=True,
        )
        start = time.monotonic()
        traced = run.trace()
        # To StableHLO; `compile` below is XLA's own part, most of the time of a large model.
        lowered = traced.lower()
        seconds = [time.monotonic() - start]
        compiled = lowered.compile()
        seconds.append(time.monotonic() - start - seconds[0])
        report = compile_report(lowered, compiled, mesh=run.partitioner.mesh, **trees)
        # Counted from the traced program, where XLA's count takes the body of a loop once; over all
        # devices, hence the division.
        report["matmul_flops"] = flops.of_jaxpr(traced.jaxpr) // report["devices"]
    kind = run.partitioner.mesh.devices.flat[0].device_kind
    report["compiled_for"] = f"{report['devices']} x {kind}" + (f" ({target})" if target else "")
    report["lower_seconds"], report["compile_seconds"] = seconds
    print(format_report(report), flush=True)
    return report


class _StandInDataset(configs.DatasetConfig):
    """A `DatasetConfig` in which missing tasks have padding rows, enough to derive shapes."""

    @classmethod
    def like(cls, dataset: configs.DatasetConfig) -> "_StandInDataset":
        return cls(**{f.name: getattr(dataset, f.name) for f in dataclasses.fields(dataset)})

    def open(self, name: str) -> Any:
        try:
            return super().open(name)
        except UserError:
            # Ten times as much to review, so that any mixture finds enough rows.
            rows = (100 if name == self.replay_task_name else 10) * self.batch_size
            return _NoRows(rows, tuple(self.task_feature_lengths))


class _NoRows:
    def __init__(self, rows: int, features: tuple[str, ...]):
        self._rows, self.meta, self.features = rows, {}, features

    def __len__(self) -> int:
        return self._rows

    def batch(self, indices: np.ndarray, lengths: Mapping[str, int]) -> dict[str, np.ndarray]:
        return {n: np.zeros((len(indices), size), np.int32) for n, size in lengths.items()}

    def row_lengths(self, indices: np.ndarray, features: Iterable[str]) -> dict[str, np.ndarray]:
        return {name: np.zeros(len(indices), np.int64) for name in features}


def count_trees(**trees: Any) -> dict[str, int]:
    """{name}_count and {name}_bytes of each tree of arrays or shapes; None is left out."""
    report = {}
    for name, tree in trees.items():
        if tree is not None:
            report[f"{name}_count"], report[f"{name}_bytes"] = _size(tree)
    return report


def compile_report(
    lowered: Any,
    compiled: Any = None,
    *,
    mesh: Any = None,
    params: Any = None,
    trainable: Any = None,
    opt_state: Any = None,
) -> dict[str, Any]:
    """Returns the cost of a jitted step.

    Args:
      lowered: `jax.jit(step).lower(...)`.
      compiled: `lowered.compile()`, if it is there already.
      mesh: that it was compiled for, to name the axes of collectives.
      params, trainable, opt_state: trees of arrays or `jax.ShapeDtypeStruct`s, to be counted.

    Returns:
      Numbers by name; those that the backend does not report are None. Counts are of the whole
      model; memory and FLOPs are of one device:
        {params, trainable, opt_state}_{count, bytes}
        {argument, output, alias, temp, code}_bytes; alias is donated arguments reused as outputs
        peak_bytes: arguments + outputs + temp - alias
        flops, bytes_accessed: of one step, as XLA counts them: the body of a loop (scanned layers,
          micro-batches) counts once
        collectives: list of `collectives.Collective` as dicts: kind, axis, group, count, bytes
        devices: how many the step runs on
    """
    compiled = lowered.compile() if compiled is None else compiled
    report: dict[str, Any] = count_trees(
        params=params, trainable=trainable, opt_state=opt_state
    ) | _memory(compiled)
    cost = compiled.cost_analysis() or {}
    # Older versions of JAX return a list with one dict.
    cost = cost[0] if isinstance(cost, list) else cost
    report["flops"] = cost.get("flops")
    report["bytes_accessed"] = cost.get("bytes accessed")
    ops = collectives.collectives(compiled.as_text() or "", mesh)
    report["collectives"] = [dataclasses.asdict(c) for c in ops]
    report["devices"] = len(_devices(compiled))
    return report


def _devices(compiled: Any) -> set:
    # A step without arguments has no shardings; it runs on the first device.
    shardings = jax.tree.leaves(compiled.input_shardings)
    return set().union(*(s.device_set for s in shardings)) or set(jax.devices()[:1])


def _size(tree: Any) -> tuple[int, int]:
    leaves = jax.tree.leaves(tree)
    counts = [math.prod(leaf.shape) for leaf in leaves]
    sizes = [n * np.dtype(leaf.dtype).itemsize for n, leaf in zip(counts, leaves, strict=True)]
    return sum(counts), sum(sizes)


def _memory(compiled: Any) -> dict[str, int | None]:
    stats = compiled.memory_analysis()
    report = {name: getattr(stats, field, None) for name, field in _MEMORY}
    peak = None
    if report["temp_bytes"] is not None:  # XLA's own peak leaves temporaries out on some backends
        peak = report["argument_bytes"] + report["output_bytes"] + report["temp_bytes"]
        peak -= report["alias_bytes"]
    report["peak_bytes"] = peak
    return report


_ROWS = (
    ("parameters", "params_count", "count"),
    ("  trainable", "trainable_count", "count"),
    ("parameter memory, all devices", "params_bytes", "bytes"),
    ("  trainable", "trainable_bytes", "bytes"),
    ("optimizer state, all devices", "opt_state_bytes", "bytes"),
    ("arguments of the step, per device", "argument_bytes", "bytes"),
    ("outputs", "output_bytes", "bytes"),
    ("  reused from arguments", "alias_bytes", "bytes"),
    ("temporary", "temp_bytes", "bytes"),
    ("peak", "peak_bytes", "bytes"),
    ("FLOPs per step, per device", "flops", "flops"),
    ("  of matrix products, loops counted", "matmul_flops", "flops"),
    ("memory traffic per step, per device", "bytes_accessed", "bytes"),
    ("devices", "devices", "count"),
    ("seconds to trace and lower", "lower_seconds", "seconds"),
    ("seconds to compile", "compile_seconds", "seconds"),
)


def format_report(report: dict[str, Any]) -> str:
    """Returns a report as an aligned table, one line a number."""
    rows = [(label, _human(report[key], unit)) for label, key, unit in _ROWS if key in report]
    if "compiled_for" in report:
        rows.insert(0, ("compiled for", report["compiled_for"]))
    ops = [collectives.Collective(**c) for c in report.get("collectives") or []]
    if not ops and "flops" in report:
        rows.append(("collectives", "none"))
    left = max(len(label) for label, _ in rows)
    right = max(len(value) for _, value in rows)
    lines = [f"{label:{left}}  {value:>{right}}" for label, value in rows]
    return "\n".join([*lines, "", collectives.table(ops)] if ops else lines)


def _human(value: float | None, unit: str) -> str:
    if value is None:
        return "unknown"
    if unit == "seconds":
        return f"{value:.1f}"
    if unit == "count":
        return f"{value:,}"
    base, suffixes = (
        (1024, ("B", "KiB", "MiB", "GiB", "TiB"))
        if unit == "bytes"
        else (1000, ("", "k", "M", "G", "T", "P"))
    )
    value = float(value)
    for suffix in suffixes:
        if value < base or suffix == suffixes[-1]:
            return f"{value:,.4g} {suffix}".rstrip()
        value /= base
    raise AssertionError
