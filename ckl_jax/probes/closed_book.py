"""Closed-book probing: decode the blank of each item and write one row per item.

A row has the question, the model's answer and whether it is right; every score, table and
curve is a function of rows (CKL §4).

A decoder-only model cannot look behind a blank: it continues what stands before it, or the
question, and its answer ends with the first full stop (CKL, appendix G).
"""

import contextlib
import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.ckl_files import (
    BLANK,
    PROBES,
    has_blank,
    is_left_out,
    normalize_blank,
    prompt_of,
    read_probe,
)
from ckl_jax.data.facts.probe import SCORES, Probe, ProbeItem
from ckl_jax.errors import UserError
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.models.beam_rules import RULES
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes import metrics
from ckl_jax.probes.answering import EncoderDecoderGenerator
from ckl_jax.probes.continuing import DecoderOnlyGenerator
from ckl_jax.probes.probe_lengths import ProbeLengths

# CKL, Figure 9.
PRECISION_KS = (1, 5, 10, 20, 50, 100)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosedBook(ProbeLengths):
    """Settings of closed-book probing: which probes, and how to decode.

    Attributes:
      data_dir: folder of the probes' files, such as one in CKL's published layout.
      probes: records (`data.facts.probe.Probe`), or names of published ones
        (`data.facts.ckl_files.PROBES`).
      batch_size: items decoded at once; the last batch is padded.
      beam_size: of the search for EM and F1; the default is that of the published numbers.
      rule, length_penalty, early_stopping: of all searches; None is what `decoding.beam_search` is
        bound to, whose defaults are those of the published numbers.
      input_lengths, target_lengths: {probe: tokens} that replace the published lengths; the key
        "*" replaces all. A target length counts the start token, as Hugging Face's does.
      ks: the k of P@k; they are read off one search with max(ks) beams.
      precision: when to search that wide: "last" evaluation only, "always" or "never".
      precision_items: items of each probe searched so (the first ones); None is all.
      questions: put the question form instead of the cloze statement.
      legacy_truncate_gold: cut the gold answers of InvariantLAMA (`Probe.truncates_gold`) to the
        decoding length, as the released evaluation did.
      strict: refuse a probe whose items stand in the training text word by word; else a warning
        says so. It is known where the overlap was measured (`ckl data overlap`).
    """

    data_dir: str
    probes: tuple[str | Probe, ...] = (
        "invariant_lama",
        "updated_lama",
        "new_lama",
        "new_lama_easy",
    )
    batch_size: int = 32
    beam_size: int = 2
    rule: str | None = None
    length_penalty: float | None = None
    early_stopping: bool | None = None
    input_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    target_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ks: tuple[int, ...] = PRECISION_KS
    precision: str = "last"
    precision_items: int | None = None
    questions: bool = False
    legacy_truncate_gold: bool = False
    strict: bool = False

    published = PROBES
    may_be_empty = True

    def __post_init__(self) -> None:
        for probe in self.records.values():
            probe.check_columns()
        checks.require_size(PROBE_BATCH_SIZE=self.batch_size)
        checks.require_size(**{"ClosedBook.beam_size": self.beam_size})
        checks.require_choice((*RULES, None), **{"ClosedBook.rule": self.rule})
        checks.require_number(
            "a finite number", -math.inf, **{"ClosedBook.length_penalty": self.length_penalty}
        )
        checks.require_choice(
            ("last", "always", "never"), **{"ClosedBook.precision": self.precision}
        )
        checks.require_int(**{"ClosedBook.precision_items": self.precision_items})
        if self.ks:
            checks.require_ints(**{"ClosedBook.ks": self.ks})
        self.check_lengths()

    def __call__(
        self, model: BaseTransformerModel, partitioner: Partitioner
    ) -> "ClosedBookEvaluator":
        """The probes of this record on one model, an evaluation of `train.train.train`."""
        partitioner.check_batch_size(self.batch_size, "PROBE_BATCH_SIZE")
        return ClosedBookEvaluator(self, model, partitioner.put_whole)

    @property
    def search_options(self) -> dict[str, Any]:
        """Arguments of the beam search that are given here."""
        given = {"length_penalty": self.length_penalty, "early_stopping": self.early_stopping}
        return {name: value for name, value in given.items() if value is not None}


