"""From a folder in CKL's published layout to a vocabulary and cached tasks; resumable.

    OUT/vocabulary.model      trained on the corpora, unless one is given
    OUT/tasks/<name>/         d0, d0_small, d1, d1_small, p1, p2 (see `ckl_files.CORPORA`)

A vocabulary and tasks that were made from the same bytes and settings are left as they are. Those
of other settings are refused unless they are to be replaced: runs were trained on them.
"""

import contextlib
import dataclasses
import functools
import importlib.metadata
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.facts.ckl_files import CORPORA, REVIEWS, corpus_texts, read_corpus
from ckl_jax.data.tasks.cached import CachedTask, Row, is_ours, read_manifest, write_cached
from ckl_jax.data.tasks.packing import pack, row_features
from ckl_jax.data.text.byte_level import SpanVocabulary, load_tokenizer
from ckl_jax.data.text.byte_vocabulary import ByteVocabulary, is_byte_vocabulary
from ckl_jax.data.text.vocabularies import Vocabulary, train_vocabulary
from ckl_jax.errors import UserError, refuse_unknown
from ckl_jax.files import parse_json, sha256, write_json

_BATCH = 1000
Progress = Callable[[str, int], None]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The outputs of `prepare_ckl`."""

    vocabulary: Vocabulary
    tasks: dict[str, Path]  # name to folder

    def open(self, name: str) -> CachedTask:
        """Opens the cached task `name`."""
        if name not in self.tasks:
            known = ", ".join(self.tasks)
            raise UserError(f"No corpus {name!r} was prepared; there are {known}.")
        return CachedTask.open(self.tasks[name])


def prepare_ckl(
    directory: str | os.PathLike,
    out: str | os.PathLike,
    vocab_size: int = 4096,
    lengths: Mapping[str, int] | None = None,
    *,
    corpora: Sequence[str] | None = None,
    vocabulary: Vocabulary | str | os.PathLike | None = None,
    vocabulary_corpora: Sequence[str] = ("d0", "d1"),
    extra_ids: int = 100,
    max_piece_length: int = 16,
    legacy_spacing: bool = False,
    packed: bool = False,
    record_limit: int = RECORD_BYTES,
    replace: bool = False,
    progress: Progress | None = None,
) -> Prepared:
    """Makes the vocabulary and the cached tasks of a data folder.

    Args:
      directory: CKL's data folder, published or simulated.
      vocab_size: tokens of a vocabulary to be trained (a small corpus yields fewer).
      lengths: {"inputs": S, "targets": T}, the most tokens (EOS included) to keep of a row; None
        keeps all.
      corpora: names out of `CORPORA` and `REVIEWS`; None prepares those whose files are there.
      vocabulary: one to use instead of training.
      vocabulary_corpora: the corpora to train one on, of those prepared.
      extra_ids: sentinels of the vocabulary.
      max_piece_length: see `train_vocabulary`.
      legacy_spacing: see `Vocabulary`.
      packed: put as many examples into a row as `lengths` has room for; see `packing.pack`.
      record_limit: bytes of a line or row of a corpus at most.
      replace: make anew what `out` holds of other settings.
      progress: called with (task, rows done) now and then.

    Raises:
      UserError: no corpus there, an empty one, one that lacks a column, a vocabulary without
        sentinels, or a folder that holds other settings or cannot be written.
    """
    _check_sizes(vocab_size, lengths, packed)
    directory, out = Path(directory), Path(out)
    sources = _sources(directory, corpora)
    tasks = {name: out / "tasks" / name for name in sources}
    if not replace:
        for folder in tasks.values():
            _refuse_foreign(folder)
    digests = {name: sha256(path) for name, path in sources.items()}
    if vocabulary is None:
        chosen = [n for n in vocabulary_corpora if n in sources] or list(sources)
        made = {"size": vocab_size, "max_piece_length": max_piece_length}
        recipe = {"corpora": {n: digests[n] for n in chosen}, **made}
        texts = (corpus_texts(sources[name], record_limit) for name in chosen)
        lines = itertools.chain.from_iterable(texts)
        vocabulary = _trained(out / "vocabulary.model", lines, recipe, extra_ids, replace)
    elif isinstance(vocabulary, str | os.PathLike):
        vocabulary = _opened(Path(vocabulary), extra_ids)
    if legacy_spacing:
        vocabulary = Vocabulary(vocabulary.path, extra_ids, legacy_spacing)
    metas = {
        n: describe(n, path, vocabulary, lengths, packed, digests[n]) for n, path in sources.items()
    }
    if not replace:
        for name, folder in tasks.items():
            _refuse_task(folder, metas[name])
    features = row_features(("inputs", "targets"), packed)
    for name, path in sources.items():
        pairs = ((row["input"], row["output"]) for row in read_corpus(path, record_limit))
        tell = functools.partial(progress, name) if progress else None
        rows = encoded(pairs, vocabulary, lengths, tell)
        rows = pack(rows, lengths) if packed else rows
        # What may not be replaced was refused above, before the first task was written.
        make_task(tasks[name], metas[name], rows, vocabulary, features=features, replace=True)
    return Prepared(vocabulary, tasks)


def _check_sizes(vocab_size: int, lengths: Mapping[str, int] | None, packed: bool) -> None:
    checks.require_int(5, vocab_size=vocab_size)  # pad, end, unknown, the space, a letter
    if lengths is not None:
        checks.require_lengths(lengths, "lengths")
    elif packed:
        raise UserError("Packed rows need lengths: give those of inputs and of targets.")


def _opened(path: Path, extra_ids: int) -> Any:
    """The vocabulary of a file, or of the folder of a ByT5 or a T5Gemma."""
    if is_byte_vocabulary(path if path.is_dir() else path.parent):
        return ByteVocabulary(path)
    if path.is_dir() and load_tokenizer(path)[0].token_to_id("<extra_id_0>") is None:
        return SpanVocabulary(path)
    return Vocabulary(path, extra_ids)


def _sources(directory: Path, corpora: Sequence[str] | None) -> dict[str, Path]:
    """Returns name -> file of the corpora to prepare."""
    files = CORPORA | REVIEWS
    for name in corpora or ():
        refuse_unknown(name, files, f"No corpus is called {name!r}; there are")
        if not os.path.lexists(directory / files[name]):
            raise UserError(
                f"{directory} has no {files[name]}, the corpus {name!r}; "
                "check the folder, or leave this corpus out."
            )
    # What is in a corpus's place, such as a folder or a broken link, is for its reader to refuse.
    sources = {n: directory / p for n, p in files.items() if os.path.lexists(directory / p)}
    if not sources:
        raise UserError(
            f"{directory} holds none of CKL's corpora (such as {CORPORA['d1']}); "
            "check the folder, or make one with `ckl world`."
        )
    return {n: p for n, p in sources.items() if corpora is None or n in corpora}


def _trained(
    path: Path, lines: Iterable[str], recipe: dict[str, Any], extra_ids: int, replace: bool
) -> Vocabulary:
    """Returns the vocabulary at `path`; trains it if it is missing or has another recipe."""
    record = path.with_suffix(".json")
    held = _read_record(record)
    if path.is_file() and held == {**recipe, "sha256": sha256(path)}:
        return Vocabulary(path, extra_ids)
    if not replace and os.path.lexists(path):
        if not isinstance(held, dict):
            raise UserError(
                f"{path} is there, but no {record.name} that says what it was made of; choose "
                "another folder, or add --overwrite."
            )
        _refuse_other(path, held, recipe)
    if not replace and not path.is_file() and any(path.parent.glob("tasks/*/manifest.json")):
        raise UserError(
            f"The tasks in {path.parent} were made with a vocabulary that is not there; give it "
            "by --vocabulary, choose another --out, or add --overwrite to make all of it anew."
        )
    if not replace and not path.is_file() and os.path.lexists(record):
        if not isinstance(held, dict) or {**held, "sha256": None} != {**recipe, "sha256": None}:
            raise UserError(
                f"{record} is there and was not made of these corpora with these settings; choose "
                "another folder, or add --overwrite."
            )
    try:
        write_json(record, recipe)  # before the model, which it makes known as ours
        vocabulary = train_vocabulary(
            lines, path, recipe["size"], extra_ids, max_piece_length=recipe["max_piece_length"]
        )
    except UserError:
        record.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # others' files are in it
            path.parent.rmdir()
        raise
    write_json(record, {**recipe, "sha256": sha256(path)})
    return vocabulary


def _read_record(path: Path) -> Any:
    """Returns the recipe of the vocabulary, or None if it is unknown."""
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def vocabulary_meta(vocabulary: Any) -> dict[str, Any]:
    """The record of a task's vocabulary."""
    return {
        "vocabulary_digest": vocabulary.digest,
        "vocab_size": vocabulary.vocab_size,
        "legacy_spacing": getattr(vocabulary, "legacy_spacing", False),
        "versions": {p: importlib.metadata.version(p) for p in ("numpy", "sentencepiece")},
    }


