"""Near-duplicates and splits against datasketch, at equal recall; writes results/dedup.json.

    pip install datasketch
    python -m benchmarks.dedup                       # 4000 documents of 550 words, 5 rounds
    python -m benchmarks.dedup --documents 20000 --rounds 3
    python -m benchmarks.dedup --memory 1000000      # also: memory of comparing so many signatures

Both read one JSONL file, find the same planted near-duplicates (of a true Jaccard similarity of
about 0.9, among texts that share none), keep the earliest of each, and split what is left by time
with the same code. datasketch has the parameters that find as many: 128 permutations, 16 bands of 8
rows, and candidates verified by their signatures.
"""

import argparse
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from ckl_jax import files
from ckl_jax.data.text.documents import Document, canonical_key, read_documents, write_documents
from ckl_jax.papers.mind_the_gap.data.clean import Options as CleanOptions
from ckl_jax.papers.mind_the_gap.data.clean import clean
from ckl_jax.papers.mind_the_gap.data.near_duplicates import first_of_each
from ckl_jax.papers.mind_the_gap.data.shingles import signatures
from ckl_jax.papers.mind_the_gap.data.split_files import split
from ckl_jax.papers.mind_the_gap.data.time_splits import Options

WORDS, CHANGED, SHARE = 550, 5, 0.05  # of a document, of a copy, of the documents that are copied


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", type=int, default=0, help="signatures to compare, for memory")
    args = parser.parse_args()
    measure.use_cores(1)
    with tempfile.TemporaryDirectory() as folder:
        results = compare(Path(folder), args.documents, args.rounds)
        if args.memory:
            results["memory"] = memory(Path(folder), args.memory)
    files.write_json(measure.RESULTS / "dedup.json", results)
    print(json.dumps({k: v for k, v in results.items() if k != "machine"}, indent=2))


def corpus(count: int, seed: int = 0) -> tuple[list[Document], set[str]]:
    """Documents of five years, and the ids of those that are copies of earlier ones."""
    rng = random.Random(seed)
    vocabulary = [f"word{i}" for i in range(50_000)]
    weights = list(np.cumsum([1 / (i + 10) for i in range(len(vocabulary))]))
    texts = [rng.choices(vocabulary, cum_weights=weights, k=WORDS) for _ in range(count)]
    copies = {}
    for i in rng.sample(range(count), round(count * SHARE)):
        copies[f"copy{i}"] = list(texts[i])
        for k in rng.sample(range(WORDS), CHANGED):
            copies[f"copy{i}"][k] = rng.choice(vocabulary)
    days = [
        f"{2015 + i * 5 // count}-{rng.randrange(12) + 1:02d}-{rng.randrange(28) + 1:02d}"
        for i in range(count)
    ]
    found = [Document(f"doc{i}", days[i], "", " ".join(t)) for i, t in enumerate(texts)]
    found += [Document(k, "2019-12-30", "", " ".join(t)) for k, t in copies.items()]
    rng.shuffle(found)
    return found, set(copies)


def ours(path: Path, folder: Path) -> set[str]:
    """Returns the ids that are kept; through the files of `ckl data clean`, tokenising nothing."""
    options = CleanOptions(language_id="none", tokenizer="none")
    clean([path], folder / "clean.jsonl.gz", options)
    split(folder / "clean.jsonl.gz", folder / "split", Options())
    return {d.id for d in read_documents(folder / "clean.jsonl.gz")}


def peer(path: Path, folder: Path) -> set[str]:
    """The same by datasketch, all in memory."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(num_perm=128, params=(16, 8))
    kept = []
    for document in sorted(read_documents(path), key=canonical_key):
        words = document.text.lower().split()
        grams = {" ".join(words[i : i + 5]).encode() for i in range(len(words) - 4)}
        signature = MinHash(num_perm=128)
        signature.update_batch(list(grams))
        if any(found.jaccard(signature) >= 0.8 for found in map(by_id, index.query(signature))):
            continue
        index.insert(document.id, signature)
        _SIGNATURES[document.id] = signature
        kept.append(document)
    _SIGNATURES.clear()
    write_documents(folder / "clean.jsonl.gz", kept, level=3)
    split(folder / "clean.jsonl.gz", folder / "split", Options())
    return {d.id for d in kept}


_SIGNATURES: dict[str, Any] = {}


def by_id(id: str) -> Any:
    return _SIGNATURES[id]


def compare(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """Times both, and counts what they found."""
    documents, copies = corpus(count)
    path = folder / "corpus.jsonl"
    write_documents(path, documents)
    kept: dict[str, set[str]] = {}

    def run(name: str, function) -> None:
        place = folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        kept[name] = function(path, place)

    contestants = {"ours": lambda: run("ours", ours), "datasketch": lambda: run("datasketch", peer)}
    times = measure.take_turns(contestants, rounds)
    measure.add_ratios(times, "ours")
    for name, entry in times.items():
        removed = {d.id for d in documents} - kept[name]
        entry["documents_per_cpu_second"] = round(len(documents) / entry["cpu_seconds"])
        entry["recall"] = len(removed & copies) / len(copies)
        entry["removed_by_mistake"] = len(removed - copies)
    texts = [d.text for d in documents]
    parts = measure.take_turns({"signatures": lambda: signatures(texts)}, rounds)
    times["ours"]["signatures_per_cpu_second"] = round(
        len(texts) / parts["signatures"]["cpu_seconds"]
    )
    return {
        "documents": len(documents),
        "planted": len(copies),
        "contestants": times,
        "machine": measure.machine(1),
    }


def memory(folder: Path, count: int) -> dict[str, Any]:
    """What comparing many signatures takes: memory that is not a file's, and CPU seconds."""
    shape = (count, 128)
    every = np.lib.format.open_memmap(folder / "signatures.npy", "w+", np.uint32, shape=shape)
    rng = np.random.default_rng(0)
    for start in range(0, count, 10_000):
        part = rng.integers(0, 2**32, (min(10_000, count - start), 128), np.uint32)
        every[start : start + len(part)] = part
    every[1::100] = every[0 : every[1::100].shape[0] * 100 : 100]  # one of a hundred is a copy
    before, peak = _anonymous(), []
    order = np.arange(count)
    times = measure.take_turns(
        {"compare": lambda: peak.append((first_of_each(every, order).sum(), _peak()))}, 1
    )
    return {
        "signatures": count,
        "kept": int(peak[-1][0]),
        "cpu_seconds": times["compare"]["cpu_seconds"],
        "bytes_before": before,
        "bytes_at_end": _anonymous(),
        "peak_resident_with_file": peak[-1][1],
    }


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def _anonymous() -> int:
    return _status("RssAnon")


def _peak() -> int:
    return _status("VmHWM")


if __name__ == "__main__":
    main()
