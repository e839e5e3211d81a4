"""One run of dynamic evaluation: start, stream, checkpoints and summary."""

import dataclasses
import functools
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import __version__, files
from ckl_jax.checkpoints.layout import tree_digest
from ckl_jax.checkpoints.store import CheckpointStore, KeepBest
from ckl_jax.data.tasks.chunks import Segment
from ckl_jax.data.tasks.dated_task import DatedTask
from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses, read_dump
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.errors import UserError
from ckl_jax.methods.subsets import Mask, patterns_of
from ckl_jax.optim import gradient_squares
from ckl_jax.papers.mind_the_gap.analysis import past_text as analysis
from ckl_jax.papers.mind_the_gap.dynamic_eval import gradient_statistics, runner
from ckl_jax.papers.mind_the_gap.dynamic_eval.gradient_statistics import GradientStatistics
from ckl_jax.papers.mind_the_gap.dynamic_eval.past_text import Forgetting, PastText
from ckl_jax.papers.mind_the_gap.dynamic_eval.runner import StreamConfig, UpdateConfig
from ckl_jax.papers.mind_the_gap.dynamic_eval.step import StreamState
from ckl_jax.train import artifacts
from ckl_jax.train.held_out import perplexity
from ckl_jax.train.progress import ProgressBar
from ckl_jax.train.restore import RestoredModel, phase_from
from ckl_jax.train.saving import describe
from ckl_jax.train.setup import Shapes
from ckl_jax.train.state import all_finite, as_dict
from ckl_jax.trees.partition import merge, split
from ckl_jax.trees.paths import flatten

DUMP, SUMMARY, STATISTICS = "dump", "summary.json", "gradient_statistics.npz"
DIVERGED = "diverged.json"
_SNAPSHOT = "month_end"
_PROGRESS_SECONDS = 0.5


class KeepSnapshots(KeepBest):
    """Keeps the checkpoints at the ends of months and the newest."""

    def stay(self, values: Mapping[int, float | None]) -> list[int]:
        return [step for step, value in values.items() if value]


