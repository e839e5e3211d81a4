"""Training steps on the accelerator at hand: tokens a second, share of its matrix peak, memory.

Run it as `python -m benchmarks.accelerator`. Each contestant has a process of its own, one after
the other in one call, so that none shares memory with another: our step under several methods, and
transformers' T5 or Llama in PyTorch, its layers and loss compiled, with fused optimizers and, of a
Llama, flash attention. Both compute in bfloat16 and keep float32 parameters.

FLOPs of a step: plain training by the formula of `Shape.matmul_flops` (2 m n k for a product, three
times forward, attention over its whole square), a method by XLA's count of its own program before
optimisation. The peak is the best rate of a product of two bfloat16 matrices.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import contestants, llama_step, measure
from benchmarks.contestants import SMALL, Ours, Shape
from benchmarks.llama_step import LlamaShape
from benchmarks.methods import make_methods
from ckl_jax.methods.method import Method

LARGE = Shape(
    emb_dim=1024,
    num_heads=16,
    mlp_dim=4096,
    encoder_layers=24,
    decoder_layers=24,
    batch=60,
    inputs=350,
    targets=350,
)
BASE = Shape(
    emb_dim=768,
    num_heads=12,
    mlp_dim=3072,
    encoder_layers=12,
    decoder_layers=12,
    batch=60,
    inputs=350,
    targets=350,
)
# Llama 3.2 1B.
LLAMA = LlamaShape(
    vocab_size=128256,
    emb_dim=2048,
    num_heads=32,
    num_kv_heads=8,
    mlp_dim=8192,
    num_layers=16,
    logits_via_embedding=True,
    batch=4,
    length=2048,
)
SHAPES = {
    "large": LARGE,
    "base": BASE,
    "small": SMALL,
    # The published records' lengths: 512 tokens in, 128 out.
    "large_512": dataclasses.replace(LARGE, batch=64, inputs=512, targets=128),
    "base_512": dataclasses.replace(BASE, batch=128, inputs=512, targets=128),
    "llama_1b": LLAMA,
    "llama_1b_packed": dataclasses.replace(LLAMA, examples=4),
    # For a trial of this script where there is no accelerator.
    "trial": Shape(512, 32, 2, 16, 64, 6, 2, 4, 16, 8),
    "llama_trial": llama_step.SHAPES["trial"],
}
TRIALS = ("trial", "llama_trial")
METHODS = ("vanilla", "lora", "k_adapter_k2", "modular")


def seconds_per_step(step: Callable[[], Any], finish: Callable[[Any], Any], steps: int) -> list:
    """Seconds a step of three runs of `steps` steps each, after three steps that do not count."""
    for _ in range(3):
        result = step()
    finish(result)
    runs = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(steps):
            result = step()
        finish(result)
        runs.append((time.perf_counter() - start) / steps)
    return runs


def methods_of(shape: Any) -> dict[str, Method]:
    """The methods that are measured on a shape, by name."""
    made = llama_step.methods() if isinstance(shape, LlamaShape) else make_methods(shape)
    return {name: made[name] for name in METHODS if name in made}


def run_ours(shape: Any, method: str, args: argparse.Namespace) -> dict[str, Any]:
    """Our step under a method."""
    import jax
    import jax.numpy as jnp

    changes = {"remat_policy": args.remat, "scan_layers": args.scan}
    started = time.perf_counter()
    changes["hardware_rng"] = args.hardware_rng
    ours = Ours(shape, methods_of(shape)[method], dtype=jnp.bfloat16, **changes)
    compiling = time.perf_counter() - started

    def step() -> Any:
        ours.state, metrics = ours.compiled(ours.state, ours.frozen, ours.batch, ours.key)
        return metrics["loss"]

    runs = seconds_per_step(step, lambda loss: loss.block_until_ready(), args.steps)
    memory = jax.local_devices()[0].memory_stats() or {}
    flops = shape.matmul_flops() if method == "vanilla" else ours.report["flops"]
    return {
        "seconds": runs,
        "flops": flops,
        "peak_bytes": memory.get("peak_bytes_in_use", ours.report["peak_bytes"]),
        "compile_seconds": round(compiling, 1),
    }


def run_torch(shape: Any, steps: int) -> dict[str, Any]:
    """The step of transformers in PyTorch, under autocast and, on a GPU, compiled by layers."""
    import torch

    cuda = torch.cuda.is_available()
    torch.set_float32_matmul_precision("high")
    cores, device = torch.get_num_threads(), "cuda" if cuda else "cpu"
    if isinstance(shape, LlamaShape):
        step = llama_step.torch_step(shape, cores, False, device, bfloat16=True)
    else:
        step = contestants.torch_step(shape, cores, device, bfloat16=True)
    runs = seconds_per_step(step, float, steps)
    peak = torch.cuda.max_memory_allocated() if cuda else None
    return {"seconds": runs, "flops": shape.matmul_flops(), "peak_bytes": peak}


def run_gemm(size: int) -> dict[str, Any]:
    """FLOPs a second of one bfloat16 product of `size` x `size` matrices, at its best."""
    import jax
    import jax.numpy as jnp

    x = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)
    multiply = jax.jit(lambda a: a @ a)
    multiply(x).block_until_ready()
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        multiply(x).block_until_ready()
        seconds.append(time.perf_counter() - start)
    return {"flops_per_second": 2 * size**3 / min(seconds), "machine": measure.machine(0)}


def run_one(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measures one contestant in this process."""
    shape = SHAPES[args.shape]
    if name == "gemm":
        return run_gemm(256 if args.shape in TRIALS else 8192)
    if name == "torch":
        return run_torch(shape, args.steps)
    return run_ours(shape, name, args)


