"""KILT's data sets (Petroni et al. 2021): files, records, and cached tasks.

A file is JSON lines, a record each: `id`, `input`, and `output`, a list of which each entry may
have an `answer`. All of them are right; the first is trained on. Answers are texts of their own, so
that one may hold commas and semicolons. Provenance, which closed-book models do not use, is not
kept.
"""

import collections
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ckl_jax.data.facts.probe import SCORES, Probe
from ckl_jax.data.json_rows import numbered_values
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.tasks.prepare import describe, encoded, make_task
from ckl_jax.errors import UserError, not_empty, refuse_unknown
from ckl_jax.files import read_json

TRAIN, DEV = "train", "dev"
CUT = "cut.json"  # beside a cached task: what its lengths cut


@dataclasses.dataclass(frozen=True, kw_only=True)
class KiltSet(Probe):
    """One of the data sets, as CKL used it (Table 9).

    Attributes:
      metric: "accuracy", "em", "rouge_l" or "f1"; a column of reports.
      trains: whether it has a training file; models of AIDA CoNLL-YAGO answer those without.
    """

    metric: str
    trains: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in SCORES:
            object.__setattr__(self, "columns", (self.metric,))


# Name, label, full name, metric, input length, target length: CKL, Table 9.
_SETS = (  # in the order of CKL's Table 8
    ("fever", "FEV", "FEVER", "accuracy", 25, 10),
    ("aidayago2", "AY2", "AIDA CoNLL-YAGO", "accuracy", 768, 6),
    ("wned", "WnWi", "WNED-WIKI", "accuracy", 512, 6),
    ("cweb", "WnCw", "WNED-CWEB", "accuracy", 2048, 6),
    ("trex", "TREx", "KILT's T-REx", "accuracy", 25, 6),
    ("structured_zeroshot", "zsRE", "Zero-Shot RE", "accuracy", 25, 6),
    ("nq", "NQ", "Natural Questions", "em", 35, 6),
    ("hotpotqa", "HoPo", "HotpotQA", "em", 50, 8),
    ("triviaqa", "TQA", "TriviaQA", "em", 25, 10),
    ("eli5", "ELI5", "ELI5", "rouge_l", 35, 350),
    ("wow", "WoW", "Wizard of Wikipedia", "f1", 175, 40),
)
KILT_SETS = {  # by the stems of their published files
    name: KiltSet(
        name=name,
        short=short,
        long=long,
        order=20 + i,
        metric=metric,
        input_length=inputs,
        target_length=targets,
        trains=name not in ("wned", "cweb"),
    )
    for i, (name, short, long, metric, inputs, targets) in enumerate(_SETS)
}


@dataclasses.dataclass(frozen=True)
class KiltRecord:
    """One record."""

    id: str  # unique in its file
    input: str  # what the model reads; white space is single blanks, as T5's vocabulary makes it
    answers: tuple[str, ...]  # the right ones, without repeats; the first is trained on


def file_name(probe: str | KiltSet, split: str) -> str:
    """The published name of a file, such as "fever-dev-kilt.jsonl".

    Raises:
      UserError: there is no such data set, or it has no such part.
    """
    if isinstance(probe, str):
        refuse_unknown(probe, KILT_SETS, f"KILT has no data set {probe!r}; there are")
    known = KILT_SETS[probe] if isinstance(probe, str) else probe
    name = known.name
    if split == TRAIN and not known.trains:
        raise UserError(
            f"KILT's {name} has no training file; fine-tune on aidayago2, and evaluate that "
            f"model on {name}."
        )
    # A user's own set may name its dev file.
    own = known.file if split == DEV else ""
    return own or f"{name}-{split}-kilt.jsonl"


def find_file(folder: str | os.PathLike, probe: str | KiltSet, split: str) -> Path:
    """The file of a data set, plain or gzip; raises `UserError` as `file_name`, or if missing."""
    path = Path(folder) / file_name(probe, split)
    if path.exists():
        return path
    if (packed := path.with_name(f"{path.name}.gz")).exists():
        return packed
    without = path.with_name(path.name.replace(f"-{split}-", f"-{split}_id-"))
    if path.name.startswith("triviaqa-") and without.exists():
        raise UserError(
            f"{without} has no questions; KILT's scripts/get_triviaqa_input.py makes {path.name} "
            "of it."
        )
    raise UserError(
        f"There is no {path}; set KILT_DIR to the folder of KILT's files, or make simulated ones "
        "by `ckl data kilt`."
    )


def read_kilt(path: str | os.PathLike) -> Iterator[KiltRecord]:
    """Yields the records of a file, one at a time.

    Raises:
      UserError: the file cannot be read or has no records, or one lacks its id, its input or an
        answer; file, line and field are in the message.
    """
    return (record for _, record in _located(path))