@dataclasses.dataclass
class DynamicRun:
    """A configured run; arguments as for `dynamic_eval.dynamic_eval`.

    Raises:
      UserError: the settings do not fit the model.
    """

    restored: RestoredModel
    task: DatedTask
    output_dir: str
    mask: Mask
    include_output_bias: bool
    updates: UpdateConfig
    stream: StreamConfig
    statistics: GradientStatistics | None
    past: PastText | None
    keep_snapshots: bool
    checkpoint_period: int
    progress: str
    inputs_digest: str | None  # of all that it reads; None if that is not known

    def __post_init__(self) -> None:
        self.dir = Path(self.output_dir)
        model, params = self.restored.model, self.restored.shapes.params
        # Fixes the memory's length before shapes are derived from it.
        self.stream = self.stream.for_model(model)
        self.patterns = patterns_of(
            self.mask,
            list(flatten(params)),
            include_output_bias=self.include_output_bias,
            architecture=type(model.config).__name__,
        )
        self.shapes = Shapes(params, *self._split(params))
        self.tx = self.updates.transformation() if self.patterns else None
        self.statistics = self.statistics or GradientStatistics()
        if self._wants_statistics():
            self.statistics.open()
        # Checkpoints at ends of months have the metric `_SNAPSHOT`, and stay; of the others the
        # newest.
        kept = KeepSnapshots(_SNAPSHOT) if self.keep_snapshots else None
        self.store = CheckpointStore(str(self.dir), keep=1, keep_best=kept)
        self.seconds, self.tokens = 0.0, 0

    def __call__(self) -> dict[str, Any]:
        """Runs the stream to its end; see `dynamic_eval`."""
        if (done := self._summary_of_finished()) is not None:
            print(f"{self.dir} is scored already to its last document; nothing to do.")
            return done
        path = self.restored.paths[0]
        params = self.restored.load(path)
        # Halves of files that a killed run left behind.
        files.remove_parts(self.dir)
        artifacts.write_config(self.dir)
        artifacts.write_model_info(self.dir, self.shapes)
        trainable, frozen = self._split(params)
        # The trees below hold the leaves; a second reference would keep donated buffers alive.
        del params
        # Resuming checks that the frozen parameters are still the same.
        self.frozen_digest = tree_digest(frozen)
        model, partitioner = self.restored.model, self.restored.partitioner
        shapes = self.shapes.trainable, self.shapes.frozen
        how = self.stream, self.updates, self.tx
        self.runner = runner.StreamRunner(model, *shapes, *how, partitioner)
        forgetting = None
        if self.past and self.past.tasks:
            given = self.shapes.params, self.stream, partitioner
            forgetting = Forgetting(self.past, model, *given, self.dir)
            # Before the first update: the base of all changes.
            forgetting.measure(merge(trainable, frozen), analysis.START, 0)
        start, state = self._start(trainable, frozen)
        del trainable
        # Documents behind the checkpoint are dropped from the dump and scored again.
        writer = DumpWriter(self.dir / DUMP, self._about(), resume_at=start)
        # The state's buffers are donated, so `trainable` must not be used from here on.
        self._read(start, state, frozen, writer, forgetting)
        self.store.close()
        return self._write_summary(forgetting)

    def _split(self, params: Any) -> tuple[Any, Any]:
        # MASK = 'none': nothing learns, and all parameters are constants of the step.
        return split(params, self.patterns) if self.patterns else ({}, params)

    def _wants_statistics(self) -> bool:
        if self.tx is None:
            return False
        opt_state = jax.eval_shape(self.tx.init, self.shapes.trainable)
        return gradient_squares.wants_statistics(opt_state)

    def _summary_of_finished(self) -> dict[str, Any] | None:
        path = self.dir / SUMMARY
        if not path.exists():
            return None
        summary = files.read_json_object(path, files.ANY_NUMBER)
        # All three: the task may have grown since the summary was written.
        done = self.store.latest_step() == summary.get("documents") == len(self.task)
        return summary if done else None

    def _start(self, trainable: Any, frozen: Any) -> tuple[int, StreamState]:
        """The number of the first document, and the state before it."""
        latest = self.store.latest_step()
        if latest is None:
            state = self.runner.start(trainable)
            if self._wants_statistics():
                mean, batches = self._collect(trainable, frozen)
                opt_state = gradient_squares.with_statistics(state.opt_state, mean, batches)
                shapes = self.runner.state_shapes(self.shapes.trainable).opt_state
                # Statistics come from the host: laid out as the compiled step expects.
                opt_state = jax.tree.map(
                    lambda x, like: jax.device_put(x, like.sharding), opt_state, shapes
                )
                state = state.replace(opt_state=opt_state)
            return 0, state
        shapes = self.runner.state_shapes(self.shapes.trainable)
        # Shapes carry shardings, so arrays are placed as the compiled step expects.
        latest, held = self.store.restore({**as_dict(shapes), "step": np.int32(0)})
        digest = self.store.metadata(latest).get("frozen_digest")
        if digest and digest != self.frozen_digest:
            raise UserError(
                f"{self.dir} was begun with another checkpoint than {self.restored.paths[0]}: the "
                "parameters that do not learn differ; use another EVAL_OUTPUT_DIR."
            )
        held.pop("step")
        self.seconds = float(self.store.dataset(latest).get("seconds", 0.0))
        print(f"Resuming behind document {latest} of {len(self.task)}.", flush=True)
        return latest, StreamState(**held)

    def _collect(self, trainable: Any, frozen: Any) -> tuple[Any, int]:
        about = {
            "checkpoint": str(Path(self.restored.paths[0]).absolute()),
            "trainable": sorted(flatten(trainable)),
        }
        return gradient_statistics.collect(
            settings=self.statistics,
            path=self.dir / STATISTICS,
            about=about,
            model=self.restored.model,
            trainable=trainable,
            frozen=frozen,
            stream=self.stream,
            reduction=self.updates.reduction,
            partitioner=self.restored.partitioner,
        )

    def _read(self, start: int, state: StreamState, frozen: Any, writer, forgetting) -> None:
        name = self.mask if isinstance(self.mask, str) else "patterns"
        total = len(self.task)
        with ProgressBar(total, f"dynamic_eval {name}", start=start, mode=self.progress) as bar:
            meter = _Meter(bar, start)

            def take(document: WordLosses, tokens: int) -> None:
                writer.add(document)
                meter.add(document, tokens)

            segments = self.runner.segments(self.task, start, self.checkpoint_period)
            try:
                # A checkpoint behind each segment; dump first, so that it never lacks scored
                # documents.
                for segment, after in self.runner.run(state, frozen, segments, take):
                    # Checkpoints and past text are not part of the seconds of dynamic evaluation.
                    meter.pause()
                    writer.flush()
                    self._end_segment(segment, after, frozen, forgetting, meter.seconds)
                    meter.go_on()
            except runner.DivergedError as e:
                writer.flush()
                self.store.close()
                raise self._diverged(str(e), e.document) from e
            self.seconds += meter.seconds
            self.tokens = meter.tokens

    def _end_segment(self, segment: Segment, state, frozen, forgetting, seconds: float) -> None:
        # Checked before saving: the last checkpoint must be one to go on from.
        if self.tx is not None and not bool(all_finite(state.params)):
            self.store.close()
            last = segment.documents[-1]
            raise self._diverged(
                f"The update after document {last.number} ({last.id!r}, {last.date}) with learning "
                f"rate {self.updates.learning_rate:g} left parameters that are not finite",
                segment.end,
            )
        # Without an optimizer the parameters do not change, and neither does past text's loss.
        if forgetting and segment.month_end and self.tx is not None:
            forgetting.measure(merge(state.params, frozen), segment.month, segment.end)
        self._save(segment, state, self.seconds + seconds)

    def _diverged(self, what: str, documents: int) -> UserError:
        advice = "check the checkpoint"
        if self.tx is not None:
            advice = "lower LEARNING_RATE and give another EVAL_OUTPUT_DIR"
        files.write_json(self.dir / DIVERGED, {"documents": documents, "what": what})
        return UserError(
            f"{what}: stopped; the documents before it, {documents}, are in {self.dir / DUMP}; "
            f"{advice}."
        )

    def _save(self, segment: Segment, state: StreamState, seconds: float) -> None:
        restored, path = self.restored, self.restored.paths[0]
        frozen = self.shapes.frozen, self.frozen_digest
        metadata = {
            "ckl_jax": __version__,
            "phase": phase_from(path),
            "inputs_digest": self.inputs_digest,
            **describe(restored.model, restored.method, self.dir, path, *frozen),
            "month": segment.month,
            "mask": self.mask,
        }
        position = {"next_step": segment.end, "epoch": 0, "seconds": seconds}
        # What `KeepSnapshots` looks for.
        metrics = {_SNAPSHOT: 1.0} if segment.month_end else {}
        tree = {**as_dict(state), "step": np.int32(segment.end)}
        self.store.save(segment.end, tree, metadata, position, metrics)

    def _about(self) -> dict[str, Any]:
        """All settings on which the numbers of the dump depend."""
        updates = {}
        if self.tx is not None:
            optimizer = {"optimizer": _name(self.updates.optimizer)}
            updates = dataclasses.asdict(self.updates) | optimizer
        return {
            "inputs": self.inputs_digest or str(Path(self.restored.paths[0]).absolute()),
            "model": type(self.restored.model.config).__name__,
            "vocabulary_digest": digest_of(self.restored.model.output_vocabulary),
            "task": self.task.folder.name,
            "mask": self.mask if isinstance(self.mask, str) else list(self.mask),
            "chunk_length": self.stream.chunk_len,
            "memory_length": self.stream.memory_length,
            "reset_at_doc": self.stream.reset_at_doc,
            "score_eos": self.stream.score_eos,
            "checkpoint_period": self.checkpoint_period,
            "updates": updates,
        }

    def _write_summary(self, forgetting: Forgetting | None) -> dict[str, Any]:
        months: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0.0])
        tokens = 0
        for shard in read_dump(self.dir / DUMP):
            sums = months[shard.month]
            sums[0] += len(shard)
            sums[1] += len(shard.words)
            # In double precision: a month has millions of words.
            sums[2] += float(shard.nll.sum(dtype="f8"))
            tokens += int(shard.tokens.sum())
        summary = {
            **_perplexity(*map(sum, zip(*months.values(), strict=True))),
            "tokens": tokens,
            "mask": self.mask,
            "trainable_parameters": artifacts.count(self.shapes.trainable),
            "total_parameters": artifacts.count(self.shapes.params),
            "learning_rate": self.updates.learning_rate if self.tx is not None else None,
            "seconds": round(self.seconds, 3),
            "tokens_per_second": round(tokens / max(self.seconds, 1e-9), 1),
            "device": jax.devices()[0].device_kind,
            "months": {month: _perplexity(*sums) for month, sums in months.items()},
        }
        if forgetting:
            summary["forgetting"] = analysis.summarize(forgetting.rows())
        files.write_json(self.dir / SUMMARY, summary)
        print(
            f"{summary['documents']} documents, {summary['words']} words: word perplexity "
            f"{summary['word_perplexity']:.2f}; {self.dir / SUMMARY} says it by month."
        )
        nats = sum(sums[2] for sums in months.values()) / max(tokens, 1)
        # A uniform distribution over the vocabulary.
        guessing = float(np.log(self.restored.model.config.vocab_size))
        if nats > guessing:
            rate = "the learning rate is too high, or " if self.tx is not None else ""
            print(
                f"That is {nats:.2f} nats a token, where guessing costs {guessing:.2f}: {rate}the "
                "model is not one of such text."
            )
        return summary


