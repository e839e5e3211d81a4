"""What `import ckl_jax as ckl` offers that runs something, as the commands of these names do.

Options are taken by name; bad input raises `UserError`, in one sentence.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckl_jax import checks
from ckl_jax.api import Folder, Run, Staleness, Update, Updates
from ckl_jax.errors import UserError

if TYPE_CHECKING:
    import pandas

    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults


@checks.typed
def probe(
    model: Any,
    dataset: "Folder | Dataset" = "BEAR",
    *,
    templates: int | Sequence[int] | None = None,
    tokenizer: Any = None,
    **settings: Any,
) -> "DatasetResults":
    """Ranks the answers of a relational dataset, as `ckl probe bear` does (LM-PUB-QUIZ).

    Args:
      model: what `Model` takes, or a `Model` or a `Run`.
      dataset: "BEAR", "BEAR-big", another folder in their layout, or a `Dataset`.
      templates: one, several, or None for all.
      tokenizer: of a live model: one of transformers, or its folder or name.
      **settings: fields of `papers.lm_pub_quiz.settings.Settings`, such as `subsample=10` or
        `out="folder"`; bad ones raise `UserError`.
    """
    from ckl_jax.data.facts.relational import Dataset
    from ckl_jax.papers.lm_pub_quiz import probe as job
    from ckl_jax.train.progress import counting

    chosen = (templates,) if isinstance(templates, int) else templates and tuple(templates)
    options = checks.settings("probe", job.Settings, {**settings, "templates": chosen})
    data = dataset if isinstance(dataset, Dataset) else Dataset.from_path(dataset)
    with counting() as line:
        show = lambda code, done, whole: line(done + 1, whole, f"relations: {code}")  # noqa: E731
        return job.probe(model, data, options, show, tokenizer)


@checks.typed
def train(gin_files: str | Sequence[str], **macros: Any) -> Run:
    """Trains in this process, as `t5x train` does; raises `UserError`.

    Args:
      gin_files: such as "ckl_lora.gin".
      **macros: such as `EPOCHS=2` or `MODEL_DIR="runs/mine"`; values are Python's texts, numbers,
        True, False, None, and lists, tuples and dicts of these.
    """
    from ckl_jax.cli import t5x
    from ckl_jax.config import gin_config
    from ckl_jax.train import subprocess_runs

    names = [gin_files] if isinstance(gin_files, str) else list(gin_files)
    bound = {b.name: b.value for b in gin_config.read(names).scan.bindings}
    folder: Any = {**bound, **macros}.get("MODEL_DIR")
    checks.require_text(MODEL_DIR=folder)
    values = subprocess_runs.as_gin({"MODEL_DIR": folder, **macros})
    checks.require_literals("train", values)
    t5x.run_words(list(subprocess_runs.t5x_arguments("train", names, values)))
    return Run(folder)


@checks.typed
def diffsets(old: Folder | None, new: Folder, out: Folder, **options: Any) -> dict[str, Any]:
    """Writes the new text between two Wikipedia dumps; returns the manifest, with its counts.

    As `ckl data diffsets` does, whose options are taken by name. `old` None takes all text of
    `new`. Bad dumps or options raise `UserError`.
    """
    from ckl_jax.cli.work import count_workers
    from ckl_jax.papers.temporalwiki.data import diffsets as job
    from ckl_jax.train.progress import counting

    todo = job.plan(old, new, out, checks.settings("diffsets", job.Options, options))
    with counting() as progress:
        return job.build(todo, count_workers(0), progress=progress) or {}


@checks.typed
def splits(documents: Folder, out: Folder, **options: Any) -> "pandas.DataFrame":
    """Writes TIME-STRATIFIED and CONTROL splits of dated text; returns a row for each split.

    As `ckl data split` does, whose options are taken by name. `documents` is a JSONL(.gz) file.
    Bad documents or options raise `UserError`.
    """
    import pandas

    from ckl_jax.papers.mind_the_gap.data import split_files, time_splits
    from ckl_jax.train.progress import counting

    wanted = checks.settings("splits", time_splits.Options, options)
    with counting() as progress:
        (made,) = split_files.split(documents, out, wanted, progress=progress)
    return pandas.DataFrame.from_dict(made["counts"], orient="index").rename_axis("split")


@checks.typed
def staleness(
    models: Mapping[str, Folder],
    documents: Folder | None = None,
    out: Folder = "runs/staleness",
    **options: Any,
) -> Staleness:
    """Compares perplexities of models by month, as `ckl staleness` does.

    Args:
      models: {name: place}, the stale one first: dumps of word losses, or with `documents` Hugging
        Face folders or names.
      documents: JSONL file of dated documents, on which models are scored.
      out: folder for dumps of their word losses.
      **options: options of `ckl staleness`, such as `control`; bad ones raise `UserError`.
    """
    from ckl_jax.papers.mind_the_gap import settings, word_scores
    from ckl_jax.papers.mind_the_gap.analysis import staleness_study as job
    from ckl_jax.train.progress import counting

    names = {field.name for field in dataclasses.fields(settings.Scoring)}
    scoring = {name: options.pop(name) for name in names & options.keys()}
    scoring |= {"documents": None if documents is None else str(documents)}
    given = {"models": {name: str(place) for name, place in models.items()}, **options}
    study = checks.settings("staleness", job.StalenessStudy, given)
    with counting() as progress:
        study = word_scores.score_models(study, settings.Scoring(**scoring), Path(out), progress)
    return Staleness(job.compute(study))


@checks.typed
def update(
    model: Folder | None = None, *, documents: Folder, out: Folder, **settings: Any
) -> Update:
    """Updates a model on new text, as `ckl update` does.

    Args:
      model: Hugging Face folder or name to begin with; None goes on with the current one.
      documents: the text.
      out: folder of all updates of this model.
      **settings: further options of `ckl update`, such as `method="mix_review"`.

    Returns:
      The update; without new text, the last one there is.
    """
    from ckl_jax.train.progress import counting
    from ckl_jax.updates import job

    given = {"model": None if model is None else str(model), "documents": str(documents)}
    options = checks.settings("update", job.Update, {**given, "out": str(out), **settings})
    with counting() as progress:
        job.update(options, progress)
    done = Updates(out)
    if not done:
        raise UserError(f"{documents} has nothing to learn, and {out} no update yet.")
    return done[-1]