class ClosedBookEvaluator:
    """Runs the probes of a `ClosedBook` on one model; keeps tokens and compilations."""

    def __init__(self, config: ClosedBook, model: BaseTransformerModel, put_batch=None):
        """Reads the probe files.

        Args:
          put_batch: places a dict of host arrays on the devices; default: as they are.

        Raises:
          UserError: a probe file is missing or malformed.
        """
        self.config, self.model = config, model
        checks.need_vocabulary(model.input_vocabulary, "closed-book probes")
        generator_cls = _generator_of(model, "Closed-book probes need", "set PROBES to None")
        # All checks and all files before the first training step: an evaluation comes hours later.
        self._check_beams()
        self._check_lengths()
        read = {name: _read(config, name) for name in config.names}
        self._items = {name: items for name, items in read.items() if items is not None}
        if config.names and not self._items:
            raise UserError(
                f"{' and '.join(config.names)} of {config.data_dir} have no items; ask other "
                "probes, or set PROBES to None."
            )
        self._overlaps = {probe: self._measured(probe) for probe in self._items}
        self._check_overlap()
        self._continues = generator_cls is DecoderOnlyGenerator
        self._generator = generator_cls(
            model, config.batch_size, config.rule, config.search_options, put_batch
        )
        self._generator.check_search()
        self._rows = {probe: self._encoded(items) for probe, items in self._items.items()}
        self._warn_of_cuts()

    def _encoded(self, items: Sequence[ProbeItem]) -> list[list[int]]:
        vocabulary = self.model.input_vocabulary
        # T5 reads EOS at the end of every input; `DecoderOnlyGenerator` takes it off again.
        return [[*vocabulary.encode(self._text(item)), vocabulary.eos_id] for item in items]

    def _warn_of_cuts(self) -> None:
        for probe, rows in self._rows.items():
            length = self.config.lengths(probe)[0]
            added = len(self._generator.first) - self._continues  # less the EOS it takes off
            cut = sum(len(row) + added > length for row in rows)
            if cut:
                _warn(
                    f"{cut:,} of {len(rows):,} inputs of {probe} have more than {length} tokens "
                    f"and are cut at their {'start' if self._continues else 'end'}; "
                    "ClosedBook.input_lengths sets how many are read"
                )

    def _check_beams(self) -> None:
        """Refuses beam settings that would fail only in the last evaluation."""
        tokens = self.model.config.vocab_size
        # "last" searches wide only after the last step, when an error would cost the whole run.
        widest = max(self.config.ks, default=1) if self.config.precision != "never" else 1
        for name, beams in (("ks", widest), ("beam_size", self.config.beam_size)):
            if beams > tokens:
                raise UserError(
                    f"ClosedBook.{name} asks for a search with {beams} beams, but the model has "
                    f"{tokens} tokens to begin an answer with; lower it."
                )

    def _check_lengths(self) -> None:
        """Refuses prompts and answers longer than the model's table of positions."""
        positions = getattr(self.model.config, "max_positions", None)
        for probe in self.config.names if positions else ():
            length, answer = self.config.lengths(probe)
            if length + answer - 2 > positions:  # without a start, and the last is not read
                raise UserError(
                    f"ClosedBook asks {probe!r} with {length} tokens and {answer} for the answer, "
                    f"but the model has {positions} positions; give shorter ones by "
                    "ClosedBook.input_lengths and target_lengths."
                )

    def _measured(self, probe: str) -> dict[str, Any]:
        folder = self.config.data_dir
        return overlap.read(folder, probe, self.config.records[probe].path(folder)) or {}

    def _check_overlap(self) -> None:
        """Warns of probes that are training text, or refuses them."""
        for probe, corpora in self._overlaps.items():
            if not corpora:
                continue
            corpus, most = max(corpora.items(), key=lambda pair: pair[1]["exact"])
            if not most["exact"]:
                continue
            said = (
                f"{most['exact']} of {most['items']} items of {probe} stand word by word in the "
                f"training text {corpus}, so that reciting answers them: "
                + "; ".join(map(repr, most["examples"]))
            )
            if self.config.strict:
                raise UserError(
                    f"{said}. Give other probes or text, or leave ClosedBook.strict out."
                )
            _warn(said)

    def __call__(self, params: Any, step: int, last: bool) -> Iterator[dict[str, Any]]:
        """Yields one row per item; the first of a probe has its `probe_record` too."""
        del step
        config = self.config
        # P@k needs max(ks) beams, up to 50 times the cost of the search for EM.
        wide = config.precision == "always" or (config.precision == "last" and last)
        for probe, items in self._items.items():
            answers = self._answers(params, probe, None, config.beam_size)
            ranked = []
            if wide and config.ks:
                chosen = config.precision_items
                ranked = list(self._answers(params, probe, chosen, max(config.ks)))
            for i, (item, predictions) in enumerate(zip(items, answers, strict=True)):
                # Items beyond `precision_items` are ranked among the answers of the narrow search.
                candidates = ranked[i] if i < len(ranked) else predictions
                row = self._row(config.records[probe], item, predictions, candidates)
                # The record once per probe: a table needs it, and rows are many.
                said = {} if i else self._said(probe)
                yield {"probe": probe, **row, **said}

    def _said(self, probe: str) -> dict[str, Any]:
        """Fields of a probe's first row: its record and its overlap with the training text."""
        overlaps = self._overlaps[probe]
        said = {"probe_record": self.config.records[probe].as_json()}
        return said | ({"overlap": overlaps} if overlaps else {})

    def _row(
        self, probe: Probe, item: ProbeItem, predictions: list[str], candidates: list[str]
    ) -> dict[str, Any]:
        golds = item.answers
        if self.config.legacy_truncate_gold and probe.truncates_gold:
            # The released code tokenised the gold answer, cut it to the target length with EOS, and
            # detokenised it: gold answers of InvariantLAMA longer than 3 tokens lose their end.
            keep = self.config.lengths(probe.name)[1] - 1
            golds = tuple(self._truncate(gold, keep) for gold in golds)
        return {
            "item": item.id,
            "relation": item.relation,
            **({"date": item.date} if item.date else {}),
            **({"groups": dict(item.groups)} if item.groups else {}),
            "input": item.question if self.config.questions else item.input,
            "answers": list(golds),
            "old_answers": list(item.old_answers),
            **judge(predictions, candidates, golds, item.old_answers),
            **{name: _score(probe, name, predictions[0], golds) for name in probe.metrics},
        }

    def _truncate(self, gold: str, keep: int) -> str:
        vocabulary = self.model.output_vocabulary
        return vocabulary.decode(vocabulary.encode(gold)[:keep])

    def _answers(
        self, params: Any, probe: str, count: int | None, beams: int
    ) -> Iterator[list[str]]:
        """The decoded strings of the first `count` items (None: of all), best first."""
        rows = self._rows[probe][:count]
        answers = self._generator.answers(params, rows, *self.config.lengths(probe), beams)
        yield from (
            ([until_stop(t) for t in texts] for texts in answers) if self._continues else answers
        )

    def _text(self, item: ProbeItem) -> str:
        """The text of the question."""
        if self._continues:
            return prompt_of(item, self.config.questions)
        return item.question if self.config.questions else item.input


