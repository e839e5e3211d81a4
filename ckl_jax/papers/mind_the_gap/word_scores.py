"""Scores dated documents with a model and writes a dump of word losses.

Words are what lies between blanks, each encoded by itself (`data.tasks.dated_task`), so that models
with different vocabularies are compared on the same words. `word_scorers` has the losses.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ckl_jax.data.tasks.chunks import stream_documents
from ckl_jax.data.tasks.dated_task import prepare_dated
from ckl_jax.data.tasks.word_losses import ABOUT, DumpWriter, read_dump
from ckl_jax.data.text.documents import read_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.analysis.frequency_control import detectable_slope
from ckl_jax.papers.mind_the_gap.analysis.staleness import bins_of
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL, StalenessStudy
from ckl_jax.papers.mind_the_gap.settings import Scoring
from ckl_jax.papers.mind_the_gap.word_scorers import make_word_scorer
from ckl_jax.train.opening import identity, open_model

_AT_ONCE = 64  # documents, whose windows are sorted by length
Progress = Callable[[int, int, str], None]


def score_models(
    study: StalenessStudy, scoring: Scoring, out: Path, progress: Progress
) -> StalenessStudy:
    """Returns the study with a dump in place of each model that is not one yet.

    Raises:
      UserError: see `score`; or there are models and no documents.
    """
    missing = {k: v for k, v in study.dumps.items() if not (Path(v) / ABOUT).is_file()}
    if not missing:
        return study
    if scoring.documents is None:
        name, place = next(iter(missing.items()))
        raise UserError(
            f"{name}={place} holds no dump of word losses (no {ABOUT}); if it is a model, give "
            "--documents to score it on."
        )
    print(_what_shows(scoring.documents, study))
    made = {k: str(score(v, out / "scored" / k, scoring, progress)) for k, v in missing.items()}
    dumps = {**study.dumps, **made}
    control = dumps.pop(CONTROL, None)
    return dataclasses.replace(study, models=dumps, control=control)


def _what_shows(documents: str, study: StalenessStudy) -> str:
    """A sentence on the slope that these documents can show.

    Raises:
      UserError: there are none, or the study's curves cannot be drawn of them.
    """
    counts: collections.Counter[str] = collections.Counter()
    dates = []
    for document in read_documents(documents):
        counts.update(document.text.split())
        dates.append(document.date)
    if not dates:
        raise UserError(f"{documents} holds no documents.")
    # Before hours of scoring, of which `compute` would say the same.
    bins_of(sorted(dates), months=study.bin_months, first=study.first_month)
    months = dict(sorted(collections.Counter(date[:7] for date in dates).items()))
    total = math.log(max(counts.total(), 1))
    means = [
        total - float(np.mean([math.log(counts[word]) for word in words]))
        for document in read_documents(documents)
        if (words := document.text.split())
    ]
    slope = detectable_slope(float(np.std(means)), months)
    return (
        f"{len(means):,} documents of {len(months)} months, {counts.total():,} words. "
        f"By the spread of their unigram losses, a rise of {slope:.2g} % a month or more is found "
        "in four of five such corpora."
    )


def score(model: str, out: Path, scoring: Scoring, progress: Progress) -> Path:
    """Writes the dump `out/dump` of a model's losses on documents; resumes an interrupted one.

    Args:
      model: Hugging Face folder or name, MODEL_DIR or checkpoint.
      out: folder of this model.
      scoring: how.
      progress: called with (documents done, all, what).

    Returns:
      The dump's folder.

    Raises:
      UserError: see `open_model` and `make_word_scorer`; or the folder holds a dump of other
        settings.
    """
    opened = open_model(str(model), bindings=scoring.bindings, trusted=scoring.trusted)
    scorer = make_word_scorer(opened, scoring.window, scoring.stride, scoring.batch_size)
    task = prepare_dated(scoring.documents, out / "task", opened.model.output_vocabulary)
    about = {
        "model": str(model),
        **identity(opened.model, opened.params),
        "scheme": scorer.scheme,
        "window": scorer.window,
        "stride": scorer.stride,
        "text": task.task.manifest["features"],
    }
    dump = out / "dump"
    done = sum(map(len, read_dump(dump))) if any(dump.glob("*.npz")) else 0
    writer = DumpWriter(dump, about, resume_at=done)
    stream = stream_documents(task, done)
    while some := list(itertools.islice(stream, _AT_ONCE)):
        for scored in scorer(some):
            writer.add(scored)
        done += len(some)
        progress(done, len(task), f"documents scored by {model}")
    writer.flush()
    return dump
