"""`ckl mind-the-gap`: how perplexity grows with time after training, and what updates recover.

Corpus -> TIME-STRATIFIED and CONTROL splits -> a vocabulary and a Transformer-XL for each -> word
losses of the test documents under both -> dynamic evaluation of the stale one, by mask, at rates
chosen on its validation text -> report (Mind the Gap, sections 2 to 6). Each training and each
evaluation is a `t5x` process of its own.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.data.tasks.dated_task import prepare_dated
from ckl_jax.data.text.documents import read_documents, spread, write_documents
from ckl_jax.data.text.vocabularies import Vocabulary
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, write_json
from ckl_jax.papers.mind_the_gap.analysis.staleness import read_totals
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy
from ckl_jax.papers.mind_the_gap.data.clean import Options as Cleaning
from ckl_jax.papers.mind_the_gap.data.clean import clean
from ckl_jax.papers.mind_the_gap.data.dated_vocabulary import DatedVocabulary
from ckl_jax.papers.mind_the_gap.data.split_files import hold_out_past, split
from ckl_jax.papers.mind_the_gap.dynamic_eval.job import DIVERGED, DUMP
from ckl_jax.papers.mind_the_gap.settings import SIZES, Gap
from ckl_jax.train import studies
from ckl_jax.train.subprocess_runs import Training
from ckl_jax.world import stream

RECORD = "mind_the_gap.json"
ARMS = ("time_stratified", "control")
STALE, CONTROL = ARMS
_TRAIN = "mind_the_gap_train.gin"
_EVALUATE = "mind_the_gap_dynamic_eval.gin"
_OF_EVALUATIONS = ("CHECKPOINT_PATH", "EVAL_OUTPUT_DIR", "MASK", "PAST_TASKS", "STATISTICS_TASK")
_TEST, _VALIDATION, _TUNING, _PAST = "test", "validation", "tuning", "past"


def run(gap: Gap, progress: Progress = no_progress) -> Path:
    """Runs the study, or continues it; returns the path of the report.

    Raises:
      UserError: bad corpus or settings, before anything is trained; or a process failed: its log's
        last lines are in the message.
    """
    if gap.bindings:
        # A user's binding of what the study sets itself would be lost.
        studies.refuse_own(gap.bindings, {**macros(gap, STALE), **dict.fromkeys(_OF_EVALUATIONS)})
        _gin_values(gap)  # a misspelt name fails here
    with studies.open_study(gap, RECORD, "study", free=_free(gap)) as study:
        study.step(f"Data: {gap.corpus or 'simulated stream'}")
        prepare(gap, progress)
        study.step("Training both arms")
        study.run([training(gap, arm) for arm in ARMS])
        study.step("Word losses of the test documents")
        study.run([evaluation(gap, arm, _TEST, "none") for arm in ARMS])
        study.step("Learning rates, on validation text")
        pairs = itertools.product(gap.masks, gap.rates)
        study.run([evaluation(gap, STALE, _TUNING, mask, rate) for mask, rate in pairs])
        # Chosen on validation text, never on the test documents.
        rates = choose_rates(gap)
        study.step("Dynamic evaluation")
        study.run([evaluation(gap, STALE, _TEST, mask, rate) for mask, rate in rates.items()])
        study.step("Report")
        return study.done(_report(gap, rates))


def _free(gap: Gap) -> set[str]:
    """Settings that may change; the folder of the splits records their options."""
    free = {"masks", "rates", "tagger", "topics", "emerging_min_count"}
    free |= set(dataclasses.asdict(gap.options)) - {"seed"}
    return free if gap.skip_bad else {*free, "skip_bad"}


def _gin_values(gap: Gap) -> dict[str, Any]:
    """{name: value} of the macros and parameters of the trainings."""
    return studies.gin_values(gin_files(gap), macros(gap, STALE), _bindings(gap))


def _bindings(gap: Gap, evaluation: bool = False) -> list[str]:
    """The user's bindings of the trainings, or of the evaluations.

    A name that both know, such as CLIP_NORM, is the trainings', but an OPTIMIZER of Krause's rule.
    """
    if not gap.bindings:
        return []
    files, own = gin_files(gap), macros(gap, STALE)
    extra = studies.gin_values([*files, _EVALUATE], own).keys() - studies.gin_values(files, own)
    named = [(b, *map(str.strip, b.partition("=")[::2])) for b in gap.bindings]
    return [
        binding
        for binding, name, value in named
        if evaluation == (name in extra or (name == "OPTIMIZER" and value.startswith("@krause.")))
    ]


# --- data


def prepare(gap: Gap, progress: Progress = no_progress) -> None:
    """Makes the missing splits, vocabularies and tasks."""
    data = gap.data
    corpus = _corpus(gap, progress)
    if gap.past_documents:
        rest, past = data / "rest.jsonl.gz", data / "past.jsonl.gz"
        # Splits that exist fix what was held out.
        begun = (data / "splits" / "settings.json").exists()
        if not (begun and rest.exists() and past.exists()):
            hold_out_past(corpus, rest, past, gap.options, gap.past_documents)
        corpus = rest
    splits = data / "splits"
    split(corpus, splits, gap.options, progress=progress)
    for arm in ARMS:
        path = gap.vocabulary(arm)
        if not path.exists():
            # A vocabulary for each arm, of its own training text: the paper's two models do not
            # share one.
            recipe = DatedVocabulary(size=gap.tokens, model_type="bpe", seed=gap.seed)
            recipe.train(splits / f"{arm}_train.jsonl.gz", path)
        vocabulary = Vocabulary(path)
        for name in (f"{arm}_train", f"{arm}_validation", _TEST):
            prepare_dated(
                splits / f"{name}.jsonl.gz", gap.task(arm, name.removeprefix(f"{arm}_")), vocabulary
            )
    vocabulary = Vocabulary(gap.vocabulary(STALE))
    if gap.masks and not (gap.task(STALE, _TUNING) / "manifest.json").exists():
        text = read_documents(splits / f"{STALE}_validation.jsonl.gz")
        tuning = spread(text, gap.tuning_documents)
        prepare_dated(tuning, gap.task(STALE, _TUNING), vocabulary)
    if gap.past_documents:
        prepare_dated(past, gap.task(STALE, _PAST), vocabulary)


def _corpus(gap: Gap, progress: Progress) -> Path:
    """The corpus, tokenised."""
    if gap.corpus is None:
        path = gap.data / "stream.jsonl.gz"
        if not path.exists():
            write_documents(path, stream.stream(gap.seed, SIZES[gap.size][2]))
        return path
    if not gap.clean:
        return Path(gap.corpus)
    path = gap.data / "corpus.jsonl.gz"
    if not path.exists():
        options = Cleaning(source=gap.source, skip_bad=gap.skip_bad)
        clean([gap.corpus], path, options, gap.jobs or 1, progress)
    return path


# --- processes


def gin_files(gap: Gap) -> list[str]:
    """The gin files of the trainings, most general first."""
    return [_TRAIN, *SIZES[gap.size][0]]


def macros(gap: Gap, arm: str) -> dict[str, Any]:
    """The gin bindings of an arm's training."""
    return {
        "CACHE_DIRS": (gap.data / "tasks",),
        "MIXTURE_OR_TASK_NAME": gap.task(arm, "train").name,
        "HELD_OUT_TASKS": (gap.task(arm, _VALIDATION).name,),
        "VOCABULARY_PATH": gap.vocabulary(arm),
        "RANDOM_SEED": gap.seed,
    }


