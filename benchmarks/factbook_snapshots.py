"""The World Factbook as documents and dated facts, for `ckl data snapshots`.

    python -m benchmarks.factbook_snapshots --data DIR --out factbook

DIR holds `factbook/` (docs/real_facts.md). A document is what the Factbook says of a country at a
date, in the fields below, a line each. A fact holds from the first date that states it until the
date after the last one.
"""

import argparse
import bisect
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TEXTS = "factbook/factbook-2015-2026.jsonl.gz"
_FACTS = "factbook/factbook-facts-2003-2026.jsonl.gz"
_FIELDS = {  # name of a field -> how a line begins
    "Background": "",
    "Economic overview": "",
    "Economy - overview": "",
    "Geography - note": "",
    "Capital / name": "The capital of {} is ",
    "Executive branch / chief of state": "The chief of state of {}: ",
    "Executive branch / head of government": "The head of government of {}: ",
    "Diplomatic representation in the US / chief of mission": "The ambassador of {} to the US: ",
    "Diplomatic representation from the US / chief of mission": "The US ambassador to {}: ",
    "Exports - partners": "Export partners of {}: ",
    "Imports - partners": "Import partners of {}: ",
}
_CAPITALS = re.compile(r"\b[A-Z][A-Z'-]{2,}\b")


def documents(data: Path) -> Iterator[dict[str, str]]:
    """Yields a document for each country and date: id, date, title, text."""
    lines: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    for row in _rows(data / _TEXTS):
        if (start := _FIELDS.get(row["field"])) is not None:
            text = start.format(row["country"]) + _names(row["text"], bool(start))
            for date in row["snapshots"]:
                lines[row["code"], row["country"], date][row["field"]] = text
    for (code, country, date), by_field in sorted(lines.items()):
        text = "\n".join(by_field[field] for field in _FIELDS if field in by_field)
        yield {"id": code, "date": date, "title": country, "text": text}


def _names(text: str, of_people: bool) -> str:
    """Surnames, which the Factbook writes in capitals, as names are written."""
    return _CAPITALS.sub(lambda m: m[0].title(), text) if of_people else text


def facts(data: Path) -> Iterator[dict[str, Any]]:
    """Yields facts with their first day, and the first on which they are no longer stated."""
    rows = list(_rows(data / _FACTS))
    dates = sorted({row[f"valid_{end}_snapshot"] for row in rows for end in ("from", "to")})
    for row in rows:
        after = bisect.bisect_right(dates, row["valid_to_snapshot"])
        yield {
            **{name: row[name] for name in ("subject", "relation", "object")},
            "object_aliases": row["aliases"],
            "valid_from": row["valid_from_snapshot"],
            "valid_to": dates[after] if after < len(dates) else "",
        }


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as f:
        yield from map(json.loads, f)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, rows in (("documents", documents(args.data)), ("facts", facts(args.data))):
        with open(args.out / f"{name}.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


if __name__ == "__main__":
    main()
