"""Speed and memory of diffsets on real pages; writes results/diffsets.json.

    python -m benchmarks.diffsets --data DIR            # DIR holds wikipedia/ and wikidata/
    python -m benchmarks.diffsets --data DIR --scratch /tmp --gigabytes 2

What is compared: reading against bare bz2 and XML parsing; Algorithm 1 against the released
function, which compares with `difflib.Differ`, on the same texts; both at several sizes. With
--scratch, two dumps of real pages under new ids are made there, compared, and deleted again.
"""

import argparse
import bz2
import functools
import gzip
import itertools
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape

from benchmarks import measure
from ckl_jax.data.facts import wikidata_json
from ckl_jax.data.text.sentences import sentence_splitter
from ckl_jax.papers.temporalwiki.data import diffsets, fact_store
from ckl_jax.papers.temporalwiki.data.algorithm1 import diff, legacy_diff
from ckl_jax.papers.temporalwiki.data.diffsets import Options, build, plan
from ckl_jax.papers.temporalwiki.data.dumps import open_dump
from ckl_jax.papers.temporalwiki.data.wiki_xml import read_pages
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor

PAIRS = (
    ("enwiki-20120104", "enwiki-20150112"),
    ("enwiki-20150112", "enwiki-20150305"),
    ("enwiki-20150305", "enwiki-20160501"),
    ("simplewiki-20190901", "simplewiki-20230820"),
)
_LIMIT_SECONDS = 60  # after which the released function is stopped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="with wikipedia/ and wikidata/")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scratch", type=Path, help="where the large dumps may be made")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="of XML in the larger one")
    parser.add_argument("--only-large", action="store_true", help="keep the other results")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(CHILDREN[args.child](args)))
        return
    if args.only_large:
        print(measure.save("diffsets", {**_earlier(), "large": large(args)}))
        return
    result: dict[str, Any] = {
        "reading": reading(args),
        "diff": differences(args),
        "diff_worst_case": worst_case(args),
        "diff_sizes": sizes(),
        "wikidata": wikidata(args),
    }
    if args.scratch:
        result["large"] = large(args)
    else:
        result["large"] = _earlier().get("large")
    result["machine"] = measure.machine(1)
    print(measure.save("diffsets", result))


def _earlier() -> dict[str, Any]:
    path = measure.RESULTS / "diffsets.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def excerpt(args: argparse.Namespace, name: str) -> Path:
    return args.data / "wikipedia" / f"{name}-excerpt.xml.bz2"


# --- reading


def bare(path: Path) -> None:
    """What no reader of a dump can do without: decompress and parse, with no handler."""
    parser, decoder = expat.ParserCreate(), bz2.BZ2Decompressor()
    with open(path, "rb") as f:
        while block := f.read(1 << 18):
            while block:
                parser.Parse(decoder.decompress(block))
                block = decoder.unused_data
                if decoder.eof:
                    decoder = bz2.BZ2Decompressor()


def reading(args: argparse.Namespace) -> dict[str, Any]:
    """MB of XML a CPU second; of the pairs, of both dumps together."""
    new = excerpt(args, "enwiki-20160501")
    size = len(bz2.decompress(new.read_bytes()))
    old = excerpt(args, "enwiki-20150305")
    old_size = len(bz2.decompress(old.read_bytes()))
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "enwiki-20160601-copy.xml.bz2"
        shutil.copy(new, copy)
        runs = itertools.count()

        def pair(a: Path, b: Path) -> Callable[[], Any]:
            return lambda: build(plan(a, b, Path(scratch) / str(next(runs)), Options()))

        extractor = Extractor()
        texts = [p.text for p in read_pages(new) if not p.redirect]
        contestants = {
            "bare bz2 and XML": (lambda: bare(new), size),
            "pages": (lambda: sum(1 for _ in read_pages(new)), size),
            "pair, nothing changed": (pair(new, copy), 2 * size),
            "pair, everything changed": (pair(old, new), size + old_size),
            "wikitext to prose": (
                lambda: [extractor.paragraphs(t) for t in texts],
                sum(map(len, texts)),
            ),
        }
        times = measure.take_turns({k: call for k, (call, _) in contestants.items()}, args.rounds)
    for name, (_, total) in contestants.items():
        times[name]["MB_per_cpu_second"] = round(total / times[name]["cpu_seconds"] / 1e6, 2)
    base = times["bare bz2 and XML"]["MB_per_cpu_second"]
    for entry in times.values():
        entry["share_of_bare"] = round(entry["MB_per_cpu_second"] / base, 3)
    return times


# --- comparing