def training(gap: Gap, arm: str) -> Training:
    """The training of one arm."""
    from ckl_jax.config import gin_scan

    size = Vocabulary(gap.vocabulary(arm)).vocab_size
    # A small corpus may yield fewer tokens than were asked for.
    tokens = f"{gin_scan.model_config(_gin_values(gap))}.vocab_size={size}"
    bindings = [tokens, *_bindings(gap)]
    return Training.of(arm, gap.root / arm, gin_files(gap), macros(gap, arm), bindings)


def evaluation(gap: Gap, arm: str, text: str, mask: str, rate: float | None = None) -> Training:
    """The evaluation of a text with an arm's model, updated or not."""
    tuning = text == _TUNING
    macros = {"MIXTURE_OR_TASK_NAME": gap.task(arm, text), "MASK": mask}
    if rate is not None:
        macros |= {"LEARNING_RATE": rate, "STATISTICS_TASK": gap.task(arm, "train")}
        if gap.past_documents and not tuning:
            macros["PAST_TASKS"] = (gap.task(STALE, _PAST),)
    return Training.of(
        f"{arm} {mask}" if rate is None else f"{mask} {rate:g}",
        gap.evaluation(arm, text, mask, rate),
        [str(gap.root / arm / "config.gin"), _EVALUATE],
        macros,
        _bindings(gap, evaluation=True),
        job="dynamic_eval",
        # A rate that diverges is a result of the search, not a failure.
        given_up=DIVERGED if tuning else None,
    )


