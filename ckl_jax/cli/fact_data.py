"""`ckl data ...` of facts: probes, questions and data sets made of them."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from ckl_jax.cli.work import Overwrite, RecordLimit
from ckl_jax.cli.world import WorldSettings
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.data.facts.overlap import Overlap
from ckl_jax.errors import UserError, not_empty, printable
from ckl_jax.files import claimed_folder, refuse_existing, refuse_to_replace
from ckl_jax.options import Files, Flat, Names
from ckl_jax.papers.ckl.data.benchmark import Options
from ckl_jax.train.progress import counting
from ckl_jax.world.stream import SIZES


def quiz(
    settings: Flat[WorldSettings],
    *,
    out: str,
    date: str | None = None,
    templates: int = 3,
    instances: int | None = None,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Make a relational dataset like BEAR of the facts of a world.

    Args:
      out: Folder of the dataset.
      date: ISO date of the facts; by default before the news.
      templates: Templates of a relation, at most.
      instances: Facts of a relation, at most.
    """
    from ckl_jax.data.facts.dated_facts import check_day
    from ckl_jax.world.ckl import open_world
    from ckl_jax.world.quiz import write_quiz

    date = check_day(date, "--date") if date is not None else None
    world = open_world(settings.source, settings.seed, settings.size, settings.data, settings.world)
    with claimed_folder(out, "ckl data quiz", overwrite):
        counts = write_quiz(world, out, date, templates, instances, overwrite)
    for code, facts in counts.items():
        print(f"{facts:8,}  {code}")
    return {"out": out, "facts": counts}


