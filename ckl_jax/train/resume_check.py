"""Checks that a run may be resumed with the current settings."""

import contextlib
import fnmatch
import hashlib
import json
import os
import re
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.checkpoints.restore import (
    UnreadableCheckpoint,
    complete_steps,
    find_checkpoint,
    is_remote,
    read_json_item,
)
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.errors import UserError
from ckl_jax.files import os_errors, read_text

# What leaves the result of a run as it is: where it lies, how it is shown, cut up and kept,
# and what facts it is probed with.
FREE_MACROS = {
    "MODEL_DIR",
    "CHECKPOINT_PERIOD",
    "CHECKPOINTS_KEPT",
    "CHECKPOINT_MINUTES",
    "COMPILE",
    "MESH_SHAPE",
    "NUM_MICROBATCHES",
    "PROBE_BATCH_SIZE",
    "FACT_BATCH_SIZE",
    "FACT_PROBES",
    "PROPER_NOUN_TASKS",
    "PROPER_NOUN_ROWS",
    "PROPER_NOUN_TAGGER",
    "PROPER_NOUN_GROUPS",
    "REMAT_POLICY",
    "ATTENTION_IMPL",
    "LOGITS_AT_A_TIME",
}
FREE_PARAMETERS = {
    "model_dir",
    "progress",
    "log_period",
    "metric_services",
    "run_name",
    "num_microbatches",
    "partitioner",
    "remat_policy",
    "attention_impl",
    "logits_at_a_time",
    "keep",
    "minutes",
    "period",
}
# Names of settings that say where data, vocabulary or base lie.
_PLACES = re.compile(r"(dirs?|path|folder|vocabulary|checkpoint)$", re.I)
# Names of settings that give tasks by name or folder.
_TASKS = re.compile(r"task(s|_name)?$", re.I)
FREE_SELECTORS = ("mesh.", "precompile.", "eval.", "infer.")  # other jobs, and the mesh

# Any of these is the sign of a run, begun or done.
_RUN_FILES = ("checkpoint_*", "log.txt")
# Setting of a folder -> what writes there; a pattern in its config.gin: that of an evaluation has
# its run's settings too, and T5X's gin files call the job `eval_script.evaluate`.
_JOBS = {
    "MODEL_DIR": ("a run", "# Parameters for "),
    "EVAL_OUTPUT_DIR": ("an evaluation", r"# Parameters for (\w+\.)*evaluate:"),
    "INFER_OUTPUT_DIR": ("an inference", r"# Parameters for (\w+\.)*infer:"),
}
# Others may have files of these names, and of config.gin; a pattern in those of a job.
_RECORDS = {"model-info.txt": " partition spec ", "vocabulary.json": '"copied_from"'}
_LAUNCHER_LOGS = ("*.err", "*.log", "*.out", "log.txt")  # may be there before the job


def refuse_foreign(folder: str | Path, setting: str = "MODEL_DIR") -> None:
    """Refuses a folder that contains files of others, and none of the job that writes into it.

    Hidden files and logs of launchers do not count.

    Args:
      folder: where a job writes.
      setting: "MODEL_DIR", "EVAL_OUTPUT_DIR" or "INFER_OUTPUT_DIR".

    Raises:
      UserError: naming a file that is there; or it can be no folder.
    """
    checks.require_text(**{setting: folder})
    if is_remote(folder):
        return
    checks.require_folder(**{setting: folder})
    if not os.path.isdir(folder):
        return
    with os_errors(folder, "read"):
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
    job, config = _JOBS[setting]
    records = {n: text for n, text in ({"config.gin": config} | _RECORDS).items() if n in names}
    run = setting == "MODEL_DIR" and any(fnmatch.filter(names, name) for name in _RUN_FILES)
    if (run or records) and all(
        _contains(Path(folder) / name, text) for name, text in records.items()
    ):
        return
    before = {name for pattern in _LAUNCHER_LOGS for name in fnmatch.filter(names, pattern)}
    if (Path(folder) / "task" / "manifest.json").is_file():  # of light-tuning, cached before
        before.add("task")
    if foreign := [name for name in names if name not in before]:
        raise UserError(
            f"{setting} {folder} holds {foreign[0]} and is not the folder of {job}; choose "
            "a new folder."
        )


def _contains(record: Path, pattern: str) -> bool:
    return record.is_file() and re.search(pattern, read_text(record)) is not None


