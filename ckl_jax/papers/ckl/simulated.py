"""Data and base model of the embedded world, made where they are missing.

Gin binds these in place of a vocabulary file and a checkpoint path, so that a gin file of the
embedded world works in an empty folder. Both only fill in what is not there.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ckl_jax import checks, files
from ckl_jax.checkpoints.restore import complete_steps, find_checkpoint
from ckl_jax.data.causal import prepare_rows
from ckl_jax.data.prepare import prepare_ckl
from ckl_jax.data.vocabularies import Vocabulary
from ckl_jax.errors import UserError
from ckl_jax.parallel import processes
from ckl_jax.world.ckl import build_world, check_world, read_world


def prepare(
    data_dir: str,
    seed: int = 0,
    size: str = "small",
    vocab_size: int = 4096,
    source: str = "simulated",
    facts_dir: str | None = None,
) -> Path:
    """Makes a world's files, its vocabulary and its cached tasks in `data_dir`.

    Args:
      data_dir: gets `ckl/` (files in CKL's layout) and `prepared/` (vocabulary and tasks).
      seed, size: of the world; see `world.ckl.build_world`.
      vocab_size: upper bound on the vocabulary's pieces.
      source: "simulated", or "wikidata" for real facts out of `facts_dir`.
      facts_dir: folder of the real facts.

    Returns:
      The path of the vocabulary.
    """
    root = Path(data_dir)
    vocabulary = root / "prepared" / "vocabulary.model"
    if not (root / "ckl" / "manifest.json").exists():
        check_world(source, size, facts_dir)
        print(f"Making the {source} world (seed {seed}, {size}) in {root}.", flush=True)
    build_world(root / "ckl", seed, size, source=source, data_dir=facts_dir)
    prepare_ckl(root / "ckl", root / "prepared", vocab_size)
    return vocabulary


def vocabulary(
    data_dir: str,
    seed: int = 0,
    size: str = "small",
    make: bool = True,
    checkpoint: str | None = None,
) -> Vocabulary:
    """The vocabulary of the world in `data_dir`.

    Args:
      data_dir: of the world.
      seed, size: of the world; it is made if there is none.
      make: whether it may be made: not for a model that was trained on another.
      checkpoint: of such a model; looked for first.

    Raises:
      UserError: the checkpoint is missing, the world is and may not be made, there is no such
        size, or the folder holds a world of another seed or size.
    """
    if checkpoint is not None:
        find_checkpoint(checkpoint)
    path = Path(data_dir) / "prepared" / "vocabulary.model"
    if not make and not path.exists():
        raise UserError(
            f"There is no {path}, the vocabulary of the run; if its data have moved, say where to "
            "by --gin.DATA_DIR=\"'folder'\"."
        )
    if make:
        _check_world(data_dir, seed, size)
    if make and not (Path(data_dir) / "prepared" / "tasks" / "d0" / "manifest.json").exists():
        prepare(data_dir, seed, size)
    return Vocabulary(path)


def vocabulary_and_rows(
    data_dir: str,
    rows_dir: str,
    seed: int = 0,
    size: str = "small",
    length: int = 64,
    packed: bool = False,
    legacy: bool = False,
    make: bool = True,
    checkpoint: str | None = None,
    tasks: Sequence[str] = ("d0", "d1"),
) -> Vocabulary:
    """The world's vocabulary; its documents are made into rows of running text besides.

    Args:
      data_dir, seed, size, make, checkpoint: see `vocabulary`.
      rows_dir: gets the cached tasks.
      length, packed, legacy: of the rows; see `data.causal.causal_rows`.
      tasks: d0, the old documents; d1, the news; whole, both.

    Raises:
      UserError: as `vocabulary` and `data.causal.prepare_rows`.
    """
    pieces = vocabulary(data_dir, seed, size, make, checkpoint)
    if make:
        sources = {name: _documents(Path(data_dir), name) for name in tasks}
        prepare_rows(sources, rows_dir, pieces, length, packed=packed, legacy=legacy)
    return pieces


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


def _check_world(data_dir: str, seed: int, size: str) -> None:
    checks.require_int(0, WORLD_SEED=seed)
    check_world("simulated", size)
    held = read_world(Path(data_dir) / "ckl")
    if held and (held["seed"], held["size"]) != (seed, size):
        raise UserError(
            f"{data_dir} holds the {held['source']} world of seed {held['seed']}, size "
            f"{held['size']!r}, not of seed {seed}, size {size!r}; choose another DATA_DIR (and "
            f"INITIAL_DIR), or set WORLD_SEED={held['seed']} and WORLD_SIZE=\"'{held['size']}'\"."
        )


def initial_checkpoint(
    path: str, gin_files: Sequence[str], data_dir: str, seed: int = 0, size: str = "small"
) -> str:
    """The folder of the Initial model; trains it by `gin_files` if it has no checkpoint.

    Args:
      path: its MODEL_DIR.
      gin_files: the job that makes it.
      data_dir: of the world.
      seed, size: of the world.

    Returns:
      `path`.

    Raises:
      UserError: the world is not that of seed and size, or the training failed.
    """
    _check_world(data_dir, seed, size)
    if not (Path(path) / "summary.json").exists() or not complete_steps(path):
        names = " and ".join(gin_files)
        print(f"There is no Initial model in {path} yet: training it by {names}.", flush=True)
        command = [
            sys.executable,
            "-m",
            "ckl_jax",
            "train",
            *(f"--gin_file={f}" for f in gin_files),
            f"--gin.MODEL_DIR={path!r}",
            f"--gin.DATA_DIR={data_dir!r}",
            f"--gin.WORLD_SIZE={size!r}",
            f"--gin.WORLD_SEED={seed!r}",
        ]
        if subprocess.run(command, check=False, env=processes.child_environment()).returncode:
            raise UserError(f"Training the Initial model in {path} failed; see above.")
    return path
