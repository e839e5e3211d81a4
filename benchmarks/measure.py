"""How time is taken: contestants take turns in one process, by CPU seconds and by the wall.

CPU seconds of a shared machine still vary with what its other cores do; ratios between contestants
that take turns vary far less, and are what the results are for.
"""

import importlib.metadata
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckl_jax import files

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "torch", "transformers")


def use_cores(count: int) -> None:
    """Restricts this process to `count` cores; before jax or torch start their threads."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, set(allowed[-count:]))
    os.environ["OMP_NUM_THREADS"] = str(count)


def take_turns(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict]:
    """Calls each contestant once a round, A B A B, after one round that does not count.

    Args:
      contestants: name -> a function that does one step and waits for it.
      rounds: how many rounds count.

    Returns:
      name -> medians and all samples, in seconds.
    """
    samples: dict[str, list] = {name: [] for name in contestants}
    for _ in range(rounds + 1):
        for name, call in contestants.items():
            samples[name].append(_timed(call))
    return {name: _summary(rows[1:]) for name, rows in samples.items()}


def take_turns_apart(
    makers: dict[str, Callable[[], Callable[[], Any]]], rounds: int
) -> dict[str, dict]:
    """As `take_turns`, each contestant in a process of its own, in which its maker makes it.

    In one process the allocators and threads of PyTorch and JAX slow each other down: a step of a
    Llama of 100 million parameters by 1.1 to 1.6.
    """
    context = multiprocessing.get_context("spawn")
    pipes = {}
    for name, make in makers.items():
        pipes[name], end = context.Pipe()
        context.Process(target=_serve, args=(make, end), daemon=True).start()
        end.close()  # so that `recv` ends if the process does
    samples: dict[str, list] = {name: [] for name in makers}
    for _ in range(rounds + 1):
        for name, pipe in pipes.items():
            pipe.send(True)
            samples[name].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    return {name: _summary(rows[1:]) for name, rows in samples.items()}


def _serve(make: Callable[[], Callable[[], Any]], pipe: Any) -> None:
    call = make()
    while pipe.recv():
        pipe.send(_timed(call))


def _timed(call: Callable[[], Any]) -> list[float]:
    """CPU seconds of this process, and by the wall."""
    start = time.process_time(), time.perf_counter()
    call()
    return [time.process_time() - start[0], time.perf_counter() - start[1]]


def _summary(rows: list[list[float]]) -> dict[str, Any]:
    cpu, wall = ([round(x, 4) for x in column] for column in zip(*rows, strict=True))
    return {
        "cpu_seconds": statistics.median(cpu),
        "wall_seconds": statistics.median(wall),
        "samples": {"cpu_seconds": cpu, "wall_seconds": wall},
    }


def add_ratios(times: dict[str, dict], base: str) -> None:
    """Adds `ratio` to every contestant: the median over rounds of its CPU seconds over `base`'s."""
    reference = times[base]["samples"]["cpu_seconds"]
    for entry in times.values():
        pairs = zip(entry["samples"]["cpu_seconds"], reference, strict=True)
        entry["ratio"] = round(statistics.median(a / b for a, b in pairs), 3)


def gemm_rate(size: int = 2048, repeats: int = 8) -> float:
    """FLOPs a CPU second of one float32 product of `size` x `size` matrices, at its best."""
    import jax

    x = jax.random.normal(jax.random.key(0), (size, size))
    multiply = jax.jit(lambda a: a @ a)
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        multiply(x).block_until_ready()
        seconds.append(time.process_time() - start)
    return 2 * size**3 / min(seconds[1:])


def machine(cores: int) -> dict[str, Any]:
    """What a result depends on; nothing that names the machine."""
    import jax

    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "device": jax.devices()[0].device_kind,
        "processor": _processor(),
        "cores": cores,
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def save(name: str, result: dict[str, Any]) -> Path:
    """Writes results/<name>.json."""
    path = RESULTS / f"{name}.json"
    files.write_json(path, result)
    return path
