"""Single facts: the new text that states them (Table 4), and what each model makes of them."""

import collections
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ckl_jax.analysis.sections import Cell, Section
from ckl_jax.data.text.sentences import sentence_splitter
from ckl_jax.files import read_jsonl
from ckl_jax.papers.temporalwiki.analysis import results
from ckl_jax.papers.temporalwiki.analysis.results import Model, Study
from ckl_jax.papers.temporalwiki.data.diffsets import read_records
from ckl_jax.papers.temporalwiki.data.edits import ADDED, NAME, NUMBER
from ckl_jax.papers.temporalwiki.data.probe_rows import has_name, is_gone, plain

_KINDS = ("updated", "new", "ended", "deleted", "unchanged")
_NOTE = (
    "By interval and kind, what became likelier than under Initial first (mean over the methods, "
    "nats a token); of a kind with more than {:,} facts, half of them from either end. Answers are "
    "continuations of subject and relation, of the light-tuned copy of a model where there is one; "
    "n is the fact's tokens. What a fact became is said of all methods."
)
_MAX_FACTS = 3000  # of a page of some 3 MB
_ENDS = 500  # otherwise facts of a kind, over all intervals
_ALIGNED = (
    "The first changed facts of each interval, and the sentence of its new text with the object."
)
_PER_INTERVAL = 5  # aligned facts
_UPDATE, _NEW = "information update", "new information"
# Of Figure 5, by the kind of an edit.
_OF_EDITS = {NUMBER: _UPDATE, NAME: _UPDATE, ADDED: _NEW}
_PER_KIND = 3  # sentences of an interval
_CHANGED = (
    "New sentences of each interval; those of a kind are each of another article. An information "
    "update is an old sentence with a number or a name that it lacked; new information is like no "
    "old sentence, or has a clause that none has."
)


