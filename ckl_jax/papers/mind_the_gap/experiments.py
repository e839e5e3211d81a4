"""`ckl experiment mind_the_gap/...`: the paper's tables and figures by name.

An experiment is the study with some settings, the parts of its report that show the table or the
figure, and the printed numbers beside them. Experiments of one folder share its models.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.analysis.figures import save
from ckl_jax.analysis.sections import Section, write_page
from ckl_jax.data.facts.offices import office_questions
from ckl_jax.data.facts.questions import Question, write_questions
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.data.text.documents import spread
from ckl_jax.data.text.words import make_tokenizer
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, read_json_object, write_file
from ckl_jax.papers.mind_the_gap import study as job
from ckl_jax.papers.mind_the_gap.analysis import published
from ckl_jax.papers.mind_the_gap.analysis.figures import draw
from ckl_jax.papers.mind_the_gap.analysis.office_holder_qa import draw as draw_scores
from ckl_jax.papers.mind_the_gap.analysis.office_holder_qa import draw_by_date, table
from ckl_jax.papers.mind_the_gap.analysis.report import headline, parts_of
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import compute
from ckl_jax.papers.mind_the_gap.data.newsqa import read_dates, read_newsqa
from ckl_jax.papers.mind_the_gap.office_holder_qa import ask
from ckl_jax.papers.mind_the_gap.settings import ENGLISH, MASKS, SIZES, TITLES, Gap, Paper, Settings
from ckl_jax.world.facts import office_terms
from ckl_jax.world.newsqa import ADDRESSES, QUESTIONS, write_newsqa
from ckl_jax.world.stream import END, START, stream_world
from ckl_jax.world.stream_text import tokenised

_STORIES = 30  # of a month of the simulated stream
_SHIFTED = 2  # earlier test periods, for which the simulated stream is long enough
_PASSAGE = 1024  # tokens of a story with its question and answer


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
    shifted: bool = False  # whether it needs earlier test periods


def _corpus(gap: Gap) -> Section:
    return published.corpus(read_json_object(gap.data / "splits" / "split.json"))


def _questions(gap: Gap) -> Section:
    """Figure 4: office holders of the last year, after tuning on questions of the first."""
    terms = list(office_terms(stream_world(gap.seed, SIZES[gap.size][2])))
    first, last = int(START[:4]), int(END[:4]) - 1
    asked = {
        year: list(office_questions(terms, f"{year}-01", f"{year}-12", tokenize=tokenised))
        for year in (first, last)
    }
    note = (
        f"Who holds an office in {last}, by models that end in different years and are "
        f"tuned on questions of {first}. In the paper (WMT, 438 questions about 2019, models "
        "of 2012 to 2019) accuracy falls with the distance of the cut-off; it prints no numbers."
    )
    return _asked(gap, "questions", asked, Section("Office holders", notes=[note]))


def _asked(
    gap: Gap,
    name: str,
    questions: Mapping[int, Sequence[Question]],
    section: Section,
    settings: Settings = Settings(),  # noqa: B008 (a frozen record)
    published: Sequence[Sequence[Any]] = (),
) -> Section:
    """What the models of the cut-offs answer to questions, after tuning on others.

    Args:
      name: of the folder of the answers, and of the files of questions.
      questions: {year: its questions}: those to tune on, then those to answer.
      published: rows of the paper's scores.
    """
    paths = [str(gap.data / f"{name}-{year}.jsonl") for year in questions]
    for path, items in zip(paths, questions.values(), strict=True):
        write_questions(path, items)
    models = {str(year): str(gap.root / job.UNTIL.format(year)) for year in gap.cutoffs}
    scores = read_json(ask(models, paths[1], str(gap.root / name), paths[0], settings))
    below = [table(scores, published)]
    if len(next(iter(scores.values()))["by_date"]) > 1:
        below.append(Section("By date", png=draw_by_date(scores)))
    return dataclasses.replace(section, png=draw_scores(scores), sections=below)


def _newsqa(gap: Paper) -> Section:
    """Reading comprehension: stories of the last cut-off's year, after tuning on older ones."""
    first, last = gap.cutoffs[0], gap.cutoffs[-1]
    if gap.newsqa:
        asked = _real_stories(gap)
    else:
        folder = gap.data / "newsqa"
        write_newsqa(folder, (first, last), gap.seed, SIZES[gap.size][2], _STORIES)
        asked = _stories(gap, folder / QUESTIONS, folder / ADDRESSES, _by_line)
    note = (
        f"Questions about stories of {last}, which stand before the question and hold the answer, "
        f"to models that end in different years and are tuned on stories of up to {first}. In the "
        "paper (CUSTOMNEWS, NewsQA's stories of 2009) the models of 2008 and 2009 are alike."
    )
    # The usual rate hardly moves models of the simulated stream.
    settings = Settings(length=_PASSAGE, learning_rate=1e-4 if gap.newsqa else 1e-3)
    section = Section("Reading comprehension", notes=[note])
    return _asked(gap, "newsqa", asked, section, settings, published.NEWSQA)


