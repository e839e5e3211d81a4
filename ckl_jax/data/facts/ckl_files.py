"""Readers of CKL's published files: corpora and probes as CSV, answers as JSON.

Cells are read as text, so that an answer such as "None" or "NA" stays one. Rows are streamed. Each
complaint names file, line and column. The simulated world writes the same files.
"""

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ckl_jax.data.compressed import RECORD_BYTES, csv_table
from ckl_jax.data.facts.probe import Probe, ProbeItem
from ckl_jax.data.text.spans import fill_spans
from ckl_jax.errors import UserError, not_empty, refuse_unknown
from ckl_jax.files import read_json_object

BLANK = "<extra_id_0>"
GROUPS = ("reviewed", "frequency")  # columns of the simulated world that reports score apart
_BLANKS = re.compile(r"<extra_id_\d+>|\[BLANK\]|\[MASK\]|_X_|_{3,}")

CORPORA = {  # name -> path within CKL's data folder
    "d1": "recent_news_full.csv",
    "d1_small": "recent_news_small.csv",
    "p1": "split/recent_news_small1.csv",
    "p2": "split/recent_news_small2.csv",
    "d0": "wikipedia_pretrain_full.csv",
    "d0_small": "wikipedia_pretrain_small.csv",
}
# Not published: the part of the simulated D0 that methods with review may see, which has nothing on
# half of the probed subjects; and the part on subjects that no probe asks about.
REVIEWS = {"d0_review": "wikipedia_review.csv", "d0_controls": "wikipedia_controls.csv"}
# What only decoder-only models read: GPT-2's training on Wikipedia before the first update.
WIKIPEDIA = "wikipedia"
TEXTS = {**CORPORA, **REVIEWS, WIKIPEDIA: "wikipedia_pretrain_1G_final.csv"}


@dataclasses.dataclass(frozen=True)
class CsvFormat:
    """Reads a probe whose file is a CSV; for `Probe.read`.

    Attributes:
      id, input, answer: its columns.
      answers: JSON with all accepted answers, within the data folder, or "".
      updated: the JSON distinguishes old and new answers.
      aliases: the CSV's answers are aliases joined by ";".
      date: its column of dates, for scores by date; "" is none.
    """

    id: str = "unique_id"
    input: str = "statement"
    answer: str = "answer"
    answers: str = ""
    updated: bool = False
    aliases: bool = False
    date: str = ""

    def __call__(self, probe: Probe, folder: Path) -> Iterator[ProbeItem]:
        """Yields the items in the file's order; see `read_probe`."""
        path = probe.path(folder)
        answers = _read_answers(self, Path(folder) / self.answers)
        seen = set()
        columns = (self.id, self.input, self.answer, *filter(None, [self.date]))
        for line, row in csv_table(path, columns):
            item = _item(self, row, answers, f"{path}, line {line}")
            if item.id in seen:
                raise UserError(f"{path}, line {line}, column {self.id!r}: {item.id} occurs twice.")
            seen.add(item.id)
            yield item


_LAMA = {"read": CsvFormat("id", "input", "output"), "role": "retained"}
_LAMA |= {"input_length": 25, "target_length": 4}
_OLD_AND_NEW = CsvFormat(answer="new_answer", answers="updatedlama_val_answers.json", updated=True)
_UPDATED = {"read": _OLD_AND_NEW, "role": "updated", "columns": ("em_old",)}
_NEW = {"read": CsvFormat(answers="recentlama_h_val_answers.json"), "role": "acquired"}
_REST = {"read": CsvFormat(answers="recentlama_val_answers.json", aliases=True)}
_REST |= {"input_length": 150}
_EASY = _REST | {"role": "acquired"}
_HALF = _EASY | {"group": "halves of NewLAMA-Easy"}
_FIELDS = {  # of the records; files as published, lengths of CKL, section 3
    "invariant_lama": _LAMA | {"file": "invariantLAMA.csv", "truncates_gold": True},
    "updated_lama": _UPDATED | {"file": "updatedlama/updatedLAMA.csv"},
    "new_lama": _NEW | {"file": "newlama/newLAMA.csv"},
    "new_lama_easy": _EASY | {"file": "newlama/newLAMA_easy.csv"},
    "new_lama_easy_small": _EASY | {"file": "newlama/newLAMA_easy_small.csv"},
    "new_lama_easy_p1": _HALF | {"file": "newlama/newLAMA_easy_small_split1.csv"},
    "new_lama_easy_p2": _HALF | {"file": "newlama/newLAMA_easy_small_split2.csv"},
    "new_lama_easy_5000": _REST | {"file": "newlama/newLAMA_easy_5000.csv"},
    "trex_5000": _LAMA | {"file": "trex_5000.csv"},
}
_LABELS = {  # in the order of tables
    "invariant_lama": ("IL", "InvariantLAMA"),
    "updated_lama": ("UL", "UpdatedLAMA"),
    "new_lama": ("NL", "NewLAMA"),
    "new_lama_easy": ("NLE", "NewLAMA-Easy"),
    "new_lama_easy_small": ("NLE-S", "NewLAMA-Easy small"),
    "new_lama_easy_p1": ("NLE-P1", "NewLAMA-Easy, phase 1"),
    "new_lama_easy_p2": ("NLE-P2", "NewLAMA-Easy, phase 2"),
    "new_lama_easy_5000": ("NLE-5k", "NewLAMA-Easy 5000"),
    "trex_5000": ("T-REx", "T-REx 5000"),
}
PROBES = {
    name: Probe(name=name, short=short, long=long, order=order, **_FIELDS[name])
    for order, (name, (short, long)) in enumerate(_LABELS.items())
}