def _warn(said: str) -> None:
    if jax.process_index() == 0:
        print(f"Warning: {said}.", file=sys.stderr, flush=True)


def _generator_of(
    model: BaseTransformerModel, needs: str, cure: str
) -> type[EncoderDecoderGenerator]:
    # Chosen by what the model reads ("inputs", "targets"), not by its class.
    kinds = {cls.task_features: cls for cls in (EncoderDecoderGenerator, DecoderOnlyGenerator)}
    if model.task_features not in kinds or hasattr(model, "masking"):
        raise UserError(
            f"{needs} a model that writes text in place of a blank, which one with a "
            f"{type(model.config).__name__} does not; {cure}."
        )
    return kinds[model.task_features]


def answer(model: BaseTransformerModel, params: Any, text: str, length: int, beams: int) -> str:
    """What a model writes in place of the blank of one text, or behind a text without one.

    Raises:
      UserError: the model writes no text, there are several blanks, or an encoder-decoder, which
        writes nothing behind a text, is given none.
    """
    cure = "give rank() the answers to choose from"
    generator = _generator_of(model, "ask() needs", cure)(model, batch_size=1)
    continues = isinstance(generator, DecoderOnlyGenerator)
    if not continues or has_blank(text):
        text = normalize_blank(text, "ask()")
        text = text.partition(BLANK)[0].rstrip() if continues else text
    ids = [*model.input_vocabulary.encode(text), model.input_vocabulary.eos_id]
    room = len(ids) + len(generator.first)
    ((best, *_),) = generator.answers(params, [ids], room, length + 1, beams)
    return until_stop(best) if continues else best


