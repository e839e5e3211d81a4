"""Commands that compare runs and report on them."""

import functools
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from ckl_jax.analysis.ledger import STATES
from ckl_jax.cli.verdicts import Condition, decide
from ckl_jax.cli.work import Overwrite
from ckl_jax.errors import UserError, printable
from ckl_jax.files import claimed_folder, read_json
from ckl_jax.options import Flat, Models, Names, named_folders
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy
from ckl_jax.papers.mind_the_gap.settings import Scoring, Settings
from ckl_jax.papers.temporalwiki.analysis.text_losses import FORMULAS
from ckl_jax.train.progress import counting

Runs = Annotated[Positional[tuple[str, ...]], arg(metavar="RUN...")]


def report(
    runs: Runs,
    *,
    out: str | None = None,
    seeds: bool = False,
    acquired: Names = (),
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Write a report of runs: table, learning curves and changed facts.

    Args:
      runs: MODEL_DIRs, the Initial model's first; or folders of `demo` or `temporalwiki`.
      out: Folder of report.html; by default the first run's parent.
      seeds: RUNs are folders of `demo`, `temporalwiki`, `mind-the-gap` or `experiment` that differ
        by seed; report mean and range.
      acquired: Probes that FUAR counts as new knowledge.
    """
    from ckl_jax.analysis.report import find_runs, is_run, write_report
    from ckl_jax.analysis.sections import refuse_foreign
    from ckl_jax.papers.ckl.analysis.experiment_tables import is_experiment
    from ckl_jax.papers.mind_the_gap.analysis import seeds as mind_the_gap
    from ckl_jax.papers.temporalwiki.analysis import report as temporalwiki
    from ckl_jax.papers.temporalwiki.analysis.results import RECORD

    folders = [Path(run) for run in runs]
    if seeds:
        into = Path(out or folders[0].parent)
        refuse_foreign(into / "seeds.html", overwrite, "seeds.json", "seeds.md")
        return {"out": into, **_report_seeds(folders, into, acquired)}
    for folder in folders:
        if mind_the_gap.is_study(folder):
            raise UserError(
                f"{folder} is of `ckl mind-the-gap`, whose report is {folder / 'report.html'}; "
                "several such folders are compared by --seeds."
            )
        if is_experiment(folder):
            parts = sorted({str(run.parent) for run in folder.glob("*/*") if is_run(run)})
            raise UserError(
                f"{folder} is of `ckl experiment`; give a scenario of it: {', '.join(parts)}."
            )
    if len(folders) == 1 and (folders[0] / RECORD).is_file():
        into = Path(out or folders[0])
        refuse_foreign(into / "report.html", overwrite, "tables.json", "matrix.csv", "figures")
        page = temporalwiki.write_report(folders[0], into)
        print(page)
        return {"report": page, "tables": read_json(into / "tables.json")}
    paths = find_runs(folders)
    into = Path(out or paths[0].parent)
    refuse_foreign(into / "report.html", overwrite, "table.json", "table.md", "figures")
    page = write_report(paths, into, acquired=acquired)
    print(page)
    return {"report": page, "tables": read_json(into / "table.json")}


def _report_seeds(folders: list[Path], out: Path, acquired: tuple[str, ...]) -> dict[str, Any]:
    from ckl_jax.analysis.seeds import check_folders, compare_seeds, of_demos
    from ckl_jax.papers.ckl.analysis import experiment_seeds
    from ckl_jax.papers.ckl.analysis.experiment_tables import is_experiment
    from ckl_jax.papers.mind_the_gap.analysis import seeds as mind_the_gap
    from ckl_jax.papers.temporalwiki.analysis import seeds as temporalwiki

    if any(map(is_experiment, folders)):
        check_folders(folders)
        print(experiment_seeds.write_seeds(folders, out)[-1])
        return {}
    if any(map(mind_the_gap.is_study, folders)):
        print(compare_seeds(folders, out, mind_the_gap.summarize))
    elif any(map(temporalwiki.is_study, folders)):
        print(compare_seeds(folders, out, temporalwiki.summarize))
    else:
        print(compare_seeds(folders, out, functools.partial(of_demos, acquired=acquired)))
    return read_json(out / "seeds.json")


def ledger(
    run_dir: Annotated[Positional[str], arg(metavar="RUN")],
    *,
    initial: str | None = None,
    diff: str | None = None,
    state: Literal[*STATES] | None = None,
    limit: int = 20,
) -> dict[str, Any]:
    """List every probed fact's state: kept, updated, learned or forgotten.

    Args:
      run_dir: MODEL_DIR with probe rows.
      initial: MODEL_DIR of the Initial model.
      diff: Another run to compare with.
      state: List the facts of one state only.
      limit: Number of facts to list.
    """
    from ckl_jax.analysis import ledger as facts

    text = facts.describe(run_dir, initial=initial, diff=diff, state=state, limit=limit)
    print(printable(text))
    with warnings.catch_warnings(action="ignore"):  # the same that `describe` has shown
        return {"facts": facts.rows(run_dir, initial)}


def proper_nouns(
    runs: Runs,
    *,
    initial: str,
    formula: Literal[*FORMULAS] = "token_micro",
    out: str | None = None,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Compare the loss of models on proper nouns and other words (TemporalWiki, Figure 2).

    Args:
      runs: MODEL_DIRs of runs with PROPER_NOUN_TASKS.
      initial: MODEL_DIR of the Initial model.
      formula: How losses are averaged.
      out: Folder for proper_nouns.json and .png.
    """
    from ckl_jax.papers.temporalwiki.analysis import text_report

    with claimed_folder(out, "ckl proper-nouns", overwrite) if out else nullcontext():
        table = text_report.compare(runs, initial, formula)
        text_report.section(table).show()
        if out:
            text_report.write_table(table, out)
    return table


def promote(
    *,
    model: str,
    relative_to: str,
    condition: Annotated[Condition, arg(name="if")],
    interval: str = "",
) -> tuple[int, dict[str, Any]]:
    """Decide whether an updated model may replace the last one.

    Exit code 1: the update should not ship; 2: bad input; 3: there are too few facts to decide.

    Args:
      model: MODEL_DIR of the updated model.
      relative_to: MODEL_DIR of the last model.
      condition: Condition for shipping, such as 'unchanged <= 1.05 and changed < 1.0 at n >= 50':
        the new perplexity over the last model's, of at least so many facts.
      interval: Interval whose facts count; by default the last.
    """
    from ckl_jax.papers.temporalwiki.analysis import promotion

    return decide(
        [promotion.compare_runs(model, relative_to, promotion.parse(condition), interval)]
    )


def staleness(
    study: Flat[StalenessStudy],
    scoring: Flat[Scoring],
    *,
    out: str = "runs/staleness",
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Measure how the perplexity of models grows with the time after their training.

    Args:
      out: Folder of the report.
    """
    from ckl_jax.analysis.sections import refuse_foreign
    from ckl_jax.papers.mind_the_gap import word_scores
    from ckl_jax.papers.mind_the_gap.analysis.report import write_report

    names = ("results.json", "tables.md", "months.png", "groups.png", "weeks.png", "forgetting.png")
    refuse_foreign(Path(out) / "report.html", overwrite, *names)
    with counting() as progress:
        study = word_scores.score_models(study, scoring, Path(out), progress)
    page = write_report(study, out)
    print(page)
    return {"report": page, **read_json(Path(out) / "results.json")}


def ask(
    model: Models,
    settings: Flat[Settings],
    *,
    questions: str,
    tune: str | None = None,
    out: str = "runs/asked",
    trust_imports: Names = (),
) -> dict[str, Any]:
    """Put dated questions to models that were trained up to different times.

    Args:
      model: MODEL_DIR, checkpoint or Hugging Face folder, in the order of the figure; may be
        repeated.
      questions: File of `ckl data questions`.
      tune: Questions of another time, on which each model learns the form of the answers.
      out: Folder of answers, table and figure.
      trust_imports: Modules of yours that the runs' gin files may import; all is any.
    """
    from ckl_jax.papers.mind_the_gap import office_holder_qa

    folders = named_folders(model)
    scores = office_holder_qa.ask(folders, questions, out, tune, settings, trust_imports)
    print(scores)
    return {"out": scores, "scores": read_json(scores)}


def claims(
    folders: Annotated[Positional[tuple[str, ...]], arg(metavar="FOLDER...")],
    *,
    out: str | None = None,
    samples: int = 2000,
    overwrite: Overwrite = False,
) -> dict[str, Any]:
    """Check which claims of the papers hold in your own runs, with intervals.

    Args:
      folders: Folders of `demo`, `experiment`, `temporalwiki`, `stream` or `mind-the-gap`, one for
        each seed; a verdict needs five seeds or more.
      out: Folder of claims.html; by default the first FOLDER.
      samples: Resamples of the bootstrap over seeds and items.
    """
    from ckl_jax import checks
    from ckl_jax.analysis.claims import write_claims
    from ckl_jax.analysis.sections import refuse_foreign
    from ckl_jax.papers.ckl.analysis import claims as ckl
    from ckl_jax.papers.lm_pub_quiz.analysis import claims as lm_pub_quiz
    from ckl_jax.papers.mind_the_gap.analysis import claims as mind_the_gap
    from ckl_jax.papers.temporalwiki.analysis import claims as temporalwiki

    checks.require_int(100, 100_000, **{"--samples": samples})
    refuse_foreign(Path(out or folders[0]) / "claims.html", overwrite, "claims.json", "claims.md")
    kinds = (*ckl.KINDS, temporalwiki.KIND, lm_pub_quiz.KIND, mind_the_gap.KIND)
    page = write_claims(kinds, folders, out or folders[0], samples)
    print(page)
    return {"report": page, "claims": read_json(page.with_suffix(".json"))}


def overlap(
    folder: Annotated[Positional[str], arg(metavar="FOLDER")],
    *,
    corpora: Names = ("d0_small", "d1"),
    probes: Names = ("invariant_lama", "updated_lama", "new_lama", "new_lama_easy"),
) -> dict[str, Any]:
    """Count how often CKL's corpora name the answers of its probes.

    Args:
      folder: Folder in CKL's published layout.
      corpora: Corpora, such as d0,d1,p1,p2.
      probes: Probes to count.
    """
    from ckl_jax import checks
    from ckl_jax.data.facts.ckl_files import CORPORA, PROBES, corpus_texts, is_left_out, read_probe
    from ckl_jax.papers.ckl.analysis import answer_analysis

    checks.require_names(CORPORA, **{"--corpora": corpora})
    checks.require_names(PROBES, **{"--probes": probes})
    left = [p for p in probes if not is_left_out(PROBES[p], folder)]
    answers = {p: [item.answers for item in read_probe(p, folder)] for p in left}
    texts = {c: functools.partial(corpus_texts, Path(folder) / CORPORA[c]) for c in corpora}
    mentions = answer_analysis.mentions_of(answers, texts)
    answer_analysis.named(mentions).show()
    return {"mentions": mentions}