def read_corpus(path: str | os.PathLike, limit: int = RECORD_BYTES) -> Iterator[dict[str, str]]:
    """Yields the rows of a masked corpus: {"input", "output", "original"}.

    An empty output (a chunk without a span) is kept; `original` is "" where the file has none.

    Raises:
      UserError: as `csv_table`, or the file has no rows.
    """
    rows = csv_table(path, ("input", "output"), limit)
    said = f"The corpus {path} is empty: it has a header and no rows."
    for _, row in not_empty(rows, said):
        original = row.get("original", "")
        yield {"input": row["input"], "output": row["output"], "original": original}


def read_originals(path: str | os.PathLike) -> Iterator[str]:
    """Yields the unmasked texts of a corpus, on which decoder-only models train (CKL, appendix G).

    Neighbouring rows of one text, masked at different spans, count once.

    Raises:
      UserError: as `csv_table`, the file has no column `original`, or no text in it.
    """
    texts = (row["original"].strip() for _, row in csv_table(path, ("original",)))
    originals = (text for text, _ in itertools.groupby(texts) if text)
    return not_empty(originals, f"The corpus {path} has no text in its column 'original'.")


def corpus_texts(path: str | os.PathLike, limit: int = RECORD_BYTES) -> Iterator[str]:
    """Yields the unmasked texts of a masked corpus, without repeats in a row.

    Rows without the original text are put together from input and output again.

    Raises:
      UserError: see `read_corpus`.
    """
    rows = read_corpus(path, limit)
    texts = (r["original"] or fill_spans(r["input"], r["output"]) for r in rows)
    return (text for text, _ in itertools.groupby(texts))


def has_blank(text: str) -> bool:
    """Whether a text contains a blank in any of its spellings."""
    return bool(_BLANKS.search(text))


