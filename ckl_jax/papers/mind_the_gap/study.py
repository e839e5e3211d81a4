"""`ckl mind-the-gap`: how perplexity grows with time after training, and what updates recover.

Corpus -> TIME-STRATIFIED and CONTROL splits -> a vocabulary and a Transformer-XL for each -> word
losses of the test documents under both -> dynamic evaluation of the stale one, by mask, at rates
chosen on its validation text -> report (Mind the Gap, sections 2 to 6). Each training and each
evaluation is a `t5x` process of its own.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ckl_jax.analysis.sections import Section
from ckl_jax.data.process_pool import Progress, no_progress
from ckl_jax.data.tasks.dated_task import prepare_dated
from ckl_jax.data.text.documents import read_documents, spread, write_documents
from ckl_jax.data.text.vocabularies import Vocabulary
from ckl_jax.errors import UserError
from ckl_jax.files import ANY_NUMBER, read_json_object, require_file, write_json
from ckl_jax.papers.mind_the_gap.analysis import cutoffs, other_test_years, run_summary
from ckl_jax.papers.mind_the_gap.analysis.report import write_report
from ckl_jax.papers.mind_the_gap.analysis.staleness import read_totals
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy, compute
from ckl_jax.papers.mind_the_gap.data.clean import Options as Cleaning
from ckl_jax.papers.mind_the_gap.data.clean import clean
from ckl_jax.papers.mind_the_gap.data.dated_vocabulary import DatedVocabulary
from ckl_jax.papers.mind_the_gap.data.split_files import hold_out_past, split, split_by_cutoff
from ckl_jax.papers.mind_the_gap.dynamic_eval.job import DIVERGED, DUMP
from ckl_jax.papers.mind_the_gap.settings import ENGLISH, LARGER, SIZES, Gap
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
_LEARNED = ("train", _VALIDATION)
UNTIL = "until_{}"  # a model by its cut-off
NAMES = (
    f"{STALE} is trained on text from before the test documents, {CONTROL} on as much of all dates."
)
_UPDATED = (
    f" {STALE} + all, + bias and the like learn from each test document once it is scored, by the "
    "weights that they name (dynamic evaluation)."
)
_WIDER = 5, 4  # the paper's 448M model has 1280 dimensions, its 287M model 1024


def run_study(gap: Gap, progress: Progress = no_progress) -> Path:
    """Runs the study, or continues it; returns the path of the report.

    Raises:
      UserError: bad corpus or settings, before anything is trained; or a process failed: its log's
        last lines are in the message.
    """
    with opened(gap) as study:
        rates = measure(study, gap, progress)
        study.step("Report")
        parts = [cutoffs_section(gap)] if gap.cutoffs else []
        parts += [test_years_section(gap)] if gap.shifted_years else []
        parts.append(run_summary.section(gap.root))
        names = NAMES + _UPDATED * bool(rates)
        return study.done(write_report(comparison(gap, rates), gap.root, *parts, names=names))


def opened(gap: Gap) -> AbstractContextManager[studies.Study]:
    """A `with` block that holds the folder of the study."""
    if gap.corpus and not _text(gap).exists():
        require_file(gap.corpus, f"Cannot read {gap.corpus}: it is no file (--documents).")
    if gap.bindings:
        # A user's binding of what the study sets itself would be lost.
        studies.refuse_own(gap.bindings, {**macros(gap, STALE), **dict.fromkeys(_OF_EVALUATIONS)})
        stale = {"MODEL_DIR": gap.root / STALE, **macros(gap, STALE)}
        statements = studies.gin_statements(stale, _bindings(gap))
        studies.check_settings(gin_files(gap), statements)
    return studies.open_study(gap, RECORD, "study", free=_free(gap), may_become=_may_become)


def _may_become(name: str, before: Any, now: Any) -> bool:
    # Folders from before there was a choice of languages.
    return name == "language" and before is None and now == ENGLISH


def arms(gap: Gap) -> list[str]:
    """The models that are trained."""
    larger = [STALE + LARGER] if gap.larger else []
    return [*ARMS, *larger, *map(UNTIL.format, gap.cutoffs)]


def measure(study: studies.Study, gap: Gap, progress: Progress) -> dict[str, float]:
    """Makes all that is missing but the report; returns {mask: the best learning rate}."""
    study.step(f"Data: {gap.corpus or 'simulated stream'}")
    prepare(gap, progress)
    every = [gap]
    for earlier in shifted(gap):
        try:
            prepare(earlier, progress)
        except UserError as e:
            raise UserError(f"The test period that ends in {earlier.test_end}: {e}") from e
        every.append(earlier)
    models = [(one, arm) for one in every for arm in arms(one)]
    study.step(f"Training {len(models)} models")
    study.run([training(one, arm) for one, arm in models])
    study.step("Word losses of the test documents")
    study.run([evaluation(one, arm, _TEST, "none") for one, arm in models])
    study.step("Learning rates, on validation text")
    pairs = itertools.product(gap.masks, gap.rates)
    study.run([evaluation(gap, STALE, _TUNING, mask, rate) for mask, rate in pairs])
    # Chosen on validation text, never on the test documents.
    rates = choose_rates(gap)
    study.step("Dynamic evaluation")
    study.run([evaluation(gap, STALE, _TEST, mask, rate) for mask, rate in rates.items()])
    return rates


def shifted(gap: Gap) -> list[Gap]:
    """The settings of both arms for earlier test periods, each with a folder of its own."""
    if not gap.shifted_years:
        return []
    year, month = read_json_object(gap.data / "splits" / "split.json")["test_months"][-1].split("-")
    ends = [f"{int(year) - earlier}-{month}" for earlier in range(1, gap.shifted_years + 1)]
    alone = {"masks": (), "larger": False, "cutoffs": (), "past_documents": 0, "shifted_years": 0}
    alone |= {"corpus": str(_text(gap)), "clean": False}
    return [
        dataclasses.replace(gap, out=str(gap.root / "shifted" / end), test_end=end, **alone)
        for end in ends
    ]


def _free(gap: Gap) -> set[str]:
    """Settings that may change; the folder of the splits records their options."""
    # `data/cutoffs` records its years.
    free = {"masks", "rates", "tagger", "topics", "emerging_min_count", "larger", "cutoffs"}
    free |= {"shifted_years", "newsqa", "addresses"}
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
    corpus, splits = _corpus(gap, progress), data / "splits"
    with _other_languages_named(gap):
        if gap.past_documents:
            rest, past = data / "rest.jsonl.gz", data / "past.jsonl.gz"
            # Splits that exist fix what was held out.
            begun = (splits / "settings.json").exists()
            if not (begun and rest.exists() and past.exists()):
                hold_out_past(corpus, rest, past, gap.options, gap.past_documents)
            corpus = rest
        split(corpus, splits, gap.options, progress=progress)
    texts = {arm: [splits / f"{arm}_{name}.jsonl.gz" for name in _LEARNED] for arm in ARMS}
    if gap.cutoffs:
        split_by_cutoff(corpus, data / "cutoffs", gap.options, gap.cutoffs, progress)
        for year in gap.cutoffs:
            train = data / "cutoffs" / f"{year}.jsonl.gz"
            texts[UNTIL.format(year)] = [train, texts[STALE][1]]
    for arm, learned in texts.items():
        path = gap.vocabulary(arm)
        if not path.exists():
            # A vocabulary for each arm, of its own training text: the paper's two models do not
            # share one.
            recipe = DatedVocabulary(size=gap.tokens, model_type="bpe", seed=gap.seed)
            recipe.train(learned[0], path)
        vocabulary = Vocabulary(path)
        parts = dict(zip(_LEARNED, learned, strict=True)) | {_TEST: splits / "test.jsonl.gz"}
        for name, text in parts.items():
            prepare_dated(text, gap.task(arm, name), vocabulary)
    vocabulary = Vocabulary(gap.vocabulary(STALE))
    if gap.masks and not (gap.task(STALE, _TUNING) / "manifest.json").exists():
        text = read_documents(splits / f"{STALE}_validation.jsonl.gz")
        tuning = spread(text, gap.tuning_documents)
        prepare_dated(tuning, gap.task(STALE, _TUNING), vocabulary)
    if gap.past_documents:
        prepare_dated(past, gap.task(STALE, _PAST), vocabulary)


def _text(gap: Gap) -> Path:
    """The file of the corpus, tokenised."""
    if gap.corpus is None:
        return gap.data / "stream.jsonl.gz"
    return gap.data / "corpus.jsonl.gz" if gap.clean else Path(gap.corpus)


def _corpus(gap: Gap, progress: Progress) -> Path:
    """Makes the corpus, tokenised, unless it is there."""
    path = _text(gap)
    if gap.corpus is None and not path.exists():
        write_documents(path, stream.stream(gap.seed, SIZES[gap.size][2]))
    elif gap.corpus and gap.clean and not path.exists():
        options = Cleaning(source=gap.source, language=gap.language, skip_bad=gap.skip_bad)
        clean([gap.corpus], path, options, gap.jobs or 1, progress)
    return path


@contextlib.contextmanager
def _other_languages_named(gap: Gap) -> Iterator[None]:
    """Adds to a `UserError` how many documents the corpus lacks because of their language."""
    try:
        yield
    except UserError as e:
        record = gap.data / "corpus.clean.json"
        counts = read_json_object(record)["documents"] if record.is_file() else {}
        if dropped := counts.get("of another language"):
            raise UserError(
                f"{e} Of the {counts['read']:,} documents read, {dropped:,} are not in the "
                f"language {gap.language!r} (--language) and were left out."
            ) from e
        raise


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
    values = _gin_values(gap)
    config = gin_scan.model_config(values)
    bindings = [f"{config}.vocab_size={size}", *_bindings(gap)]
    if arm.endswith(LARGER):
        more, than = _WIDER
        for name in ("emb_dim", "head_dim", "mlp_dim"):
            bindings.append(f"{config}.{name}={values[f'{config}.{name}'] * more // than}")
    return Training.of(_name(gap, arm), gap.root / arm, gin_files(gap), macros(gap, arm), bindings)


def _name(gap: Gap, arm: str) -> str:
    """An arm as lines of progress call it."""
    return f"{arm}, test until {gap.test_end}" if gap.test_end else arm


def evaluation(gap: Gap, arm: str, text: str, mask: str, rate: float | None = None) -> Training:
    """The evaluation of a text with an arm's model, updated or not."""
    tuning = text == _TUNING
    macros = {"MIXTURE_OR_TASK_NAME": gap.task(arm, text), "MASK": mask}
    if rate is not None:
        macros |= {"LEARNING_RATE": rate, "STATISTICS_TASK": gap.task(arm, "train")}
        if gap.past_documents and not tuning:
            macros["PAST_TASKS"] = (gap.task(STALE, _PAST),)
    return Training.of(
        f"{_name(gap, arm)} {mask}" if rate is None else f"{mask} {rate:g}",
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
    path = gap.root / "rates.json"
    # Masks that this run leaves out stay.
    write_json(path, {**(read_json_object(path, ANY_NUMBER) if path.exists() else {}), **named})
    chosen = {mask: min(values, key=values.__getitem__) for mask, values in perplexities.items()}
    for mask, rate in chosen.items():
        ends = {min(gap.rates): "lowest", max(gap.rates): "highest"} if len(gap.rates) > 1 else {}
        at_end = f"  (the {ends.get(rate)} of --rates: a better one may lie beyond)"
        choice = f"{rate:g}  perplexity {perplexities[mask][rate]:.2f}"
        print(f"   {mask:<10} {choice}{at_end if rate in ends else ''}", flush=True)
    return chosen


# --- report


def comparison(gap: Gap, rates: Mapping[str, float]) -> StalenessStudy:
    """The models that the report compares: the arms, and updates at the best rates."""
    dumps = {STALE: (STALE, "none", None)}
    if gap.larger:
        dumps[f"{STALE}, larger"] = (STALE + LARGER, "none", None)
    dumps |= {f"{STALE} + {mask}": (STALE, mask, rate) for mask, rate in rates.items()}
    return _study(
        gap,
        CONTROL,
        dumps,
        train=str(gap.data / "splits" / "time_stratified_train.jsonl.gz"),
        tagger=gap.tagger,
        topics=gap.topics,
        emerging_min_count=gap.emerging_min_count,
    )


def _study(
    gap: Gap, control: str, models: Mapping[str, tuple[str, str, float | None]], **options: Any
) -> StalenessStudy:
    """The comparison of {name: (arm, mask, rate)} with an arm on the test documents."""

    def dump(arm: str, mask: str = "none", rate: float | None = None) -> str:
        return str(gap.evaluation(arm, _TEST, mask, rate) / DUMP)

    return StalenessStudy(
        control=dump(control),
        models={name: dump(*made) for name, made in models.items()},
        seed=gap.seed,
        bin_months=gap.bin_months,
        first_month=read_json_object(gap.data / "splits" / "split.json")["test_months"][0],
        **options,
    )


def cutoffs_section(gap: Gap) -> Section:
    """Perplexity by cut-off and month, over the last one's; written to `cutoffs.json` too."""
    # Not over CONTROL's, which has seen more words than the first year has.
    *earlier, last = gap.cutoffs
    models = {str(year): (UNTIL.format(year), "none", None) for year in earlier}
    study = _study(gap, UNTIL.format(last), models, tagger="")
    return cutoffs.write_cutoffs(study, str(last), gap.root)


def test_years_section(gap: Gap) -> Section:
    """Both arms by test period, the last one first; written to `other_test_years.json` too."""
    only_stale = {STALE: (STALE, "none", None)}
    by_period = {}
    for one in (gap, *shifted(gap)):
        months = read_json_object(one.data / "splits" / "split.json")["test_months"]
        name = f"{months[0]} to {months[-1]}"
        by_period[name] = compute(_study(one, CONTROL, only_stale, tagger=""))
    return other_test_years.write_test_years(by_period, gap.root)