def _by_line(text: str) -> str:
    return "\n".join(map(tokenised, text.split("\n")))


def _real_stories(gap: Paper) -> dict[int, list[Question]]:
    tokenize = make_tokenizer("moses" if gap.clean else "none", gap.language)
    return _stories(gap, gap.newsqa, gap.addresses, tokenize)


def _stories(
    gap: Paper, source: str | Path, addresses: str | Path, tokenize: Callable[[str], str]
) -> dict[int, list[Question]]:
    """{cut-off: questions on the stories of up to the first one, and on those of the last one}.

    Raises:
      UserError: a file is not as it should be, or has no such questions.
    """
    first, last = gap.cutoffs[0], gap.cutoffs[-1]
    every = [q for q in read_newsqa(source, read_dates(addresses), "", tokenize) if q.date]
    asked = {
        first: [q for q in every if int(q.date[:4]) <= first],
        last: [q for q in every if int(q.date[:4]) == last],
    }
    for year, items in asked.items():
        if not items:
            wanted = f"of {last}" if year == last else f"of up to {first}, to tune on"
            raise UserError(f"{source} has no question on a dated story {wanted}.")
        asked[year] = spread(items, published.NEWSQA_QUESTIONS)
    return asked


def _language(results: published.Results) -> Section:
    note = (
        "The paper trains on German news too (WMT), and finds the same patterns; it prints the "
        "numbers of Table 2 for English only, which stand here."
    )
    return dataclasses.replace(published.perplexities(results), notes=[note])


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
    "newsqa": Experiment(_newsqa, cutoffs=True),
    "appendix_a1": Experiment(job.test_years_section, shifted=True),
    "appendix_a2": Experiment(job.cutoffs_section, cutoffs=True),
    "appendix_a3": Experiment(_language, part="months"),
}


def run(name: str, gap: Paper, progress: Progress = no_progress) -> Path:
    """Makes what is missing of the study and writes the page and the tables of an experiment.

    Raises:
      UserError: see `study.run_study`; or the experiment needs settings that are not there.
    """
    experiment, gap = _complete(name, gap)
    short = name.replace("/", "-")
    with job.opened(gap) as study:
        rates = job.measure(study, gap, progress)
        study.step("Tables and figures")
        summary = ""
        if experiment.part:
            results = compute(job.comparison(gap, rates))
            summary = headline(results)
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
            f"are directions and orders, not the numbers. {job.NAMES}"
        )
        title = f"{name}: {TITLES[name]}"
        return study.done(write_page(gap.root / f"{short}.html", title, sections, [summary, lead]))


def describe(name: str, gap: Paper) -> list[str]:
    """Sentences on what `run` would do."""
    _, gap = _complete(name, gap)
    return [
        f"Trainings in {gap.root}, where they are missing: {', '.join(job.arms(gap))}.",
        *[f"Both arms for {gap.shifted_years} earlier test periods."] * bool(gap.shifted_years),
        *[f"Dynamic evaluation of {', '.join(gap.masks)} parameters."] * bool(gap.masks),
    ]


def _complete(name: str, gap: Paper) -> tuple[Experiment, Paper]:
    """The experiment, and the settings with what it needs."""
    experiment = EXPERIMENTS[name.partition("/")[2]]
    if experiment.make is _questions and gap.corpus:
        raise UserError(
            f"{name} asks who holds the simulated stream's offices; for --documents use "
            "`ckl mind-the-gap --cutoffs` and `ckl ask`."
        )
    if gap.newsqa and experiment.make is not _newsqa:
        raise UserError(f"{name} asks no questions of --newsqa; leave it out.")
    if experiment.make is _newsqa and bool(gap.corpus) != bool(gap.newsqa):
        raise UserError(
            f"{name} needs --documents and --newsqa, or neither: a simulated stream knows nothing "
            "of real stories."
        )
    if experiment.make is _language and gap.language == ENGLISH:
        raise UserError(
            f"{name} needs --documents in another language, and its code: --language de."
        )
    if experiment.cutoffs and not gap.cutoffs and gap.corpus:
        raise UserError(f"{name} needs --cutoffs: years of the corpus, such as 2012..2019.")
    if experiment.shifted and not gap.shifted_years and gap.corpus:
        raise UserError(f"{name} needs --shifted-years; the paper has 5 earlier test periods.")
    years = gap.cutoffs or tuple(range(int(START[:4]), int(END[:4])))
    needed = {"masks": experiment.masks, "larger": experiment.larger}
    needed["cutoffs"] = years if experiment.cutoffs else ()
    needed["shifted_years"] = (gap.shifted_years or _SHIFTED) if experiment.shifted else 0
    gap = dataclasses.replace(gap, **needed)
    if gap.newsqa:
        _real_stories(gap)  # bad ones are named before anything is trained
    return experiment, gap
