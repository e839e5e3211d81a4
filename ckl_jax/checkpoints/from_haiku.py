"""Parameters of the public Haiku Transformer-XL (Transformer Grammars, 2022), without Haiku.

The file is an archive of numpy arrays or a safetensors file; its names are Haiku's `module/param`,
such as `lm/~/core/h0_attn/query/w`. Haiku's own checkpoints are pickles: loading one can run any
code it contains, so they are refused. Where Haiku is, one line makes the archive of one:

    np.savez("weights.npz", **{f"{m}/{n}": x for m, n, x in hk.data_structures.traverse(params)})
"""

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ckl_jax import checks
from ckl_jax.checkpoints.architecture import RUN_FIELDS, Architecture, VocabularyFiles
from ckl_jax.checkpoints.assignment import some
from ckl_jax.checkpoints.safetensors_files import SafetensorsState, safetensors_names
from ckl_jax.data.compressed import read_arrays
from ckl_jax.data.text.vocabularies import Vocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.recurrent import RecurrentModel
from ckl_jax.models.transformer_xl import Transformer, TransformerXLConfig
from ckl_jax.trees.paths import flatten, unflatten

# In a layer: the end of Haiku's name, and our path below `decoder/layers_<i>/`.
_LAYER = {
    "attn/query/w": "self_attention/query/kernel",
    "attn/key/w": "self_attention/key/kernel",
    "attn/value/w": "self_attention/value/kernel",
    "attn/relative_keys/w": "self_attention/relative/kernel",
    "attn/r_w_bias": "self_attention/content_query",
    "attn/r_r_bias": "self_attention/position_query",
    "attn/linear/w": "self_attention/out/kernel",
    "attn/linear/b": "self_attention/out/bias",
    "ln1/scale": "post_self_attention_layer_norm/scale",
    "ln1/offset": "post_self_attention_layer_norm/bias",
    "mlp/linear/w": "mlp/wi/kernel",
    "mlp/linear/b": "mlp/wi/bias",
    "mlp/linear_1/w": "mlp/wo/kernel",
    "mlp/linear_1/b": "mlp/wo/bias",
    "ln2/scale": "post_mlp_layer_norm/scale",
    "ln2/offset": "post_mlp_layer_norm/bias",
}
_TABLE, _BIAS = "token_embedder/embedding", "token_embedder/bias"
_EMBEDDING = {"embedding_layer/input_embedding": _TABLE, "embedding_layer/bias": _BIAS}
_IN_LAYER = re.compile(r"(?:.*/)?h(\d+)_(.+)")


def read_haiku(path: str | Path) -> Mapping[str, np.ndarray]:
    """The arrays of a file by Haiku's names; `UserError` if there is none of that format."""
    path = Path(path)
    if path.suffix == ".safetensors":
        return SafetensorsState(dict.fromkeys(safetensors_names(path), path))
    if path.suffix != ".npz":
        raise UserError(
            f"{path} is neither .npz nor .safetensors. Haiku's own checkpoints are pickles, which "
            "could run any code when loaded: save the arrays by numpy.savez under their names "
            "'module/param' and give that file."
        )
    try:
        return read_arrays(path)
    except ValueError as e:
        raise UserError(f"{path} is not an archive of numpy arrays ({e}).") from e


def load_haiku(path: str | Path, num_heads: int) -> tuple[TransformerXLConfig, dict[str, Any]]:
    """Reads the parameters of a file; their shapes determine the configuration except the heads.

    Args:
      path: see `read_haiku`.

    Returns:
      The configuration, and float32 parameters as the model of `config` initialises them.

    Raises:
      UserError: a file that cannot be read, or of a network with other parts or shapes.
    """
    checks.require_size(heads=num_heads)
    named = {}
    unknown = []
    state = read_haiku(path)
    for name in state:
        target = _path_of(name)
        if target is None:
            unknown.append(name)
        else:
            named[target] = _weights(path, name, state[name])
    if unknown:
        raise UserError(
            f"{path} has {some(sorted(unknown))}, which a Transformer-XL with tied embeddings and "
            "no biases of query, key and value does not have."
        )
    config = _config(path, named, num_heads)
    # A model that was made without an output bias is the same as one whose bias is 0.
    if _BIAS not in named:
        warnings.warn(f"{path} has no {_name_of(_BIAS)}; the output's bias is 0.", stacklevel=2)
        named[_BIAS] = np.zeros(config.vocab_size, np.float32)
    _check(path, named, config)
    return config, unflatten(named)


