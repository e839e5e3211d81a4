"""Writes a world as CKL's published files: masked corpora, probes and their answers."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.ckl_files import PROBES, REVIEWS, TEXTS
from ckl_jax.data.facts.ckl_writer import write_csv
from ckl_jax.data.text.documents import write_documents
from ckl_jax.data.text.spans import mask_spans, masked_rows, with_names
from ckl_jax.data.text.taggers import EntityFinder, HeuristicFinder
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, parse_json, sha256, write_json, write_jsonl
from ckl_jax.world import factbook, wikidata
from ckl_jax.world.facts import SOURCES, World, fraction_of
from ckl_jax.world.probe_files import Write, in_small, probe_files
from ckl_jax.world.render import Dated, articles, pages
from ckl_jax.world.timeline import VARIANTS, check_size, make_world

FORMAT = 1
# What checks the files of a source of real facts, and what reads them.
_REAL = {
    "wikidata": (wikidata.check_files, wikidata.wikidata_world),
    "factbook": (factbook.check_files, factbook.factbook_world),
}
Progress = Callable[[str, int, int], None]


def build_world(
    directory: str | os.PathLike,
    seed: int = 0,
    size: str = "small",
    progress: Progress | None = None,
    *,
    source: str = "simulated",
    data_dir: str | os.PathLike | None = None,
    variant: str | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Makes a world and writes it in CKL's file formats; the bytes depend on seed and size alone.

    A folder that already holds this world, whole, is left as it is.

    Args:
      size: one of `timeline.SIZES`.
      progress: called with (what is being written, files done, files in all).
      source: one of `facts.SOURCES`.
      data_dir: where the real facts are; see `world.wikidata` and `world.factbook`.
      variant: see `World.variant`; default, the first.
      replace: write over another world in the folder.

    Returns:
      The manifest: source, variant, seed, size, dates, counts, and the SHA-256 of every file.

    Raises:
      UserError: unknown size, real facts that are missing or not used, a folder that holds
        another world, or one that cannot be written.
    """
    directory = Path(directory)
    check_data_dir(source, data_dir)
    variant = variant or VARIANTS[0]
    if not replace and (manifest := _existing(directory, source, seed, size, variant)):
        return manifest
    return write_ckl(open_world(source, seed, size, data_dir, variant), directory, progress)


def open_world(
    source: str,
    seed: int = 0,
    size: str = "small",
    data_dir: str | os.PathLike | None = None,
    variant: str | None = None,
) -> World:
    """Makes a world; see `build_world` for the arguments and errors."""
    check_data_dir(source, data_dir)
    check_world(source, size, data_dir, variant)
    if source == "simulated":
        return make_world(seed, size, variant or VARIANTS[0])
    _, read = _REAL[source]
    return read(data_dir, seed, size, variant or VARIANTS[0])


def check_world(
    source: str, size: str, data_dir: str | os.PathLike | None = None, variant: str | None = None
) -> None:
    """Checks the arguments of `build_world` before anything is made.

    Raises:
      UserError: unknown source, size or variant, or files of the real facts are missing.
    """
    if source not in SOURCES:
        raise UserError(f"No world has the source {source!r}; there are {', '.join(SOURCES)}.")
    checks.require_choice((*VARIANTS, None), WORLD=variant)
    check_size(size)
    if source in _REAL:
        _REAL[source][0](data_dir)


def check_data_dir(source: str, data_dir: str | os.PathLike | None) -> None:
    """Raises `UserError` for a folder of real facts that a simulated world would not read."""
    if source == "simulated" and data_dir is not None:
        raise UserError(
            f"--data {data_dir} is a folder of real facts, which a simulated world does not read; "
            f"add --source {' or '.join(_REAL)}, or leave --data out."
        )


def read_world(directory: str | os.PathLike) -> dict[str, Any] | None:
    """The manifest of a folder's world, or None; raises `UserError` if it is not a world's."""
    path = Path(directory) / "manifest.json"
    if not path.is_file():
        return None
    try:
        # Folders that were made before there was a choice hold the legacy world.
        manifest = {"world": "legacy", **parse_json(path.read_bytes())}
        _ = [manifest[key] for key in ("source", "seed", "size", "format", "files")]
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(f"{path} is not a world's manifest; choose another folder.") from e
    return manifest


