"""Writes a world as CKL's published files: masked corpora, probes and their answers."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.data.facts.ckl_files import CORPORA
from ckl_jax.data.facts.ckl_writer import write_csv
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.data.text.spans import masked_rows
from ckl_jax.data.text.taggers import EntityFinder, HeuristicFinder
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, parse_json, sha256, write_json, write_jsonl
from ckl_jax.world.facts import Fact, World
from ckl_jax.world.probe_files import Write, in_small, probe_files
from ckl_jax.world.render import articles, pages
from ckl_jax.world.timeline import check_size, make_world
from ckl_jax.world.wikidata import check_files, wikidata_world

FORMAT = 1
Progress = Callable[[str, int, int], None]


def build_world(
    directory: str | os.PathLike,
    seed: int = 0,
    size: str = "small",
    progress: Progress | None = None,
    *,
    source: str = "simulated",
    data_dir: str | os.PathLike | None = None,
) -> dict[str, Any]:
    """Makes a world and writes it in CKL's file formats; the bytes depend on seed and size alone.

    A folder that already holds this world, whole, is left as it is.

    Args:
      directory: the folder to fill.
      seed: any integer.
      size: one of `timeline.SIZES`.
      progress: called with (what is being written, files done, files in all).
      source: "simulated", or "wikidata" for real facts.
      data_dir: where the real facts are; see `world.wikidata`.

    Returns:
      The manifest: source, seed, size, dates, counts, and the SHA-256 of every file.

    Raises:
      UserError: unknown size, real facts that are missing or not used, a folder that holds
        another world, or one that cannot be written.
    """
    directory = Path(directory)
    check_data_dir(source, data_dir)
    if manifest := _existing(directory, source, seed, size):
        return manifest
    return write_ckl(open_world(source, seed, size, data_dir), directory, progress)


def open_world(
    source: str, seed: int = 0, size: str = "small", data_dir: str | os.PathLike | None = None
) -> World:
    """Makes a world; see `build_world` for the arguments and errors."""
    check_data_dir(source, data_dir)
    check_world(source, size, data_dir)
    simulated = source == "simulated"
    return make_world(seed, size) if simulated else wikidata_world(data_dir, seed, size)


def check_world(source: str, size: str, data_dir: str | os.PathLike | None = None) -> None:
    """Checks the arguments of `build_world` before anything is made.

    Raises:
      UserError: unknown source or size, or files of the real facts are missing.
    """
    if source not in ("simulated", "wikidata"):
        raise UserError(f"No world has the source {source!r}; it is 'simulated' or 'wikidata'.")
    check_size(size)
    if source == "wikidata":
        check_files(data_dir)


def check_data_dir(source: str, data_dir: str | os.PathLike | None) -> None:
    """Raises `UserError` for a folder of real facts that a simulated world would not read."""
    if source == "simulated" and data_dir is not None:
        raise UserError(
            f"--data {data_dir} is a folder of real facts, which a simulated world does not read; "
            "add --source wikidata, or leave --data out."
        )


def read_world(directory: str | os.PathLike) -> dict[str, Any] | None:
    """The manifest of the world in a folder; None if there is none.

    Raises:
      UserError: it is no world's manifest.
    """
    path = Path(directory) / "manifest.json"
    if not path.is_file():
        return None
    try:
        manifest = parse_json(path.read_bytes())
        _ = [manifest[key] for key in ("source", "seed", "size", "format", "files")]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(f"{path} is not a world's manifest; choose another folder.") from e
    return manifest


def _existing(directory: Path, source: str, seed: int, size: str) -> dict[str, Any] | None:
    manifest = read_world(directory)
    if manifest is None:
        return None
    made = tuple(manifest[key] for key in ("source", "seed", "size", "format"))
    if made != (source, seed, size, FORMAT):
        raise UserError(
            f"{directory} holds the {made[0]} world of seed {made[1]}, size {made[2]} (format "
            f"{made[3]}); choose another folder or delete it."
        )
    whole = all(
        (directory / name).is_file() and sha256(directory / name) == digest
        for name, digest in manifest["files"].items()
    )
    return manifest if whole else None


def write_ckl(
    world: World, directory: str | os.PathLike, progress: Progress | None = None
) -> dict[str, Any]:
    """Writes `world` under `directory` (the manifest last) and returns the manifest."""
    directory = Path(directory)
    news = list(articles(world))
    finder = HeuristicFinder.fit(d.text for d in (*pages(world), *(d for d, _ in news)))
    counts: dict[str, int] = {}
    writers = {
        **_document_files(world, news),
        **_corpus_files(world, news, finder),
        **probe_files(world, news),
    }
    with os_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "manifest.json").unlink(missing_ok=True)
    for i, (name, write) in enumerate(writers.items()):
        if progress:
            progress(name, i, len(writers))
        counts[name] = write(directory / name)
    if progress:
        progress("manifest.json", len(writers), len(writers))
    manifest = {
        "format": FORMAT,
        "source": world.source,
        "seed": world.seed,
        "size": world.size,
        "dates": {"cut": world.cut, "half": world.half, "end": world.end},
        "finder": finder.backend,
        "counts": counts,
        "files": {name: sha256(directory / name) for name in writers},
    }
    write_json(directory / "manifest.json", manifest)
    return manifest


def _document_files(world: World, news: Sequence[tuple[Document, list[Fact]]]) -> dict[str, Write]:
    def entities() -> list[dict[str, Any]]:
        return [
            {"id": e.id, "kind": e.kind, "name": e.name, "aliases": e.aliases, "since": e.since}
            for e in world.entities.values()
        ]

    def facts() -> list[dict[str, Any]]:
        return [
            {
                "subject": f.subject,
                "subject_name": world.name(f.subject),
                "relation": f.relation,
                "property": world.relations[f.relation].property,
                "kind": world.relations[f.relation].kind,
                "object": f.object,
                "object_name": world.name(f.object),
                "object_aliases": world.entities[f.object].aliases,
                "valid_from": f.valid_from,
                "valid_to": f.valid_to,
            }
            for f in world.facts
        ]

    def relations() -> list[dict[str, Any]]:
        """Their wordings, in the form that `data.templates` reads."""
        places = {"s": "[X]", "o": "[Y]"}
        return [
            {
                "relation": name,
                "property": r.property,
                "kind": r.kind,
                "cloze": r.cloze.format(**places),
                "question": r.question.format(**places),
            }
            for name, r in world.relations.items()
        ]

    return {
        "entities.jsonl": lambda path: write_jsonl(path, entities()),
        "facts.jsonl": lambda path: write_jsonl(path, facts()),
        "relations.jsonl": lambda path: write_jsonl(path, relations()),
        "documents_d0.jsonl": lambda path: write_documents(path, pages(world)),
        "documents_d1.jsonl": lambda path: write_documents(path, (d for d, _ in news)),
    }


# --- corpora


def _corpus_files(
    world: World, news: Sequence[tuple[Document, list[Fact]]], finder: EntityFinder
) -> dict[str, Write]:
    recent, shape = [d for d, _ in news], world.shape
    small = [d for d in recent if in_small(world, d)]
    documents: dict[str, Callable[[], Iterable[Document]]] = {
        "d0": lambda: pages(world),
        "d0_small": lambda: (d for d in pages(world) if in_small(world, d)),
        "d1": lambda: recent,
        "d1_small": lambda: small,
        "p1": lambda: (d for d in small if d.date < world.half),
        "p2": lambda: (d for d in small if d.date >= world.half),
    }

    def writer(name: str) -> Write:
        def write(path: Path) -> int:
            rows = masked_rows(documents[name](), finder, shape.chunk_words, shape.max_spans)
            return write_csv(path, ("input", "output", "original"), rows)

        return write

    return {CORPORA[name]: writer(name) for name in documents}
