"""Makes the simulated world's data and base model where they are missing.

Gin files of the simulated world work in an empty folder: they bind `make_inputs` as the step by
which a training makes what it reads. It only fills in what is not there.
"""

import dataclasses
import functools
import shlex
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks, files
from ckl_jax.data.facts.ckl_files import CORPORA, REVIEWS
from ckl_jax.data.tasks.cached import find_task
from ckl_jax.data.tasks.causal import prepare_rows
from ckl_jax.data.tasks.prepare import prepare_ckl
from ckl_jax.data.text.vocabularies import Vocabulary
from ckl_jax.errors import UserError, refuse_unknown
from ckl_jax.parallel import processes
from ckl_jax.train.subprocess_runs import t5x, t5x_arguments
from ckl_jax.world.ckl import build_world, check_world, read_world


def prepare(
    data_dir: str,
    seed: int = 0,
    size: str = "small",
    vocab_size: int | None = None,
    source: str = "simulated",
    facts_dir: str | None = None,
    variant: str | None = None,
    vocabulary: Path | None = None,
) -> Path:
    """Makes a world's files, its vocabulary and its cached tasks in `data_dir`.

    Args:
      data_dir: gets `ckl/` (files in CKL's layout) and `prepared/` (vocabulary and tasks).
      seed, size: of the world; see `world.ckl.build_world`.
      vocab_size: upper bound on the vocabulary's tokens; default, enough for whole names.
      source: one of `world.facts.SOURCES`; real facts are read from `facts_dir`.
      facts_dir: folder of the real facts.
      variant: of the world: "disjoint" or "legacy".
      vocabulary: that of a model; None trains one on the world's texts.

    Returns:
      The path of the vocabulary.
    """
    root = Path(data_dir)
    if not (root / "ckl" / "manifest.json").exists():
        check_world(source, size, facts_dir, variant)
        print(f"Making the {source} world (seed {seed}, {size}) in {root}.", flush=True)
    if vocab_size is None:
        # The large world has 9,011; rows of fewer would not fit into the lengths of the gin files.
        vocab_size = 16384 if (source, size) == ("simulated", "large") else 4096
    # Each of these leaves alone what is there already.
    build_world(root / "ckl", seed, size, source=source, data_dir=facts_dir, variant=variant)
    prepare_ckl(root / "ckl", root / "prepared", vocab_size, vocabulary=vocabulary)
    return vocabulary or root / "prepared" / "vocabulary.model"


def prepare_for(settings: Any) -> None:
    """Makes the data of a `Demo` or of the `Running` of experiments, below its folder."""
    facts = {"source": settings.source, "facts_dir": settings.data, "variant": settings.world}
    vocabulary = settings.imported.vocabulary if settings.imported else None
    data = str(settings.root / "data")
    prepare(data, settings.seed, settings.size, **facts, vocabulary=vocabulary)


class LateVocabulary:
    """A `Vocabulary` whose file may be missing until it is first used."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __getattr__(self, name: str):
        # copy and pickle look up special methods before the object is initialised.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._read, name)

    @functools.cached_property
    def _read(self) -> Vocabulary:
        return Vocabulary(self.path)

    def __reduce__(self):
        # Unpickled in worker processes as an ordinary vocabulary, whose file exists by then.
        return Vocabulary, (self.path,)

    def __repr__(self) -> str:
        return f"Vocabulary({self.path!r})"


def vocabulary(
    data_dir: str, make: bool = True, checkpoint: str | None = None
) -> Vocabulary | LateVocabulary:
    """The vocabulary of the world in `data_dir`.

    Args:
      data_dir: of the world.
      make: whether `make_inputs` may still have to make it: not for a model that is evaluated.
      checkpoint: of such a model; looked for first.

    Raises:
      UserError: the checkpoint is missing, or the vocabulary is and may not be made.
    """
    checks.require_text(DATA_DIR=data_dir)
    path = Path(data_dir) / "prepared" / "vocabulary.model"
    # gin builds the model before `make_inputs` runs, so the file cannot be read yet.
    if make:
        return LateVocabulary(path)
    if checkpoint is not None:
        _restore().find_checkpoint(checkpoint)
    if not path.exists():
        raise UserError(
            f"There is no {path}, the vocabulary of the run; if its data have moved, say where to "
            "by --gin.DATA_DIR=\"'folder'\"."
        )
    return Vocabulary(path)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of running text from the world's documents, for decoder-only and masked models.

    Attributes:
      folder: gets the cached tasks.
      length, packed, legacy: of the rows; see `data.tasks.causal.causal_rows`.
      tasks: d0, the old documents; d1, the news; whole, both.
    """

    folder: str
    length: int = 64
    packed: bool = False
    legacy: bool = False
    tasks: Sequence[str] = ("d0", "d1")


