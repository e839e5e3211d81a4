"""Writes a world's probes and their answers in CKL's file formats."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.facts.ckl_files import BLANK, PROBES
from ckl_jax.data.facts.ckl_writer import write_csv
from ckl_jax.data.text.documents import Document
from ckl_jax.files import write_json
from ckl_jax.world.facts import Fact, World, fraction_of
from ckl_jax.world.render import say

_HELD_OUT = 0.04  # fraction of the invariant facts set aside for light tuning
_UL, _NL, _NLE = (PROBES[n].read.answers for n in ("updated_lama", "new_lama", "new_lama_easy"))
Write = Callable[[Path], int]  # writes a file, returns its number of rows


def in_small(world: World, document: Document) -> bool:
    """Whether `document` is in the SMALL corpora: a draw that depends on its id and the seed."""
    return fraction_of(f"small {world.seed} {document.id}") < world.shape.small


def _cloze(world: World, fact: Fact) -> dict[str, str]:
    """Returns the columns that all probes have."""
    relation = world.relations[fact.relation]
    subject = world.name(fact.subject)
    return {
        "statement": relation.cloze.format(s=subject, o=BLANK),
        "question": relation.question.format(s=subject),
        "relation": fact.relation,
        "date": fact.valid_from,
        **({"frequency": _frequency(world, fact)} if world.variant == "disjoint" else {}),
    }


def _frequency(world: World, fact: Fact) -> str:
    """How often the texts state a fact, in classes of about equal size."""
    count = world.statements(fact)
    return "1-2" if count < 3 else "3-4" if count < 5 else "5 or more"


def _columns(world: World, *columns: str) -> tuple[str, ...]:
    """The published columns, and the disjoint world's own."""
    return (*columns, *(("frequency",) if world.variant == "disjoint" else ()))


def _numbered(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    return [{"unique_id": str(i), **row} for i, row in enumerate(rows)]


def probe_files(world: World, news: Sequence[tuple[Document, list[Fact]]]) -> dict[str, Write]:
    """Returns path -> writer of every probe and file of answers.

    NewLAMA-Easy is about single events as news report them, in the legacy world in the
    articles' own sentences; in a world without any, about all that articles report. Its SMALL
    parts are those of the articles in SMALL.
    """
    updated, new = world.updated(), world.new()
    first, last = ("unique_id", "statement"), ("question", "relation", "date")
    both = [[{"old": world.answers(a.object), "new": world.answers(b.object)}] for a, b in updated]
    easy_facts = set(world.events() or world.begun())
    reported = [
        (fact, in_small(world, document))
        for document, facts in news
        for fact in facts
        if fact in easy_facts
    ]
    easy = _numbered(_easy_row(world, fact) for fact, _ in reported)
    columns = _columns(world, "unique_id", "statement", "question", "answer", "relation", "date")
    small = [row for row, (_, inside) in zip(easy, reported, strict=True) if inside]
    rest = [row for row, (_, inside) in zip(easy, reported, strict=True) if not inside]
    return {
        **_invariant_files(world),
        PROBES["updated_lama"].file: lambda path: write_csv(
            path,
            _columns(world, *first, "new_answer", "old_answer", *last),
            _numbered(
                _cloze(world, b)
                | {"new_answer": world.name(b.object), "old_answer": world.name(a.object)}
                for a, b in updated
            ),
        ),
        PROBES["new_lama"].file: lambda path: write_csv(
            path,
            _columns(world, *first, "answer", *last),
            _numbered(_cloze(world, f) | {"answer": world.name(f.object)} for f in new),
        ),
        **{
            PROBES[name].file: lambda path, rows=rows: write_csv(path, columns, rows)
            for name, rows in (
                ("new_lama_easy", easy),
                ("new_lama_easy_small", small),
                ("new_lama_easy_p1", [r for r in small if r["date"] < world.half]),
                ("new_lama_easy_p2", [r for r in small if r["date"] >= world.half]),
                ("new_lama_easy_5000", rest[:5000]),
            )
        },
        _UL: lambda path: _write_answers(path, both),
        _NL: lambda path: _write_answers(path, [world.answers(f.object) for f in new]),
        _NLE: lambda path: _write_answers(path, [r["answer"].split(";") for r in easy]),
    }


def _invariant_files(world: World) -> dict[str, Write]:
    kept: list[dict[str, str]] = []
    held_out: list[dict[str, str]] = []
    for i, fact in enumerate(world.invariant()):
        aside = fraction_of(f"held out {world.seed} {fact.subject} {fact.relation}") < _HELD_OUT
        row = _cloze(world, fact) | {"id": str(i), "output": world.name(fact.object)}
        row |= {"input": row["statement"]}
        row["reviewed"] = "reviewed" if world.is_reviewed(fact.subject) else "not reviewed"
        (held_out if aside else kept).append(row)
    columns = _columns(world, "id", "input", "output", "question", "relation")
    columns += ("reviewed",) if world.variant == "disjoint" else ()
    return {
        PROBES["invariant_lama"].file: lambda path: write_csv(path, columns, kept),
        PROBES["trex_5000"].file: lambda path: write_csv(path, columns, held_out[:5000]),
    }


def _easy_row(world: World, fact: Fact) -> dict[str, str]:
    """Returns an article's own sentence with its object blanked."""
    relation = world.relations[fact.relation]
    template = (relation.news or relation.state[1:])[0]
    answer = ";".join(world.answers(fact.object))
    statement = say(world, fact, template.replace("{o}", BLANK))
    return _cloze(world, fact) | {"statement": statement, "answer": answer}


def _write_answers(path: Path, answers: Sequence[Any]) -> int:
    write_json(path, {str(i): entry for i, entry in enumerate(answers)})
    return len(answers)
