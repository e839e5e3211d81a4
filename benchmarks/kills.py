"""Commands that are killed at random moments and started again, against runs left alone.

    python -m benchmarks.kills --kills 12
    python -m benchmarks.kills --only "data clean" "t5x train" --seed 1

Each command runs undisturbed, twice. Then SIGKILL, SIGTERM and SIGINT in turn are sent to its
process group at drawn moments, and it is started again each time, until it has met that four times
and is left to its end; all of that repeats until it was killed --kills times or --minutes are over.
Every file that it leaves is compared byte by byte, except for times and process numbers: see
`content`.
"""

import argparse
import collections
import fnmatch
import hashlib
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measure
from ckl_jax import files

ROOT = Path(__file__).resolve().parent.parent
_KILLS_OF_A_RUN = 4
_PYTHON_STARTS = 0.2  # seconds, in which Ctrl-C shows a traceback of Python's own
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_ENDED_BY = {code: s for s in _SIGNALS for code in (-s, 128 + s)}
_NOTHING_LEFT = "Nothing to learn in"  # `ckl update`, killed at its very end, is done
# Times and process numbers alone, or pages and a figure that draw seconds of trainings; the tables
# behind them are compared, without their seconds.
_NOT_COMPARED = (".lock", "*/.lock", "*log.txt", "*events.out.tfevents.*")
_NOT_COMPARED += ("report.html", "figures/cost.png")
# Parts of names of JSON fields, and of heads of Markdown columns.
_TIMED = ("seconds", "timing/", "timestamp", "per_second", "time_start", "time_end", "CPU s")

_TINY_T5 = {"emb_dim": 32, "num_heads": 2, "head_dim": 16, "mlp_dim": 64}
_TINY_T5 |= {"num_encoder_layers": 1, "num_decoder_layers": 1}
_T5 = " ".join(f"--gin.t5.T5Config.{name}={value}" for name, value in _TINY_T5.items())
_FOLDERS = "--gin.DATA_DIR=\"'IN/world'\" --gin.INITIAL_DIR=\"'IN/initial'\""
_WIKI = "IN/dumps/simwiki-2020{}01-pages-articles-multistream.xml.bz2"
_COMPANIES = (
    "--documents IN/companies.jsonl --model IN/llama --epochs 1 --batch-size 8 --length 64 "
)
_DIFFSETS = f"ckl data diffsets --old {_WIKI.format('05')} --new {_WIKI.format('06')} --workers 2 "
INPUTS = (
    "ckl data stream --size tiny --out IN/stream.jsonl",
    "ckl data dumps --size tiny --months 2 --out IN/dumps",
    _DIFFSETS + "--out IN/diffset",
    "ckl data quiz --size tiny --out IN/quiz",
    f"t5x train --gin_file=ckl_initial.gin --gin_file=tiny.gin {_FOLDERS} --gin.PROBES=None "
    "--gin.EPOCHS=1 --gin.MODEL_DIR=\"'IN/initial'\" --gin.INITIAL_CHECKPOINT_PATH=None",
)
COMMANDS = {
    "data clean": "ckl data clean --documents IN/stream.jsonl --workers 1 --out OUT/clean.jsonl",
    "data diffsets": _DIFFSETS + "--shards 8 --out OUT",
    "data probes": "ckl data probes --old IN/dumps/wikidata-20200501-all.json.gz "
    "--new IN/dumps/wikidata-20200601-all.json.gz --diffset IN/diffset "
    f"--wikipedia {_WIKI.format('06')} --unchanged-fraction 0.5 --buckets 4 --workers 2 --out OUT",
    "probe bear": "ckl probe bear --model IN/initial --dataset IN/quiz --out OUT",
    "t5x train": f"t5x train --gin_file=ckl_lora.gin --gin_file=tiny.gin {_FOLDERS} --gin.EPOCHS=6 "
    "--gin.CHECKPOINT_PERIOD=7 --gin.CHECKPOINTS_KEPT=2 --gin.EVAL_PERIOD=34 "
    "--gin.MODEL_DIR=\"'OUT'\"",
    "demo": f"ckl demo --size tiny --methods vanilla,lora --jobs 2 --gin.EPOCHS=1 --out OUT {_T5}",
    "experiment": "ckl experiment ckl/table10 --size tiny --methods vanilla --jobs 1 "
    "--tuning-seeds 1 --out OUT",
    "temporalwiki": "ckl temporalwiki --size tiny --months 2 --methods vanilla,lora --jobs 1 "
    "--gin.EPOCHS=1 --out OUT",
    "mind-the-gap": "ckl mind-the-gap --size tiny --masks bias --rates 0.1 --past-documents 5 "
    "--jobs 1 --out OUT",
    "update": f"ckl update {_COMPANIES} --since 2025-01-01 --max-items 8 --learning-rate 1e-3 "
    "--ship-if 'new <= 1 at n >= 1' --out OUT",
}


def make_inputs(inputs: Path, log: Path) -> None:
    """Fills `inputs`, also with a Llama and texts of two years for `ckl update`."""
    from ckl_jax.data.text.documents import write_documents
    from tests.updates import planted
    from tests.updates.test_job import save_llama

    for command in INPUTS:
        finish(command, {"IN": inputs}, log)
    save_llama(inputs / "llama")
    write_documents(inputs / "companies.jsonl", planted.documents(planted.facts(9)))


def start(command: str, places: dict[str, Path], log: Path) -> subprocess.Popen:
    """Starts a command line in a process group of its own; its output goes behind `log`'s."""
    for name, path in places.items():
        command = re.sub(rf"\b{name}\b", str(path), command)
    program, *argv = shlex.split(command)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(places["IN"] / "compiled")}
    cache["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    with open(log, "a") as f:
        return subprocess.Popen(
            [sys.executable, "-m", f"ckl_jax.cli.{program}", *argv],
            stdout=f,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **cache},
        )


