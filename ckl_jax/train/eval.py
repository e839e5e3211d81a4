"""`t5x eval`: evaluates the probes on checkpoints of a run, for any method."""

from collections.abc import Sequence
from pathlib import Path

import jax

from ckl_jax.errors import UserError
from ckl_jax.files import atomic_write, os_errors, read_text
from ckl_jax.methods.method import Method, vanilla
from ckl_jax.models.base import BaseTransformerModel
from ckl_jax.parallel.mesh import Partitioner
from ckl_jax.train.configs import RestoreCheckpointConfig
from ckl_jax.train.evaluations import (
    Evaluations,
    MakeEvaluation,
    Row,
    Scores,
    chosen,
    refuse_others,
    write_evaluation,
    write_metrics,
)
from ckl_jax.train.metrics_log import EventFile
from ckl_jax.train.remote_sync import Mirror
from ckl_jax.train.restore import RestoredModel, phase_from, position
from ckl_jax.train.resume_check import refuse_foreign


def evaluate(
    *,
    model: BaseTransformerModel,
    restore_checkpoint_cfg: RestoreCheckpointConfig,
    output_dir: str,
    probes: MakeEvaluation | None = None,
    held_out: MakeEvaluation | None = None,
    evaluations: Sequence[MakeEvaluation] = (),
    method: Method = vanilla(),  # noqa: B008 (a frozen record)
    partitioner: Partitioner | None = None,
    run_name: str | None = None,
    phase: int | None = None,
) -> dict[int, Scores]:
    """Probes one checkpoint, or all of a run, and writes rows, inferences and metrics.

    With the mode "all" a checkpoint that is listed in every `eval.<probe or task>.ckpt` of the
    output folder is left out, so an interrupted evaluation goes on where it was.

    Args:
      model: the base model; the method is put into it here.
      restore_checkpoint_cfg: which checkpoints.
      output_dir: gets `config.gin`, `model-info.txt`, `probes/`, `inference_eval/`,
        `training_eval/`.
      probes, held_out: the first of the evaluations, with arguments of their own, so that a gin
        file binds one without repeating the others.
      evaluations: as `train.train.train` takes them; one whose `names` are empty is left out.
      method: the one that trained the checkpoints.
      partitioner: mesh and rules.
      run_name: for rows; default, the checkpoints' folder's name.
      phase: for rows; None is the checkpoint's.

    Returns:
      Scores by step and probe, in percent, and by step and task.

    Raises:
      UserError: something in the configuration or the files does not fit, or `output_dir` holds
        files of others.
    """
    makers = chosen(probes, evaluations, held_out)
    if not makers:
        raise UserError(
            "There is nothing to evaluate: PROBES is None or empty; bind a ClosedBook, or give "
            "HELD_OUT_TASKS, FACT_PROBES or PROPER_NOUN_TASKS."
        )
    refuse_foreign(output_dir, "EVAL_OUTPUT_DIR")
    restored = RestoredModel(model, method, partitioner, restore_checkpoint_cfg)
    evaluate_params = Evaluations(makers, restored.model, restored.partitioner)
    mirror = Mirror.of(output_dir)
    # Before `Done` reads them: another machine may have begun this evaluation in the bucket.
    mirror.pull()
    done = Done(output_dir, tuple(name for e in makers for name in getattr(e, "names", ())))
    results: dict[int, Scores] = {}
    left = restored.paths
    # A checkpoint that is named by itself is evaluated again in any case, as are all of them by an
    # evaluation without names, of which it is not known what it has done.
    if restore_checkpoint_cfg.mode == "all" and all(hasattr(e, "names") for e in makers):
        left = [path for path in left if not done.has(path)]
    for path in left:
        refuse_others(output_dir, position(path)[0], evaluate_params.probes)
    if not left and jax.process_index() == 0:
        print(
            f"All {len(restored.paths)} checkpoints were evaluated already; their results are in "
            f"{output_dir}. Remove its eval.*.ckpt files to evaluate them again.",
            flush=True,
        )
    with restored.partitioner.on_mesh():
        for path in left:
            step, epoch = position(path)
            context = {
                "run": run_name or Path(path).absolute().parent.name,
                "method": method.name,
                "epoch": epoch,
                "step": step,
                "phase": phase_from(path) if phase is None else phase,
            }
            # All processes compute; the first one alone writes.
            params = restored.load(path)
            restored.describe(output_dir)
            rows, measured = evaluate_params(params, context, last=True)
            if jax.process_index() == 0:
                results[step] = _write(output_dir, step, rows, measured)
                # After the results are written: an interruption before this line repeats the
                # checkpoint.
                done.add(path)
                mirror.push()
                print(_table(path, results[step]), flush=True)
    return results


def _write(output_dir: str, step: int, rows: Sequence[Row], measured: Scores) -> Scores:
    """Writes rows, metrics and events; returns the scores by probe and task."""
    scores = write_evaluation(output_dir, step, rows) if rows else {}
    write_metrics(output_dir, step, measured)
    splits = {f"inference_eval/{probe}": x for probe, x in scores.items()} | measured
    _write_events(output_dir, step, splits)
    return scores | {s.removeprefix("training_eval/"): x for s, x in measured.items()}


class Done:
    """T5X's `eval.<task>.ckpt`: the checkpoints that were evaluated on a task, one a line."""

    def __init__(self, folder: str, tasks: tuple[str, ...]):
        self._files = [Path(folder) / f"eval.{task}.ckpt" for task in tasks]

    def _lines(self, file: Path) -> list[str]:
        return read_text(file).splitlines() if file.exists() else []

    def has(self, path: str) -> bool:
        # All of them: a task that was added since makes the checkpoint due again.
        return all(path in self._lines(file) for file in self._files)

    def add(self, path: str) -> None:
        for file in self._files:
            # No path twice, in the order of the evaluations.
            lines = dict.fromkeys([*self._lines(file), path])
            with atomic_write(file) as f:
                f.writelines(f"{line}\n" for line in lines)


def _write_events(folder: str, step: int, splits: Scores) -> None:
    for split, values in splits.items():
        with os_errors(folder):
            # None: checkpoints may be evaluated in any order, so events of later steps stay
            # visible.
            events = EventFile(Path(folder) / split, None)
            events.scalars(step, values)
            events.close()


def _table(path: str, scores: Scores) -> str:
    width = max(map(len, scores), default=0)  # of a probe without items there are none
    lines = [path]
    for probe, values in scores.items():
        numbers = "  ".join(f"{name} {value:6.2f}" for name, value in values.items())
        lines.append(f"  {probe:{width}}  {numbers}")
    return "\n".join(lines)
