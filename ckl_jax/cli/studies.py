"""Commands that run a whole study, from its data to its report."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ckl_jax import checks
from ckl_jax.cli.verdicts import Condition, decide
from ckl_jax.data import watching
from ckl_jax.errors import UserError, printable, refuse_unknown
from ckl_jax.files import read_json
from ckl_jax.options import Flat
from ckl_jax.papers.ckl.demo import Demo
from ckl_jax.papers.ckl.settings import PAPER_EXPERIMENTS as CKL
from ckl_jax.papers.ckl.settings import Running
from ckl_jax.papers.lm_pub_quiz.settings import PAPER_EXPERIMENTS as LM_PUB_QUIZ
from ckl_jax.papers.lm_pub_quiz.settings import Stream
from ckl_jax.papers.mind_the_gap.settings import PAPER_EXPERIMENTS as MIND_THE_GAP
from ckl_jax.papers.mind_the_gap.settings import Gap
from ckl_jax.papers.temporalwiki.settings import PAPER_EXPERIMENTS as TEMPORALWIKI
from ckl_jax.papers.temporalwiki.settings import Updates
from ckl_jax.train.progress import counting
from ckl_jax.train.studies import Experiments
from ckl_jax.updates.settings import Update

# Papers whose tables and figures `ckl experiment` runs by name.
_PAPERS = (CKL, TEMPORALWIKI, LM_PUB_QUIZ, MIND_THE_GAP)
_Name = Annotated[Positional[str], arg(metavar="NAME")]


def demo(settings: Flat[Demo]) -> dict[str, Any]:
    """Run CKL's main experiment at a small size, up to a report."""
    from ckl_jax.papers.ckl import demo as job

    data = str(Path(settings.data).absolute()) if settings.data else None
    report = job.run_demo(dataclasses.replace(settings, data=data))
    return {"report": report, **_numbers(report.parent / "table.json")}


def experiment(name: _Name, settings: Flat[Running], *, dry_run: bool = False) -> dict[str, Any]:
    """Run a table or figure of a paper, and print our numbers beside the paper's.

    Each paper has its own options, which `ckl experiment NAME --help` lists; without NAME, CKL's.

    Args:
      name: Such as ckl/table3; "list" lists all.
      dry_run: Print the trainings and what they cost, and stop.
    """
    titles = {key: title for paper in _PAPERS for key, title in paper.titles.items()}
    if name == "list":
        for key, title in titles.items():
            print(f"{key:{max(map(len, titles))}} {title}")
        return {"experiments": list(titles)}
    refuse_unknown(name, titles, f"There is no experiment {name!r}; there are")
    job = importlib.import_module(_paper_of([name]).module)
    if dry_run:
        print(printable("\n".join(job.describe(name, settings))))
        return {}
    with counting() as progress:
        report = job.run(name, settings, progress)
    return {"report": report, **_numbers(report.with_suffix(".json"))}


def _numbers(path: Path) -> dict[str, Any]:
    """What a study wrote beside its page, where it did."""
    return {"tables": read_json(path)} if path.is_file() else {}


def _paper_of(words: Sequence[str]) -> Experiments:
    """The paper of which the words name an experiment, even a wrong one, else the first."""
    by_name = {next(iter(p.titles)).partition("/")[0]: p for p in _PAPERS}
    titles = [word for paper in _PAPERS for word in words if word in paper.titles]
    named = (by_name.get(word.partition("/")[0]) for word in (*titles, *words))
    return next(filter(None, named), _PAPERS[0])


def _with_options_of(words: Sequence[str]) -> Callable[..., Any]:
    """`experiment` with the options of the paper of which the words name an experiment."""
    options = Flat[_paper_of(words).settings]

    def chosen(name: _Name, settings: options, *, dry_run: bool = False) -> dict[str, Any]:
        return experiment(name, settings, dry_run=dry_run)

    chosen.__doc__ = experiment.__doc__
    return chosen


experiment.for_words = _with_options_of


