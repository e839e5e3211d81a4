"""`ckl data ...` of text: documents, their splits and vocabularies, cached tasks."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from ckl_jax.cli.work import Beam, Overwrite, RecordLimit, Workers, count_workers
from ckl_jax.data.compressed import RECORD_BYTES
from ckl_jax.errors import UserError
from ckl_jax.files import locked, refuse_existing, refuse_to_replace, require_file
from ckl_jax.options import Files, Flat
from ckl_jax.papers.mind_the_gap.data.clean import Options as Cleaning
from ckl_jax.papers.mind_the_gap.data.dated_vocabulary import DatedVocabulary
from ckl_jax.papers.mind_the_gap.data.split_files import VARIANTS
from ckl_jax.papers.mind_the_gap.data.time_splits import Options as Splitting
from ckl_jax.train.progress import counting
from ckl_jax.world.stream import SIZES

File = Annotated[str, arg(metavar="FILE")]


def prepare(
    *,
    dir: str,
    out: str,
    vocabulary: str | None = None,
    vocab_size: int = 32000,
    input_length: int = 350,
    target_length: int = 350,
    pack: bool = False,
    legacy_spacing: bool = False,
    record_limit: RecordLimit = RECORD_BYTES,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Make cached tasks of a folder in CKL's layout.

    Args:
      dir: Folder with recent_news_full.csv and so on.
      out: Folder for the vocabulary and the tasks.
      vocabulary: SentencePiece model, which gets 100 sentinels if it has none, or a ByT5's or
        T5Gemma's folder; by default one is trained.
      vocab_size: Tokens of a trained vocabulary.
      input_length: Tokens kept of an input.
      target_length: Tokens kept of a target.
      pack: Pack as many examples into a row as these lengths hold; they do not see each other.
      legacy_spacing: Encode what follows a sentinel as if after a space, as transformers 4.12 did;
        models need vocabularies.Vocabulary.legacy_spacing=True then.
    """
    from ckl_jax import checks
    from ckl_jax.data.facts.ckl_files import CORPORA
    from ckl_jax.data.tasks.prepare import prepare_ckl

    checks.require_int(5, 2**31 - 1, **{"--vocab-size": vocab_size})
    # The end of sequence takes one token.
    checks.require_int(2, **{"--input-length": input_length, "--target-length": target_length})
    with locked(out), counting() as line:
        prepared = prepare_ckl(
            dir,
            out,
            vocab_size,
            {"inputs": input_length, "targets": target_length},
            vocabulary=vocabulary,
            legacy_spacing=legacy_spacing,
            packed=pack,
            record_limit=record_limit,
            replace=overwrite,
            progress=lambda task, rows: line(rows, 0, f"rows of {task}"),
        )
    counts = {name: len(prepared.open(name)) for name in prepared.tasks}
    for name, folder in prepared.tasks.items():
        print(f"{counts[name]:10,}  {folder}")
    if absent := [f"{n} ({file})" for n, file in CORPORA.items() if n not in prepared.tasks]:
        print(f"not there, and so no task: {', '.join(absent)}")
    return {"tasks": prepared.tasks, "rows": counts}


