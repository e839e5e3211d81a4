"""One training step of T5-small: ours, PyTorch's, T5X's, and the machine's matrix products.

Run it as `python -m benchmarks.train_step --peer torch`.
"""

import argparse
import sys

from benchmarks import measure
from benchmarks.contestants import DEMO, SMALL, Ours, t5x_step, torch_step
from ckl_jax.errors import UserError

SHAPES = {"small": SMALL, "demo": DEMO}


def run(shape: str, peers: list[str], rounds: int, cores: int) -> dict:
    """Measures one step; see `measure.take_turns`.

    Returns:
      Times by contestant with their ratio to ours, FLOPs, and our share of the GEMM rate.
    """
    size = SHAPES[shape]
    ours = Ours(size)
    contestants = {"ours": ours}
    if "torch" in peers:
        contestants["torch"] = torch_step(size, cores)
    if "t5x" in peers:
        contestants["t5x"] = t5x_step(size)
    times = measure.take_turns(contestants, rounds)
    measure.add_ratios(times, "ours")
    flops = size.matmul_flops()
    rates = {
        "step": flops / times["ours"]["cpu_seconds"] / 1e9,
        "gemm": measure.gemm_rate() / 1e9,
    }
    return {
        "shape": vars(size) | {"name": shape},
        "machine": measure.machine(cores),
        "times": times,
        "matmul_flops": flops,
        "gflops_per_cpu_second": {k: round(v, 1) for k, v in rates.items()},
        "share_of_gemm": round(rates["step"] / rates["gemm"], 3),
        "temp_bytes": ours.report["temp_bytes"],
        "traces": ours.traces,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--peer", choices=("torch", "t5x", "none"), nargs="+", default=["torch"])
    parser.add_argument("--steps", type=int, default=5, help="rounds that count")
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--name", help="of the file of results")
    args = parser.parse_args()
    measure.use_cores(args.cores)
    try:
        result = run(args.shape, args.peer, args.steps, args.cores)
    except UserError as e:
        sys.exit(str(e))
    path = measure.save(args.name or f"train_step_{args.shape}", result)
    for name, entry in result["times"].items():
        print(f"{name:6} {entry['cpu_seconds']:8.3f} CPU s  {entry['ratio']:6.3f} of ours")
    print(f"share of the GEMM rate {result['share_of_gemm']:.2f}; {path.name} written")


if __name__ == "__main__":
    main()
