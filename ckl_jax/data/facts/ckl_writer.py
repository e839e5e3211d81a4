"""Writes probes and their answers in CKL's published formats, which `ckl_files` reads."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from ckl_jax.data.facts.ckl_files import PROBES, CsvFormat
from ckl_jax.data.facts.probe import ProbeItem
from ckl_jax.files import atomic_write, write_json


def csv_writer(file: IO[str], columns: Sequence[str]) -> csv.DictWriter:
    """A writer of the `columns` of rows, after a header."""
    writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    return writer


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> int:
    """Writes `columns` of `rows` with a header, atomically; returns the number of rows."""
    count = 0
    with atomic_write(path) as f:
        writer = csv_writer(f, columns)
        for row in rows:
            writer.writerow(row)
            count += 1
    return count


def write_probe(name: str, directory: Path, items: Sequence[ProbeItem]) -> int:
    """Writes a probe into CKL's folder `directory`, with its answers where it has a file of them.

    `read_probe` reads back the same items. Besides the published columns there are `question`,
    `relation`, of UpdatedLAMA `old_answer`, and the items' other columns.
    """
    write_answers(name, directory, items)
    return write_rows(name, directory, items)


def write_rows(name: str, directory: Path, items: Sequence[ProbeItem]) -> int:
    """Writes the CSV alone; see `write_probe`."""
    form = PROBES[name].read
    named = [form.id, form.input, "question", form.answer, "relation"]
    columns = dict.fromkeys([*named, *(["old_answer"] if form.updated else [])])
    columns |= dict.fromkeys(key for item in items for key in item.meta)
    path = PROBES[name].path(directory)
    return write_csv(path, list(columns), (_row(form, item) for item in items))


def write_answers(name: str, directory: Path, items: Sequence[ProbeItem]) -> None:
    """Writes the JSON of accepted answers alone, if the probe has one."""
    form = PROBES[name].read
    if form.answers:
        write_json(directory / form.answers, {item.id: _answers(form, item) for item in items})


def _row(form: CsvFormat, item: ProbeItem) -> dict[str, str]:
    row = {
        form.id: item.id,
        form.input: item.input,
        "question": item.question,
        form.answer: (";".join(item.answers) if form.aliases else item.answers[0]),
        "relation": item.relation,
    }
    if form.updated:
        row["old_answer"] = next(iter(item.old_answers), "")
    return dict(item.meta) | row


def _answers(form: CsvFormat, item: ProbeItem) -> Any:
    if form.updated:  # published as a list of one
        return [{"old": list(item.old_answers), "new": list(item.answers)}]
    return list(item.answers)
