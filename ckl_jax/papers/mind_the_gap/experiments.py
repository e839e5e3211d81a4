"""`ckl experiment mind_the_gap/...`: the paper's tables and figures by name.

An experiment is the study with some settings, the parts of its report that show the table or the
figure, and the printed numbers beside them. Experiments of one folder share its models.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ckl_jax.analysis.figures import save
from ckl_jax.analysis.sections import Section, write_page
from ckl_jax.data.facts.offices import office_questions
from ckl_jax.data.facts.questions import write_questions
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, write_file
from ckl_jax.papers.mind_the_gap import study as job
from ckl_jax.papers.mind_the_gap.analysis import published
from ckl_jax.papers.mind_the_gap.analysis.figures import draw
from ckl_jax.papers.mind_the_gap.analysis.report import parts_of
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import compute
from ckl_jax.papers.mind_the_gap.office_holder_qa import ask
from ckl_jax.papers.mind_the_gap.settings import SIZES, TITLES, Gap
from ckl_jax.world.facts import office_terms
from ckl_jax.world.stream import END, START, stream_world
from ckl_jax.world.stream_text import tokenised


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a table or figure is made of.

    Attributes:
      masks: of dynamic evaluation.
      parts: anchors of the report's sections that show it.
      beside: makes the section with the printed numbers of the results.
      larger: whether it needs the larger model.
      make: makes the sections of what is no comparison of the study's models.
    """

    masks: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    beside: Callable[[Mapping[str, Any]], Section] | None = published.perplexities
    larger: bool = False
    make: Callable[[Gap], Section] | None = None


def _corpus(gap: Gap) -> Section:
    return published.corpus(read_json(gap.data / "splits" / "split.json"))


def _questions(gap: Gap) -> Section:
    """Figure 4: office holders of the last year, after tuning on questions of the first."""
    terms = list(office_terms(stream_world(gap.seed, SIZES[gap.size][2])))
    paths = {}
    for year in (START[:4], _last_year()):
        paths[year] = gap.data / f"questions-{year}.jsonl"
        if not paths[year].exists():
            found = office_questions(terms, f"{year}-01", f"{year}-12", False, tokenised)
            write_questions(paths[year], list(found))
    tune, asked = map(str, paths.values())
    models = {str(year): str(gap.root / job.UNTIL.format(year)) for year in gap.cutoffs}
    scores = read_json(ask(models, asked, str(gap.root / "questions"), tune))
    note = (
        f"Who holds an office in {_last_year()}, by models that end in different years and are "
        f"tuned on questions of {START[:4]}. In the paper (WMT, 438 questions about 2019, models "
        "of 2012 to 2019) accuracy falls with the distance of the cut-off; it prints no numbers."
    )
    rows = [
        [
            name,
            x["questions"],
            *(f"{x[s]['value']:.2f} ± {x[s]['error']:.2f}" for s in ("em", "f1")),
        ]
        for name, x in scores.items()
    ]
    table = Section("", ["Trained until", "Questions", "EM", "F1"], rows)
    figure = (gap.root / "questions" / "asked.png").read_bytes()
    return Section("Office holders", png=figure, notes=[note], sections=[table], anchor="questions")


def _last_year() -> str:
    return str(int(END[:4]) - 1)


_MASKS = ("all", "bias", "embedding")
EXPERIMENTS = {
    "table1": Experiment(beside=None, make=_corpus),
    "table2": Experiment(parts=("perplexity",)),
    "table3": Experiment(_MASKS[:1], ("emerging",), published.emerging),
    "table4": Experiment(
        _MASKS, ("perplexity",), lambda r: published.perplexities(r, published.TABLE_4)
    ),
    "figure1": Experiment(parts=("months",)),
    "figure2": Experiment(parts=("groups",)),
    "figure3": Experiment((), ("months",), published.larger, larger=True),
    "figure4": Experiment(beside=None, make=_questions),
    "figure5": Experiment(
        _MASKS[:1], ("months",), lambda r: published.perplexities(r, published.TABLE_4)
    ),
    "figure9": Experiment(_MASKS, ("past",), None),
    "appendix_a2": Experiment(beside=None, make=job.cutoffs_section),
}


def run(name: str, gap: Gap, progress: Progress = no_progress) -> Path:
    """Makes what is missing of the study and writes the page and the tables of an experiment.

    Raises:
      UserError: see `study.run`; or the experiment needs settings that are not there.
    """
    experiment, gap = _settled(name, gap)
    short = name.replace("/", "-")
    with job.opened(gap) as study:
        rates = job.measure(study, gap, progress)
        study.step("Tables and figures")
        sections = []
        if experiment.make:
            sections.append(experiment.make(gap))
        if experiment.parts:
            results = compute(job.comparison(gap, rates))
            drawn = draw(results)
            parts = parts_of(results, drawn)
            sections += [parts[part] for part in experiment.parts]
            figures = [drawn[part] for part in experiment.parts if part in drawn]
            save({f"{short}-{i}" if i else short: f for i, f in enumerate(figures)}, gap.root)
            if experiment.beside:
                sections.insert(0, experiment.beside(results))
        sections[0].show()
        write_file(gap.root / f"{short}.md", "\n".join(s.markdown() for s in sections))
        lead = [
            f"The corpus here is {gap.corpus or 'the simulated stream'}, and the models are of "
            f"--size {gap.size}; the paper's are trained on millions of documents. What compares "
            "are directions and orders, not the numbers."
        ]
        title = f"Mind the Gap, {TITLES[name]}"
        return study.done(write_page(gap.root / f"{short}.html", title, sections, lead))


def describe(name: str, gap: Gap) -> list[str]:
    """Sentences on what `run` would do."""
    _, gap = _settled(name, gap)
    rates = f", each at --rates {', '.join(f'{r:g}' for r in gap.rates)}" if gap.masks else ""
    return [
        f"Folder: {gap.root}; models that it has stay.",
        f"Trainings: {', '.join(job.arms(gap))}.",
        f"Dynamic evaluation: {', '.join(gap.masks) or 'none'}{rates}.",
    ]


def _settled(name: str, gap: Gap) -> tuple[Experiment, Gap]:
    """The experiment, and the settings with what it needs."""
    experiment = EXPERIMENTS[name.partition("/")[2]]
    gap = dataclasses.replace(gap, masks=experiment.masks, larger=experiment.larger)
    if experiment.make is _questions and gap.corpus:
        raise UserError(
            f"{name} asks who holds the simulated stream's offices; for --documents use "
            "`ckl mind-the-gap --cutoffs` and `ckl ask`."
        )
    if experiment.make in (_questions, job.cutoffs_section):
        if not gap.cutoffs and gap.corpus:
            raise UserError(f"{name} needs --cutoffs: years of the corpus, such as 2012..2019.")
        years = range(int(START[:4]), int(_last_year()) + 1)
        return experiment, dataclasses.replace(gap, cutoffs=gap.cutoffs or tuple(years))
    return experiment, dataclasses.replace(gap, cutoffs=())
