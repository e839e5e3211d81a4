"""Writes how every parameter and optimizer moment of each model and method is split over a mesh.

    python -m tests.parallel.partition_table        (writes tests/parallel/golden/partitions.txt)

Nothing is allocated and no device is needed. Layers that repeat are one line: `layers_*`.
"""

import dataclasses
import itertools
import re
from pathlib import Path

import jax

from ckl_jax.models.gpt2 import GPT2Config
from ckl_jax.optim.adafactor import T5_SCANNED, adafactor_hf
from ckl_jax.parallel import mesh as meshes
from ckl_jax.trees import keys
from ckl_jax.trees.partition import split
from tests.helpers import TINY, TINY_GPT2, TINY_V1_1, method_of, model_of

GOLDEN = Path(__file__).parent / "golden" / "partitions.txt"
# 50,257 pieces, and rows without one that a mesh may divide: `ckl import-hf --vocab-size`.
_PUBLISHED = dict(vocab_size=50304, max_positions=1024, head_dim=64)
# width, layers, heads
_SIZES = {
    "small": (768, 12, 12),
    "medium": (1024, 24, 16),
    "large": (1280, 36, 20),
    "xl": (1600, 48, 25),
}
CHOSEN = ("vanilla", "lora", "k_adapter_k2", "modular")
BOTH = (False, True)
# name, configuration, whether its layers are scanned, methods
MODELS = [
    ("T5 v1.0", TINY, BOTH, CHOSEN),
    ("T5 v1.1", TINY_V1_1, BOTH, CHOSEN),
    ("GPT-2", TINY_GPT2, BOTH, CHOSEN[:-1]),  # it has no encoder for Modular
    *(
        (
            f"GPT-2 {size}",
            GPT2Config(
                emb_dim=width, num_layers=layers, num_heads=heads, mlp_dim=4 * width, **_PUBLISHED
            ),
            (True,),
            ("vanilla",),
        )
        for size, (width, layers, heads) in _SIZES.items()
    ),
]
RULES = {"1-D": (1, 1), "2-D": (2, 2)}


def table() -> str:
    """The whole table, as text."""
    mesh = jax.sharding.AbstractMesh((2, 2, 2), meshes.MESH_AXES)
    parts = [
        "Mesh axes that each dimension is split over, by the standard rules (activation and",
        "parameter partitioning dims 1 and 2); `-` is replicated. After a trainable parameter: the",
        "moments of Adafactor, rows and columns each with the dimensions that they keep, or `v`.",
    ]
    for model, config, scans, methods in MODELS:
        for scan, name in itertools.product(scans, methods):
            method = method_of(name, config)
            extended = dataclasses.replace(method.extend(config), scan_layers=scan)
            parts += ["", f"== {model}, {'scan' if scan else 'loop'}, {name}"]
            parts += _lines(extended, method, mesh)
    return "\n".join(parts) + "\n"


def _lines(config, method, mesh) -> list[str]:
    variables = jax.eval_shape(model_of(config).init, jax.random.key(0))
    params, axes = variables["params"], meshes.params_logical_axes(variables)
    trainable, _ = split(params, method.trainable)
    stacked = any(path.startswith("decoder/decoder/") for path, _ in keys.named_leaves(trainable))
    tx = adafactor_hf(1e-3, stacked=T5_SCANNED if stacked else ())
    state = jax.eval_shape(tx.init, trainable)
    names = dict(keys.named_leaves(axes, is_leaf=lambda x: isinstance(x, tuple)))
    sizes = {
        path: ", ".join(f"{a}={n}" for a, n in zip(names[path], leaf.shape, strict=True))
        for path, leaf in keys.named_leaves(params)
    }
    rows = {"": ("", "logical axes", *RULES)}
    columns = [_specs(params, axes, state, method, mesh, dims) for dims in RULES.values()]
    for path in sizes:
        row = (_short(path), sizes[path], *(column[path] for column in columns))
        assert rows.setdefault(row[0], row) == row, f"{path} differs between layers"
    widths = [max(len(row[i]) for row in rows.values()) for i in range(3)]
    return [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in rows.values()
    ]


def _specs(params, axes, state, method, mesh, dims) -> dict[str, str]:
    """{path: how it and its moments are split}."""
    rules = meshes.standard_logical_axis_rules(*dims)
    shardings = meshes.logical_to_shardings(mesh, rules, axes, params)
    trainable, _ = split(params, method.trainable)
    of_trainable, _ = split(shardings, method.trainable)
    found = meshes.like_params(state, trainable, of_trainable, mesh)
    moments = dict(keys.named_leaves(found, is_leaf=_is_sharding))
    used = {name for name, leaf in keys.named_leaves(state) if leaf.shape != (1,)}
    texts = {path: _text(s) for path, s in keys.named_leaves(shardings, is_leaf=_is_sharding)}
    for path in texts:
        for moment, label in (("v_row", "row"), ("v_col", "col"), ("v", "v")):
            if f"{moment}/{path}" in used:
                texts[path] += f" {label}{_text(moments[f'{moment}/{path}'])}"
    return texts


def _is_sharding(x) -> bool:
    return isinstance(x, jax.sharding.NamedSharding)


def _text(sharding) -> str:
    names = [a if isinstance(a, str) else "+".join(a or ("-",)) for a in sharding.spec]
    return f"({', '.join(names)})"


def _short(path: str) -> str:
    return re.sub(r"layers_\d+", "layers_*", path)


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(table())
