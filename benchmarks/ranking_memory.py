"""Resident memory of ranking against the number of statements, a process for each size.

    python -m benchmarks.ranking_memory --tokenizer GPT2 --dataset BEAR-big --relations 2 8 32
    python -m benchmarks.ranking_memory --tokenizer GPT2 --instances 100 400 1600

The first scores so many relations of a dataset, evenly spread, the second a made-up relation of
1,000 options with so many instances. One template, by a random GPT-2 of width 32 with GPT-2's
pieces, or without --tokenizer with 4,000 of the statements' own; results are written. What is told
is the peak after a first statement, when all is loaded and compiled, and the peak at the end.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measure

_OPTIONS = 1000


def peak():
    """The largest resident memory of this process so far, in MiB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024


def made_up(instances):
    """A relation of 1,000 options; names are two words of five letters."""
    from ckl_jax.data.facts.relational import Dataset, Instance, Relation

    def name(number, salt):
        letters = [chr(97 + (number * 7919 * (i + salt) >> i) % 26) for i in range(10)]
        return f"{''.join(letters[:5]).title()} {''.join(letters[5:]).title()}"

    facts = tuple(Instance(f"s{i}", name(i, 3), i % _OPTIONS) for i in range(instances))
    ids = tuple(f"o{i}" for i in range(_OPTIONS))
    labels = tuple(f"{name(i, 11)} {i}" for i in range(_OPTIONS))
    relation = Relation("P0", ("[X] was born in [Y].",), ids, labels, facts)
    return Dataset("made up", {"P0": relation})


def _dataset(args, count):
    """So many relations of a dataset, or a made-up one of so many instances."""
    from benchmarks.ranking import spread
    from ckl_jax.data.facts.relational import Dataset

    if not args.relations:
        return made_up(count)
    chosen = spread(list(Dataset.from_path(args.dataset)), count)
    return Dataset("part", {r.code: r for r in chosen})


def one(args, count):
    """Scores one size in this process."""
    from ckl_jax.papers.lm_pub_quiz.opening import open_scorer
    from ckl_jax.papers.lm_pub_quiz.ranking import Evaluator

    dataset = _dataset(args, count)
    evaluator = Evaluator(open_scorer(args.model))
    evaluator.evaluate_relation(next(iter(dataset)).subsample(1), 0)
    before, start = peak(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = evaluator.evaluate_dataset(dataset, 0, save_path=folder)
    return {
        "relations": len(dataset),
        "statements": sum(r.scores.size for r in results),
        "peak_mib_loaded": round(before),
        "peak_mib": round(peak()),
        "score_mib": round(sum(r.scores.nbytes for r in results) / 2**20, 1),
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, help="folder of GPT-2's; none: one is trained")
    parser.add_argument("--dataset", help="folder in BEAR's layout, for --relations")
    parser.add_argument("--relations", type=int, nargs="+", default=[])
    parser.add_argument("--instances", type=int, nargs="+", default=[])
    parser.add_argument("--model", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(one(args, args.child)))
        return
    from benchmarks.ranking import make_gpt2

    found = []
    with tempfile.TemporaryDirectory() as folder:
        pieces_of = None if args.tokenizer else _dataset(args, 1000)
        make_gpt2(Path(folder), pieces_of, "tiny", args.tokenizer, 4000)
        for count in args.relations or args.instances:
            argv = [sys.executable, "-m", "benchmarks.ranking_memory", *sys.argv[1:]]
            argv += [f"--model={folder}", f"--child={count}"]
            done = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
            found.append(json.loads(done.stdout))
            print(found[-1], flush=True)
    kind = Path(args.dataset).name if args.relations else "made_up"
    result = {"sizes": found, "machine": measure.machine(os.cpu_count())}
    measure.save(f"ranking_memory_{kind}", result)


if __name__ == "__main__":
    main()