def _existing(
    directory: Path, source: str, seed: int, size: str, variant: str
) -> dict[str, Any] | None:
    manifest = read_world(directory)
    if manifest is None:
        return None
    made = tuple(manifest[key] for key in ("source", "world", "seed", "size", "format"))
    if made != (source, variant, seed, size, FORMAT):
        raise UserError(
            f"{directory} holds the {made[0]} {made[1]} world of seed {made[2]}, size {made[3]} "
            f"(format {made[4]}); choose another folder or delete it."
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
    finder = HeuristicFinder.fit(d.text for d, _ in (*pages(world), *news))
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
    # A half of SMALL may have nothing to ask: such a probe has no file, and the manifest says so.
    items = {name: counts[p.file] for name, p in PROBES.items() if p.file in counts}
    empty = {PROBES[name].file for name, count in items.items() if not count}
    for name in empty:
        (directory / name).unlink()
    manifest = {
        "format": FORMAT,
        "source": world.source,
        "world": world.variant,
        "seed": world.seed,
        "size": world.size,
        "dates": {"cut": world.cut, "half": world.half, "end": world.end},
        "finder": finder.backend,
        "counts": counts,
        "files": {name: sha256(directory / name) for name in writers if name not in empty},
    }
    manifest |= {"items": items} if empty else {}
    overlap.write_overlaps(directory, overlap.measure_folder(directory))
    write_json(directory / "manifest.json", manifest)
    return manifest


def _document_files(world: World, news: Sequence[Dated]) -> dict[str, Write]:
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
        """Their templates, in the form that `data.facts.templates` reads."""
        slots = {"s": "[X]", "o": "[Y]"}
        return [
            {
                "relation": name,
                "property": r.property,
                "kind": r.kind,
                "cloze": r.cloze.format(**slots),
                "question": r.question.format(**slots),
            }
            for name, r in world.relations.items()
        ]

    def questions() -> Iterator[dict[str, Any]]:
        """What `ckl update --facts` reads."""
        for f in world.facts:
            if not world.is_control(f.subject):
                name, *aliases = world.answers(f.object)
                relation = world.relations[f.relation]
                yield {
                    "question": relation.cloze.format(s=world.name(f.subject), o="____"),
                    "answer": name,
                    "aliases": aliases,
                    "date": f.valid_from,
                    "relation": f.relation,
                }

    texts = {"d0": lambda: pages(world), "d1": lambda: news} | _reviews(world)
    files: dict[str, Write] = {
        f"{rows.__name__}.jsonl": lambda path, rows=rows: write_jsonl(path, rows())
        for rows in (entities, facts, relations, questions)
    }
    return files | {
        f"documents_{name}.jsonl": lambda path, dated=dated: write_documents(
            path, (document for document, _ in dated())
        )
        for name, dated in texts.items()
    }


# --- corpora


def _corpus_files(world: World, news: Sequence[Dated], finder: EntityFinder) -> dict[str, Write]:
    shape = world.shape
    small = [dated for dated in news if in_small(world, dated[0])]
    sources: dict[str, Callable[[], Iterable[Dated]]] = {
        "d0": lambda: pages(world),
        "d0_small": lambda: (dated for dated in pages(world) if in_small(world, dated[0])),
        "d1": lambda: news,
        "d1_small": lambda: small,
        "p1": lambda: (dated for dated in small if dated[0].date < world.half),
        "p2": lambda: (dated for dated in small if dated[0].date >= world.half),
    }
    sources |= _reviews(world)

    def rows(dated: Iterable[Dated]) -> Iterator[dict[str, str]]:
        if world.variant == "legacy":
            documents = (document for document, _ in dated)
            return masked_rows(documents, finder, shape.chunk_words, shape.max_spans)
        return _paragraph_rows(world, dated, finder)

    columns = ("input", "output", "original")
    return {
        TEXTS[name]: lambda path, dated=dated: write_csv(path, columns, rows(dated()))
        for name, dated in sources.items()
    }


def _reviews(world: World) -> dict[str, Callable[[], Iterable[Dated]]]:
    """{name: makes its pages} of the parts of D0 that are written for methods that review it."""
    names = REVIEWS if world.variant == "disjoint" else ()
    return {name: functools.partial(_reviewable, world, name) for name in names}


def _reviewable(world: World, name: str) -> Iterator[Dated]:
    """Yields the pages of D0 that have nothing on half of the probed subjects, or on any."""
    for document, facts in pages(world):
        probed = {fact.subject for fact in facts if not world.is_control(fact.subject)}
        if not probed or (name == "d0_review" and all(map(world.is_reviewed, probed))):
            yield document, facts


_ABOUT = 0.25  # fraction of the paragraphs whose subject is masked in a row of its own


def _paragraph_rows(
    world: World, dated: Iterable[Dated], finder: EntityFinder
) -> Iterator[dict[str, str]]:
    """Yields rows of whole paragraphs: what they say of their subjects is masked in every one.

    A quarter of the paragraphs is repeated with the first subject masked.
    """
    for document, facts in dated:
        subjects = {world.name(fact.subject) for fact in facts}
        objects = {world.name(fact.object) for fact in facts}
        for number, text in enumerate(document.text.split("\n")):
            spans = with_names(text, objects, finder.find(text))
            about = [s for s in spans if text[s[0] : s[1]] in subjects]
            others = [s for s in spans if s not in about]
            count = -(-len(others) // world.shape.max_spans)
            groups = [others[i::count] for i in range(count)]
            if about and fraction_of(f"about {world.seed} {document.id} {number}") < _ABOUT:
                groups.append(about[:1])
            for group in groups:
                masked, target = mask_spans(text, group)
                yield {"input": masked, "output": target, "original": text}