def versions(args: argparse.Namespace) -> list[tuple[list[str], list[str]]]:
    """Paragraphs of both versions of every article that changed between two excerpts."""
    extractor, found = Extractor(), []
    for names in PAIRS:
        sides = (diffsets.open_dump(excerpt(args, n)).pages() for n in names)
        for a, b in diffsets.join(*sides):
            if a and b and not a.redirect and not b.redirect and a.text != b.text:
                found.append((extractor.paragraphs(a.text), extractor.paragraphs(b.text)))
    return found


def differences(args: argparse.Namespace) -> dict[str, Any]:
    """Algorithm 1 against the released function on the texts of real pages."""
    pages, split = versions(args), sentence_splitter("en")
    texts = [("\n".join(a), "\n".join(b)) for a, b in pages]
    times = measure.take_turns(
        {
            "ours": lambda: [diff(a, b, split, edits=False) for a, b in pages],
            "ours, with edits": lambda: [diff(a, b, split) for a, b in pages],
            "released function": lambda: [legacy_diff(a, b) for a, b in texts],
        },
        args.rounds,
    )
    measure.add_ratios(times, "ours")
    characters = sum(len(a) + len(b) for a, b in texts)
    times["pages"] = {"pairs": len(pages), "characters": characters}
    return times


def changed_page(paragraphs: int, seed: int) -> list[str]:
    """Paragraphs of three sentences of words drawn at random: no two seeds have one in common."""
    rng = random.Random(seed)
    words = [f"w{n}" for n in range(20_000)]

    def sentence() -> str:
        return " ".join(rng.choices(words, k=12)).capitalize() + "."

    return [" ".join(sentence() for _ in range(3)) for _ in range(paragraphs)]


def worst_case(args: argparse.Namespace, paragraphs: int = 5000) -> dict[str, Any]:
    """Two pages with every paragraph changed, and the same between two that are not.

    Without a paragraph in common the released function compares nothing; with a first and a last
    one it compares all between them.
    """
    old, new = changed_page(paragraphs, 0), changed_page(paragraphs, 1)
    split = sentence_splitter("en")
    texts = "\n".join(old), "\n".join(new)
    times = measure.take_turns(
        {
            "ours": lambda: diff(old, new, split, edits=False),
            "ours, with edits": lambda: diff(old, new, split),
            "released function, nothing in common": lambda: legacy_diff(*texts),
        },
        3,
    )
    measure.add_ratios(times, "ours")
    times["paragraphs"] = paragraphs
    anchored: dict[str, Any] = {}
    for count in (5, 10, 20, paragraphs):
        seconds = _anchored_seconds(count)
        a, b = (["First here.", *changed_page(count, s), "Last here."] for s in (0, 1))
        call = functools.partial(diff, a, b, split, edits=False)
        ours = measure.take_turns({"ours": call}, 3)["ours"]
        anchored[str(count)] = {
            "ours": ours["cpu_seconds"],
            "released function": seconds,
            "ratio": round((seconds or _LIMIT_SECONDS) / ours["cpu_seconds"], 1),
            "stopped": seconds is None,
        }
    times["between two known paragraphs"] = anchored
    return times


def _anchored_seconds(paragraphs: int) -> float | None:
    """CPU seconds of the released function in a process of its own; None if it was stopped."""
    argv = [sys.executable, "-m", "benchmarks.diffsets", "--data", ".", "--child", "anchored"]
    argv += ["--rounds", str(paragraphs)]
    try:
        done = subprocess.run(argv, capture_output=True, check=True, timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout)


def anchored(args: argparse.Namespace) -> float:
    sides = (
        "\n".join(["First here.", *changed_page(args.rounds, s), "Last here."]) for s in (0, 1)
    )
    old, new = sides
    start = time.process_time()
    legacy_diff(old, new)
    return round(time.process_time() - start, 4)


def sizes() -> dict[str, Any]:
    """CPU seconds of Algorithm 1 at four sizes, everything changed."""
    split = sentence_splitter("en")
    found = {}
    for paragraphs in (2500, 5000, 10_000, 20_000):
        old, new = changed_page(paragraphs, 0), changed_page(paragraphs, 1)
        of = {
            name: functools.partial(diff, old, new, split, edits=edits)
            for name, edits in (("ours", False), ("ours, with edits", True))
        }
        found[str(paragraphs)] = {
            name: {
                "cpu_seconds": row["cpu_seconds"],
                "microseconds_per_paragraph": round(row["cpu_seconds"] / paragraphs * 1e6, 1),
            }
            for name, row in measure.take_turns(of, 3).items()
        }
    return found


# --- Wikidata