def dated_quiz(
    *,
    facts: Files,
    as_of: str,
    out: str,
    relations: Names = (),
    templates: str | None = None,
    instances: int | None = None,
    skip_overlaps: bool = False,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Make a relational dataset like BEAR of dated facts: the right answers are those of a day.

    `ckl probe bear` on it says how often the best option is the current object, an earlier or a
    later one, and of which date a model knows most.

    Args:
      facts: JSONL(.gz) or CSV of facts, or folders of JSONL (docs/benchmark_builder.md).
      as_of: Day of the right answers, YYYY-MM-DD.
      out: Folder of the dataset.
      relations: Relations with one object at a time, such as P6,P35; by default all.
      templates: JSONL file (relation, cloze) of templates beside the built-in ones.
      instances: Subjects of a relation, at most; the options are the objects that these ever had.
      skip_overlaps: Leave out subjects that have two objects at a time.
    """
    from ckl_jax.data.facts.dated_facts import check_day, read_dated_facts
    from ckl_jax.data.facts.templates import read_templates
    from ckl_jax.papers.lm_pub_quiz.dated_dataset import write_dataset

    day, by_relation = check_day(as_of, "--as-of"), read_templates(templates) if templates else {}
    command = f"ckl data dated-quiz --as-of {day} --relations {','.join(relations)}"
    with claimed_folder(out, f"{command} --instances {instances}", overwrite):
        made, counts = write_dataset(
            read_dated_facts(facts), day, out, relations, by_relation, instances, skip_overlaps
        )
    for code, count in made.items():
        print(f"{count:8,}  {code}")
    for reason, count in counts.items():
        print(printable(f"{count:8,}  left out: {reason}"))
    return {"out": out, "facts": made, "left_out": counts}


def overlap(
    folder: Annotated[Positional[str | None], arg(metavar="FOLDER")] = None,
    *,
    documents: Files = (),
    probes: Files = (),
    dataset: str | None = None,
    strict: bool = False,
    record_limit: RecordLimit = RECORD_BYTES,
) -> dict[str, Any]:
    """Measure how much of the probes stands in the training text.

    What is measured of FOLDER's own probes and corpora is written to its overlap.json, which
    evaluations and reports read. Without FOLDER, give --documents, and --probes or --dataset.

    Args:
      folder: Folder in CKL's published layout.
      documents: Training text: JSONL(.gz) of documents, compared by paragraph.
      probes: Probes: CSV of subject, relation and object as `ckl data probes` writes them, or JSONL
        of `ckl data questions`.
      dataset: Folder of a relational dataset such as BEAR, whose statements are compared too.
      strict: End with exit code 2 if a statement stands in the text word by word.
    """
    from ckl_jax.analysis.changes import overlap_section
    from ckl_jax.data.facts import overlap as overlaps
    from ckl_jax.data.facts.statements import probe_items
    from ckl_jax.data.text.documents import read_documents

    if folder is None and not (documents and (probes or dataset)):
        raise UserError("Give FOLDER, or --documents and --probes or --dataset.")
    items_by_set, texts = overlaps.read_folder(folder) if folder else ({}, {})
    own = set(items_by_set)
    for file in documents:
        read = not_empty(read_documents(file, record_limit), f"{file} has no documents.")
        texts[_short(file, documents)] = (line for d in read for line in d.text.splitlines())
    items_by_set |= {_short(file, probes): overlaps.read_items(file) for file in probes}
    if dataset:
        items_by_set[Path(dataset).name] = list(probe_items(dataset))
    by_probe = overlaps.measure(items_by_set, texts)
    measured = overlaps.as_json(by_probe)
    overlap_section(measured).show()
    if folder:
        overlaps.write_overlaps(folder, {name: by_probe[name] for name in own})
    _warn_of_overlap(by_probe, strict)
    return {"overlap": measured}


def _short(file: str, files: Files) -> str:
    """The name of a file, unless another one has it."""
    name = Path(file).name
    return name if [Path(f).name for f in files].count(name) == 1 else file


def _warn_of_overlap(by_probe: Mapping[str, Mapping[str, Overlap]], strict: bool) -> None:
    stated = [o for mine in by_probe.values() for o in mine.values() if o.exact]
    if not stated:
        return
    worst = max(stated, key=lambda o: o.exact)
    message = (
        f"Up to {worst.exact:,} of {worst.items:,} items of a probe stand in the training text "
        f"word by word; their scores measure what was learned by heart: {' '.join(worst.examples)}"
    )
    if strict:
        raise UserError(message)
    print(printable(f"Warning: {message}"))


def kilt(
    settings: Flat[WorldSettings], *, out: str, overwrite: Overwrite = False
) -> dict[str, Any]:
    """Make KILT's data sets of the facts of a world.

    Args:
      out: Folder of the files.
    """
    from ckl_jax.papers.ckl.data.simulated_kilt import write_kilt
    from ckl_jax.world.ckl import open_world

    world = open_world(settings.source, settings.seed, settings.size, settings.data, settings.world)
    with claimed_folder(out, "ckl data kilt", overwrite):
        counts = write_kilt(world, out, overwrite)
    for name, records in counts.items():
        print(f"{records:8,}  {Path(out) / name}")
    return {"out": out, "records": counts}


def benchmark(
    settings: Flat[Options],
    *,
    facts: Files,
    dates: Annotated[tuple[str, str], arg(metavar="A B")],
    out: str,
    documents: Files = (),
    record_limit: RecordLimit = RECORD_BYTES,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Make CKL's probes of dated facts and dated text.

    Args:
      facts: JSONL(.gz) or CSV of facts, or folders of JSONL (docs/benchmark_builder.md).
      dates: Last days of D0 and of D1.
      out: Folder to write, in CKL's layout.
      documents: JSONL(.gz) of documents with date and text, of D0 and D1.
    """
    from ckl_jax.data.facts.ckl_files import CORPORA
    from ckl_jax.data.facts.dated_facts import check_day
    from ckl_jax.papers.ckl.data import benchmark as builder

    if settings.half:
        settings = dataclasses.replace(settings, half=check_day(settings.half, "--half"))
    days = tuple(check_day(day, "--dates") for day in dates)
    with counting() as progress:
        manifest = builder.build(
            facts,
            documents,
            days,
            out,
            settings,
            replace=overwrite,
            progress=progress,
            record_limit=record_limit,
        )
    for probe in dict.fromkeys((*builder.PROBES, *manifest["items"])):
        counts = manifest["with_evidence"].get(probe, {})
        named = ", ".join(f"{what} answer {n:,}" for what, n in counts.items())
        count = manifest["items"].get(probe, 0)
        more = f"; with sentences of {named}" if named else "" if count else ": not written"
        print(f"{count:10,}  {probe}{more}")
    for side, count in manifest["documents"].items():
        print(f"{count:10,}  documents {'of ' * (side != 'later')}{side}")
    for corpus, count in manifest.get("rows", {}).items():
        print(f"{count:10,}  rows of {CORPORA[corpus]}")
    for reason, count in manifest["counts"].items():
        print(printable(f"{count:10,}  {reason}"))
    print(Path(out) / "manifest.json")
    return manifest


def review(
    dir: Annotated[Positional[str], arg(metavar="DIR")],
    *,
    apply: str = "",
    out: str = "",
    undecided: Literal["keep", "drop"] = "keep",
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Write a page on which to keep, drop and edit probes' items by hand, or apply its decisions.

    Args:
      dir: Folder of probes in CKL's layout.
      apply: File of decisions that the page exported.
      out: The page; by default DIR/review.html. With --apply: a folder.
      undecided: With --apply, what happens to items without a decision.
    """
    if not apply:
        from ckl_jax.analysis.sections import refuse_foreign
        from ckl_jax.papers.ckl.analysis import review_page

        refuse_foreign(Path(out or Path(dir) / "review.html"), overwrite)
        page = review_page.write_page(dir, out)
        print(page)
        return {"out": page}
    from ckl_jax.papers.ckl.data import review as decisions

    if not out:
        raise UserError("--apply needs --out, a folder for the reviewed files.")
    manifest = decisions.apply(dir, apply, out, undecided, replace=overwrite)
    for probe, counts in manifest["probes"].items():
        print(
            f"{counts['items']:10,}  {probe}: {counts['dropped']:,} dropped, "
            f"{counts['edited']:,} edited, {counts['undecided']:,} not decided"
        )
    print(out)
    return manifest


def trex(
    *,
    facts: Files,
    invariant: str,
    out: str,
    count: int = 5000,
    seed: int = 0,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Draw facts to light-tune a GPT-2 on before InvariantLAMA (CKL).

    Args:
      facts: T-REx as LAMA or ParaRel has it: JSONL(.gz) files, or folders of them.
      invariant: File invariantLAMA.csv, whose facts are left out.
      out: CSV file to write, such as trex_5000.csv.
      count: Facts to draw.
      seed: Random seed of the draw.
    """
    from ckl_jax.papers.ckl.data.trex import draw

    refuse_existing(out, overwrite)
    counts = draw(facts, invariant, out, count, seed)
    written = counts.pop("written")
    print(f"{written:10,}  facts in {out}")
    for why, number in counts.items():
        print(printable(f"{number:10,}  left out: {why}"))
    return {"out": out, "facts": written, "left_out": counts}


def questions(
    *,
    out: str,
    source: str = "stream",
    first: str = "2019-01",
    last: str = "2019-12",
    keep_ambiguous: bool = False,
    size: Literal[*SIZES] = "small",
    seed: int = 0,
    addresses: str | None = None,
    year: str = "",
    tokenizer: Literal["moses", "none"] | None = None,
    form: Literal["templama", "streamingqa", "realtimeqa"] | None = None,
    dated: bool = False,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Make dated questions: who holds which office in which month, or those of published sets.

    Args:
      out: JSONL file of questions to write.
      source: stream (the simulated one's offices), a table (CSV of role, place, holder, start,
        end; DyKnow's JSONL), NewsQA's combined JSON, or a file of --form.
      first: Month of the first question.
      last: Month of the last question.
      keep_ambiguous: Also ask about months with a hand-over.
      size: Size of the stream.
      seed: Random seed of the stream.
      addresses: List of NewsQA's stories, for their dates.
      year: Year of NewsQA's stories, or of the answers of --form; by default all.
      tokenizer: Tokenizer; by default none for the stream, and moses for others.
      form: The published set whose JSON lines the source holds.
      dated: Begin each question of --form with its date, as its authors do.
    """
    from ckl_jax.data.facts import offices
    from ckl_jax.data.facts.questions import write_questions
    from ckl_jax.data.text.words import make_tokenizer
    from ckl_jax.papers.mind_the_gap.data import dated_qa, newsqa
    from ckl_jax.world.stream_text import tokenised

    simulated, is_newsqa = source == "stream", source.endswith(".json") and not form
    if not simulated:
        refuse_to_replace(out, source)
    refuse_existing(out, overwrite)
    if year and not (is_newsqa or form):
        raise UserError(
            "--year is of NewsQA's stories and of --form; months of offices are --first and --last."
        )
    if dated and not form:
        raise UserError("--dated is of --form: questions about offices say their month anyway.")
    if simulated:
        terms = _simulated_terms(first, last, size, seed)
    tokenize = make_tokenizer(tokenizer or "moses") if tokenizer or not simulated else tokenised
    if is_newsqa:
        dates = newsqa.read_dates(addresses) if addresses else None
        items = newsqa.read_newsqa(source, dates, year, tokenize)
    elif form:
        items = dated_qa.read_dated_qa(source, form, dated, year, tokenize)
    else:
        terms = terms if simulated else offices.read_terms(source)
        items = offices.office_questions(terms, first, last, keep_ambiguous, tokenize)
    items = list(items)
    if not items:
        raise UserError(
            f"{source} gives no question with an answer; give another "
            f"{'--year' if is_newsqa or form else '--first and --last'}."
        )
    count = write_questions(out, items)
    print(f"{count:10,}  questions: {out}")
    return {"out": out, "questions": count}


def _simulated_terms(first: str, last: str, size: str, seed: int) -> Iterable[Any]:
    """Who holds the stream's offices, for questions about the months from `first` to `last`."""
    from ckl_jax.world.facts import office_terms
    from ckl_jax.world.stream import END, START, stream_world

    if first < START[:7] or last >= END[:7]:
        raise UserError(
            f"--first {first} and --last {last}: the stream has {START[:7]} to "
            "2019-12, and who holds an office at another time is not known."
        )
    return office_terms(stream_world(seed, size))
