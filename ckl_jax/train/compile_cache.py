"""Caches that save time: compiled code between runs, freed memory within a run."""

import ctypes
import os
from pathlib import Path

import jax

from ckl_jax.parallel.processes import COMPILED_FOR_THIS_CPU

_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Lets glibc's allocator keep up to 512 MiB of freed memory, in blocks of up to 1 GiB.

    On a CPU, XLA allocates the arrays of each step anew. Returned to the system in between, their
    pages are cleared and mapped again in every step: a fifth of the demo's CPU time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None and jax.default_backend() == "cpu":
        mallopt(_MMAP_THRESHOLD, 1 << 30)
        mallopt(_TRIM_THRESHOLD, 512 << 20)


def enable() -> str | None:
    """Enables JAX's persistent compilation cache unless the user has configured it.

    The user decides by the variable JAX_COMPILATION_CACHE_DIR or the flag
    --jax_compilation_cache_dir; an empty value is not a cache. Where nothing is said, accelerators
    get `$XDG_CACHE_HOME/ckl_jax/compiled` (~/.cache/...), and CPUs none: code that was compiled
    for one CPU may not run on another with the same home folder. Whoever starts several processes
    on one machine may give them a folder of their own by CKL_COMPILED_FOR_THIS_CPU.

    Returns:
      The folder, None if there is no cache.
    """
    if _VARIABLE in os.environ:
        return os.environ[_VARIABLE] or None
    # Asking starts the backend: `jax.distributed.initialize` must have been called.
    if jax.default_backend() == "cpu":
        return _for_this_cpu()
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = str(root / "ckl_jax" / "compiled")
    jax.config.update("jax_compilation_cache_dir", folder)
    return folder


def _for_this_cpu() -> str | None:
    folder = os.environ.get(COMPILED_FOR_THIS_CPU)
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        # JAX keeps by default only what took a second or more to compile; tests compile many small
        # functions.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return folder or None
