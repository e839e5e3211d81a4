"""Precision of the facts that two readings of Wikidata dumps classify, judged from raw statements.

    python -m benchmarks.fact_precision --data DIR

DIR has `wikidata/`, excerpts of dumps of several dates. Every item that two dumps share is compared
between successive dates by the paper's reading and by the current one (docs/dumps.md). The judge
reads the JSON by itself: it knows ranks, P580 and P582, and shares no code with the reader.

A sampled fact is right if the statements say so:

    unchanged  it is true at both dates
    updated    it is true at the new date, not known to be true at the old one, and every object
               that it replaced was stated at the old date and is not true at the new one
    new        it is true at the new date and not known to be true at the old one
    ended      it was true at the old date, and at the new one is stated but not true
    deleted    it was true at the old date, and at the new one is not stated

True at a date: of the best rank, begun and not ended by then. Known to be true at the old date: as
the new dump tells it. Relations to pages of Wikimedia are no facts, and wrong in any class.
"""

import argparse
import bz2
import collections
import itertools
import json
import random
import re
from pathlib import Path

from ckl_jax.data.facts.wikidata_json import FactRules, read_entities
from ckl_jax.papers.temporalwiki.data.fact_diff import (
    LATE,
    classify,
    classify_current,
    is_about_wikimedia,
)

CLASSES = ("unchanged", "updated", "new", "deleted", "ended")
SAMPLE = 100
_DATE = re.compile(r"wikidata-(\d{4})(\d\d)(\d\d)?-excerpt")
_WIKIMEDIA = re.compile(r"Wikimedia|Wikipedia|\bcategor|\btemplate\b|\bportal\b|is a list of")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with wikidata/")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    pairs = list(read_pairs(args.data / "wikidata"))
    print(f"{len(pairs)} pairs of versions of {len({p['item'] for p in pairs})} items")
    results = {reading: measure(pairs, reading) for reading in ("paper", "current")}
    for reading, rows in results.items():
        print(f"\n{reading:10} {'facts':>7} {'judged':>7} {'right':>7}  precision")
        for kind in CLASSES:
            if n := rows[kind]["judged"]:
                r = rows[kind]
                print(
                    f"{kind:10} {r['facts']:7} {n:7} {r['right']:7}  {100 * r['right'] / n:.0f} %"
                )
        print({k: v for k, v in rows.items() if k not in CLASSES})
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


def read_pairs(folder: Path):
    """Yields the successive versions of each item."""
    versions = collections.defaultdict(list)
    labels = {}
    for path in sorted(folder.glob("*.json.bz2")):
        year, month, day = _DATE.match(path.name).groups()
        raw = {}
        for line in bz2.decompress(path.read_bytes()).decode().splitlines():
            if line.strip(" ,[]"):
                entity = json.loads(line.rstrip(" ,\n"))
                raw[entity["id"]] = entity
                if entity["id"][0] == "P":
                    labels[entity["id"]] = entity["labels"].get("en", {}).get("value", "")
        for entity in read_entities(path, FactRules()):
            if entity.id[0] == "Q":
                date = f"{year}-{month}-{day or '01'}"
                versions[entity.id].append((date, entity, raw[entity.id]))
    for item, found in versions.items():
        for old, new in itertools.pairwise(found):
            yield {"item": item, "old": old, "new": new, "labels": labels}


def measure(pairs, reading: str) -> dict:
    facts = collections.defaultdict(list)
    counts = collections.Counter()
    for pair in pairs:
        (old_day, old, _), (new_day, new, _) = pair["old"], pair["new"]
        if reading == "paper":
            changes = classify(old.facts, new.facts)
        else:
            kept = [[s for s in e.statements if not is_about_wikimedia(s.fact)] for e in (old, new)]
            changes = classify_current(*kept, (old_day, new_day))
        for change in changes:
            if change.kind == LATE:
                counts["recorded late, left out"] += 1
                continue
            facts[change.kind].append((pair, change))
            if change.kind == "unchanged" and not true_at(pair, "new", change, dates_only=True):
                counts["unchanged that had ended"] += 1
            if change.kind == "updated" and not change.old:
                counts["updated that replaced nothing"] += 1
            if change.kind == "updated" and len(change.old) > 1:
                counts["updated that replaced several"] += 1
    rng = random.Random(0)
    rows = {}
    for kind in CLASSES:
        drawn = rng.sample(facts[kind], min(SAMPLE, len(facts[kind])))
        wrong = collections.Counter(reason for p, c in drawn if (reason := fault(p, c)))
        right = len(drawn) - wrong.total()
        rows[kind] = {"facts": len(facts[kind]), "judged": len(drawn), "right": right}
        rows[kind]["wrong"] = dict(wrong)
    return {**rows, **counts}


