"""Evaluates models on KILT's data sets and scores their answers (CKL, appendix F).

Two readings of the scores differ in what counts as accurate and in what an empty answer gets:
"paper", CKL's, and "kilt", KILT's own scoring.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.papers.ckl.data.kilt import KILT_SETS, KiltRecord, KiltSet, read_dev
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.probes import closed_book, metrics
from ckl_jax.probes.answering import EncoderDecoderGenerator
from ckl_jax.probes.probe_lengths import ProbeLengths

PAPER, KILT = "paper", "kilt"
READINGS = (PAPER, KILT)
METRICS = ("accuracy", "em", "f1", "rouge_l")
_STEP = 64  # tokens, to which the width of a data set's inputs is rounded up


def score_answer(
    prediction: str, answers: Sequence[str], names: Sequence[str] = METRICS, reading: str = PAPER
) -> dict[str, float]:
    """Scores of one answer, each in 0..1.

    Args:
      prediction: what the model wrote; blanks around it do not count.
      answers: the right ones; the first is the one that is trained on.
      names: which of `METRICS`.
      reading: "paper": accurate is what equals the first answer, and an empty prediction is scored
        as any other. "kilt": accurate is what equals any answer, and an empty one gets 0.

    Raises:
      UserError: ROUGE-L is wanted and its package is missing.
    """
    checks.require_choice(READINGS, reading=reading)
    prediction = prediction.strip()
    if reading == KILT and not prediction:
        return dict.fromkeys(names, 0.0)
    # Functions, so that only the metrics that are wanted are computed.
    scorers = {
        "accuracy": lambda: prediction in (answers if reading == KILT else answers[:1]),
        "em": lambda: metrics.exact_match(prediction, answers),
        "f1": lambda: metrics.f1(prediction, answers),
        "rouge_l": lambda: metrics.rouge_l(prediction, answers),
    }
    return {name: float(scorers[name]()) for name in names}


@dataclasses.dataclass(frozen=True)
class KiltProbes(ProbeLengths):
    """Settings of a KILT evaluation: data sets, decoding and scoring.

    Attributes:
      probes: names in `papers.ckl.data.kilt.KILT_SETS`, or `KiltSet`s.
      batch_size: records decoded at once; the last batch is padded.
      input_lengths, target_lengths: {data set: tokens} that replace Table 9's; the key "*" replaces
        all. A target length counts the start token, as Hugging Face's does.
      reading: of the scores, "paper" or "kilt"; see `score_answer`.
    """

    data_dir: str
    probes: tuple[str | KiltSet, ...]
    batch_size: int = 32
    beam_size: int = 2
    input_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    target_lengths: Mapping[str, int] = dataclasses.field(default_factory=dict)
    reading: str = PAPER

    published = KILT_SETS

    def __post_init__(self) -> None:
        for probe in self.records.values():
            metric = getattr(probe, "metric", None)
            checks.require_choice(METRICS, **{f"KiltSet.metric of {probe.name!r}": metric})
        checks.require_size(PROBE_BATCH_SIZE=self.batch_size)
        checks.require_size(**{"KiltProbes.beam_size": self.beam_size})
        checks.require_choice(READINGS, KILT_SCORING=self.reading)
        self.check_lengths()

    def __call__(self, model: EncoderDecoderModel, partitioner: Partitioner) -> "KiltEvaluator":
        """The data sets of this record on one model, an evaluation of `train.train.train`."""
        partitioner.check_batch_size(self.batch_size, "PROBE_BATCH_SIZE")
        return KiltEvaluator(self, model, partitioner.put_whole)


class KiltEvaluator:
    """Evaluates a model on the records of a `KiltProbes`; caches tokens and compiled functions."""

    def __init__(self, config: KiltProbes, model: EncoderDecoderModel, put_batch=None):
        """Reads the dev files, and prints to stderr how much of them is cut.

        Args:
          put_batch: places a dict of host arrays on the devices; default: as they are.

        Raises:
          UserError: a file is missing or malformed, the model is not an encoder-decoder, or the
            package of a metric is missing.
        """
        self.config, self.model = config, model
        if model.task_features != ("inputs", "targets"):
            raise UserError(
                f"KILT needs an encoder-decoder, and a {type(model.config).__name__} is not one; "
                "set PROBES to None."
            )
        if any(probe.metric == "rouge_l" for probe in config.records.values()):
            metrics.rouge_l("a", "a")  # says what is missing before anything is decoded
        self._generator = EncoderDecoderGenerator(model, config.batch_size, put_batch=put_batch)
        self._generator.check_search()
        self._sets = {name: self._read(name) for name in config.names}

    def _read(self, name: str) -> tuple[list[KiltRecord], list[list[int]], list[bool]]:
        """The records, their tokens, and whether all right answers of a record are too long."""
        known = self.config.records[name]
        records, vocabulary = read_dev(self.config.data_dir, known), self.model.input_vocabulary
        max_length, length = self.config.lengths(name)
        rows = [
            ids + [vocabulary.eos_id]
            for ids in vocabulary.encode_many([record.input for record in records])
        ]
        # The start token takes one of `length` positions.
        cut = [
            all(len(ids) > length - 1 for ids in vocabulary.encode_many(record.answers))
            for record in records
        ]
        long = sum(len(row) > max_length for row in rows)
        if (long or any(cut)) and jax.process_index() == 0:
            print(
                f"KILT {name}, dev: of {len(records):,} records, inputs longer than {max_length} "
                f"tokens, which are cut: {long:,}; without an answer that {length} tokens hold "
                f"(the start counts): {sum(cut):,}.",
                file=sys.stderr,
                flush=True,
            )
        return records, rows, cut

    def __call__(self, params: Any, step: int, last: bool) -> Iterator[dict[str, Any]]:
        """Yields one row per record; the first of a data set has its `probe_record` too."""
        del step, last
        for name, (records, tokens, cut) in self._sets.items():
            max_length, length = self.config.lengths(name)
            # No longer than the longest needs, in steps that data sets share compilations by.
            width = min(max_length, -(-max(map(len, tokens)) // _STEP) * _STEP)
            said = self._generator.answers(params, tokens, width, length, self.config.beam_size)
            own = self.config.records[name]
            reported = {"probe_record": own.as_json()}
            for record, no_answer_fits, predictions in zip(records, cut, said, strict=True):
                yield {
                    "probe": name,
                    **self._row(own.metric, record, predictions),
                    "cut": int(no_answer_fits),
                    **reported,
                }
                reported = {}

    def _row(self, own: str, record: KiltRecord, predictions: list[str]) -> dict[str, Any]:
        wanted = [m for m in METRICS if m == own or m != "rouge_l"]  # which is slow
        scores = score_answer(predictions[0], record.answers, wanted, self.config.reading)
        return {
            "item": record.id,
            "relation": "",
            "input": record.input,
            "answers": list(record.answers),
            "old_answers": [],
            **closed_book.judge(predictions, predictions, record.answers),
            **scores,
            "em": int(scores["em"]),
            "metric": own,
            "score": scores[own],
        }
