"""CPU seconds of each stage from dumps to diffset and probes, and what a full pair would take.

    python -m benchmarks.dump_stages --data DIR     # DIR holds wikipedia/ and wikidata/

One core, the excerpts of DIR. A stage's time is of it alone: reading XML is measured with and
without decompression. `Sizes` are those of a month of English Wikipedia and of Wikidata (with
their sources); an estimate is a stage's seconds for each MB times its MB.
"""

import argparse
import bz2
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ckl_jax.data.facts.wikidata_json import FactRules, entity_lines, parse_entity
from ckl_jax.data.text.sentences import sentence_splitter
from ckl_jax.papers.temporalwiki.data.page_diff import Rules, compare, triage
from ckl_jax.papers.temporalwiki.data.wiki_xml import read_pages
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor

XML = 90e3  # MB of pages-articles of the English Wikipedia, uncompressed (docs/dumps_at_scale.md)
JSON = 1.6e6  # MB of Wikidata's JSON, uncompressed (the same)
EDITED = 0.15  # an assumption: of the bytes of a dump, those of articles edited within a month
PAIRS = (("20150112", "20150305"), ("20150305", "20160501"))  # of enwiki
TIMES = 3  # each is measured, and the fastest counts


def seconds(work: Callable[[], Any]) -> float:
    """The least CPU seconds of this process for `work`."""
    found = []
    for _ in range(TIMES):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def exhaust(iterator: Any) -> None:
    for _ in iterator:
        pass


def of_wikipedia(folder: Path, scratch: Path) -> dict[str, tuple[float, float]]:
    """{stage: (CPU seconds, MB of XML)}."""
    path = folder / "enwiki-20160501-excerpt.xml.bz2"
    raw = bz2.decompress(path.read_bytes())
    plain = scratch / "pages.xml"
    plain.write_bytes(raw)
    size = len(raw) / 1e6
    decoded = seconds(lambda: bz2.decompress(path.read_bytes()))
    parsed = seconds(lambda: exhaust(read_pages(plain)))
    plain.unlink()
    pages = [p for p in read_pages(path) if not p.redirect and p.namespace == 0]
    extractor, split = Extractor(), sentence_splitter()
    texts = [extractor.paragraphs(p.text) for p in pages]
    articles = sum(len(p.text.encode()) for p in pages) / 1e6
    stages = {
        "decompress bzip2": (decoded, size),
        "read pages from XML": (parsed, size),
        "prose of articles": (
            seconds(lambda: [extractor.paragraphs(p.text) for p in pages]),
            articles,
        ),
        "split sentences": (
            seconds(lambda: [split(line) for text in texts for line in text]),
            articles,
        ),
    }
    compared, edited = 0.0, 0.0
    rules = Rules()
    for names in PAIRS:
        old, new = (
            {p.id: p for p in read_pages(folder / f"enwiki-{name}-excerpt.xml.bz2")}
            for name in names
        )
        pairs = [(old.get(i), page) for i, page in new.items() if i in old]
        pairs = [pair for pair in pairs if triage(pair, rules)[0]]
        edited += sum(len(page.text.encode()) for _, page in pairs) / 1e6
        compared += seconds(lambda pairs=pairs: [compare(pair, rules) for pair in pairs])
    return stages | {"compare edited articles (prose of both, too)": (compared, edited)}


def of_wikidata(folder: Path) -> dict[str, tuple[float, float]]:
    """{stage: (CPU seconds, MB of JSON)}."""
    path = folder / "wikidata-201412-excerpt.json.bz2"
    raw = bz2.decompress(path.read_bytes())
    packed, rules = zlib.compress(raw), FactRules()
    lines = list(entity_lines(path))
    size = len(raw) / 1e6
    return {
        "decompress gzip": (seconds(lambda: zlib.decompress(packed)), size),
        "decompress bzip2": (seconds(lambda: bz2.decompress(path.read_bytes())), size),
        "parse entities": (
            seconds(lambda: [parse_entity(path, line, rules) for line in lines]),
            size,
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="with wikipedia/ and wikidata/")
    parser.add_argument("--scratch", type=Path, default=Path("/tmp"))
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    wikipedia = of_wikipedia(args.data / "wikipedia", args.scratch)
    full = dict.fromkeys(wikipedia, 2 * XML) | {
        "prose of articles": XML,
        "split sentences": XML,
        "compare edited articles (prose of both, too)": EDITED * XML,
    }
    rows = [("Wikipedia", stage, *x, full[stage]) for stage, x in wikipedia.items()]
    wikidata = of_wikidata(args.data / "wikidata")
    rows += [("Wikidata", stage, *x, 2 * JSON) for stage, x in wikidata.items()]
    print("| dump | stage | CPU s per MB | MB of a full pair | core hours |")
    print("| --- | --- | ---: | ---: | ---: |")
    for dump, stage, cpu, size, whole in rows:
        rate = cpu / size
        print(f"| {dump} | {stage} | {rate:.4f} | {whole:,.0f} | {rate * whole / 3600:.1f} |")
    if args.out:
        args.out.write_text(json.dumps([list(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