def wikidata(args: argparse.Namespace) -> dict[str, Any]:
    """MB of JSON a CPU second: bare gzip and json.loads, and what `ckl data probes` does first."""
    names = ("201412", "201703", "20231227", "202512")
    paths = [args.data / f"wikidata/wikidata-{n}-excerpt.json.bz2" for n in names]
    lines = [line for path in paths for _, _, line in wikidata_json.entity_lines(path)]
    unique = {json.loads(line)["id"]: line for line in lines}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "all.json.gz"
        path.write_bytes(gzip.compress(b"[\n" + b",\n".join(unique.values()) + b"\n]\n", 6))
        size = sum(len(line) + 2 for line in unique.values())
        runs = itertools.count()
        rules = wikidata_json.FactRules()
        contestants = {
            "bare gzip and JSON": lambda: [
                json.loads(x.rstrip(b",\n")) for x in gzip.open(path) if len(x) > 3
            ],
            "facts, labels, pages in buckets": lambda: fact_store.extract(
                path, Path(scratch) / str(next(runs)), 64, rules
            ),
        }
        times = measure.take_turns(contestants, args.rounds)
    for name in contestants:
        times[name]["MB_per_cpu_second"] = round(size / times[name]["cpu_seconds"] / 1e6, 1)
    times["bytes"] = size
    return times


# --- large dumps


def large(args: argparse.Namespace) -> dict[str, Any]:
    """Time and memory at four sizes, on dumps of real pages under new ids."""
    found = {}
    for share, workers in ((0.125, 1), (0.25, 1), (0.5, 1), (1.0, 2)):
        scratch = Path(tempfile.mkdtemp(prefix="diffsets-", dir=args.scratch))
        try:
            goal = int(args.gigabytes * share * 1e9)
            found[f"{goal / 1e9:g} GB"] = _large_run(args, scratch, goal, workers)
        finally:
            shutil.rmtree(scratch)
    return found


def _large_run(args: argparse.Namespace, scratch: Path, goal: int, workers: int) -> dict[str, Any]:
    xml = inflate(args, scratch, goal)
    argv = [sys.executable, "-m", "benchmarks.diffsets", "--data", str(args.data)]
    argv += ["--scratch", str(scratch), "--rounds", str(workers), "--child", "large"]
    run = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    rate = round(sum(xml) / run["cpu_seconds"] / 1e6, 1)
    return {"XML_bytes_old_and_new": xml, "workers": workers, **run, "MB_per_cpu_second": rate}


def inflate(args: argparse.Namespace, scratch: Path, goal: int) -> list[int]:
    """Writes two plain dumps; one page in twenty has more sentences in the new one."""
    pages = [p for n in ("20160501", "20150112") for p in read_pages(excerpt(args, f"enwiki-{n}"))]
    base = open_dump(excerpt(args, "enwiki-20160501")).site.base
    sizes = []
    for side, stamp in (("old", "20200101"), ("new", "20200201")):
        path = scratch / f"enwiki-{stamp}-large.xml"
        with open(path, "wb") as f:
            f.write(
                f'<mediawiki version="0.10" xml:lang="en"><siteinfo><dbname>enwiki</dbname><base>'
                f"{base}</base></siteinfo>\n".encode()
            )
            for xml in _copies(pages, side == "old"):
                f.write(xml)
                if f.tell() >= goal:
                    break
            f.write(b"</mediawiki>\n")
        sizes.append(path.stat().st_size)
    return sizes


def _copies(pages: list, old: bool) -> Iterator[bytes]:
    texts = [escape(p.text).encode() for p in pages]
    halves = [(text[: len(text) // 2], text[len(text) // 2 :]) for text in texts]
    changed = [a + b.replace(b". ", b". This is said of late. ", 3) for a, b in halves]
    for number in itertools.count(1):
        i = number % len(pages)
        page, edited = pages[i], number % 20 == 0
        text = changed[i] if edited and not old else texts[i]
        target = '<redirect title="x" />' if page.redirect else ""
        yield (
            (
                f"<page><title>{escape(page.title)} {number}</title><ns>{page.namespace}</ns>"
                f"<id>{number}</id>{target}<revision><id>{2 * number + (edited and not old)}</id>"
                f"<timestamp>{page.timestamp}</timestamp><text>"
            ).encode()
            + text
            + b"</text></revision></page>\n"
        )


def large_child(args: argparse.Namespace) -> dict[str, Any]:
    """Builds the diffset of the two large dumps with --rounds workers."""
    dumps = sorted(args.scratch.glob("enwiki-*.xml"))
    start = time.perf_counter()
    manifest = build(plan(*dumps, args.scratch / f"out{args.rounds}", Options()), args.rounds)
    mine, theirs = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "wall_seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(sum(u.ru_utime + u.ru_stime for u in (mine, theirs)), 1),
        "resident_MB_reader": round(mine.ru_maxrss / 1024),
        "resident_MB_largest_worker": round(theirs.ru_maxrss / 1024) if args.rounds > 1 else None,
        "pages": manifest["pages"],
        "records": manifest["records"],
    }


CHILDREN = {"anchored": anchored, "large": large_child}

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    main()