def _weights(path: Any, name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f" and array.dtype != jax.numpy.bfloat16:
        raise UserError(f"{path}: {name} holds {array.dtype}; weights are floating-point numbers.")
    # bfloat16 is exact in float32.
    array = np.asarray(array, np.float32)
    if not np.isfinite(array).all():
        raise UserError(f"{path}: {name} has values that are not finite.")
    return array


def _name_of(path: str) -> str:
    """Haiku's name of the parameter at our `path`, without the name of its module."""
    for name, ours in _EMBEDDING.items():
        if path == ours:
            return name
    layer, _, rest = path.removeprefix("decoder/layers_").partition("/")
    (name,) = (haiku for haiku, ours in _LAYER.items() if ours == rest)
    return f"h{layer}_{name}"


def _path_of(name: str) -> str | None:
    for end, path in _EMBEDDING.items():
        # The prefix is the name of the user's own module, which differs.
        if name == end or name.endswith(f"/{end}"):
            return path
    match = _IN_LAYER.fullmatch(name)
    if not match or match[2] not in _LAYER:
        return None
    return f"decoder/layers_{int(match[1])}/{_LAYER[match[2]]}"


def _config(path: Any, named: Mapping[str, np.ndarray], num_heads: int) -> TransformerXLConfig:
    first = ("self_attention/query/kernel", "mlp/wi/kernel")
    needed = [_TABLE, *(f"decoder/layers_0/{name}" for name in first)]
    lost = [name for name in needed if name not in named or named[name].ndim != 2]
    if lost:
        raise UserError(
            f"{path} has no {some([_name_of(name) for name in lost])}, a matrix: it is not a "
            "Transformer-XL of Haiku."
        )
    table, query, hidden = (named[name].shape for name in needed)
    if query[1] % num_heads:
        raise UserError(
            f"{path}: {_name_of(needed[1])} is {query[0]} x {query[1]}, which does not divide into "
            f"{num_heads} heads."
        )
    # Counted from the names: no shape depends on the depth.
    layers = {p.split("/")[1] for p in named if p.startswith("decoder/")}
    return TransformerXLConfig(
        vocab_size=table[0],
        emb_dim=table[1],
        num_heads=num_heads,
        head_dim=query[1] // num_heads,
        mlp_dim=hidden[1],
        num_layers=len(layers),
    )


def _check(path: Any, named: Mapping[str, np.ndarray], config: TransformerXLConfig) -> None:
    """Raises `UserError` unless names and shapes are those of the model of `config`."""
    ids = jax.ShapeDtypeStruct((1, 1), np.int32)
    # Shapes only; the parameters are not initialised.
    shapes = jax.eval_shape(Transformer(config).init, jax.random.key(0), ids)["params"]
    wanted = {name: x.shape for name, x in flatten(shapes).items()}
    lost = sorted(_name_of(name) for name in wanted.keys() - named.keys())
    wrong = [
        f"{_name_of(name)} {list(named[name].shape)} instead of {list(wanted[name])}"
        for name in sorted(wanted.keys() & named.keys())
        if named[name].shape != wanted[name]
    ]
    if lost or wrong:
        raise UserError(
            f"{path} does not fit a Transformer-XL of {config.num_layers} layers"
            + (f"; missing: {some(lost)}" if lost else "")
            + (f"; other shapes: {some(wrong)}" if wrong else "")
            + "."
        )


ARCHITECTURE = Architecture(
    name="Transformer-XL",
    config=TransformerXLConfig,
    module=Transformer,
    model=RecurrentModel,
    vocabulary=VocabularyFiles(reader=Vocabulary, file="spiece.model", described="spiece.model"),
    gin_file="models/transformer_xl.gin",
    run_gin="mind_the_gap_train.gin",
    usage="Prepare data with its vocabulary: {}.",
    run_fields=(
        *RUN_FIELDS,
        "max_positions",
        "layer_norm_epsilon",
        "activation",
        "clamp_len",
        "same_length",
        "scale_embedding",
        "reset_at_doc",
        "init_stddev",
    ),
)
