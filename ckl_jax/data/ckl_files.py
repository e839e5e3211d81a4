"""Readers of the files that CKL published: corpora and probes as CSV, answers as JSON.

Cells are read as text, so that an answer such as "None" or "NA" stays one. Rows are streamed. Each
complaint names file, line and column. The simulated world writes the same files.
"""

import csv
import dataclasses
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.documents import open_text
from ckl_jax.errors import UserError, nearest, nearest_name
from ckl_jax.files import os_errors

BLANK = "<extra_id_0>"
_BLANKS = re.compile(r"<extra_id_\d+>|\[BLANK\]|\[MASK\]|_X_|_{3,}")

CORPORA = {  # name -> path within CKL's data folder
    "d1": "recent_news_full.csv",
    "d1_small": "recent_news_small.csv",
    "p1": "split/recent_news_small1.csv",
    "p2": "split/recent_news_small2.csv",
    "d0": "wikipedia_pretrain_full.csv",
    "d0_small": "wikipedia_pretrain_small.csv",
}
# What only decoder-only models read: GPT-2's training on Wikipedia before the first update.
WIKIPEDIA = "wikipedia"
TEXTS = {**CORPORA, WIKIPEDIA: "wikipedia_pretrain_1G_final.csv"}


@dataclasses.dataclass(frozen=True)
class ProbeFormat:
    """Where a probe's rows and answers are.

    Attributes:
      path: CSV within the data folder.
      id, input, answer: its columns.
      answers: JSON with all accepted answers, within the data folder, or "".
      updated: the JSON distinguishes old and new answers.
      aliases: the CSV's answers are aliases joined by ";".
      input_length, target_length: tokens at evaluation (CKL, section 3).
    """

    path: str
    id: str = "unique_id"
    input: str = "statement"
    answer: str = "answer"
    answers: str = ""
    updated: bool = False
    aliases: bool = False
    input_length: int = 50
    target_length: int = 10


def _easy(suffix: str) -> ProbeFormat:
    return ProbeFormat(
        f"newlama/newLAMA_easy{suffix}.csv",
        answers="recentlama_val_answers.json",
        aliases=True,
        input_length=150,
    )


PROBES = {
    "invariant_lama": ProbeFormat(
        "invariantLAMA.csv", "id", "input", "output", input_length=25, target_length=4
    ),
    "trex_5000": ProbeFormat(
        "trex_5000.csv", "id", "input", "output", input_length=25, target_length=4
    ),
    "updated_lama": ProbeFormat(
        "updatedlama/updatedLAMA.csv",
        answer="new_answer",
        answers="updatedlama_val_answers.json",
        updated=True,
    ),
    "new_lama": ProbeFormat("newlama/newLAMA.csv", answers="recentlama_h_val_answers.json"),
    "new_lama_easy": _easy(""),
    "new_lama_easy_small": _easy("_small"),
    "new_lama_easy_p1": _easy("_small_split1"),
    "new_lama_easy_p2": _easy("_small_split2"),
    "new_lama_easy_5000": _easy("_5000"),
}


@dataclasses.dataclass(frozen=True)
class ProbeItem:
    """One question put to a model.

    Attributes:
      id: unique within its probe.
      probe: the probe's name.
      input: a statement with the blank `<extra_id_0>`.
      answers: accepted answers; the first is the training target.
      old_answers: what was right before (UpdatedLAMA).
      relation: e.g. "P19" or "birthplace"; "" if unknown.
      question: the item as a question; "" if the file has none.
      meta: the row's other columns.
    """

    id: str
    probe: str
    input: str
    answers: tuple[str, ...]
    old_answers: tuple[str, ...] = ()
    relation: str = ""
    question: str = ""
    meta: dict[str, str] = dataclasses.field(default_factory=dict)


