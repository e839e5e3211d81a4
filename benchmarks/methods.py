"""The step of each method relative to Vanilla's: time, FLOPs, memory.

Run it as `python -m benchmarks.methods --methods vanilla lora`.
"""

import argparse

from benchmarks import measure
from benchmarks.contestants import DEMO, SMALL, Ours, Shape
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.methods.modular import modular
from ckl_jax.methods.recadam import recadam

SHAPES = {"small": SMALL, "demo": DEMO}
NAMES = ("vanilla", "recadam", "lora", "k_adapter_k2", "k_adapter_k3", "modular")
_COUNTS = ("trainable_count", "opt_state_bytes", "temp_bytes", "peak_bytes", "flops")


def make_methods(shape: Shape) -> dict[str, Method]:
    """The methods, with taps and second encoder scaled to the trunk.

    Mix-Review is not among them: its step is Vanilla's on other rows. Nor is Initial: no step.
    """
    depth = shape.encoder_layers
    second = dict(
        emb_dim=shape.emb_dim // 2,
        num_heads=shape.num_heads // 2,
        head_dim=shape.head_dim,
        mlp_dim=shape.emb_dim,
        num_layers=depth * 2 // 3,
    )
    taps = (depth // 6, depth // 2, depth - 1)  # as (1, 11, 23) of 24 layers
    return {
        "vanilla": vanilla(),
        "recadam": recadam(),
        "lora": lora(),
        "k_adapter_k2": k_adapter(taps[:2]),
        "k_adapter_k3": k_adapter(taps),
        "modular": modular(**second),
    }


def run(shape: str, methods: list[str], rounds: int, cores: int) -> dict:
    """Measures the steps of `methods`, Vanilla first."""
    size = SHAPES[shape]
    made = make_methods(size)
    names = ["vanilla", *(name for name in methods if name != "vanilla")]
    steps = {name: Ours(size, made[name]) for name in names}
    times = measure.take_turns(steps, rounds)
    measure.add_ratios(times, "vanilla")
    for name, step in steps.items():
        times[name] |= {key: step.report[key] for key in _COUNTS} | {"traces": step.traces}
    size = vars(size) | {"name": shape}
    return {"shape": size, "machine": measure.machine(cores), "methods": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--methods", choices=NAMES, nargs="+", default=NAMES)
    parser.add_argument("--steps", type=int, default=3, help="rounds that count")
    parser.add_argument("--cores", type=int, default=1)
    args = parser.parse_args()
    measure.use_cores(args.cores)
    result = run(args.shape, args.methods, args.steps, args.cores)
    path = measure.save(f"methods_{args.shape}", result)
    base = result["methods"]["vanilla"]
    print(f"{'method':14} {'CPU s':>7} {'time':>6} {'FLOPs':>6} {'peak':>6}  (of vanilla)")
    for name, entry in result["methods"].items():
        flops, peak = (entry[key] / base[key] for key in ("flops", "peak_bytes"))
        seconds, ratio = entry["cpu_seconds"], entry["ratio"]
        print(f"{name:14} {seconds:7.2f} {ratio:6.2f} {flops:6.2f} {peak:6.2f}")
    print(f"{path.name} written")


if __name__ == "__main__":
    main()