def in_process(name: str, argv: list[str]) -> dict[str, Any]:
    """Measures one contestant in a new process; {"error": ...} if it fails."""
    command = [sys.executable, "-m", "benchmarks.accelerator", *argv, "--only", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def add_figures(entry: dict[str, Any], shape: Any, peak: float, base: float | None) -> None:
    """Adds to a contestant's measurements what they amount to."""
    seconds = statistics.median(entry["seconds"])
    is_llama = isinstance(shape, LlamaShape)
    length = shape.length if is_llama else shape.inputs + shape.targets
    entry["sequences_per_second"] = round(shape.batch / seconds, 2)
    entry["tokens_per_second"] = round(shape.batch * length / seconds)
    entry["share_of_peak"] = round(entry["flops"] / seconds / peak, 3)
    if base:
        entry["times_torch"] = round(base / seconds, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="large")
    parser.add_argument("--methods", choices=METHODS, nargs="*", help="all of the shape's")
    parser.add_argument("--peer", choices=("torch", "none"), default="torch")
    parser.add_argument("--steps", type=int, default=10, help="of each of three runs")
    parser.add_argument("--remat", choices=("none", "minimal", "full"), default="none")
    parser.add_argument("--scan", action="store_true", help="compile one layer, not all")
    parser.add_argument("--hardware-rng", action="store_true", help="of dropout")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        print(json.dumps(run_one(args.only, args)))
        return
    argv = ["--shape", args.shape, "--steps", str(args.steps), "--remat", args.remat]
    argv += ["--scan"] * args.scan + ["--hardware-rng"] * args.hardware_rng
    gemm = in_process("gemm", argv)
    if "error" in gemm:
        sys.exit(f"The matrix product failed: {gemm['error']}")
    shape, peak = SHAPES[args.shape], gemm["flops_per_second"]
    methods = methods_of(shape) if args.methods is None else args.methods
    names = [*(["torch"] if args.peer == "torch" else []), *methods]
    found = {name: in_process(name, argv) for name in names}
    torch_runs = found.get("torch", {}).get("seconds")
    base = statistics.median(torch_runs) if torch_runs else None
    print(f"peak of bfloat16 products: {peak / 1e12:.1f} TFLOP/s on {gemm['machine']['device']}")
    for name, entry in found.items():
        if "error" in entry:
            print(f"{name:14} failed: {entry['error']}")
            continue
        add_figures(entry, shape, peak, base)
        memory = entry["peak_bytes"]
        print(
            f"{name:14} {entry['tokens_per_second']:>9} tokens/s "
            f"{entry['sequences_per_second']:8.1f} sequences/s  {entry['share_of_peak']:5.2f} of "
            f"peak  {(memory or 0) / 2**30:6.1f} GiB  {entry.get('times_torch', 0):5.2f} x PyTorch"
        )
    if args.shape in TRIALS:  # its figures mean nothing
        return
    result = {"shape": vars(shape) | {"name": args.shape}, "gemm": gemm, "steps": found}
    print(f"{measure.save(f'accelerator_{args.shape}', result).name} written")


if __name__ == "__main__":
    main()