def digest_inputs(tasks: Sequence[CachedTask], vocabulary: Any, base: Any | None) -> str | None:
    """SHA-256 of what a run reads, wherever it lies.

    Args:
      tasks: whose rows it reads.
      vocabulary: the model's.
      base: the checkpoint, or MODEL_DIR, that it starts from.

    Returns:
      The digest; None if one of them records none.
    """
    digests = [[task.manifest["features"] for task in tasks], digest_of(vocabulary)]
    if base:
        with contextlib.suppress(UserError):  # whoever restores it says what is wrong
            metadata = read_json_item(find_checkpoint(base), "metadata")
            digests.append(metadata.get("sha256"))
    if not all(digests) or len(digests) != 2 + bool(base):
        return None
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def check_same_run(
    model_dir: str | Path,
    method: str,
    may_differ: bool = False,
    setting: str = "MODEL_DIR",
    inputs: str | None = None,
) -> str | None:
    """Raises `UserError` if `model_dir` has a checkpoint of a run with other settings.

    Its `config.gin` is compared with the whole configuration of gin, where the program is run by
    gin; the method is compared in any case.

    Args:
      model_dir: the folder.
      method: name of the method of the run that is to be done in it.
      may_differ: a setting that differs is not an error.
      setting: the macro that names the folder.
      inputs: digest of all that the run reads; if it is the one of the checkpoint, places that
        differ are no other settings, and if it is another, equal places are.

    Returns:
      The first setting that differs from the earlier run, or None; see `first_difference`.
    """
    checks.require_folder(**{setting: model_dir})
    if not complete_steps(model_dir):
        return None
    held: dict[str, Any] = {}
    with contextlib.suppress(UnreadableCheckpoint), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whoever restores it warns of a damaged one
        held = read_json_item(find_checkpoint(model_dir), "metadata")
        if (name := held.get("method")) and name != method:
            raise UserError(
                f"{model_dir} holds a run of {name!r}, not {method!r}; use another {setting}."
            )
    config, difference = Path(model_dir) / "config.gin", None
    read_before = held.get("inputs_digest")
    same_inputs = inputs is not None and read_before == inputs
    other_inputs = inputs is not None and bool(read_before) and not same_inputs
    # Gin may be loaded without having configured this program, e.g. in a notebook.
    if "gin" in sys.modules and config.exists():
        from ckl_jax.config import gin_config

        if gin_config.in_job():
            text = read_text(config)
            difference = first_difference(text, gin_config.config_text(), same_inputs)
    if difference and not may_differ:
        also = " (data, vocabulary or base have other content)" if other_inputs else ""
        raise UserError(
            f"{model_dir} was trained {difference}{also}; use another {setting} or the old "
            f"value, or go on with its settings alone: --gin_file={config}."
        )
    if other_inputs and not difference:
        difference = "on data, a vocabulary or a base of other content in the same places"
        if not may_differ:
            raise UserError(
                f"{model_dir} was trained {difference}; put those back, or use another {setting}."
            )
    return difference


def first_difference(old: str, new: str, same_inputs: bool = False) -> str | None:
    """The first binding in which two gin texts differ with effect on the result, or None.

    Args:
      old, new: the texts.
      same_inputs: data, vocabulary and base are known to be the same, so that their places are not
        compared, and of tasks only their names.

    Returns:
      Such as "with LEARNING_RATE = 0.001, not 0.5". Macros come before what uses them.
    """
    before, after = _bindings(old), _bindings(new)
    # after.keys()|SKIP
    for name in sorted(before.keys() | after.keys(), key=lambda name: ("." in name, name)):
        if _is_free(name) or (same_inputs and _PLACES.search(name)):
            continue
        if name not in before:
            return f"without {name} = {_shown(after[name])}"
        if name not in after:
            return f"with {name} = {_shown(before[name])}, which is not set now"
        known = same_inputs and _TASKS.search(name)
        if not _equal(*(_without_folders(x) if known else x for x in (before[name], after[name]))):
            return f"with {name} = {_shown(before[name])}, not {_shown(after[name])}"
    return None


def _bindings(text: str) -> dict[str, Any]:
    from ckl_jax.config import gin_scan

    # Scanned, not executed by gin: the old text must not change this run's configuration.
    bindings = {b.name: b.value for b in gin_scan.scan([], [text], []).bindings}

    def value_of(name: str, *before: str) -> Any:
        value = bindings[name]
        is_macro = isinstance(value, gin_scan.Macro) and value.name in bindings
        return (
            value_of(value.name, name, *before) if is_macro and value.name not in before else value
        )

    return {name: value_of(name) for name in bindings}


def _is_free(name: str) -> bool:
    # A macro has no dot; anything else is "scope/module.function.parameter".
    scoped, _, parameter = name.rpartition(".")
    if not scoped:
        return name in FREE_MACROS
    # Without its gin scope.
    selector = scoped.rpartition("/")[2]
    if selector.endswith(("ClosedBook", "FactProbes")) and parameter == "batch_size":
        return True
    if selector.endswith(".make_inputs"):  # what a run reads is compared where it reads it
        return True
    return parameter in FREE_PARAMETERS or selector.startswith(FREE_SELECTORS)


def _without_folders(tasks: Any) -> Any:
    if isinstance(tasks, (list, tuple)):
        return [_without_folders(task) for task in tasks]
    return os.path.basename(os.path.normpath(tasks)) if isinstance(tasks, str) else tasks


def _equal(a: Any, b: Any) -> bool:
    """Whether two values are equal; spellings of the same path are."""
    if isinstance(a, str) and isinstance(b, str):
        # All strings are compared as paths: equal strings stay equal, and "runs/x/" is "runs/x".
        return os.path.abspath(a) == os.path.abspath(b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return a == b


def _shown(value: Any) -> str:
    from ckl_jax.config.gin_scan import Macro, Reference

    if isinstance(value, Macro):
        return f"%{value.name}"
    if isinstance(value, Reference):
        return f"@{value.selector}"
    return repr(value)