def until_stop(text: str) -> str:
    """The part of a continuation up to and including its first full stop."""
    sentence, stop, _ = text.partition(".")
    return sentence.strip() + stop


def judge(
    predictions: Sequence[str],
    candidates: Sequence[str],
    golds: Sequence[str],
    old_answers: Sequence[str] = (),
) -> dict[str, Any]:
    """The fields of a row that compare the answers with the accepted ones.

    Args:
      predictions: best first; the first one counts.
      candidates: of a search as wide or wider, best first.
      golds: what is right.
      old_answers: what used to be right.
    """
    best = predictions[0]
    return {
        "predictions": list(predictions),
        "em": int(metrics.exact_match(best, golds)),
        "f1": float(metrics.f1(best, golds)),
        # UpdatedLAMA's outdated answers: a model that still gives them has not learned the update.
        "em_old": int(bool(old_answers) and metrics.exact_match(best, old_answers)),
        "hit_rank": metrics.hit_rank(candidates, golds),
        "beams": len(candidates),
    }


def _read(config: ClosedBook, name: str) -> list[ProbeItem] | None:
    """The items of a probe; None if the folder's manifest says that none were left of it."""
    if not Path(config.data_dir).is_dir():
        raise UserError(
            f"There is no folder {config.data_dir} to read the probe {name!r} from; set PROBE_DIR "
            "to the folder with CKL's probe files."
        )
    probe, say = config.records[name], print if jax.process_index() == 0 else str
    return None if is_left_out(probe, config.data_dir, say) else read_probe(probe, config.data_dir)


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Scores of one evaluation by probe, in percent: em, f1, em_old and p_at_<k>, what the probe's
    record shows as columns, and of KILT's data sets accuracy, rouge_l and score.

    Rows without answers have none.
    """
    by_probe: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if "predictions" in row:
            by_probe.setdefault(row["probe"], []).append(row)
    return {probe: _summary(mine) for probe, mine in by_probe.items()}


def _score(probe: Probe, metric: str, predicted: str, golds: Sequence[str]) -> float:
    """A metric of a probe's own of one answer."""
    value = number = probe.metrics[metric](predicted, golds)
    with contextlib.suppress(TypeError, ValueError):
        number = value if isinstance(value, str) else float(value)
    if not isinstance(number, float) or not 0.0 <= number <= 1.0:
        raise UserError(
            f"The metric {metric!r} of the probe {probe.name} gave {value!r} for the answer "
            f"{predicted!r}; it must be a number from 0 to 1."
        )
    return number


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Scores of the rows of one probe."""
    shown = rows[0].get("probe_record", {}).get("columns", ())
    further = dict.fromkeys((*shown, "accuracy", "rouge_l", "score"))
    names = ["em", "f1", *(n for n in further if n in rows[0] and n not in SCORES)]
    if any(row.get("old_answers") for row in rows):
        names.append("em_old")
    scores = {name: _percent(row[name] for row in rows) for name in names}
    # Items of a narrower search have no place among those of the widest; a user's have no search.
    beams = [row.get("beams", 1) for row in rows]
    widest = max(beams)
    ranked = [row["hit_rank"] for row, n in zip(rows, beams, strict=True) if n == widest > 1]
    # P@1 is `em`; a k that no search was wide enough for has no number.
    precisions = [k for k in PRECISION_KS if 1 < k <= widest]
    return scores | {f"p_at_{k}": _percent(0 < r <= k for r in ranked) for k in precisions}


def _percent(values: Iterable[float]) -> float:
    return 100.0 * float(np.mean(list(values)))
