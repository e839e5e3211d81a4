"""Synthetic runs: MODEL_DIRs with probe rows drawn at wanted scores, and no model."""

import contextlib
import zlib
from pathlib import Path
from unittest import mock

import numpy as np

from ckl_jax.files import write_json, write_jsonl

PROBES = {"invariant_lama": 120, "updated_lama": 60, "new_lama": 60, "new_lama_easy": 80}
# Chances of a right answer after training, in the order of PROBES, then of the old answer.
METHODS = {
    "initial": (0.80, 0.03, 0.02, 0.10, 0.70),
    "vanilla": (0.35, 0.40, 0.30, 0.45, 0.12),
    "recadam": (0.38, 0.42, 0.31, 0.46, 0.12),
    "mix_review": (0.60, 0.30, 0.22, 0.35, 0.25),
    "lora": (0.55, 0.44, 0.34, 0.48, 0.20),
    "k_adapter_k2": (0.66, 0.43, 0.40, 0.47, 0.22),
    "k_adapter_k3": (0.67, 0.45, 0.36, 0.48, 0.21),
    "modular": (0.70, 0.46, 0.38, 0.50, 0.19),
}
RELATIONS = ("birthplace", "capital", "employer", "league")


@contextlib.contextmanager
def undrawn():
    """Figures are made in this block but not rendered, which is most of a report's time."""
    from matplotlib.figure import Figure

    empty = {"png": b"\x89PNG\r\n\x1a\n", "svg": b'<svg xmlns="http://www.w3.org/2000/svg"/>'}

    def savefig(figure, file, *, format, **options):
        file.write(empty[format])

    with mock.patch.object(Figure, "savefig", savefig):
        yield


def make_rows(name, chances, *, step, epoch, seed=0, sizes=PROBES, wide=True, records=()):
    """Rows of one evaluation; items keep their difficulty over runs, so answers correlate.

    The first row of each probe among `records` has its record, and its items have dates.
    """
    known = {record.name: record for record in records}
    rows = []
    for p, (probe, size) in enumerate(sizes.items()):
        shared = np.random.default_rng((seed, p)).random((size, 2))
        own = np.random.default_rng((seed, p, step, zlib.crc32(name.encode()))).random((size, 2))
        draw = 0.8 * shared + 0.2 * own
        draw = np.argsort(np.argsort(draw, axis=0), axis=0) / size  # uniform again
        for i in range(size):
            updated = probe == "updated_lama"
            right = bool(draw[i, 0] < chances[p])
            stale = updated and not right and bool(draw[i, 1] < chances[4])
            answer = f"Answer {i}"
            said = answer if right else f"Old {i}" if stale else f"Wrong {int(100 * own[i, 0])}"
            rank = 1 if right else int(2 + 150 * draw[i, 0] ** 2)
            beams = 100 if wide else 2
            rows.append(
                {
                    "run": name,
                    "method": name,
                    "phase": 1,
                    "epoch": epoch,
                    "step": step,
                    "probe": probe,
                    "item": str(i),
                    "relation": RELATIONS[i % len(RELATIONS)],
                    "input": f"Subject {i} <of> {probe} is <extra_id_0>.",
                    "answers": [answer],
                    "old_answers": [f"Old {i}"] if updated else [],
                    "predictions": [said, "x"],
                    "em": int(right),
                    "f1": 1.0 if right else 0.25 * float(own[i, 1] < 0.1),
                    "em_old": int(stale),
                    "hit_rank": rank if rank <= beams else 0,
                    "beams": beams,
                }
            )
            if record := known.get(probe):
                rows[-1] |= {"date": str(2010 + i % 3), "starts_alike": float(i % 2)}
                rows[-1] |= {} if i else {"probe_record": record.as_json()}
    return rows


def make_run(
    root, name, *, epochs=2, seed=0, sizes=PROBES, steps_per_epoch=10, wide=True, records=()
):
    """Writes a MODEL_DIR below `root` and returns it."""
    folder = Path(root) / name
    first, last = np.array(METHODS["initial"]), np.array(METHODS[name])
    per_epoch = [steps_per_epoch * (3 if name == "mix_review" else 1)] * epochs
    events = [(1000, epochs, last)]
    if name != "initial":
        parts = np.linspace(0, 1, epochs + 1) ** 0.6
        events = [
            (sum(per_epoch[:e]), e, first + (last - first) * part) for e, part in enumerate(parts)
        ]
    for step, epoch, chances in events:
        rows = make_rows(
            name if step else "initial",
            chances,
            step=step or 1000,
            epoch=epoch,
            seed=seed,
            sizes=sizes,
            wide=wide and epoch == epochs,
            records=records,
        )
        rows = [{**row, "run": name, "method": name, "step": step} for row in rows]
        write_jsonl(folder / "probes" / f"rows_{step:06}.jsonl", rows)
    trainable = {"lora": 40_000, "k_adapter_k2": 300_000, "modular": 500_000}.get(name, 1_300_000)
    write_json(
        folder / "summary.json",
        {
            "run": name,
            "method": name,
            "phase": 1,
            "steps": sum(per_epoch),
            "epochs": epochs,
            "steps_per_epoch": per_epoch,
            "trainable_parameters": trainable,
            "total_parameters": 1_800_000,
            "train_seconds": 12.5 * sum(per_epoch) / 20,
            "train_cpu_seconds": 21.5 * sum(per_epoch) / 20,
            "device": "cpu",
            "matmul_flops_per_step": 10**9,
            "base_checkpoint": None if name == "initial" else str(folder.parent / "initial"),
        },
    )
    (folder / "config.gin").write_text(f"RANDOM_SEED = {seed}\n")
    return folder


def make_demo(root, names=tuple(METHODS), **options):
    """Writes a demo folder of runs and returns it."""
    for name in names:
        make_run(root, name, **options)
    write_json(Path(root) / "demo.json", {"source": "simulated", "seed": options.get("seed", 0)})
    return Path(root)
