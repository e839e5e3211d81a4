"""Compares the dumps of several models: the numbers of Tables 2 to 4, and all curves.

One model is the control, which has seen the test period's time; the first of the others is the
stale one, and what comes after it are updates of it, or models beside it. Without a control each
model is compared with itself on equally frequent words (`frequency_control`).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg

from ckl_jax import checks
from ckl_jax.data.tasks.word_losses import read_about, read_dump
from ckl_jax.data.text.documents import read_documents, spread
from ckl_jax.data.text.word_classes import make_tagger
from ckl_jax.errors import UserError
from ckl_jax.files import read_json_object
from ckl_jax.options import Models, named_folders
from ckl_jax.papers.mind_the_gap.analysis import emerging, frequency_control, staleness
from ckl_jax.papers.mind_the_gap.analysis.word_groups import PartsOfSpeech, Topics

CONTROL = "control"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StalenessStudy:
    """Settings of a comparison.

    Attributes:
      models: Models, the stale one first, NAME=PLACE each: a dump of word losses, or with
        --documents a Hugging Face folder or name, a MODEL_DIR or a checkpoint.
      control: PLACE of the control model, as in --model; it has seen the time of the documents.
        Without one, losses are compared with those on equally frequent words.
      train: JSONL file of the stale model's training documents; without it there are no emerging
        words and no topics.
      tagger: Tagger of parts of speech: heuristic, textblob, spacy[:PIPELINE], nltk or none.
      topics: Number of topics learned from --train; 0 learns none.
      topic_assignment: Assignment of documents to topics.
      topic_documents: Training documents that the topics are learned from, spread evenly.
      emerging_min_count: Mentions in the test documents that an emerging word needs.
      emerging_factor: How much rarer it is in the training documents, at least.
      bin_months: Months of a point of the curves; 12 for years.
      first_month: Month that the first point begins with, YYYY-MM; by default that of the first
        test document.
      week_min_documents: Minimum number of documents for a week to be plotted.
      samples: Bootstrap samples of the documents.
      seed: Random seed of bootstrap and topics.
    """

    models: Models
    control: str | None = None
    train: str | None = None
    tagger: str = "heuristic"
    topics: int = 0
    topic_assignment: Literal["hard", "soft"] = "hard"
    topic_documents: int = 20_000
    emerging_min_count: int = 50
    emerging_factor: float = 5.0
    bin_months: int = 1
    first_month: str = ""
    week_min_documents: int = 5
    samples: Annotated[int, arg(name="bootstrap")] = staleness.SAMPLES
    seed: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.models, Mapping):
            # The command line gives NAME=DUMP texts; Python callers may give a mapping. The record
            # is frozen.
            object.__setattr__(self, "models", named_folders(self.models))
        if self.tagger == "none":
            object.__setattr__(self, "tagger", "")
        if not self.models or CONTROL in self.models:
            raise UserError(
                "Give one model or more, of which none is called 'control': --model NAME=DUMP, "
                "and --control DUMP if there is one."
            )
        checks.require_int(0, **{"--topics": self.topics})
        checks.require_size(**{"--bin-months": self.bin_months})
        checks.require_int(
            1, **{"--bootstrap": self.samples, "--week-min-documents": self.week_min_documents}
        )
        if self.topics and self.train is None:
            raise UserError("Topics are learned from training documents: give --train too.")

    @property
    def dumps(self) -> dict[str, str]:
        return {**({} if self.control is None else {CONTROL: self.control}), **self.models}

    @property
    def words_of(self) -> str:
        """Any dump: all are of the same documents."""
        return next(iter(self.dumps.values()))

    @property
    def stale(self) -> str:
        """The name of the model that the others are updates of."""
        # By convention the first: the others were updated from it.
        return next(iter(self.models))


def compute(study: StalenessStudy) -> dict[str, Any]:
    """All numbers, as JSON values. Reads each dump a few times, and the training documents twice.

    Raises:
      UserError: the control's losses are of another kind; or see `read_totals`, `bins_of`,
        `WordCounts.of`, `Topics.fit`.
    """
    # Checks early that every dump is one, before minutes of counting.
    about = {name: read_about(folder) for name, folder in study.dumps.items()}
    _refuse_other_schemes(about)
    # Groups of words first; the dumps are then read once for all of them.
    words = _word_counts(study)
    speech = _parts_of_speech(study)
    topics = _topics(study)
    new_words = words and words.emerging(study.emerging_min_count, study.emerging_factor)
    groupings = [*speech, *topics, *_mentions(new_words, about[study.stale])]
    totals = staleness.read_totals(study.dumps, groupings)
    frequencies = {
        name: frequency_control.FrequencyControl(dump)
        for name, dump in (study.models if study.control is None else {}).items()
    }
    expected = {name: control.totals(groupings) for name, control in frequencies.items()}
    curves = _Curves(study, totals, expected)
    months = {name: curves.of(name) for name in study.models}
    cutoffs = {name: frequency_control.estimate_cutoff(curve) for name, curve in months.items()}
    every = totals[study.stale]
    # The first model is the stale one.
    updates = list(study.models)[1:]
    # Perplexities by another kind of loss do not compare.
    alike = [n for n in updates if _scheme(about, n) == _scheme(about, study.stale)]
    results = {
        "settings": dataclasses.asdict(study),
        "about": about,
        "stale": study.stale,
        "perplexity": {name: t.perplexity() for name, t in totals.items()},
        "words": dict(zip(every.groups, every.words.sum(1).tolist(), strict=True)),
        "months": {name: curve.as_dict() for name, curve in months.items()},
        "cutoffs": cutoffs,
        "sources": _sources(frequencies, cutoffs),
        "reduction": {name: curves.reduction(name) for name in alike},
        "slopes": {name: _slopes(months[study.stale], months[name]) for name in updates},
        "groups": {
            # Of the stale model alone, as in the paper's Figure 2.
            kind: {name: curves.of_group(name) for g in grouping for name in g.names}
            for kind, grouping in (("parts of speech", speech), ("topics", topics))
        },
        "weeks": curves.weeks(),
        "forgetting": _all_forgetting(study.models),
    }
    if speech:
        results["tagger"] = speech[0].backend
    if words:
        results["emerging"] = _emerging(study, words, new_words)
    return results


def _all_forgetting(models: Mapping[str, Any]) -> dict[str, Any]:
    return {name: forgetting for name, dump in models.items() if (forgetting := _forgetting(dump))}


def _sources(frequencies: Mapping[str, Any], cutoffs: Mapping[str, Any]) -> dict[str, Any]:
    """{model: where the text of its estimated cut-off's month is from}."""
    return {
        name: control.sources((cutoffs[name] or {}).get("month", ""))
        for name, control in frequencies.items()
    }


def _mentions(new_words: Any, stale: Mapping[str, Any]) -> list[Any]:
    """The grouping by mentions of new words; none where words were not counted."""
    if new_words is None:
        return []
    # The stale model's memory decides for all models: groups must hold the same words for each.
    memory = stale.get("memory_length") or 0
    return [emerging.EmergingMentions([w.word for w in new_words], memory)]


def _refuse_other_schemes(about: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuses a control whose losses are not of the models' kind, for their ratio says nothing."""
    if CONTROL not in about:
        return
    for name in about:
        if _scheme(about, name) != _scheme(about, CONTROL):
            raise UserError(
                f"{name} has losses of {_scheme(about, name)} and control of "
                f"{_scheme(about, CONTROL)}, which do not compare; give a control of the same "
                "kind, or none."
            )


def _scheme(about: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """How a model's losses are defined, see `word_scorers`; dumps that do not say are causal."""
    return about[name].get("scheme", "causal")


class _Curves:
    """Curves of models by month and week, relative to the control or to the stale model."""

    def __init__(
        self,
        study: StalenessStudy,
        totals: Mapping[str, staleness.Totals],
        expected: Mapping[str, staleness.Totals],
    ):
        self._study, self._totals, self._expected = study, totals, expected
        # All dumps have the same documents, which `read_totals` checks.
        self._dates = totals[study.stale].dates
        self._months = staleness.bins_of(
            self._dates, months=study.bin_months, first=study.first_month
        )

    def of(
        self,
        model: str,
        group: str = staleness.ALL,
        base: str = CONTROL,
        bins: staleness.Bins | None = None,
    ) -> staleness.Curve:
        expected = self._expected.get(model) if base == CONTROL else None
        both = self._totals[model], expected or self._totals[base]
        options = {"samples": self._study.samples, "seed": self._study.seed}
        return staleness.relative_increase(*both, bins or self._months, group, **options)

    def _has_words(self, group: str) -> bool:
        return self._totals[self._study.stale].group(group).words.any()

    def of_group(self, group: str) -> dict[str, Any] | None:
        """The stale model's curve on a group of words; None if no test document has one."""
        return self.of(self._study.stale, group).as_dict() if self._has_words(group) else None

    def reduction(self, model: str) -> dict[str, dict[str, float]]:
        """{group: how much lower a model's perplexity is than the stale one's, percent}."""
        increases = {
            group: self.of(model, group, base=self._study.stale).overall
            for group in filter(self._has_words, self._totals[model].groups)
        }
        return {
            # A reduction is a negative increase, so the ends of its interval change places.
            group: {"value": -x["value"], "low": -x["high"], "high": -x["low"]}
            for group, x in increases.items()
        }

    def weeks(self) -> dict[str, Any]:
        """The curve of each model by week, and from when on it is better than the control."""
        # Weeks with fewer documents are left out: their perplexities are noise.
        bins = staleness.bins_of(self._dates, "week", self._study.week_min_documents)
        curves = {name: self.of(name, bins=bins) for name in self._study.models if bins.labels}
        return {
            name: {**curve.as_dict(), "overtakes": staleness.overtakes(curve)}
            for name, curve in curves.items()
        }


def _slopes(stale: staleness.Curve, other: staleness.Curve) -> dict[str, Any] | None:
    # A line through two points has no error, and slopes cannot be compared.
    if stale.fitted.sum() < 3:
        return None
    return {
        name: dataclasses.asdict(staleness.compare_slopes(stale, other, paired=name == "paired"))
        for name in ("unpaired", "paired")
    }


_SUMMARY = {"forgetting": {"*": {"*": {"*": (int, float)}}}}


def _forgetting(dump: str) -> dict[str, Any] | None:
    """{period: {snapshot: percent}}: what the run beside a dump says of text of the past."""
    # The dump lies in the folder of its run.
    path = Path(dump).parent / "summary.json"
    summary = read_json_object(path) if path.is_file() else {}
    if not summary.get("forgetting"):
        return None
    checks.require_fields(str(path), summary, _SUMMARY, "run the dynamic evaluation again")
    tasks = summary["forgetting"]
    # With a single task its name says nothing.
    if len(tasks) == 1:
        return next(iter(tasks.values()))
    return {f"{t} {p}": values for t, periods in tasks.items() for p, values in periods.items()}


# --- groups of words


def _test_words(study: StalenessStudy) -> Iterator[Sequence[str]]:
    return (document.words for document in frequency_control.documents_of(study.words_of))


def _train_texts(study: StalenessStudy) -> Iterator[str]:
    return (document.text for document in read_documents(study.train))


def _word_counts(study: StalenessStudy) -> emerging.WordCounts | None:
    if study.train is None:
        return None
    return emerging.WordCounts.of(_test_words(study), (t.split() for t in _train_texts(study)))


def _parts_of_speech(study: StalenessStudy) -> list[PartsOfSpeech]:
    if not study.tagger:
        return []
    # The heuristic tagger learns from text how words are used; without training documents, from the
    # test documents.
    texts = _train_texts(study) if study.train else map(" ".join, _test_words(study))
    return [PartsOfSpeech(make_tagger(study.tagger, texts))]


def _topics(study: StalenessStudy) -> list[Topics]:
    if not study.topics:
        return []
    # A sample at equal distances, so that all years of the training period are in it.
    texts = spread(_train_texts(study), study.topic_documents)
    return [Topics.fit(texts, study.topics, study.topic_assignment, study.seed)]


def _emerging(
    study: StalenessStudy, counts: emerging.WordCounts, new_words: Sequence[emerging.EmergingWord]
) -> dict[str, Any]:
    by_month: dict[str, set[str]] = {}
    for shard in read_dump(study.words_of):
        by_month.setdefault(shard.month, set()).update(shard.words)
    return {
        "words": [dataclasses.asdict(word) for word in new_words],
        "types": len(new_words),
        "mentions": sum(word.test for word in new_words),
        "train_words": counts.train_words,
        "test_words": counts.test_words,
        "unseen_types": {m: counts.unseen_fraction(words) for m, words in by_month.items()},
    }