def _located(path: str | os.PathLike) -> Iterator[tuple[str, KiltRecord]]:
    """As `read_kilt`, each record with its file and line."""
    rows = not_empty(numbered_values(path), f"{os.fspath(path)} has no records.")
    return ((where, _record(row, where)) for where, row in rows)


def read_dev(folder: str | os.PathLike, probe: str | KiltSet) -> list[KiltRecord]:
    """Returns the records of a data set's dev file.

    Raises:
      UserError: as `find_file` and `read_kilt`, or two records have one id.
    """
    records: dict[str, KiltRecord] = {}
    for where, record in _located(find_file(folder, probe, DEV)):
        if records.setdefault(record.id, record) is not record:
            raise UserError(f"{where}: the id {record.id!r} occurs twice.")
    return list(records.values())


def _record(row: Any, where: str) -> KiltRecord:
    if not isinstance(row, dict):
        raise UserError(f"{where}: a record of KILT is a JSON object with 'id', 'input', 'output'.")
    if row.get("id") is None:
        raise UserError(f"{where}: the record has no 'id'.")
    text = row.get("input")
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"{where}, field 'input': {text!r} is not text; a record needs a question.")
    # Ids are numbers in some of the files and texts in others.
    return KiltRecord(str(row["id"]).strip(), " ".join(text.split()), _answers(row, where))


def _answers(row: Mapping[str, Any], where: str) -> tuple[str, ...]:
    if "output" not in row:
        raise UserError(
            f"{where}: the record has no 'output'; KILT publishes none of its test files, and a "
            "record of another is to be left out."
        )
    output = row["output"]
    if not isinstance(output, list) or not all(isinstance(entry, dict) for entry in output):
        raise UserError(f"{where}, field 'output': it must be a list of {{'answer': ...}}.")
    # Entries with provenance only have no `answer`.
    answers = [entry["answer"] for entry in output if entry.get("answer") is not None]
    for answer in answers:
        if not isinstance(answer, str):
            raise UserError(f"{where}, field 'output': the answer {answer!r} is not text.")
    # Without repeats and in order: the first one is the training target.
    kept = tuple(dict.fromkeys(text for answer in answers if (text := answer.strip())))
    if not kept:
        raise UserError(f"{where}, field 'output': the record has no answer; leave it out.")
    return kept


def known_relations(folder: str | os.PathLike) -> tuple[int, int]:
    """Number of Zero-Shot RE's dev records with a relation of the training set, and of all.

    A record's input is "subject [SEP] relation". In the published files no relation is in both.

    Raises:
      UserError: as `find_file` and `read_kilt`.
    """
    name = "structured_zeroshot"
    trained = {_relation(r) for r in read_kilt(find_file(folder, name, TRAIN))}
    relations = [_relation(r) for r in read_dev(folder, name)]
    return sum(relation in trained for relation in relations), len(relations)


def _relation(record: KiltRecord) -> str:
    return record.input.rpartition("[SEP]")[2].strip()


def prepare_kilt(
    name: str, folder: str | os.PathLike, out: str | os.PathLike, vocabulary: Any
) -> Path:
    """Makes the cached task of a training file; rows are stored whole and cut on reading.

    Args:
      name: one of `KILT_SETS`.
      folder: of KILT's files.
      out: of cached tasks.
      vocabulary: has `encode_many`, `vocab_size`, `eos_id` and `digest`.

    Returns:
      The task's folder, OUT/NAME.

    Raises:
      UserError: as `find_file` and `read_kilt`, or the folder has a task of other settings.
    """
    path, task = find_file(folder, name, TRAIN), Path(out) / name
    meta = describe(name, path, vocabulary, None) | {"rows": "kilt"}
    rows = encoded(((r.input, r.answers[0]) for r in read_kilt(path)), vocabulary)
    make_task(task, meta, rows, vocabulary, features=("inputs", "targets"))
    return task


def count_cut(task: CachedTask, lengths: Mapping[str, int]) -> dict[str, int]:
    """Counts the rows of a task that are longer than what is read of them, by feature."""
    cut: collections.Counter[str] = collections.Counter(dict.fromkeys(lengths, 0))
    for start in range(0, len(task), 2**16):
        # In parts: a task may have millions of rows.
        some = np.arange(start, min(start + 2**16, len(task)))
        for name, tokens in task.row_lengths(some, lengths).items():
            cut[name] += int((tokens > lengths[name]).sum())
    return dict(cut)


def cut_sentence(task: Path) -> str:
    """The text of `cut.json`: "of 200 records, inputs longer than 25 tokens: 3; ...".

    Raises:
      UserError: the file cannot be read.
    """
    held = read_json(task / CUT)
    lengths, cut = held["lengths"], held["cut"]
    return (
        f"of {held['rows']:,} records, inputs longer than {lengths['inputs']} tokens: "
        f"{cut['inputs']:,}; answers longer than {lengths['targets']}: {cut['targets']:,} (the end "
        "included); they are cut."
    )