_SHOWN = ("lengths", "size", "vocab_size", "max_piece_length", "legacy_spacing", "source", "task")
_SHOWN += ("packed", "legacy_cut")


def _refuse_other(place: Path, held: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Raises `UserError` if the contents of `place` were made with other settings."""
    different = [k for k in wanted if k in held and k != "versions" and held[k] != wanted[k]]
    if not different:
        return
    shown = next((k for k in _SHOWN if k in different), None)
    if shown:
        what = f"{shown} = {held[shown]!r}, not {wanted[shown]!r}"
    else:
        what = "another vocabulary" if "vocabulary_digest" in different else "other corpora"
    raise UserError(
        f"{place} was made with {what}; earlier runs may need it. Choose another folder, or "
        "replace it: by --overwrite of `ckl data`, or by removing it."
    )


def _refuse_foreign(directory: Path) -> None:
    if not is_ours(directory):
        raise UserError(
            f"{directory} holds something that is not a cached task; choose another folder, or add "
            "--overwrite."
        )


def _refuse_task(directory: Path, meta: dict[str, Any]) -> None:
    """Raises `UserError` if a task may not be written there: see `is_ours`, `_refuse_other`."""
    _refuse_foreign(directory)
    _refuse_other(directory, _held(directory), meta)


def _held(directory: Path) -> dict[str, Any]:
    """The record of the complete task in `directory`; {} if there is none or it is damaged."""
    try:
        manifest = read_manifest(directory)
        if manifest is None:
            return {}
        CachedTask.open(directory)
    except UserError:
        return {}
    # Which older tasks do not record.
    return {"legacy_spacing": False, "packed": False, **manifest["meta"]}


def _is_current(directory: Path, meta: dict[str, Any]) -> bool:
    """Whether `directory` holds the complete task that `meta` describes."""
    held = _held(directory)
    return all(k in held and held[k] == meta[k] for k in meta if k != "versions")


def describe(
    name: str,
    path: Path,
    vocabulary: Any,
    lengths: Mapping[str, int] | None,
    packed: bool = False,
    digest: str = "",
) -> dict[str, Any]:
    """The record of a task made from the file at `path`: source, vocabulary and settings.

    `digest` is the file's SHA-256; "" computes it.
    """
    return {
        "task": name,
        "source": path.name,
        "source_sha256": digest or sha256(path),
        "lengths": dict(lengths) if lengths else None,
        "packed": packed,
        **vocabulary_meta(vocabulary),
    }


def make_task(
    directory: Path,
    meta: Mapping[str, Any],
    rows: Iterable[Row] | Callable[[Path], Iterable[Row]],
    vocabulary: Any,
    *,
    features: Sequence[str],
    replace: bool = False,
) -> None:
    """Writes a cached task unless `directory` already contains it.

    Args:
      meta: of `describe`, and what else decides its rows.
      rows: see `write_cached`.
      vocabulary: has `vocab_size` and `eos_id`.
      replace: make anew what is there of other settings.

    Raises:
      UserError: there is a task of other settings or something else, or there are no rows, or the
        folder cannot be written.
    """
    if not replace:
        _refuse_task(directory, dict(meta))
    if not _is_current(directory, dict(meta)):
        write_cached(
            directory,
            rows,
            meta=meta,
            features=features,
            vocab_size=vocabulary.vocab_size,
            eos_id=vocabulary.eos_id,
        )


def encoded(
    pairs: Iterable[tuple[str, str]],
    vocabulary: Any,
    lengths: Mapping[str, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[dict[str, list[int]]]:
    """Yields the tokens of (input, target) pairs with their ends, cut to `lengths` if given.

    In batches, because tokenizers are much faster on many texts at once; `progress` is told the
    rows done after each.
    """
    pairs, done = iter(pairs), 0
    while batch := list(itertools.islice(pairs, _BATCH)):
        columns = (vocabulary.encode_many(list(texts)) for texts in zip(*batch, strict=True))
        for row in zip(*columns, strict=True):
            yield {
                name: (ids[: lengths[name] - 1] if lengths else ids) + [vocabulary.eos_id]
                for name, ids in zip(("inputs", "targets"), row, strict=True)
            }
        done += len(batch)
        if progress:
            progress(done)
