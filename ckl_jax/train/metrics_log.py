"""Scalars of a run: `metrics.jsonl`, TensorBoard events, Weights & Biases and MLflow.

Importing this imports no TensorFlow: events are written through tensorboard's own record writer.
"""

import collections
import dataclasses
import importlib.util
import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ckl_jax import checks
from ckl_jax.analysis.rows import METRICS_FILE, metrics_row
from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, os_errors, write_file

# What takes the numbers of a run in addition to its own files: {"train/loss": 1.5, ...} of a step.
Log = Callable[[int, Mapping[str, float]], Any]


def _wandb(folder: Path, known: str | None) -> tuple[str, Log, Callable[[], Any]]:
    import wandb

    run = wandb.init(dir=str(folder), name=folder.name, id=known, resume="allow")
    run.define_metric("*", step_metric="step")  # W&B's own steps never go back
    return run.id, lambda step, values: run.log({"step": step, **values}), run.finish


def _mlflow(folder: Path, known: str | None) -> tuple[str, Log, Callable[[], Any]]:
    import mlflow

    run = mlflow.start_run(run_id=known, run_name=None if known else folder.name)
    return run.info.run_id, lambda step, values: mlflow.log_metrics(values, step), mlflow.end_run


SERVICES = {"wandb": _wandb, "mlflow": _mlflow}


def check_services(names: Sequence[str]) -> None:
    """Raises `UserError` for a service that is not known or not installed."""
    checks.require_names(SERVICES, empty=True, metric_services=names)
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"{name} is not installed: pip install 'ckl-jax[{name}]'.")