def section(study: Study) -> Section:
    """All facts with their old and new objects, and each model's answers, newest interval first."""
    ends = _MAX_FACTS  # all of them, or if these are too many for a page those from either end
    for ends in (_MAX_FACTS, max(1, _ENDS // len(study.intervals or [""]))):
        rows = [row for i in reversed(study.intervals) for row in _facts_of(study, i, ends)]
        if len(rows) <= _MAX_FACTS:
            break
    headers = ["Fact", "Before", "Now", "Interval", "Became", "Initial"]
    headers += map(results.method_label, study.models)
    title = "All facts, and what the models say"
    note = _NOTE.format(2 * ends)
    return Section(title, headers, rows, [note][: len(rows)], anchor="examples", kind="examples")


def _facts_of(study: Study, interval: str, ends: int) -> Iterator[list[Cell]]:
    """The rows of an interval's facts, with the models after its updates."""
    models = [of.get(interval) for of in study.models.values()]
    if not any(models):
        return
    before, *scored = (model and _rows_of(model, interval) for model in (study.initial, *models))
    there = [rows for rows in scored if rows]
    shared = [key for key in before if all(key in rows for rows in there)]
    gains = {
        key: [_loss(before[key]) - _loss(rows[key]) for rows in there] for key in shared if there
    }
    for kind in _KINDS:
        of_kind = (key for key in gains if before[key]["kind"] == kind)
        mine = sorted(of_kind, key=lambda key: np.mean(gains[key]))
        for key in dict.fromkeys([*mine[: -ends - 1 : -1], *mine[ends - 1 :: -1]]):
            answers = (_answer(rows[key]) if rows else Cell("–") for rows in (before, *scored))
            became = Cell(_became(gains[key]))
            yield [*_fact(before[key]), Cell(study.label(interval)), became, *answers]


def _became(gains: Sequence[float]) -> str:
    """What a fact became after the updates, by what each gained in its loss."""
    signs = {gain > 0 for gain in gains}
    return "mixed" if len(signs) > 1 else "likelier" if True in signs else "less likely"


def _loss(row: Mapping[str, Any]) -> float:
    return row["nll"] / row["tokens"]


def _rows_of(model: Model, interval: str) -> dict[tuple[str, str], dict[str, Any]]:
    """{(class, item): its row} of an interval, with answers where the model gave some."""
    tuned = sorted(model.path.glob(f"{results.LIGHT_TUNED}/{interval}_*"))
    runs = [run for folder in (model.path, *tuned) for run in results.probed(folder)]
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for run in runs:
        for probe, scored in run.last.items():
            of, _, kind = probe.rpartition("_")
            if of == interval and scored.losses is not None:
                losses = zip(scored.losses.nll, scored.losses.tokens, strict=True)
                for item, row, (nll, tokens) in zip(scored.items, scored.rows, losses, strict=True):
                    # The losses are those of the model itself, not of its tuned copy.
                    mine = rows.setdefault((kind, item), {"nll": nll, "tokens": int(tokens)})
                    rows[kind, item] = {**row, **mine, "predictions": row.get("predictions")}
    return rows


def _fact(row: Mapping[str, Any]) -> list[Cell]:
    kept = row["kind"] in ("unchanged", "ended", "deleted")
    before = row["answers"] if kept else row["old_answers"]
    now = [] if row["kind"] in ("ended", "deleted") else row["answers"]
    return [Cell(row["input"], row["kind"]), *(Cell(", ".join(x) or "–") for x in (before, now))]


def _answer(row: Mapping[str, Any]) -> Cell:
    perplexity = f"{np.exp(_loss(row)):.0f} (n {row['tokens']})"
    said = row.get("predictions")
    return Cell(said[0] or "(nothing)", perplexity) if said else Cell(perplexity)


def aligned(study: Study) -> Section:
    """Changed facts and the sentences of the new text that they were aligned with (Table 4)."""
    rows = [row for interval in study.intervals for row in _aligned(study, interval)]
    headers = ["Interval", "Subject", "Relation", "Object", "Sentence"]
    return Section("", headers, rows, [_ALIGNED], kind="examples")


def _aligned(study: Study, interval: str) -> list[list[Any]]:
    path = study.root / "probes" / f"{interval}_changed.jsonl"
    facts = list(itertools.islice(read_jsonl(path), _PER_INTERVAL)) if path.is_file() else []
    texts = _new_texts(study, interval, {_title(fact["page"]) for fact in facts})
    return [
        [
            study.label(interval),
            *(fact[name] for name in ("subject", "relation", "object")),
            _statement(fact, texts.get(_title(fact["page"]), ())),
        ]
        for fact in facts
    ]


def _statement(fact: Mapping[str, Any], sentences: Sequence[str]) -> str | None:
    """The sentence that names the object: as words, by an alias, or as part of a word."""
    aliases = ((alias, re.NOFLAG) for alias in fact.get("aliases", ()))
    for name, case in ((fact["object"], re.IGNORECASE), *aliases):
        for sentence in sentences:
            # Labels of probes have lost their commas.
            text = plain(sentence)
            if any(has_name(t, plain(name), case) for t in (text, text.replace(",", ""))):
                return sentence
    name = fact["object"].lower()
    return next((s for s in sentences if name in s.replace(",", "").lower()), None)


def _title(title: str) -> str:
    return title.replace("_", " ")  # one character to MediaWiki, and to alignment


def _new_texts(study: Study, interval: str, pages: set[str]) -> dict[str, list[str]]:
    """{page: sentences} of an interval's diffset; pages are ids with a page map, else titles."""
    by_id = study.settings.get("page_map")
    split, texts = sentence_splitter(), collections.defaultdict(list)
    for record in read_records(study.root / "data" / interval / "diffset"):
        page = str(record["page_id"]) if by_id else _title(record["title"])
        if page in pages and not is_gone(record):
            for line in record["text"].splitlines():
                texts[page] += split(line)
    return texts


def new_text(study: Study) -> Section:
    """Sentences of the diffsets that update information, and that add some (Figure 5)."""
    rows = [row for interval in study.intervals for row in _new_sentences(study, interval)]
    headers = ["Interval", "Kind", "Article", "Sentence", "New in it"]
    return Section("", headers, rows, [_CHANGED], kind="examples")


def _new_sentences(study: Study, interval: str) -> list[list[Any]]:
    """The first sentences of each kind, of as many articles."""
    folder = study.root / "data" / interval / "diffset"
    by_kind: dict[str, dict[int, list[Any]]] = {_UPDATE: {}, _NEW: {}}
    for record in read_records(folder):
        page, text = record["page_id"], record["text"]
        for kind, start, end, spans in record.get("edits", ()):
            mine = by_kind.get(_OF_EDITS.get(kind), {})
            if len(mine) < _PER_KIND:
                whole = spans == [[start, end]]
                new = "all" if whole else "; ".join(text[a:b] for a, b in spans)
                article = Cell(record["title"], f"page {page}")
                mine.setdefault(page, [study.label(interval), "", article, text[start:end], new])
        if all(len(mine) == _PER_KIND for mine in by_kind.values()):
            break
    return [[row[0], kind, *row[2:]] for kind, of in by_kind.items() for row in of.values()]