def fault(pair, change) -> str:
    """Why a classified fact is wrong; "" if it is right."""
    if _WIKIMEDIA.search(pair["labels"].get(change.relation, "")):
        return "about a page of Wikimedia"
    new, old = true_at(pair, "new", change), true_at(pair, "old", change)
    if change.kind == "unchanged":
        return "" if old and new else "not true at both dates"
    if change.kind == "ended":
        if not old or known_to_have_ended(pair, change):
            return "not true at the old date"
        return "" if stated(pair, "new", change.relation, change.object) and not new else "true"
    if change.kind == "deleted":
        if stated(pair, "new", change.relation, change.object):
            return "still stated"
        return "" if old else "not true at the old date"
    if not new:
        return "not true at the new date"
    if known_before(pair, change):
        return "true at the old date already"
    return replaced(pair, change) if change.kind == "updated" else ""


def replaced(pair, change) -> str:
    if not change.old:
        return "replaced nothing"
    for item in change.old:
        if any(is_true(s, claims, pair["new"][0]) for s, claims in find(pair, "new", change, item)):
            return "what it replaced is true still"
        if not any(is_true(s, c, pair["old"][0]) for s, c in find(pair, "old", change, item)):
            return "what it replaced was not true"
    return "replaced several" if len(change.old) > 1 else ""


def find(pair, side, change, item=None):
    """The statements of a fact, each with all of its property."""
    claims = (pair[side][2].get("claims") or {}).get(change.relation, [])
    return [(s, claims) for s in claims if value(s) == (item or change.object)]


def stated(pair, side, relation, item) -> bool:
    claims = (pair[side][2].get("claims") or {}).get(relation, [])
    return any(value(s) == item and s.get("rank") != "deprecated" for s in claims)


def value(statement) -> str:
    snak = statement["mainsnak"].get("datavalue", {}).get("value", {})
    if not isinstance(snak, dict) or snak.get("entity-type") != "item":
        return ""
    return f"Q{snak.get('numeric-id') or snak['id'][1:]}"


def true_at(pair, side, change, dates_only: bool = False) -> bool:
    day = pair[side][0]
    return any(
        is_true(s, [s] if dates_only else claims, day) for s, claims in find(pair, side, change)
    )


def is_true(statement, claims, day: str) -> bool:
    ranks = [s.get("rank", "normal") for s in claims]
    best = "preferred" if "preferred" in ranks else "normal"
    if statement.get("rank", "normal") != best:
        return False
    begin, end = (time(statement, name) for name in ("P580", "P582"))
    return not (end is not None and end[0] <= day) and not (begin and begin[0] > day)


def known_before(pair, change) -> bool:
    """Whether the new dump says that it began before the old date, or the old one states it."""
    begins = [time(s, "P580") for s, claims in find(pair, "new", change) if s in claims]
    later = [b for b in begins if b and b[1] > pair["old"][0]]
    if any(b and b[1] <= pair["old"][0] for b in begins) and not later:
        return True
    return not later and true_at(pair, "old", change)


def known_to_have_ended(pair, change) -> bool:
    ends = [time(s, "P582") for s, _ in find(pair, "new", change)]
    return bool(ends) and all(e and e[1] and e[1] <= pair["old"][0] for e in ends)


def time(statement, name: str):
    """(first, last possible day) of a qualifier; None without one, ("", "") where it is unknown."""
    snaks = (statement.get("qualifiers") or {}).get(name)
    if not snaks or snaks[0]["snaktype"] == "novalue":
        return None
    found = snaks[0].get("datavalue", {}).get("value", {})
    text, precision = found.get("time", ""), found.get("precision", 0)
    match = re.match(r"\+0*(\d{4})-(\d\d)-(\d\d)", text)
    if not match or precision < 9:
        return "", ""
    year, month, day = match.groups()
    if precision == 9:
        return f"{year}-01-01", f"{year}-12-31"
    if precision == 10:
        return f"{year}-{month}-01", f"{year}-{month}-31"
    return (f"{year}-{month}-{day}",) * 2


if __name__ == "__main__":
    main()
