"""Text of wikitext beside WikiExtractor and strip_code of mwparserfromhell.

    python -m benchmarks.wikitext --data DIR [--out FILE]

DIR has `wikipedia/`, excerpts of dumps. All articles are read by this project, by strip_code and,
if it is installed (pip install --no-deps wikiextractor), by WikiExtractor without template
definitions, as the paper ran it. Of each:

    words       of all paragraphs of prose (strip_code's headings and list items are left out by
                form: lines without a full stop)
    holes       sentences per 1,000 with remains of a word that is missing: empty brackets, brackets
                that begin or end with punctuation, a blank before punctuation, a currency sign
                without a number, two commas, an article or preposition before punctuation
    quantities  every measure, number and sum of money that a template gives ({{convert}}, {{val}},
                {{frac}}, {{US$}}, ...), alone in a sentence: "right" if the numbers that the
                template shows are there in their order, "wrong" if others are, "none" if no number
                is and the sentence is kept, "dropped" if it is not
"""

import argparse
import collections
import json
import re
import time
from pathlib import Path

import mwparserfromhell

from ckl_jax.data.text.sentences import sentence_splitter
from ckl_jax.papers.temporalwiki.data.wiki_xml import read_pages
from ckl_jax.papers.temporalwiki.data.wikitext import Extractor

_HOLE = re.compile(
    r"\(\s*\)|\(\s*[,;:–-]|[,;:]\s*\)|\w\s+[,;.](?=\s|$)|[$£€](?!\s*\d)(?=[\s,.;)])|,\s*,"
    r"|\b(?:the|a|an|of|from|than|approximately)\s*[,.;)]",
)
_QUANTITIES = {"convert", "cvt", "val", "frac", "fraction", "sfrac", "height", "us$", "gbp", "eur"}
_NUMBER = re.compile(r"\.?\d[\d,.]*")
_JOINED = {"to", "-", "–", "and", "by", "x", "or", "to(-)", "and(-)", "±", "+/-"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with wikipedia/")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    pages = [
        page
        for path in sorted((args.data / "wikipedia").glob("*-excerpt.xml.bz2"))
        if "history" not in path.name
        for page in read_pages(path)
        if not page.redirect and page.namespace == 0
    ]
    calls = quantities(pages)
    print(f"{len(pages)} pages, {len(calls)} templates of quantities")
    results = {}
    for name, read in tools().items():
        results[name] = measure(read, [page.text for page in pages], calls)
        print(f"{name:22}", results[name])
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


def tools() -> dict:
    """Name -> function from wikitext to paragraphs."""
    extractor = Extractor()
    found = {"ckl_jax": extractor.paragraphs, "strip_code": strip_code}
    try:
        from wikiextractor import extract
    except ImportError:
        return found

    def wikiextractor(text: str) -> list[str]:
        page = extract.Extractor(1, 1, "", "Title", [])
        return [p for p in page.clean_text(text) if _is_prose(p)]

    return {**found, "WikiExtractor": wikiextractor}


def strip_code(text: str) -> list[str]:
    plain = mwparserfromhell.parse(text).strip_code(normalize=True, collapse=False)
    return [line for line in plain.split("\n") if _is_prose(line)]


def _is_prose(line: str) -> bool:
    return "." in line and len(line.split()) > 2 and line[0] not in "*#|!:;"


def measure(read, texts: list[str], calls: list[tuple[str, list[str]]]) -> dict:
    split, start = sentence_splitter("en"), time.process_time()
    paragraphs = [p for text in texts for p in read(text)]
    seconds = time.process_time() - start
    sentences = [s for p in paragraphs for s in split(p)]
    holes = sum(_HOLE.search(s) is not None for s in sentences)
    verdicts = collections.Counter(judge(read, *call) for call in calls)
    return {
        "words": sum(len(p.split()) for p in paragraphs),
        "sentences": len(sentences),
        "holes_per_1000": round(1000 * holes / len(sentences), 2),
        "quantities": {k: verdicts[k] for k in ("right", "wrong", "none", "dropped")},
        "cpu_seconds": round(seconds, 1),
    }


def quantities(pages) -> list[tuple[str, list[str]]]:
    """(wikitext, the numbers that a reader sees before the bracket) of each distinct template."""
    found = {}
    for page in pages:
        for node in mwparserfromhell.parse(page.text).filter_templates():
            name = str(node.name).strip().lower()
            values = [str(p.value).strip() for p in node.params if not p.showkey]
            named = {str(p.name).strip(): str(p.value).strip() for p in node.params if p.showkey}
            shown = numbers(name, values, named) if name in _QUANTITIES else []
            if shown and not any("{" in value for value in values):
                found[str(node)] = shown
    return list(found.items())


def numbers(name: str, values: list[str], named: dict[str, str]) -> list[str]:
    """The numbers that a template shows, by the documentation of each."""
    if name == "height":
        metric = [v for k in ("m", "cm") if (v := named.get(k, ""))]
        return metric or [v for k in ("ft", "in") if (v := named.get(k, ""))]
    if name in ("convert", "cvt"):
        shown, i = values[:1], 1
        while i + 1 < len(values) and values[i] in _JOINED:
            shown.append(values[i + 1])
            i += 2
        if values[i : i + 1] == ["ft"] and values[i + 2 : i + 3] == ["in"]:
            shown.append(values[i + 1])
        values = shown
    if name in ("us$", "gbp", "eur"):
        values = values[:1]
    if name in ("frac", "fraction", "sfrac") and len(values) == 1:
        values = ["1", *values]
    if name == "val":
        values = values[:2] if len(values) == 2 else values[:1]
    return [n for value in values for n in _NUMBER.findall(value)]


def judge(read, call: str, shown: list[str]) -> str:
    text = " ".join(read(f"The first thing is {call} here. It ends."))
    if "first thing" not in text:
        return "dropped"
    text = text.replace("10^", "")
    found = _NUMBER.findall(text.replace("/", " ").replace("½", "1 2"))
    if not found:
        return "none"
    return (
        "right" if list(map(_value, found))[: len(shown)] == list(map(_value, shown)) else "wrong"
    )


def _value(number: str) -> str:
    """1,000. and 1000, and .5 and 0.5, are one number."""
    return re.sub(r"^\.", "0.", number.rstrip(".,").replace(",", ""))


if __name__ == "__main__":
    main()
