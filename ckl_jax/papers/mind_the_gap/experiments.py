"""`ckl experiment mind_the_gap/...`: the paper's tables and figures by name.

An experiment is the study with some settings, the parts of its report that show the table or the
figure, and the printed numbers beside them. Experiments of one folder share its models.
"""

import dataclasses
from collections.abc import Callable
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
from ckl_jax.papers.mind_the_gap.analysis.office_holder_qa import draw as draw_scores
from ckl_jax.papers.mind_the_gap.analysis.office_holder_qa import table
from ckl_jax.papers.mind_the_gap.analysis.report import parts_of
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import compute
from ckl_jax.papers.mind_the_gap.office_holder_qa import ask
from ckl_jax.papers.mind_the_gap.settings import MASKS, SIZES, TITLES, Gap
from ckl_jax.world.facts import office_terms
from ckl_jax.world.stream import END, START, stream_world
from ckl_jax.world.stream_text import tokenised


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What a table or figure is made of."""

    # makes its section, with the printed numbers, of the results of the comparison; or, of what is
    # no comparison of the study's models, of the settings
    make: Callable[[Any], Section] = published.perplexities
    part: str = ""  # anchor of the report's section that shows it too
    masks: tuple[str, ...] = ()
    larger: bool = False  # whether it needs the larger model
    cutoffs: bool = False  # whether it needs models of several cut-offs


def _corpus(gap: Gap) -> Section:
    return published.corpus(read_json(gap.data / "splits" / "split.json"))


def _questions(gap: Gap) -> Section:
    """Figure 4: office holders of the last year, after tuning on questions of the first."""
    terms = list(office_terms(stream_world(gap.seed, SIZES[gap.size][2])))
    first, last = int(START[:4]), int(END[:4]) - 1
    paths = []
    for year in (first, last):
        found = office_questions(terms, f"{year}-01", f"{year}-12", tokenize=tokenised)
        paths.append(str(gap.data / f"questions-{year}.jsonl"))
        write_questions(paths[-1], list(found))
    models = {str(year): str(gap.root / job.UNTIL.format(year)) for year in gap.cutoffs}
    scores = read_json(ask(models, paths[1], str(gap.root / "questions"), paths[0]))
    note = (
        f"Who holds an office in {last}, by models that end in different years and are "
        f"tuned on questions of {first}. In the paper (WMT, 438 questions about 2019, models "
        "of 2012 to 2019) accuracy falls with the distance of the cut-off; it prints no numbers."
    )
    below = [table(scores)]
    return Section("Office holders", notes=[note], png=draw_scores(scores), sections=below)


EXPERIMENTS = {
    "table1": Experiment(_corpus),
    "table2": Experiment(part="perplexity"),
    "table3": Experiment(published.emerging, "emerging", MASKS[:1]),
    "table4": Experiment(published.updates, "perplexity", MASKS),
    "figure1": Experiment(part="months"),
    "figure2": Experiment(part="groups"),
    "figure3": Experiment(published.larger, "months", larger=True),
    "figure4": Experiment(_questions, cutoffs=True),
    "figure5": Experiment(published.updates, "months", MASKS[:1]),
    "figure9": Experiment(published.updates, "past", MASKS),
    "appendix_a2": Experiment(job.cutoffs_section, cutoffs=True),
}


def run(name: str, gap: Gap, progress: Progress = no_progress) -> Path:
    """Makes what is missing of the study and writes the page and the tables of an experiment.

    Raises:
      UserError: see `study.run`; or the experiment needs settings that are not there.
    """
    experiment, gap = _complete(name, gap)
    short = name.replace("/", "-")
    with job.opened(gap) as study:
        rates = job.measure(study, gap, progress)
        study.step("Tables and figures")
        if experiment.part:
            results = compute(job.comparison(gap, rates))
            sections = [experiment.make(results), parts_of(results, draw(results))[experiment.part]]
        else:
            sections = [experiment.make(gap)]
        if sections[-1].png:
            save({short: sections[-1]}, gap.root)
        sections[0].show()
        write_file(gap.root / f"{short}.md", "\n".join(s.markdown() for s in sections))
        lead = (
            f"The corpus here is {gap.corpus or 'the simulated stream'}, and the models are of "
            f"--size {gap.size}; the paper's are trained on millions of documents. What compares "
            "are directions and orders, not the numbers."
        )
        title = f"{name}: {TITLES[name]}"
        return study.done(write_page(gap.root / f"{short}.html", title, sections, [lead]))


def describe(name: str, gap: Gap) -> list[str]:
    """Sentences on what `run` would do."""
    _, gap = _complete(name, gap)
    return [
        f"Trainings in {gap.root}, where they are missing: {', '.join(job.arms(gap))}.",
        f"Dynamic evaluation of {', '.join(gap.masks) or 'no'} parameters.",
    ]


def _complete(name: str, gap: Gap) -> tuple[Experiment, Gap]:
    """The experiment, and the settings with what it needs."""
    experiment = EXPERIMENTS[name.partition("/")[2]]
    if experiment.make is _questions and gap.corpus:
        raise UserError(
            f"{name} asks who holds the simulated stream's offices; for --documents use "
            "`ckl mind-the-gap --cutoffs` and `ckl ask`."
        )
    if experiment.cutoffs and not gap.cutoffs and gap.corpus:
        raise UserError(f"{name} needs --cutoffs: years of the corpus, such as 2012..2019.")
    years = gap.cutoffs or tuple(range(int(START[:4]), int(END[:4])))
    needed = {"masks": experiment.masks, "larger": experiment.larger}
    return experiment, dataclasses.replace(
        gap, **needed, cutoffs=years if experiment.cutoffs else ()
    )
