"""Scores dated documents with a Hugging Face causal model and writes a dump of word losses.

Words are what lies between blanks, each encoded by itself (`data.tasks.dated_task`), so that models
with different vocabularies are compared on the same words. A document that is longer than a window
is scored in overlapping ones: each window but the first scores its last `stride` tokens only, which
therefore see at least `window - stride` tokens before them.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.checkpoints.from_hf import open_model
from ckl_jax.checkpoints.hub import folder_of
from ckl_jax.data.process_pool import batches
from ckl_jax.data.tasks.chunks import StreamDocument, buckets, stream_documents
from ckl_jax.data.tasks.converters import decoder_only_batch, pad_rows
from ckl_jax.data.tasks.dated_task import prepare_dated
from ckl_jax.data.tasks.word_losses import ABOUT, DumpWriter, WordLosses, read_dump
from ckl_jax.data.text.documents import read_documents
from ckl_jax.errors import UserError
from ckl_jax.models.base import token_losses
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.papers.mind_the_gap.analysis.frequency_control import detectable_slope
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import CONTROL, StalenessStudy
from ckl_jax.papers.mind_the_gap.settings import Scoring
from ckl_jax.train import compile_cache

_AT_ONCE = 64  # documents, whose windows are sorted by length
Progress = Callable[[int, int, str], None]


class _Window(NamedTuple):
    """Tokens of a document that one row of the model reads.

    Attributes:
      document: its place among those that are scored at once.
      start: the first token, counted from 0 for the token before the document.
      tokens: of the row.
      first: the first token that is scored; those before it were scored by an earlier window.
    """

    document: int
    start: int
    tokens: Sequence[int]
    first: int


def score_models(
    study: StalenessStudy, scoring: Scoring, out: Path, progress: Progress
) -> StalenessStudy:
    """Returns the study with a dump in place of each model that is not one yet.

    Raises:
      UserError: see `score`; or there are models and no documents.
    """
    missing = {k: v for k, v in study.dumps.items() if not (Path(v) / ABOUT).is_file()}
    if not missing:
        return study
    if scoring.documents is None:
        name, place = next(iter(missing.items()))
        raise UserError(
            f"{name}={place} holds no dump of word losses (no {ABOUT}); if it is a model of "
            "Hugging Face's, give --documents to score it on."
        )
    print(_what_shows(scoring.documents))
    made = {k: str(score(v, out / "scored" / k, scoring, progress)) for k, v in missing.items()}
    dumps = {**study.dumps, **made}
    control = dumps.pop(CONTROL, None)
    return dataclasses.replace(study, models=dumps, control=control)


def _what_shows(documents: str) -> str:
    """A sentence on the slope that these documents can show."""
    counts: collections.Counter[str] = collections.Counter()
    months: collections.Counter[str] = collections.Counter()
    for document in read_documents(documents):
        counts.update(document.text.split())
        months[document.date[:7]] += 1
    total = math.log(max(counts.total(), 1))
    means = [
        total - float(np.mean([math.log(counts[word]) for word in words]))
        for document in read_documents(documents)
        if (words := document.text.split())
    ]
    ordered = dict(sorted(months.items()))
    slope = detectable_slope(float(np.std(means)), ordered)
    return (
        f"{len(means):,} documents of {len(ordered)} months, {counts.total():,} words. "
        f"By the spread of their unigram losses, a rise of {slope:.2g} % a month or more is found "
        "in four of five such corpora."
    )


def score(model: str, out: Path, scoring: Scoring, progress: Progress) -> Path:
    """Writes the dump `out/dump` of a model's losses on documents; resumes an interrupted one.

    Args:
      model: Hugging Face folder or name of a decoder-only model.
      out: folder of this model.
      scoring: how.
      progress: called with (documents done, all, what).

    Returns:
      The dump's folder.

    Raises:
      UserError: the model is of another kind, the window is longer than its positions, or the
        folder holds a dump of other settings.
    """
    compile_cache.enable()
    built, params = open_model(folder_of(model))
    if not isinstance(built, DecoderOnlyModel):
        raise UserError(
            f"{model} is a {type(built).__name__}; words are scored by decoder-only models, such "
            "as GPT-2 or Llama. Give its dump of word losses in place of the model."
        )
    limit = built.config.max_positions
    window = min(limit, 1024) if scoring.window is None else scoring.window
    stride = max(window // 2, 1) if scoring.stride is None else scoring.stride
    batch_size = scoring.batch_size
    checks.require_int(2, **{"--window": window})
    checks.require_int(1, **{"--stride": stride, "--batch-size": batch_size})
    if window > limit or stride >= window:
        raise UserError(
            f"--window {window} --stride {stride}: the window holds at most the {limit} positions "
            f"of {model}, and the stride is smaller than the window."
        )
    task = prepare_dated(scoring.documents, out / "task", built.vocabulary)
    about = {
        "model": str(model),
        "window": window,
        "stride": stride,
        "text": task.task.manifest["features"],
    }
    dump = out / "dump"
    done = sum(map(len, read_dump(dump))) if any(dump.glob("*.npz")) else 0
    writer = DumpWriter(dump, about, resume_at=done)
    scorer = _Scorer(built, jax.device_put(params), window, stride, batch_size)
    stream = stream_documents(task, done)
    while some := list(itertools.islice(stream, _AT_ONCE)):
        for scored in scorer(some):
            writer.add(scored)
        done += len(some)
        progress(done, len(task), f"documents scored by {model}")
    writer.flush()
    return dump


class _Scorer:
    def __init__(
        self, model: DecoderOnlyModel, params: Any, window: int, stride: int, batch_size: int
    ):
        self._model, self._params, self._batch_size = model, params, batch_size
        self._window, self._stride = window, stride
        self._lengths = buckets(window)  # the few row lengths for which the step is compiled
        start = model.start_id
        # Qwen and others begin a text with nothing; the end of the text before it stands there.
        self._start = model.vocabulary.eos_id if start is None else start
        self._step = jax.jit(lambda params, batch: model.per_token(token_losses, params, batch)[0])

    def __call__(self, documents: Sequence[StreamDocument]) -> Iterator[WordLosses]:
        windows = [w for i, d in enumerate(documents) for w in self._windows(i, d)]
        losses = [np.zeros(len(d.tokens), np.float32) for d in documents]
        begins = [np.zeros(len(d.tokens), np.int32) for d in documents]
        for length in self._lengths:
            mine = [w for w in windows if self._length_of(w) == length]
            for part in batches(mine, lambda _: 1, self._batch_size):
                for w, found in zip(part, self._run(part, length), strict=True):
                    # Position j of a row predicts the token after it.
                    span = slice(w.first - 1, w.start + len(w.tokens) - 1)
                    losses[w.document][span] = found[w.first - w.start - 1 : len(w.tokens) - 1]
                    begins[w.document][span] = max(w.start - 1, 0)
        for document, nll, begin in zip(documents, losses, begins, strict=True):
            yield document.losses(nll, begin)

    def _windows(self, number: int, document: StreamDocument) -> Iterator[_Window]:
        tokens = np.concatenate([[self._start], document.tokens])
        end = min(self._window, len(tokens))
        yield _Window(number, 0, tokens[:end], 1)
        while end < len(tokens):
            first, end = end, min(end + self._stride, len(tokens))
            start = end - self._window
            yield _Window(number, start, tokens[start:end], first)

    def _length_of(self, window: _Window) -> int:
        return next(length for length in self._lengths if length >= len(window.tokens))

    def _run(self, windows: Sequence[_Window], length: int) -> np.ndarray:
        missing = self._batch_size - len(windows)  # one shape is compiled for each length
        rows = [w.tokens for w in windows] + [windows[-1].tokens] * missing
        counts = np.array(list(map(len, rows)))
        batch = decoder_only_batch(pad_rows(rows, length, None), counts)
        return jax.device_get(self._step(self._params, batch))[: len(windows)]
