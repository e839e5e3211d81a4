"""The text files that describe a run: `model-info.txt` and `config.gin`, as T5X writes them."""

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from ckl_jax.checkpoints.layout import checkpoint_names
from ckl_jax.data.text.vocabulary_copy import save_copy
from ckl_jax.files import write_file
from ckl_jax.trees import keys


def model_info(shapes: Any, state: Any = None, logical_axes: Any = None) -> str:
    """Returns one line for each parameter, their total, and one line for each optimizer variable.

    Args:
      shapes: has `params` and `trainable`: trees of arrays or `jax.ShapeDtypeStruct`s.
      state: the train state, of which all but the parameters is listed.
      logical_axes: tree of tuples of axis names, to be shown beside the sizes.
    """
    # Tuples of names are leaves here, not subtrees.
    axes = dict(keys.named_leaves(logical_axes or {}, is_leaf=lambda x: isinstance(x, tuple)))
    params = keys.named_leaves(shapes.params)
    trainable = keys.named_leaves(shapes.trainable)
    lines = [_line("Variable", name, leaf, axes.get(name)) for name, leaf in sorted(params)]
    lines.append(f"Total number of parameters: {count(shapes.params)}")
    if len(trainable) != len(params):
        lines.append(f"Number of trainable parameters: {count(shapes.trainable)}")
    lines.append("")
    lines += _state_lines(state)
    return "\n".join(lines) + "\n"


def _state_lines(state: Any) -> Iterator[str]:
    for name, leaf in checkpoint_names(state) if state is not None else ():
        # `checkpoint_names` also lists the parameters, as "target/...".
        if name.startswith("state/"):
            yield _line("State", name.removeprefix("state/"), leaf, None)


def _line(kind: str, name: str, leaf: Any, axes: tuple | None) -> str:
    sizes = axes and [f"{axis}={size}" for axis, size in zip(axes, leaf.shape, strict=True)]
    shape = f"({', '.join(sizes or map(str, leaf.shape))})"
    spec = getattr(getattr(leaf, "sharding", None), "spec", None)
    size = math.prod(leaf.shape)
    return f"{kind:11} {name:80} size {size:<12} shape {shape:40} partition spec {spec}".rstrip()


def count(tree: Any) -> int:
    """The number of elements in a tree of arrays or `jax.ShapeDtypeStruct`s."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def write_model_info(
    model_dir: str | Path, shapes: Any, state: Any = None, logical_axes: Any = None
) -> None:
    """Writes `model_info(...)` to `model-info.txt`, on the first process only."""
    if jax.process_index() == 0:
        write_file(Path(model_dir) / "model-info.txt", model_info(shapes, state, logical_axes))


def copy_vocabulary(model_dir: str | Path, vocabulary: Any) -> None:
    """Copies the files of a run's vocabulary into its folder, on the first process only."""
    if jax.process_index() == 0:
        save_copy(vocabulary, model_dir)


def write_config(model_dir: str | Path) -> str:
    """Writes the whole gin configuration to `config.gin`, on the first process only.

    Returns:
      The text; "" (and no file) if the program was not configured by gin.
    """
    # A program that has not imported gin was not configured by it.
    if "gin" not in sys.modules:
        return ""
    from ckl_jax.config import gin_config

    text = gin_config.config_text()
    if text and jax.process_index() == 0:
        write_file(Path(model_dir) / "config.gin", text)
    return text