def read_table(
    path: str | os.PathLike, columns: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields (line number, row) of a CSV(.gz) file with a header.

    Raises:
      UserError: the file cannot be read, lacks one of `columns`, or a row has more or fewer cells
        than the header.
    """
    csv.field_size_limit(2**30)  # an article is longer than the default allows
    with open_text(path) as f, os_errors(path, "read"):
        reader = csv.reader(f)
        header = [h.strip().removeprefix("\ufeff") for h in next(reader, [])]
        if not header:
            raise UserError(f"{path} is empty: it has no header.")
        for column in columns:
            if column not in header:
                found = ", ".join(header) or "nothing"
                near = nearest_name(column, [h for h in header if h not in columns])
                advice = f" If {near!r} is that column, rename it to {column!r}." if near else ""
                raise UserError(f"{path} has no column {column!r}; its header has {found}.{advice}")
        for cells in _cells(reader, path):
            if cells and len(cells) != len(header):
                raise UserError(
                    f"{path}, line {reader.line_num}: {len(cells)} cells where the header has "
                    f"{len(header)}; quote cells that hold commas or line ends."
                )
            if cells:
                yield reader.line_num, dict(zip(header, cells, strict=True))


def _cells(reader: Any, path: str | os.PathLike) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as e:
        raise UserError(f"{path}, line {reader.line_num}: not CSV ({e}).") from e


def read_corpus(path: str | os.PathLike) -> Iterator[dict[str, str]]:
    """Yields the rows of a masked corpus: {"input", "output", "original"}.

    An empty output (a chunk without a span) is kept; `original` is "" where the file has none.

    Raises:
      UserError: as `read_table`, or the file has no rows.
    """
    empty = True
    for _, row in read_table(path, ("input", "output")):
        empty = False
        original = row.get("original", "")
        yield {"input": row["input"], "output": row["output"], "original": original}
    if empty:
        raise UserError(f"The corpus {path} is empty: it has a header and no rows.")


def read_originals(path: str | os.PathLike) -> Iterator[str]:
    """Yields the unmasked texts of a corpus, which decoder-only models learn (CKL, appendix G).

    Neighbouring rows of one text, masked at different spans, count once.

    Raises:
      UserError: as `read_table`, the file has no column `original`, or no text in it.
    """
    empty = True
    texts = (row["original"].strip() for _, row in read_table(path, ("original",)))
    for text, _ in itertools.groupby(texts):
        if text:
            empty = False
            yield text
    if empty:
        raise UserError(f"The corpus {path} has no text in its column 'original'.")


def has_blank(text: str) -> bool:
    """Whether something in a text is read as a blank."""
    return bool(_BLANKS.search(text))


def normalize_blank(text: str, where: str) -> str:
    """Returns `text` with its one blank, however it is written, as `<extra_id_0>`.

    Args:
      text: a statement with `_____`, `[BLANK]`, `[MASK]`, `_X_` or `<extra_id_0>`.
      where: file, line and column, for the complaint.

    Raises:
      UserError: there is no blank, or more than one.
    """
    blanks = _BLANKS.findall(text)
    if len(blanks) != 1:
        raise UserError(
            f"{where}: the statement {text[:80]!r} has {len(blanks) or 'no'} blanks; "
            f"it must have one, written {BLANK}."
        )
    return _BLANKS.sub(BLANK, text)


def prompt_of(item: ProbeItem, question: bool = False) -> str:
    """What a decoder-only model continues: what stands before the blank, or the question.

    What stands behind the blank, if more than a full stop, is lost to it (CKL, appendix G).
    """
    return item.question if question else item.input.partition(BLANK)[0].rstrip()


def read_probe(
    name: str,
    directory: str | os.PathLike = ".",
    *,
    path: str | os.PathLike | None = None,
    answers_path: str | os.PathLike | None = None,
) -> list[ProbeItem]:
    """Reads a probe.

    Args:
      name: one of `PROBES`.
      directory: CKL's data folder.
      path: the CSV, if it is elsewhere.
      answers_path: the answers, if they are elsewhere.

    Returns:
      The items in the file's order. Where there is no file of answers (UpdatedLAMA needs one), the
      CSV's answers count, split at ";" for NewLAMA-Easy.

    Raises:
      UserError: unknown probe, unreadable or incomplete files, a row without exactly one blank or
        without an answer, or two rows with one id.
    """
    if name not in PROBES:
        raise UserError(
            f"No probe is called {name!r}; there are {', '.join(PROBES)}." + nearest(name, PROBES)
        )
    form = PROBES[name]
    path = Path(path or Path(directory) / form.path)
    answers = _read_answers(form, Path(answers_path or Path(directory) / form.answers))
    items: dict[str, ProbeItem] = {}
    for line, row in read_table(path, (form.id, form.input, form.answer)):
        item = _item(name, form, row, answers, f"{path}, line {line}")
        if item.id in items:
            raise UserError(f"{path}, line {line}, column {form.id!r}: {item.id} occurs twice.")
        items[item.id] = item
    if not items:
        raise UserError(f"The probe {path} is empty: it has a header and no rows.")
    return list(items.values())


def available_probes(directory: str | os.PathLike) -> list[str]:
    """Returns the names of the probes whose CSV is in CKL's data folder `directory`."""
    return [name for name, form in PROBES.items() if (Path(directory) / form.path).is_file()]


def _read_answers(form: ProbeFormat, path: Path) -> dict[str, Any] | None:
    if not form.answers or not (form.updated or path.is_file()):
        return None
    with open_text(path) as f, os_errors(path, "read"):
        try:
            answers = json.load(f)
        except json.JSONDecodeError as e:
            raise UserError(f"{path}, line {e.lineno}: not JSON ({e.msg}).") from e
    if not isinstance(answers, dict):
        raise UserError(f"{path} must map ids to answers, but is no JSON object.")
    return answers


def _item(
    name: str, form: ProbeFormat, row: dict[str, str], answers: dict[str, Any] | None, where: str
) -> ProbeItem:
    key = row[form.id]
    old: tuple[str, ...] = ()
    if answers is None:
        new = _strings(row[form.answer].split(";") if form.aliases else [row[form.answer]])
    else:
        new, old = _accepted(answers, key, form.updated, where)
    if not new:
        raise UserError(f"{where}, column {form.answer!r}: no answer for {key!r}.")
    used = {form.id, form.input, form.answer, "question", "relation"}
    return ProbeItem(
        id=key,
        probe=name,
        input=normalize_blank(row[form.input], f"{where}, column {form.input!r}"),
        answers=new,
        old_answers=old,
        relation=row.get("relation", ""),
        question=row.get("question", ""),
        meta={k: v for k, v in row.items() if k not in used},
    )


def _accepted(
    answers: dict[str, Any], key: str, updated: bool, where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (new or only answers, old answers) of the item `key`."""
    entry = answers.get(key)
    try:
        if updated:
            (both,) = entry  # published as a list of one
            return _strings(both["new"]), _strings(both["old"])
        return _strings(entry), ()
    except (TypeError, KeyError, ValueError) as e:
        expected = '[{"old": [...], "new": [...]}]' if updated else "a list of answers"
        raise UserError(
            f"{where}: the file of answers must have {expected} for the id {key!r}."
        ) from e


def _strings(values: Iterable[Any]) -> tuple[str, ...]:
    """Returns the non-empty strings of `values` without repeats."""
    if isinstance(values, str):
        raise TypeError("a list of answers, not a string")
    return tuple(dict.fromkeys(s for v in values if (s := str(v).strip())))