class MetricWriter:
    """Writes scalars by split to `<model_dir>/<split>/events.*` and `<model_dir>/metrics.jsonl`.

    A split is "train", "training_eval/<task>" or "inference_eval/<task>". Each scalar is on disk
    when `write` returns.

    Args:
      model_dir: the run's folder.
      resume_step: the step that was restored, 0 for a new run: rows of later steps, which the run
        will write again, are dropped from the file, and TensorBoard is told to forget them.
      enabled: False on all processes but the first; then nothing is written.
      services: names of `SERVICES`, which get the numbers too. One that fails is warned of and left
        out from then on; training goes on.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike,
        *,
        resume_step: int = 0,
        enabled: bool = True,
        services: Sequence[str] = (),
    ):
        self.model_dir = Path(model_dir)
        self.enabled = enabled
        self._resume_step = resume_step
        self._events: dict[str, Any] = {}
        self._known: set[tuple[str, str]] = set()
        if enabled:
            path = self.model_dir / METRICS_FILE
            self._known = truncate_metrics(path, resume_step)
            with os_errors(path):
                self.model_dir.mkdir(parents=True, exist_ok=True)
                self._jsonl = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self._services: dict[str, tuple[str, Log, Callable[[], Any]]] = {}
        for name in services if enabled else ():
            self._try(name, lambda n=name: self._start(n))

    def __enter__(self) -> "MetricWriter":
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    def write(self, split: str, step: int, scalars: Mapping[str, Any]) -> None:
        """Writes one row and one TensorBoard event of named numbers (device scalars are fetched).

        Raises:
          UserError: the disk is full or read-only.
        """
        values = {name: _number(value) for name, value in scalars.items()}
        if step == self._resume_step:
            # Written before the restart, perhaps: a repeated evaluation gives the same numbers.
            values = {n: v for n, v in values.items() if (split, n) not in self._known}
        if not self.enabled or not values:
            return
        with os_errors(self.model_dir / METRICS_FILE):
            row = {"step": int(step), "split": split, **values}
            self._jsonl.write(json.dumps(row, ensure_ascii=False) + "\n")
            # A kill loses no row that was written.
            self._jsonl.flush()
            self._event_file(split).scalars(int(step), values)
        named = {f"{split}/{name}": value for name, value in values.items()}
        for name, (_, log, _) in list(self._services.items()):
            self._try(name, lambda log=log: log(int(step), named))

    def text(self, split: str, step: int, name: str, text: str) -> None:
        """Writes a text to TensorBoard (Markdown), such as the gin config."""
        if self.enabled:
            with os_errors(self.model_dir / split):
                self._event_file(split).text(int(step), name, text)

    def close(self) -> None:
        if self.enabled:
            self.enabled = False
            with os_errors(self.model_dir):  # what is still buffered may not fit on the disk
                self._jsonl.close()
                for events in self._events.values():
                    events.close()
            for name, (_, _, finish) in list(self._services.items()):
                self._try(name, finish)

    def _start(self, name: str) -> None:
        """Starts a service's run, or goes on with the one that MODEL_DIR/<name>_run.txt names."""
        file = self.model_dir / f"{name}_run.txt"
        known = file.read_text() if file.exists() else None
        self._services[name] = SERVICES[name](self.model_dir, known)
        write_file(file, self._services[name][0])

    def _try(self, name: str, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as e:  # a network's, a server's
            self._services.pop(name, None)
            warnings.warn(f"{name} gets no more numbers of this run: {e}", stacklevel=3)

    def _event_file(self, split: str) -> "EventFile":
        if split not in self._events:
            folder = self.model_dir / split
            if file := next((p for p in (folder, *folder.parents) if p.is_file()), None):
                raise UserError(
                    f"{file} is a file, so {split!r} cannot have its scores below it; use another "
                    "name for the split."
                )
            self._events[split] = EventFile(folder, self._resume_step)
        return self._events[split]


def _is_ready(value: Any) -> bool:
    return not hasattr(value, "is_ready") or value.is_ready()


def _number(value: Any) -> int | float:
    # np.asarray waits for a device array and copies it to the host.
    value = np.asarray(value).item()
    return value if isinstance(value, int) else float(value)


def truncate_metrics(path: str | os.PathLike, resume_step: int) -> set[tuple[str, str]]:
    """Drops rows of steps after `resume_step`, and an incomplete last line.

    Returns:
      The (split, name) pairs that the file holds for `resume_step` itself.
    """
    if not Path(path).exists():
        return set()
    known, kept, dropped = set(), [], False
    # errors="replace": a kill can cut a line within a character, and that line is dropped below
    # anyway.
    with os_errors(path, "read"), open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            row = metrics_row(line)
            if row is None or row["step"] > resume_step:
                dropped = True
                continue
            kept.append(line)
            if row["step"] == resume_step:
                known |= {(row["split"], name) for name in row.keys() - {"step", "split"}}
    if dropped:
        # Only if there is something to drop: the file of a long run is large.
        with atomic_write(path) as f:
            f.writelines(kept)
    return known


class EventFile:
    """A TensorBoard event file in a folder of its own.

    Args:
      folder: made if missing.
      resume_step: events of later steps in the folder's older files are no longer shown; None
        shows all.
    """

    def __init__(self, folder: str | os.PathLike, resume_step: int | None = 0):
        # Imported here: `t5x --help` and the tests of other modules do not wait for it.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads all files of a folder whose name has "tfevents", in alphabetical order:
        # by nanoseconds, so a resumed run's file comes after the older ones. The clock may have
        # been set back since.
        numbers = [p.name.split(".")[3] for p in folder.glob("events.out.tfevents.*.*")]
        after = [int(number) + 1 for number in numbers if number.isdecimal()]
        now = max([time.time_ns(), *after])
        name = f"events.out.tfevents.{now}.{socket.gethostname()}.{os.getpid()}"
        self._writer = RecordWriter(open(folder / name, "wb"))  # noqa: SIM115
        # TensorBoard expects this record first.
        self._add(self._event(file_version="brain.Event:2"))
        if resume_step is not None:
            # After a START record TensorBoard discards older events of this step and later ones.
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._add(self._event(step=resume_step + 1, session_log=start))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        value = [self._summary.Value(tag=n, simple_value=v) for n, v in values.items()]
        self._add(self._event(step=step, summary=self._summary(value=value)))

    def text(self, step: int, name: str, text: str) -> None:
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(self._event(step=step, summary=text_pb(name, text)))

    def close(self) -> None:
        self._writer.close()

    def _add(self, event: Any) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
        self._writer.flush()


class LateFetcher:
    """Fetches device scalars `lag` steps late, so that the host never waits for the last step.

    With a lag of 2 the device always has a step in its queue while the host reads an old one.
    The time of a step ends when its scalars were there, not when they were read: the
    last steps before a pause are read in one go, and on a CPU a step is done when it is dispatched.
    """

    def __init__(self, lag: int = 2, clock: Callable[[], float] = time.monotonic):
        self.lag, self._clock = lag, clock
        self._queue: collections.deque[_Late] = collections.deque()
        self._before = clock()

    def start(self) -> None:
        """Starts the clock of the next step; time before this call is not counted."""
        self._before = self._clock()

    def push(self, step: int, scalars: Mapping[str, Any]) -> list["Fetched"]:
        """Takes the unfetched scalars of `step`; returns those that are due, oldest first, as
        numbers.
        """
        for value in scalars.values():
            if hasattr(value, "copy_to_host_async"):
                # Starts the copy as soon as the value is computed, and returns at once.
                value.copy_to_host_async()
        self._queue.append(_Late(step, scalars))
        # Before fetching: a time taken after a blocking fetch would be too late.
        self._look()
        return [self._fetch() for _ in range(len(self._queue) - self.lag)]

    def flush(self) -> list["Fetched"]:
        """Waits for and returns all remaining scalars."""
        return [self._fetch() for _ in range(len(self._queue))]

    def _look(self) -> None:
        for late in self._queue:
            if late.done is None:
                if not all(_is_ready(value) for value in late.scalars.values()):
                    return  # steps end in their order
                late.done = self._clock()

    def _fetch(self) -> "Fetched":
        late = self._queue.popleft()
        numbers = {name: _number(value) for name, value in late.scalars.items()}
        # Not seen as done until now: `_number` above has waited for it, so it is done at this
        # moment.
        done = self._clock() if late.done is None else late.done
        seconds, self._before = done - self._before, done
        return Fetched(late.step, numbers, seconds)


@dataclasses.dataclass
class _Late:
    step: int
    scalars: Mapping[str, Any]
    done: float | None = None


class Fetched(NamedTuple):
    """The fetched scalars of a step, and its duration."""

    step: int
    numbers: dict[str, int | float]
    seconds: float