def rows(
    documents: Files,
    *,
    out: str,
    vocabulary: str,
    length: int | None = None,
    pack: bool = False,
    legacy: bool = False,
    marks: bool = False,
    record_limit: RecordLimit = RECORD_BYTES,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Make cached tasks of running text for GPT-2 or BERT.

    Args:
      documents: JSONL(.gz) with date, title and text, whose names become the tasks'.
      out: Folder for the tasks.
      vocabulary: GPT-2's or BERT's folder, a SentencePiece model, or a MODEL_DIR.
      length: Tokens of a row, at most; by default 512, or the positions of the model in the folder.
      pack: Pack several short documents into a row.
      legacy: Leave out the last row of long documents, as TemporalWiki's code did.
      marks: Keep which tokens are marked in the documents, for a training that weighs them.
    """
    from ckl_jax.convert.gin_record import positions
    from ckl_jax.data.tasks.cached import CachedTask
    from ckl_jax.data.tasks.causal import prepare_rows
    from ckl_jax.data.text.vocabulary_copy import open_vocabulary

    for file in documents:
        require_file(file, f"Cannot read {file}: it is no file (--documents).")
    sources = {Path(file).name.split(".")[0]: file for file in documents}
    if len(sources) < len(documents):
        raise UserError("Two files of --documents have one name, which would be one task's.")
    most = positions(vocabulary) or 2**31
    if length is not None and length > most:
        print(f"Warning: --length {length} is more than the {most} positions of {vocabulary}.")
    length = min(512, most) if length is None else length
    with counting() as line:
        made = prepare_rows(
            sources,
            out,
            open_vocabulary(vocabulary),
            length,
            packed=pack,
            legacy=legacy,
            marks=marks,
            replace=overwrite,
            record_limit=record_limit,
            progress=lambda task, done: line(done, 0, f"rows of {task}"),
        )
    counts = {str(folder): len(CachedTask.open(folder)) for folder in made.values()}
    for folder, count in counts.items():
        print(f"{count:10,}  {folder}")
    return {"rows": counts}


def stream(
    *, out: str, size: Literal[*SIZES] = "small", seed: int = 0, overwrite: Overwrite = False
) -> dict[str, Any]:
    """Write a simulated stream of dated text whose facts change.

    Args:
      out: JSONL(.gz) file of documents to write.
      size: Size of the stream; small has 1 million words.
      seed: Random seed.
    """
    from ckl_jax.data.text.documents import write_documents
    from ckl_jax.world import stream as simulated

    refuse_existing(out, overwrite)
    count = write_documents(out, simulated.stream(seed, size))
    print(f"{count:10,}  documents: {out}")
    return {"out": out, "documents": count}


def clean(
    settings: Flat[Cleaning],
    *,
    documents: Files,
    out: str,
    keep_near_duplicates: bool = False,
    record_limit: RecordLimit = RECORD_BYTES,
    beam: Beam = None,
    workers: Workers = 0,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Clean dated text: keep one language, drop near-duplicates, tokenise.

    Args:
      documents: Files, plain, gzip or bzip2.
      out: JSONL(.gz) file to write, or folder with --beam; an unfinished one is continued.
      keep_near_duplicates: Keep near-duplicates.
    """
    from ckl_jax.papers.mind_the_gap.data import clean as builder

    settings = dataclasses.replace(settings, near_duplicates=not keep_near_duplicates)
    processes = count_workers(workers)
    if beam is not None:
        from ckl_jax.papers.mind_the_gap.data import beam_clean

        report = beam_clean.clean_with_beam(documents, out, settings, beam, record_limit)
    else:
        with counting() as progress:
            report = builder.clean(
                documents, out, settings, processes, progress, record_limit, overwrite
            )
    for what, count in report["documents"].items():
        print(f"{count:12,}  {what}")
    return report


def split(
    settings: Flat[Splitting],
    *,
    documents: Files,
    out: str,
    variant: Literal[*VARIANTS] = "main",
    steps: int | None = None,
    ids: str | None = None,
    record_limit: RecordLimit = RECORD_BYTES,
    beam: Beam = None,
) -> dict[str, Any]:
    """Make TIME-STRATIFIED and CONTROL splits of dated text.

    Args:
      documents: JSONL(.gz) of documents, as `ckl data clean` makes it; several with --beam only.
      out: Folder of the splits.
      variant: Which of the paper's splits to make.
      steps: Steps of a variant; by default 11, or 5 years.
      ids: Folder of published lists of ids to join, in place of splitting.
    """
    from ckl_jax.papers.mind_the_gap.data import released_splits, split_files

    if beam is not None:
        from ckl_jax.papers.mind_the_gap.data import beam_split

        if ids:
            raise UserError("--beam does not join --ids; leave one of them out.")
        reports = beam_split.split_with_beam(
            documents, out, settings, variant, steps, beam, record_limit=record_limit
        )
        _print_splits(reports)
        return {"splits": reports}
    if len(documents) > 1:
        raise UserError("--documents takes one file; several are read with --beam.")
    (corpus,) = documents
    with counting() as progress:
        if not ids:
            reports = split_files.split(
                corpus, out, settings, variant, steps, progress, record_limit
            )
        else:
            joined = released_splits.join(corpus, ids, out, progress, record_limit)
    if not ids:
        _print_splits(reports)
        return {"splits": reports}
    for name, counts in joined["lists"].items():
        print(f"{counts['found']:12,}  of {counts['listed']:,} ids of {name} found")
    for name in sorted({*released_splits.NAMES} - {*joined["lists"]}):
        print(f"{'none':>12}  of {name}: the folder has no such list")
    print(f"{joined['unlisted']:12,}  documents are on no list")
    print(f"{joined['other_date']:12,}  documents got the date of their list")
    return joined


def _print_splits(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        months, share = report["test_months"], report["fraction_from_test_period"]
        print(f"test {months[0]} to {months[-1]}, {share:.1%} of CONTROL's training set from it")
        for name, counted in report["counts"].items():
            dates = " to ".join(counted["dates"])
            print(f"{counted['documents']:12,}  {name}, {counted['words']:,} words, {dates}")


def vocabulary(
    settings: Flat[DatedVocabulary],
    *,
    documents: File,
    out: str,
    record_limit: RecordLimit = RECORD_BYTES,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Train a SentencePiece vocabulary on dated text.

    Args:
      documents: JSONL(.gz) of an arm's training documents.
      out: File to write, .model.
    """
    refuse_to_replace(out, documents)
    refuse_existing(out, overwrite)
    made = settings.train(documents, out, record_limit)
    print(f"{made.vocab_size:10,}  tokens, {out}")
    return {"out": out, "tokens": made.vocab_size}


def dated(
    *,
    documents: File,
    vocabulary: str,
    out: str,
    record_limit: RecordLimit = RECORD_BYTES,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Make a cached task of dated documents, word by word.

    Args:
      documents: JSONL(.gz) of tokenised documents.
      vocabulary: SentencePiece model, GPT-2's folder, or a MODEL_DIR.
      out: Folder of the task.
    """
    from ckl_jax.data.tasks.dated_task import prepare_dated
    from ckl_jax.data.text.vocabulary_copy import open_vocabulary

    with counting() as progress:
        task = prepare_dated(
            documents,
            out,
            open_vocabulary(vocabulary),
            replace=overwrite,
            progress=lambda name, done: progress(done, 0, f"documents of {name}"),
            record_limit=record_limit,
        )
    print(f"{len(task):10,}  documents, {task.words:,} words, {task.tokens:,} tokens: {Path(out)}")
    return {"out": out, "documents": len(task), "words": task.words, "tokens": task.tokens}