def choose_rates(gap: Gap) -> dict[str, float]:
    """{mask: the rate with the lowest validation perplexity}; stored in `rates.json`.

    Raises:
      UserError: all rates of a mask diverged.
    """
    perplexities: dict[str, dict[float, float]] = {}
    for mask in gap.masks:
        dumps = {
            str(rate): gap.evaluation(STALE, _TUNING, mask, rate) / DUMP
            for rate in gap.rates
            if not evaluation(gap, STALE, _TUNING, mask, rate).has_given_up
        }
        if not dumps:
            raise UserError(
                f"Dynamic evaluation of {mask} diverged at all --rates "
                f"({', '.join(f'{r:g}' for r in gap.rates)}); give lower ones, the rest is kept."
            )
        totals = read_totals(dumps)
        perplexities[mask] = {float(rate): t.perplexity()["all"] for rate, t in totals.items()}
    named = {m: {f"{r:g}": x for r, x in values.items()} for m, values in perplexities.items()}
    write_json(gap.root / "rates.json", named)
    chosen = {mask: min(values, key=values.__getitem__) for mask, values in perplexities.items()}
    for mask, rate in chosen.items():
        ends = {min(gap.rates): "lowest", max(gap.rates): "highest"} if len(gap.rates) > 1 else {}
        at_end = f"  (the {ends.get(rate)} of --rates: a better one may lie beyond)"
        found = f"{rate:g}  perplexity {perplexities[mask][rate]:.2f}"
        print(f"   {mask:<10} {found}{at_end if rate in ends else ''}", flush=True)
    return chosen


# --- report


def _report(gap: Gap, rates: Mapping[str, float]) -> Path:
    from ckl_jax.papers.mind_the_gap.analysis import run_summary
    from ckl_jax.papers.mind_the_gap.analysis.report import write_report

    dumps = {
        f"{STALE} + {mask}": str(gap.evaluation(STALE, _TEST, mask, rate) / DUMP)
        for mask, rate in rates.items()
    }
    study = StalenessStudy(
        control=str(gap.evaluation(CONTROL, _TEST, "none") / DUMP),
        models={STALE: str(gap.evaluation(STALE, _TEST, "none") / DUMP), **dumps},
        train=str(gap.data / "splits" / "time_stratified_train.jsonl.gz"),
        tagger=gap.tagger,
        topics=gap.topics,
        emerging_min_count=gap.emerging_min_count,
        seed=gap.seed,
        bin_months=gap.bin_months,
        first_month=read_json(gap.data / "splits" / "split.json")["test_months"][0],
    )
    return write_report(study, gap.root, run_summary.section(gap.root))
