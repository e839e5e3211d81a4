"""Peak resident memory of commands that meet a file which expands to far more than its size.

    python -m benchmarks.memory
    python -m benchmarks.memory --gib 4
    python -m benchmarks.memory --documents-gb 1 10 --model llama

Each command reads a small file of its kind, and then one that holds a line, entity or array of
--gib GiB of one character, or a page of as many lines, compressed to a few MB or less. The second
must end with one sentence. The third line measures `ckl update` up to its training (`--review`)
on text of 1 and 10 GB in which every sentence is new, three times the disk of which it takes.
"""

import argparse
import bz2
import contextlib
import gzip
import itertools
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from benchmarks import measure

_MIB = 2**20
_PAGE = b"<page><title>A</title><ns>0</ns><id>1</id><revision><id>1</id><text>"


def _line(f: IO[bytes], mib: int) -> None:
    _fill(f, b'{"date": "2020-01-01", "title": "", "text": "', mib, b'"}\n')


def _page(f: IO[bytes], mib: int) -> None:
    after = b"</text></revision></page>\n</mediawiki>\n"
    _fill(f, b"<mediawiki>\n" + _PAGE, mib, after, b"x" * 999 + b"\n")


def _entity(f: IO[bytes], mib: int) -> None:
    _fill(f, b'[\n{"type": "item", "id": "Q1", "labels": "', mib, b'"}\n]\n')


def _array(f: IO[bytes], mib: int) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (mib * _MIB,)}
    np.lib.format.write_array_header_1_0(f, header)
    _fill(f, b"", mib, b"")


def _fill(f: IO[bytes], before: bytes, mib: int, after: bytes, text: bytes = b"x") -> None:
    f.write(before)
    for _ in range(mib):
        f.write(text * (_MIB // len(text)))
    f.write(after)


@contextlib.contextmanager
def _npz(path: Path, mode: str) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(path, mode, zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("weights.npy", mode, force_zip64=True) as f:
            yield f


# What a file holds, how it is compressed, and the command that reads it.
CASES: dict[str, tuple[str, Callable, Callable, str]] = {
    "a line, gzip": ("in.jsonl.gz", gzip.open, _line, "data split --documents IN --out OUT"),
    "a line, bzip2": ("in.jsonl.bz2", bz2.open, _line, "data split --documents IN --out OUT"),
    "a page of a Wikipedia dump, bzip2": (
        "simwiki-20200501-pages-articles.xml.bz2",
        bz2.open,
        _page,
        "data diffsets --old IN --new LATER --workers 1 --out OUT",
    ),
    "an entity of a Wikidata dump, gzip": (
        "wikidata-20200501-all.json.gz",
        gzip.open,
        _entity,
        "data offices --wikidata IN --out OUT",
    ),
    "an array, npz": ("in.npz", _npz, _array, "import-haiku --weights IN --heads 2 --out OUT"),
}


def write_documents(path: Path, gigabytes: float) -> None:
    """Dated documents of random words in JSONL: hardly a sentence is there twice."""
    draw = random.Random(0)
    letters = "aeioubcdfghklmnprstvw"
    words = ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(20_000)]
    phrases = [" ".join(draw.choices(words, k=6)) for _ in range(50_000)]
    with path.open("w") as f:
        size = 0
        for i in itertools.count():
            said = (f"{' '.join(draw.choices(phrases, k=3))}.".capitalize() for _ in range(12))
            date = f"2024-{i % 12 + 1:02}-{i % 28 + 1:02}"
            size += f.write(json.dumps({"id": str(i), "date": date, "text": " ".join(said)}) + "\n")
            if size >= gigabytes * 1e9:
                break


def run(command: str, path: Path, out: Path) -> tuple[int, str, float]:
    """Runs a command; returns its exit code, its last line and its peak resident MiB."""
    later = path.with_name(path.name.replace("20200501", "20200601"))
    if not later.exists():
        later.symlink_to(path)
    places = {"IN": str(path), "LATER": str(later), "OUT": str(out)}
    argv = [places.get(word, word) for word in shlex.split(command)]
    process = subprocess.Popen(
        [sys.executable, "-m", "ckl_jax.cli.ckl", *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    told = process.stderr.read().strip()
    # Unlike `process.wait`, it tells what this one process and its own children took.
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, told.rsplit("\n", 1)[-1], used.ru_maxrss / 1024


def updates(sizes: Sequence[float], model: str) -> Iterator[dict[str, Any]]:
    """Measures `ckl update` up to its training, on so many gigabytes of text."""
    command = f"update --model {shlex.quote(str(Path(model).absolute()))} --review --quiet"
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "text.jsonl"
            write_documents(path, size)
            began = os.times().children_user
            code, told, peak = run(f"{command} --documents IN --out OUT", path, path.parent / "out")
            seconds = os.times().children_user - began
        row = {"gigabytes": size, "exit_code": code, "told": told}
        row |= {"cpu_s": round(seconds), "peak_mib": round(peak)}
        print(row, flush=True)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gib", type=int, default=1, help="what the record takes")
    parser.add_argument("--documents-gb", type=float, nargs="+", default=())
    parser.add_argument("--model", help="a Hugging Face folder, for --documents-gb")
    args = parser.parse_args()
    if args.documents_gb:
        return measure.save("memory_update", {"updates": [*updates(args.documents_gb, args.model)]})
    rows = []
    for name, (file, compressed, write, command) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            path, row = Path(folder) / file, {"file": name, "command": command}
            for kind, mib in (("small", 1), ("large", 1024 * args.gib)):
                with compressed(path, "w") as f:
                    write(f, mib)
                code, told, peak = run(command, path, Path(folder) / f"out {kind}")
                row |= {f"{kind}_peak_mib": round(peak)}
            row |= {"large_bytes": path.stat().st_size, "exit_code": code}
            rows.append(row | {"told": told.replace(f"{folder}/", "")})
        print(rows[-1], flush=True)
    measure.save("memory", {"record_gib": args.gib, "files": rows})


if __name__ == "__main__":
    main()