def normalize_blank(text: str, where: str) -> str:
    """Returns `text` with its one blank, in any spelling, as `<extra_id_0>`.

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
            f"it must have one, such as ____ or _X_."
        )
    return _BLANKS.sub(BLANK, text)


def prompt_of(item: ProbeItem, question: bool = False) -> str:
    """The prompt of a decoder-only model: the text before the blank, or the question.

    What stands behind the blank, if more than a full stop, is lost to it (CKL, appendix G).
    """
    return item.question if question else item.input.partition(BLANK)[0].rstrip()


def known_probe(name: str) -> Probe:
    """The record of a published probe, or for any other name one without role or labels."""
    return PROBES.get(name) or Probe(name=name)


def read_probe(
    probe: str | Probe, directory: str | os.PathLike = ".", *, path: str | os.PathLike | None = None
) -> list[ProbeItem]:
    """Reads a probe.

    Args:
      probe: a record, or the name of one of `PROBES`.
      directory: the data folder, such as CKL's.
      path: the probe's file, if it is elsewhere.

    Returns:
      The items in the file's order. Where there is no file of answers (UpdatedLAMA needs one), the
      CSV's answers count, split at ";" for NewLAMA-Easy.

    Raises:
      UserError: unknown probe, unreadable or incomplete files, an item without exactly one blank or
        without an answer, or two items with one id.
    """
    if isinstance(probe, str):
        refuse_unknown(probe, PROBES, f"No probe is called {probe!r}; there are")
        probe = PROBES[probe]
    if probe.read is None:
        raise UserError(f"The probe {probe.name!r} has no reader; give Probe.read.")
    if path:
        probe = dataclasses.replace(probe, file=str(Path(path).absolute()))
    said = f"The probe {probe.path(directory) if probe.file else probe.name}"
    items: dict[str, ProbeItem] = {}
    read = probe.read(probe, Path(directory))
    if not isinstance(read, Iterable):
        raise UserError(f"{said}: its reader returned {read!r}; let it yield ProbeItems.")
    for item in read:
        item = _checked(item, probe, said)
        if item.id in items:
            raise UserError(f"{said}: the item {item.id} occurs twice.")
        items[item.id] = item
    if not items:
        raise UserError(f"{said} is empty: it has no items.")
    return list(items.values())


def _checked(item: Any, probe: Probe, said: str) -> ProbeItem:
    """An item of any reader, of its probe and with its blank as `BLANK`."""
    if not isinstance(item, ProbeItem):
        raise UserError(f"{said}: the reader of {probe.name!r} yielded {item!r}, not a ProbeItem.")
    where = f"{said}, item {item.id!r}"
    for field in ("id", "input", "relation", "question", "date"):
        if not isinstance(getattr(item, field), str):
            raise UserError(f"{where}: its {field} is {getattr(item, field)!r}; give a text.")
    try:
        answers, old = _strings(item.answers), _strings(item.old_answers)
    except TypeError as e:
        raise UserError(f"{where}: its answers must be a list of texts.") from e
    if not item.id or not answers:
        raise UserError(f"{where}: it has no {'answer' if item.id else 'id'}.")
    text = normalize_blank(item.input, where)
    return dataclasses.replace(item, probe=probe.name, input=text, answers=answers, old_answers=old)


def available_probes(directory: str | os.PathLike) -> list[str]:
    """Returns the names of the probes whose CSV is in CKL's data folder `directory`.

    What is there in its place, such as a folder or a broken link, counts: its reader says so.
    """
    return [name for name, probe in PROBES.items() if os.path.lexists(probe.path(directory))]


def is_left_out(probe: Probe, directory: str | os.PathLike, say: Callable = print) -> bool:
    """Whether no file is missing: the folder's manifest says that the probe has no items.

    A benchmark that was built from little text may have empty probes, which it says.
    """
    manifest = Path(directory) / "manifest.json"
    if not manifest.is_file() or os.path.lexists(probe.path(directory)):
        return False
    items = read_json_object(manifest).get("items")
    if empty := isinstance(items, Mapping) and not items.get(probe.name):
        say(f"Leaving out the probe {probe.name}: {manifest} says that it has no items.")
    return empty


def _read_answers(form: CsvFormat, path: Path) -> dict[str, Any] | None:
    if not form.answers or not (form.updated or os.path.lexists(path)):
        return None
    return read_json_object(path)


def _item(
    form: CsvFormat, row: dict[str, str], answers: dict[str, Any] | None, where: str
) -> ProbeItem:
    key = row[form.id]
    old: tuple[str, ...] = ()
    if answers is None:
        new = _strings(row[form.answer].split(";") if form.aliases else [row[form.answer]])
    else:
        new, old = _accepted(answers, key, form.updated, where)
    if not new:
        raise UserError(f"{where}, column {form.answer!r}: no answer for {key!r}.")
    used = {form.id, form.input, form.answer, "question", "relation", *GROUPS}
    return ProbeItem(
        id=key,
        input=normalize_blank(row[form.input], f"{where}, column {form.input!r}"),
        answers=new,
        old_answers=old,
        relation=row.get("relation", ""),
        question=row.get("question", ""),
        date=row.get(form.date, ""),
        groups={name: row[name] for name in GROUPS if row.get(name)},
        meta={k: v for k, v in row.items() if k not in used},
    )


def _accepted(
    answers: dict[str, Any], key: str, updated: bool, where: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns (accepted answers, old answers) of the item `key`."""
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
    if not isinstance(values, list | tuple) or not all(type(v) in (str, int) for v in values):
        raise TypeError("a list of answers, not a string")
    return tuple(dict.fromkeys(s for v in values if (s := str(v).strip())))
