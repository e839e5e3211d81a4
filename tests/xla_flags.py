"""Flags of XLA for the suite and for the processes that it starts; imports no jax."""

from importlib import metadata

# Toy models compile for longer than they run: compile fast instead of well.
FAST_COMPILE = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_parallel_codegen_split_count=1",
)
# They double the time to compile. Later releases have no such flag, and XLA aborts on it.
if metadata.version("jaxlib").startswith("0.10."):
    FAST_COMPILE += ("--xla_cpu_use_fusion_emitters=false",)


def xla_flags(devices: int) -> str:
    """The value of `XLA_FLAGS` for a process with so many devices."""
    return " ".join([*FAST_COMPILE, f"--xla_force_host_platform_device_count={devices}"])