def update(
    settings: Flat[Update],
    *,
    dry_run: bool = False,
    review: bool = False,
    rollback: bool = False,
    watch: float | None = None,
) -> int | tuple[int, dict[str, Any]]:
    """Update your own model on new text, and report what it learned, updated and forgot.

    Exit code 0: it may ship, and is current; 1: it should not; 3: not enough evidence, or nothing
    to learn; 2: bad input.

    Args:
      dry_run: Read the text, print what would be trained, and stop.
      review: Write a page for reviewing the items by hand, and stop; see --decisions.
      rollback: Make the update before the current one current again, and stop.
      watch: Look at the documents every so many seconds, and update when they have changed.
    """
    from ckl_jax.parallel import processes
    from ckl_jax.updates import job, records
    from ckl_jax.updates.registry import Registry

    if rollback:
        from ckl_jax.updates.report import write_history  # slow

        if not any(Path(settings.out, name).exists() for name in ("registry.json", "updates")):
            raise UserError(f"{settings.out} holds no updates: there is none to go back from.")
        registry = Registry.open(settings.out, None)
        with processes.FolderLock() as lock:
            lock.acquire(registry.root, "updated", "--out")
            print(f"Current: {registry.roll_back()}")
            write_history(registry)
        return 0
    checks.require_positive(**{"--watch": watch})
    with counting() as progress:
        if dry_run:
            code, plan = job.describe(settings, progress)
            print(printable("\n".join(plan)))
            return code
        if review:
            return job.review(settings, progress)
        if watch is not None:
            job.watch(settings, watch, progress)
        code = job.update(settings, progress)
    last = Registry(settings.out).updates()[-1:]
    return code, {"update": last[0], **records.read(last[0], "verdict.json")} if last else {}


def temporalwiki(
    settings: Flat[Updates],
    *,
    promote_if: Condition | None = None,
    watch: float | None = None,
    dry_run: bool = False,
) -> int | tuple[int, dict[str, Any]]:
    """Update a GPT-2 dump by dump, and measure what it learned and forgot (TemporalWiki).

    Exit code 1: an update should not ship; 2: bad input; 3: there are too few facts to decide.

    Args:
      promote_if: Condition for shipping an update, such as 'unchanged <= 1.05 and changed < 1.0 at
        n >= 50': its perplexity over the last model's, of at least so many facts.
      watch: Look into the folder of --snapshots every so many seconds, and train on each further
        snapshot once both of its dumps are there and no longer change.
      dry_run: Print what would be done, and stop.
    """
    from ckl_jax.papers.temporalwiki import study as job
    from ckl_jax.papers.temporalwiki.analysis import promotion

    condition = promotion.parse(promote_if) if promote_if is not None else None
    checks.require_positive(**{"--watch": watch})
    if watch is not None and len(settings.snapshots) != 1:
        raise UserError("--watch needs --snapshots with one folder, which holds the dumps.")
    if watch is not None and not Path(settings.snapshots[0]).is_dir():
        raise UserError(f"There is no folder {settings.snapshots[0]}; check --snapshots.")
    if dry_run:
        for line in job.describe(settings):
            print(printable(line))
        return 0
    with counting() as progress:

        def run() -> int | tuple[int, dict[str, Any]]:
            verdicts = job.run_study(settings, progress, condition)
            code, result = decide(verdicts) if verdicts else (0, {})
            # There are none if there are too few facts.
            return code, result | _numbers(Path(settings.out) / "tables.json")

        if watch is None:
            return run()
        job.check_options(settings)
        watching.watch(Path(settings.snapshots[0]), watch, run)


def mind_the_gap(settings: Flat[Gap]) -> dict[str, Any]:
    """Measure how perplexity grows with time after training and how much online updates recover."""
    from ckl_jax.papers.mind_the_gap import study as job

    with counting() as progress:
        report = job.run_study(settings, progress)
    return {"report": report, **_numbers(report.parent / "results.json")}


def stream(settings: Flat[Stream]) -> dict[str, Any]:
    """Train a BERT on a stream of dated text, and rank and fill in facts after each part."""
    from ckl_jax.papers.lm_pub_quiz import knowledge_stream as job

    report = job.run_stream(settings)
    return {"report": report, **_numbers(report.with_suffix(".json"))}
