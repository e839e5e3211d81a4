"""Devices that are not there: simulated CPU devices, and TPU slices described by libtpu.

Compiling for either needs no accelerator. The TPU compiler is in the package `libtpu`, which also
runs where there is no TPU; what it reports of memory and collectives is what the slice would do.
"""

import os
import re

from ckl_jax.errors import UserError

# Generation -> libtpu's name, its chip configuration, chips of a host, cores that a name counts
# for each chip ("v4-32" has 32 cores in 16 chips), dimensions of its torus.
_GENERATIONS = {
    "v4": ("v4", "megacore", (2, 2, 1), 2),
    "v5p": ("v5p", "megacore", (2, 2, 1), 2),
    "v5e": ("v5e", "default", (2, 2, 1), 1),
    "v5litepod": ("v5e", "default", (2, 2, 1), 1),
    "v6e": ("v6e", "default", (2, 2, 1), 1),
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
_PLANE = {4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"}


def simulate_devices(count: int) -> None:
    """Makes JAX see `count` CPU devices; to be called before it is first asked for devices."""
    if count < 1:
        raise UserError(f"--devices is how many devices to compile for, 1 or more, not {count}.")
    flag = "--xla_force_host_platform_device_count"
    others = [f for f in os.environ.get("XLA_FLAGS", "").split() if not f.startswith(flag)]
    os.environ["XLA_FLAGS"] = " ".join([*others, f"{flag}={count}"])
    os.environ["JAX_PLATFORMS"] = "cpu"


_compiled_for: str | None = None  # None: the platform that JAX runs on


def platform() -> str:
    """The platform that programs are compiled for: "cpu", "gpu" or "tpu". Starts JAX's backend."""
    import jax  # late: `simulate_devices` must come before JAX starts

    return _compiled_for or jax.default_backend()


def no_devices() -> None:
    """Makes JAX start on one CPU device, and libtpu without asking the network where it is.

    What asks for the `platform` from now on is told of a TPU.
    """
    global _compiled_for
    _compiled_for = "tpu"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")  # nothing runs on a TPU here
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v4-8")  # else it asks, and says so


def parse(name: str) -> tuple[str, str]:
    """(generation, shape) of a TPU slice that is named "v4-32", "v5litepod-16" or "v4:2x2x4".

    Raises:
      UserError: the name is of no slice that is known.
    """
    match = re.fullmatch(r"(v\w+?)(?:-(\d+)|:(\d+(?:x\d+){1,2}))", name)
    if not match or match.group(1) not in _GENERATIONS:
        raise UserError(
            f"--topology={name} names no TPU slice; examples: v4-32, v4:2x2x4, v5e-16, v5p-8, "
            f"v6e:4x4 (generations: {', '.join(_GENERATIONS)})."
        )
    generation, cores, shape = match.groups()
    if cores is None:
        return generation, shape
    # Names of v4 and v5p count cores, two a chip.
    chips = int(cores) // _GENERATIONS[generation][3]
    shapes = _TORUS if generation in ("v4", "v5p") else _PLANE
    if chips not in shapes:
        raise UserError(
            f"--topology={name}: {chips} chips have no usual shape; give it, e.g. "
            f"{generation}:{next(iter(shapes.values()))}."
        )
    return generation, shapes[chips]


def tpu_devices(name: str) -> list:
    """The devices of a TPU slice that need not be there: to compile for, not to run on.

    Raises:
      UserError: libtpu is not installed, or does not know the slice.
    """
    from jax.experimental import topologies

    generation, shape = parse(name)
    called, config, host, _ = _GENERATIONS[generation]
    try:
        import libtpu  # noqa: F401
    except ImportError:
        raise UserError(
            "--topology needs the TPU compiler, which also runs where no TPU is: "
            "`pip install libtpu` (or `ckl-jax[tpu]`); --devices=N compiles for N CPU devices."
        ) from None
    try:
        # A description of the slice: it can be compiled for, and holds no device.
        found = topologies.get_topology_desc(
            platform="tpu",
            topology_name=f"{called}:{shape}",
            chip_config_name=config,
            chips_per_host_bounds=host,
            num_slices=1,
        )
    except Exception as e:  # of several kinds, all of jaxlib
        reason = str(e).strip().split("\n")[0][:200]
        raise UserError(f"--topology={name}: libtpu does not know it ({reason}).") from e
    return list(found.devices)