class _Meter:
    """Updates the progress bar periodically; measures time without checkpoints."""

    def __init__(self, bar: ProgressBar, done: int):
        self._bar, self._done, self._last_shown = bar, done, (0.0, 0)
        self.seconds, self.tokens = 0.0, 0
        self._clock = time.monotonic()

    def add(self, document: WordLosses, tokens: int) -> None:
        self._done += 1
        self.tokens += tokens
        # Not for every document: short ones take less than a millisecond each.
        now = self.seconds + time.monotonic() - self._clock
        if now - self._last_shown[0] >= _PROGRESS_SECONDS or self._done == self._bar.total:
            loss = float(document.nll.sum()) / max(tokens, 1)
            seconds, tokens = now - self._last_shown[0], self.tokens - self._last_shown[1]
            self._bar.update(self._done, seconds=seconds, loss=loss, tokens=tokens)
            self._last_shown = (now, self.tokens)

    def pause(self) -> None:
        self.seconds += time.monotonic() - self._clock

    def go_on(self) -> None:
        self._clock = time.monotonic()


def _perplexity(documents: float, words: float, nll: float) -> dict[str, Any]:
    counts = {"documents": int(documents), "words": int(words)}
    return {**counts, "nll": nll, "word_perplexity": perplexity(nll / max(words, 1))}


def _name(function: Any) -> str:
    """The name of an optimizer, such as "optax.adam"."""
    if isinstance(function, functools.partial):
        return f"{_name(function.func)} {sorted(function.keywords.items())}"
    inner = getattr(function, "__wrapped__", function)
    return f"{inner.__module__}.{inner.__name__}" if hasattr(inner, "__name__") else "an object"