def make_inputs(
    *,
    data_dir: str,
    seed: int = 0,
    size: str = "small",
    variant: str = "disjoint",
    vocabulary: Any = None,
    rows: Rows | None = None,
    initial: str | None = None,
    initial_dir: str | None = None,
    initial_gin_files: Sequence[str] = (),
    tasks: Sequence[str | None] = (),
    cache_dirs: Sequence[str] = (),
    probe_dir: str | None = None,
) -> Callable[[], None] | None:
    """Makes the missing inputs of a run on the simulated world.

    Args:
      data_dir: of the world's files, vocabulary and cached tasks.
      seed, size, variant: of the world.
      vocabulary: of the run; with another than the world's, nothing is made.
      rows: further rows of running text to make.
      initial: the checkpoint that the run starts from, or None.
      initial_dir: MODEL_DIR of the Initial model, which is trained if it is missing and `initial`.
      initial_gin_files: the job that trains it.
      tasks, cache_dirs, probe_dir: what the run reads, to be looked for before anything is made.

    Returns:
      What trains the Initial model, or None if nothing is to be trained.

    Raises:
      UserError: there is no such world, the folder holds another, the run reads what is neither
        there nor will be made, several processes lack the Initial model, or a training failed.
    """
    names = {"INITIAL_DIR": initial_dir, "INITIAL_CHECKPOINT_PATH": initial, "PROBE_DIR": probe_dir}
    checks.require_text(DATA_DIR=data_dir, **{k: x for k, x in names.items() if x is not None})
    path = Path(data_dir) / "prepared" / "vocabulary.model"
    # The run reads other data: nothing of the simulated world is needed.
    if getattr(vocabulary, "path", None) != str(path):
        return None
    checks.require_folder(DATA_DIR=data_dir, INITIAL_DIR=initial_dir or data_dir)
    world = {"WORLD_SEED": seed, "WORLD_SIZE": size, "WORLD": variant}
    _check_world(data_dir, world)
    _check_tasks(tasks, rows, cache_dirs)
    if initial is not None and initial != initial_dir:
        _restore().find_checkpoint(initial)
    if probe_dir is not None and Path(probe_dir) != Path(data_dir) / "ckl":
        if not Path(probe_dir).is_dir():
            raise UserError(f"PROBE_DIR {probe_dir} is no folder; give that of the probes' files.")
    lacks_initial = initial is not None and initial == initial_dir and not _is_trained(initial)
    macros = {"MODEL_DIR": initial_dir, "DATA_DIR": data_dir, **world}
    if lacks_initial and processes.are_several():
        # One process would train it, which needs devices that this one holds.
        words = t5x_arguments("train", initial_gin_files, macros)
        command = shlex.join(("t5x", *words))
        raise UserError(
            f"There is no Initial model in {initial_dir} yet, and a run of several processes does "
            f"not train it on the way; first start, in the same manner or by one process: {command}"
        )
    with files.locked(data_dir, wait=True):
        _check_world(data_dir, world)  # that another process may have made by now
        if not (Path(data_dir) / "prepared" / "tasks" / "d0" / "manifest.json").exists():
            prepare(data_dir, seed, size, variant=variant)
        if rows is not None:
            # Methods that review D0 read a part of the disjoint world's.
            tasks = (*rows.tasks, *(("d0_review",) if variant == "disjoint" else ()))
            sources = {name: _documents(Path(data_dir), name) for name in tasks}
            form = {"packed": rows.packed, "legacy": rows.legacy}
            prepare_rows(sources, rows.folder, Vocabulary(path), rows.length, **form)
    return functools.partial(_train_initial, initial_gin_files, macros) if lacks_initial else None


def _check_tasks(tasks: Sequence[str | None], rows: Rows | None, cache_dirs: Sequence[str]) -> None:
    """Refuses a task that is neither there nor will be made."""
    made = (*CORPORA, *REVIEWS) if rows is None else (*rows.tasks, "d0_review")
    for task in filter(None, tasks):
        if task not in made and find_task(task, cache_dirs) is None:
            said = f"Task {task!r} does not exist, and is none of those that are made here:"
            refuse_unknown(str(task), made, said)


def _documents(data_dir: Path, task: str) -> Path:
    """The file of a task's documents; that of the whole world is made where it is missing."""
    if task != "whole":
        return data_dir / "ckl" / f"documents_{task}.jsonl"
    path = data_dir / "prepared" / "documents_whole.jsonl"
    if not path.exists():
        with files.atomic_write(path, "wb") as f:
            for part in ("d0", "d1"):
                f.write(_documents(data_dir, part).read_bytes())
    return path


def _check_world(data_dir: str, world: dict[str, Any]) -> None:
    checks.require_int(0, WORLD_SEED=world["WORLD_SEED"])
    check_world("simulated", world["WORLD_SIZE"], variant=world["WORLD"])
    # A folder of another world must not be mixed with this one.
    held = read_world(Path(data_dir) / "ckl")
    if held is None:
        return
    wanted = {"WORLD_SEED": held["seed"], "WORLD_SIZE": held["size"], "WORLD": held["world"]}
    if wanted != world:
        bindings = " ".join(f'{name}="{value!r}"' for name, value in wanted.items())
        raise UserError(
            f"{data_dir} holds the {held['source']} {held['world']} world of seed {held['seed']}, "
            f"size {held['size']!r}, not the {world['WORLD']} one of seed {world['WORLD_SEED']}, "
            f"size {world['WORLD_SIZE']!r}; choose another DATA_DIR (and INITIAL_DIR), or set "
            f"{bindings}."
        )


def _is_trained(path: str) -> bool:
    restore = _restore()
    return (restore.absolute(path) / "summary.json").exists() and bool(restore.complete_steps(path))


def _restore() -> types.ModuleType:
    # Imported late: it imports jax, which who only makes data is not to wait for.
    from ckl_jax.checkpoints import restore

    return restore


def _train_initial(gin_files: Sequence[str], macros: dict[str, Any]) -> None:
    names, path = " and ".join(gin_files), macros["MODEL_DIR"]
    print(f"There is no Initial model in {path} yet: training it by {names}.", flush=True)
    # A process of its own: gin's bindings and JAX's state of this run stay as they are.
    command = t5x("train", gin_files, macros)
    if processes.run_child(command):
        raise UserError(f"Training the Initial model in {path} failed; see above.")
