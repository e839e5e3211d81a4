"""Weak scaling on paper: what a step computes and sends on each device of a pod that isn't there.

    python -m benchmarks.scaling                    all cases; needs libtpu and jax[cuda13]
    python -m benchmarks.scaling t5_large_lora      those whose name begins so
    python -m benchmarks.scaling --times            only the table of times, from the stored numbers

Every case is a `t5x precompile` for TPUs or GPUs, in a process of its own; what it reports goes to
benchmarks/results/scaling.json at once, so that a later call adds to an earlier one. A case that is
there already is not compiled again. The times are quotients of published rates, see `HARDWARE`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from ckl_jax import files

RESULTS = Path(__file__).parent / "results" / "scaling.json"
ROWS_PER_CHIP = 16  # the paper's 60 rows on 4 GPUs, rounded
LENGTHS = {"inputs": 350, "targets": 350}
SLICE, CHIPS = "v4-32", 16
DECODER_ROWS, DECODER_LENGTH = 4, 2048  # of each device
DECODERS = ("qwen3_0_6b", "llama_3_2_1b", "llama_3_1_8b", "gemma_3_12b")
MACHINES = {"h100": 1, "h200": 1, "h100-8": 8, "v5e-8": 8, "v4-32": 16}  # and their devices

# Matrix rate in bfloat16, and bytes a second that one device sends, at most.
HARDWARE = {
    "TPU v4, ring over one torus axis": (275e12, 100e9),
    "TPU v4, all six links": (275e12, 300e9),
    "H100, NVLink": (989e12, 450e9),
    "H100, InfiniBand 400 Gb/s a GPU": (989e12, 50e9),
}
SHARE_OF_PEAK = 0.5

_LARGE = ({"data": 16}, {"fsdp": 16}, {"data": 4, "model": 4})
_11B = ({"fsdp": 16}, {"fsdp": 8, "model": 2}, {"fsdp": 2, "model": 8})


def cases() -> dict[str, dict]:
    """{name: what to compile}."""
    found = {}
    for size, meshes in (("t5_large", _LARGE), ("t5_11b", _11B)):
        for method in ("lora", "vanilla"):
            for mesh in meshes:
                shape = "_".join(f"{axis}{n}" for axis, n in mesh.items())
                found[f"{size}_{method}_{shape}"] = {
                    "model": size,
                    "method": method,
                    "mesh": mesh,
                    "slice": SLICE,
                    "chips": CHIPS,
                }
    for chips, name in ((4, "v4-8"), (64, "v4-128")):  # the same, at other sizes of the slice
        mesh = {"fsdp": chips}
        found[f"t5_large_vanilla_fsdp{chips}"] = {
            "model": "t5_large",
            "method": "vanilla",
            "mesh": mesh,
            "slice": name,
            "chips": chips,
        }
    for model in DECODERS:
        for method in ("lora", "vanilla"):
            for name, chips in MACHINES.items():
                found[f"{model}_{method}_{name}"] = {
                    "model": model,
                    "method": method,
                    "mesh": {"fsdp": chips},
                    "slice": name,
                    "chips": chips,
                }
    return found


def gin_of(case: dict) -> tuple[list[str], list[str]]:
    """Gin files and bindings of a case."""
    bindings = {
        "VOCABULARY": None,
        "MESH_SHAPE": case["mesh"],
        "SCAN_LAYERS": True,
        "REMAT_POLICY": "full",
    }
    if case["model"] in DECODERS:
        names = [f"temporalwiki_{case['method']}.gin", "temporalwiki_paper.gin"]
        bindings["BATCH_SIZE"] = DECODER_ROWS * case["chips"]
        bindings["ROW_LENGTH"] = DECODER_LENGTH
        bindings["FROZEN_DTYPE"] = "bfloat16"
    else:
        names = [f"ckl_{case['method']}.gin", "ckl_full.gin"]
        bindings["ACTIVATION_DTYPE"] = "bfloat16"
        bindings["BATCH_SIZE"] = ROWS_PER_CHIP * case["chips"]
        bindings["TASK_FEATURE_LENGTHS"] = LENGTHS
    if case["model"] != "t5_large":
        names.append(f"models/{case['model']}.gin")
    return names, [f"{name} = {value!r}" for name, value in bindings.items()]


def command_of(case: dict) -> str:
    """The command line that compiles a case."""
    names, bindings = gin_of(case)
    words = [f"--gin_file={name}" for name in names]
    words += [f'--gin.{b.split(" = ")[0]}="{b.split(" = ", 1)[1]}"' for b in bindings]
    return " ".join(["t5x precompile", f"--topology={case['slice']}", *words])


def compile_here(case: dict) -> dict:
    """Compiles a case in this process; returns its report."""
    from ckl_jax.cli.t5x import MODES
    from ckl_jax.config import gin_config
    from ckl_jax.parallel import topology

    topology.no_devices(case["slice"])
    mode = MODES["precompile"]
    names, bindings = gin_of(case)
    return gin_config.run_job(
        mode.entry,
        files=names,
        bindings=bindings,
        search_paths=[],
        dry_run=False,
        instead=mode.call,
        overrides=mode.overrides,
        target=case["slice"],
    )


def times(record: dict) -> dict[str, dict[str, float]]:
    """{hardware: seconds of FLOPs at half of the peak, and of sending, if nothing overlaps}."""
    report = record["report"]
    sent = sum(c["bytes"] for c in report["collectives"])
    return {
        name: {
            "flops_seconds": report["matmul_flops"] / (SHARE_OF_PEAK * rate),
            "send_seconds": sent / bandwidth,
        }
        for name, (rate, bandwidth) in HARDWARE.items()
    }


def table(results: dict[str, dict]) -> str:
    """A line of Markdown for each case."""
    head = ["case", "peak GiB", "TFLOP", "sent GiB", "largest: op, axis, GiB"]
    lines = [" | ".join(["", *head, *HARDWARE, ""]).strip()]
    lines.append("| " + " | ".join(["---"] * (len(head) + len(HARDWARE))) + " |")
    for name, record in results.items():
        report = record["report"]
        sent = sum(c["bytes"] for c in report["collectives"])
        top = report["collectives"][0]
        cells = [
            name,
            f"{report['peak_bytes'] / 2**30:.2f}",
            f"{report['matmul_flops'] / 1e12:.1f}",
            f"{sent / 2**30:.2f}",
            f"{top['kind']}, {top['axis']}, {top['bytes'] / 2**30:.2f}",
        ]
        for seconds in times(record).values():
            compute, send = (1000 * s for s in seconds.values())
            cells.append(f"{compute:.0f} + {send:.0f} ms")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def decoder_table(results: dict[str, dict]) -> str:
    """Of each decoder and update a line of Markdown, with peak memory by machine."""
    head = ["model", "update", "parameters", "trained", "TFLOP", *MACHINES]
    lines = ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head))]
    for model in DECODERS:
        for method in ("lora", "vanilla"):
            by_machine = {
                m: results.get(f"{model}_{method}_{m}", {}).get("report") for m in MACHINES
            }
            known = next((r for r in by_machine.values() if r), None)
            if known is None:
                continue
            cells = [
                model,
                method,
                f"{known['params_count'] / 1e9:.2f} B",
                f"{known['trainable_count'] / 1e6:,.1f} M",
                f"{known['matmul_flops'] / 1e12:.0f}",
                *(_memory_and_sent(report) for report in by_machine.values()),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _memory_and_sent(report: dict | None) -> str:
    if report is None:
        return "not compiled"
    sent = sum(c["bytes"] for c in report["collectives"])
    return f"{report['peak_bytes'] / 2**30:.1f}" + (f" / {sent / 2**30:.1f}" if sent else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prefix", nargs="*", help="cases whose name begins so; default: all")
    parser.add_argument("--times", action="store_true", help="compile nothing")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        case, path = cases()[args.child], args.prefix[0]
        files.write_json(path, compile_here(case))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, case in cases().items():
        wanted = not args.prefix or any(name.startswith(p) for p in args.prefix)
        if args.times or name in results or not wanted:
            continue
        path = RESULTS.with_name(f".{name}.json")
        command = [sys.executable, "-m", "benchmarks.scaling", str(path), "--child", name]
        if subprocess.run(command).returncode == 0:
            report = json.loads(path.read_text())
            results[name] = {**case, "command": command_of(case), "report": report}
            files.write_json(RESULTS, results)
        path.unlink(missing_ok=True)
    print(
        table(
            {
                n: results[n]
                for n, c in cases().items()
                if n in results and c["model"] not in DECODERS
            }
        )
    )
    print(decoder_table(results))


if __name__ == "__main__":
    main()
