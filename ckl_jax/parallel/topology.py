"""Devices that are absent: simulated CPU devices, TPU slices and GPUs to compile for.

Compiling for them needs no accelerator. The TPU compiler is in the package `libtpu`, the one for
GPUs in JAX's CUDA plugin, and both run where there is no such device; what they report of memory
and collectives is what the devices would do.
"""

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator, Sequence

from ckl_jax.errors import UserError

# Generation -> libtpu's name, its chip configuration, chips of a host, cores that a name counts
# for each chip ("v4-32" has 32 cores in 16 chips), dimensions of its torus.
_GENERATIONS = {
    "v4": ("v4", "megacore", (2, 2, 1), 2),
    "v5p": ("v5p", "megacore", (2, 2, 1), 2),
    "v5e": ("v5e", "default", (2, 2, 1), 1),
    "v5litepod": ("v5e", "default", (2, 2, 1), 1),
    "v6e": ("v6e", "default", (2, 2, 1), 1),
    "tpu7x": ("tpu7x", "default", (2, 2, 1), 2),
}
# Chips -> the shape that Cloud TPU gives them, where the name says only how many.
_TORUS = {
    4: "2x2x1",
    8: "2x2x2",
    16: "2x2x4",
    32: "2x4x4",
    64: "4x4x4",
    128: "4x4x8",
    256: "4x8x8",
    512: "8x8x8",
    1024: "8x8x16",
    2048: "8x16x16",
}
_GPUS_PER_NODE = 8
# What XLA's compiler needs to know of a GPU, as far as H100 and H200 differ: name, bytes of memory,
# bytes a second. All of it is in openxla/xla, xla/backends/gpu/target_config/specs.
_GPUS = {
    "h100": ("NVIDIA H100 80GB HBM3", 84942979072, 3352320000000),
    "h200": ("NVIDIA H200 141GB HBM3e", 151397597184, 4800000000000),
}
_GPU_TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  l2_cache_size: 52428800
  device_memory_size: {memory}
  memory_bandwidth: {bandwidth}
  cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  driver_version: "13.0.0"
  runtime_version: "13.0.0"
  dnn_version: "9.10.0"
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{name}"
"""
_PLANE = {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}


def simulate_devices(count: int) -> None:
    """Makes JAX see `count` CPU devices; call it before JAX starts its backend."""
    if count < 1:
        raise UserError(f"--devices is how many devices to compile for, 1 or more, not {count}.")
    flag = "--xla_force_host_platform_device_count"
    others = [f for f in os.environ.get("XLA_FLAGS", "").split() if not f.startswith(flag)]
    os.environ["XLA_FLAGS"] = " ".join([*others, f"{flag}={count}"])
    os.environ["JAX_PLATFORMS"] = "cpu"


_compiled_for: str | None = None  # None: the platform that JAX runs on


def platform() -> str:
    """The platform that programs are compiled for: "cpu", "gpu" or "tpu".

    Starts JAX's backend, but `without_devices`.
    """
    import jax  # late: `simulate_devices` must come before JAX starts

    return _compiled_for or jax.default_backend()


@contextlib.contextmanager
def without_devices() -> Iterator[None]:
    """Context manager in which settings are read as on a CPU, and JAX's backend is not started."""
    global _compiled_for
    before, _compiled_for = _compiled_for, "cpu"
    try:
        yield
    finally:
        _compiled_for = before


def no_devices(name: str) -> None:
    """Starts JAX on one CPU device while compiling for the devices of a `--topology`.

    What asks for the `platform` from now on is told of theirs.

    Raises:
      UserError: the name is of no topology that is known.
    """
    global _compiled_for
    _compiled_for = "gpu" if parse(name)[0] in _GPUS else "tpu"
    os.environ["JAX_PLATFORMS"] = "cpu"
    # Else libtpu looks up on the network where it is.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # nothing runs on a TPU here
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v4-8")  # else it asks, and says so


def parse(name: str) -> tuple[str, str]:
    """(generation, shape) of what is named "v4-32", "v5litepod-16", "v4:2x2x4", "h100" or "h100-8".

    Raises:
      UserError: the name is of no TPU slice and no GPUs that are known.
    """
    kind, _, count = name.partition("-")
    if kind in _GPUS:
        return kind, _gpu_shape(name, count or "1")
    match = re.fullmatch(r"((?:v|tpu)\w+?)(?:-(\d+)|:(\d+(?:x\d+){1,2}))", name)
    if not match or match.group(1) not in _GENERATIONS:
        raise UserError(
            f"--topology={name} names no TPU slice and no GPU; examples: v4-32, v4:2x2x4, v5e-16, "
            "v5p-8, v6e:4x4, tpu7x-8, h100, h200-8 (generations: "
            f"{', '.join([*_GENERATIONS, *_GPUS])})."
        )
    generation, cores, shape = match.groups()
    if cores is None:
        return generation, shape
    # Names of v4, v5p and tpu7x count cores, two a chip.
    chips = int(cores) // _GENERATIONS[generation][3]
    shapes = _TORUS if generation in ("v4", "v5p", "tpu7x") else _PLANE
    if chips not in shapes:
        raise UserError(
            f"--topology={name}: {chips} chips have no usual shape; give it, e.g. "
            f"{generation}:{next(iter(shapes.values()))}."
        )
    return generation, shapes[chips]


def _gpu_shape(name: str, count: str) -> str:
    """XLA's shape of GPUs: partitions x hosts x GPUs of a host."""
    number = int(count) if count.isdigit() else 0
    hosts, rest = divmod(number, _GPUS_PER_NODE)
    if number < 1 or (hosts and rest):
        raise UserError(
            f"--topology={name}: give 1 to {_GPUS_PER_NODE} GPUs, or a multiple of "
            f"{_GPUS_PER_NODE}, a node each."
        )
    return f"1x{hosts}x{_GPUS_PER_NODE}" if hosts else f"1x1x{number}"


def devices(name: str) -> list:
    """The devices of a topology, which need not exist: for compilation, not execution.

    Args:
      name: see `parse`.

    Raises:
      UserError: its compiler is not installed, or does not know the topology.
    """
    from jax.experimental import topologies

    generation, shape = parse(name)
    if generation in _GPUS:
        described, memory, bandwidth = _GPUS[generation]
        _require(("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12"), "GPU", "jax[cuda13]", "cuda")
        target = _GPU_TARGET.format(name=described, memory=memory, bandwidth=bandwidth)
        given = {"platform": "cuda", "topology_name": generation, "topology": shape}
        given["target_config"] = target
    else:
        called, config, host, _ = _GENERATIONS[generation]
        _require(("libtpu",), "TPU", "libtpu", "tpu")
        given = {"platform": "tpu", "topology_name": f"{called}:{shape}"}
        given |= {"chip_config_name": config, "chips_per_host_bounds": host, "num_slices": 1}
    try:
        # A description of the devices: it can be compiled for, and holds no device.
        return list(topologies.get_topology_desc(**given).devices)
    except Exception as e:  # of several kinds, all of jaxlib
        reason = str(e).strip().split("\n")[0][:200]
        raise UserError(f"--topology={name}: its compiler does not know it ({reason}).") from e


def _require(modules: Sequence[str], device: str, package: str, extra: str) -> None:
    if not any(map(_is_there, modules)):
        raise UserError(
            f"--topology needs the compiler for {device}s, which also runs where there is none: "
            f"`pip install '{package}'` (or `ckl-jax[{extra}]`); --devices=N compiles for N CPU "
            "devices."
        )


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is in
        return False