def finish(command: str, places: dict[str, Path], log: Path) -> float:
    """Runs a command undisturbed; returns its seconds."""
    begun = time.monotonic()
    if code := start(command, places, log).wait():
        raise SystemExit(f"{command}: exit code {code}\n{log.read_text()[-2000:]}")
    return time.monotonic() - begun


def disturb(command, places, log, seconds, rng, met, kills) -> None:
    """Runs a command to its end, killed by the signal that has met it least.

    Args:
      seconds: what the command takes undisturbed; it is killed within them.
      met: how often it was met by each signal, which is counted on.
      kills: how many are enough.
    """
    while True:
        process, before = start(command, places, log), len(log.read_text())
        if met.total() < kills:
            try:
                process.wait(rng.uniform(_PYTHON_STARTS, seconds))
            except subprocess.TimeoutExpired:
                number = min(_SIGNALS, key=lambda s: (met[s.name], rng.random()))
                os.killpg(process.pid, number)
        code = process.wait(timeout=600)
        told = log.read_text()[before:]
        if code == 0 or (code == 3 and told.startswith(_NOTHING_LEFT)):
            return
        if code not in _ENDED_BY or "Traceback" in told:
            raise SystemExit(f"{command}: exit code {code}\n{told[-3000:]}")
        met[_ENDED_BY[code].name] += 1


def content(folder: Path) -> dict[str, str]:
    """{name: digest} of what a command left: files, and the arrays of checkpoints.

    Left out are `_NOT_COMPARED` and, from JSON and tables, what `_TIMED` names. Of a checkpoint,
    whose files have random names, the arrays and the two JSON files are compared.
    """
    import numpy as np
    import orbax.checkpoint as ocp

    from ckl_jax.trees import keys

    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if any(fnmatch.fnmatch(name, pattern) for pattern in _NOT_COMPARED):
            continue
        checkpoint = next((p for p in path.parents if p.name.startswith("checkpoint_")), None)
        if checkpoint is not None and path.parent == checkpoint:
            state = ocp.PyTreeCheckpointHandler().restore(checkpoint / "state")
            for leaf, value in keys.named_leaves(state):
                array = np.asarray(value)
                about = f"{array.dtype}{array.shape}".encode()
                found[f"{checkpoint.name}/{leaf}"] = digest(about + array.tobytes())
        elif checkpoint is None or path.name == "metadata":
            found[name] = digest(_without_times(path))
    return found


def digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()


def _without_times(path: Path) -> bytes:
    def keep(value):
        if isinstance(value, dict):
            return {k: keep(v) for k, v in value.items() if not any(t in k for t in _TIMED)}
        return [keep(v) for v in value] if isinstance(value, list) else value

    if path.name == "metrics.jsonl":
        return json.dumps([keep(row) for row in files.read_jsonl(path)]).encode()
    if path.suffix == ".json" or path.name == "metadata":
        return json.dumps(keep(files.read_json(path))).encode()
    if path.suffix == ".md":
        return "\n".join(_untimed_rows(path.read_text().split("\n"))).encode()
    return path.read_bytes()


def _untimed_rows(lines):
    timed: list[int] = []
    for before, line in zip(["", *lines], lines, strict=False):
        cells = line.split("|")
        if not before.startswith("|"):
            timed = [i for i, head in enumerate(cells) if any(t in head for t in _TIMED)]
        yield "|".join(cell for i, cell in enumerate(cells) if i not in timed)


def trial(name: str, inputs: Path, root: Path, kills: int, minutes: float, seed: int) -> dict:
    """What a command met and left: one row of the table."""
    command, rng, log = COMMANDS[name], random.Random(f"{name} {seed}"), root / f"{name}.txt"
    places = {"IN": inputs, "OUT": root / "out"}
    for number in (1, 2):
        seconds = finish(command, places, log)  # of the second, for which all has been compiled
        found = content(places["OUT"])
        places["OUT"].rename(root / f"{name} alone {number}")
        if number == 1:
            alone = found
    met, runs, differ = collections.Counter(), 0, _different(alone, found)
    deadline = time.monotonic() + 60 * minutes
    while met.total() < kills and time.monotonic() < deadline:
        enough = min(kills, met.total() + _KILLS_OF_A_RUN)
        disturb(command, places, log, seconds, rng, met, enough)
        runs += 1
        differ |= _different(alone, content(places["OUT"]))
        places["OUT"].rename(root / f"{name} {runs}")
    counts = {s.name: met[s.name] for s in _SIGNALS}
    row = {"command": name, "seed": seed, "seconds": round(seconds, 1), "runs": runs, **counts}
    return row | {"files": len(alone), "differ": sorted(differ)}


def _different(one: dict[str, str], other: dict[str, str]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--kills", type=int, default=12, help="of each command")
    parser.add_argument("--minutes", type=float, default=3, help="of each command, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dir", type=Path, help="folder to work in, which stays")
    args = parser.parse_args()
    root = args.dir or Path(tempfile.mkdtemp())
    inputs = root / "in"
    inputs.mkdir(parents=True, exist_ok=True)
    make_inputs(inputs, root / "inputs.txt")
    known = files.read_json(measure.RESULTS / "kills.json")["commands"]
    rows = {row["command"]: row for row in known}  # those of other commands stay
    for name in args.only:
        rows[name] = trial(name, inputs, root, args.kills, args.minutes, args.seed)
        print(rows[name], flush=True)
        measure.save("kills", {"commands": [rows[name] for name in COMMANDS if name in rows]})


if __name__ == "__main__":
    main()
