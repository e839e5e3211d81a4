"""`ckl experiment lm_pub_quiz/...`: the paper's table and figures by name."""

import dataclasses
from pathlib import Path

from ckl_jax.analysis.sections import Section, write_page
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.errors import UserError
from ckl_jax.files import write_file
from ckl_jax.options import named_folders
from ckl_jax.papers.lm_pub_quiz import domain_adaptation, knowledge_stream
from ckl_jax.papers.lm_pub_quiz.analysis import ranking_report
from ckl_jax.papers.lm_pub_quiz.probe import probe
from ckl_jax.papers.lm_pub_quiz.settings import TITLES, Experiment, Settings, Stream

_PAPER = {
    "figure3": "In the paper all models score highest on geography and lowest on arts and movies; "
    "continued on wikitext they gain most.",
    "figure4": "In the paper (P30, three templates) Mistral-7B-v0.1, GPT-2 and roberta-base are "
    "right in 98, 62 and 45 % of rows; the first two prefer Europe, roberta-base South America and "
    "Antarctica.",
    "figure6": "In the paper (P30, six generic subjects) the preferences are as in figure 4, "
    "and Mistral-7B-v0.1 has a stronger one than GPT-2. What is right here means nothing.",
}


def run(name: str, settings: Experiment, progress: Progress = no_progress) -> Path:
    """Ranks by the models, or runs the stream; returns the path of the page or the figure.

    Raises:
      UserError: a figure of models has none, or see `probe.probe`, `knowledge_stream.run_stream`.
    """
    short = name.partition("/")[2]
    if short not in _PAPER:
        fields = [field.name for field in dataclasses.fields(Stream)]
        return knowledge_stream.run_stream(
            Stream(**{key: getattr(settings, key) for key in fields})
        )
    folders = _folders(name, settings)
    only = () if short == "figure3" else (settings.relation,)
    data = Dataset.from_path(settings.probe, settings.relation_info, only)
    if short == "figure6":
        data = data.about(settings.subjects)
    if short == "figure3" and settings.domains:
        folders |= domain_adaptation.adapt(settings, folders)
    models = {}
    for label, folder in folders.items():
        scoring = Settings(out=str(settings.root / short / label))
        models[label] = probe(folder, data, scoring, lambda code, i, n: progress(i + 1, n, code))
    image = (
        ranking_report.plot_domains(models)
        if short == "figure3"
        else ranking_report.plot_bias(models, settings.relation)
    )
    write_file(settings.root / f"{short}.png", image)
    section = Section(TITLES[name].capitalize(), png=image, notes=[_PAPER[short]], anchor=short)
    lead = [f"{label}: {ranking_report.overall(x)['sentence']}." for label, x in models.items()]
    lead = [] if short == "figure6" else lead
    page = settings.root / f"{short}.html"
    print("\n".join([*lead, str(page)]), flush=True)
    return write_page(page, f"{name}: {TITLES[name]}", [section], lead)


def describe(name: str, settings: Experiment) -> list[str]:
    """Sentences on what `run` would do.

    Raises:
      UserError: a figure of models has none.
    """
    if name.partition("/")[2] not in _PAPER:
        return [f"Trainings in {settings.root}: {', '.join(settings.names)}."]
    _folders(name, settings)
    adapts = [f"Trains each model on {', '.join(settings.domains)}."] * bool(settings.domains)
    return [*adapts, f"Ranks {settings.probe} by {', '.join(settings.models)}."]


def _folders(name: str, settings: Experiment) -> dict[str, str]:
    """{label: folder} of the models that a figure shows."""
    if not settings.models:
        raise UserError(f"{name} needs --models NAME=FOLDER, for each model that it shows.")
    return named_folders(settings.models, "--models")
