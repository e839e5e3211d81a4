"""`ckl import-haiku`: parameters of the public Haiku Transformer-XL as a checkpoint."""

from pathlib import Path

import jax
import numpy as np

from ckl_jax import __version__, files
from ckl_jax.checkpoints.from_haiku import load_haiku
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.models.transformer_xl import TransformerXLConfig

_FIELDS = ("vocab_size", "emb_dim", "num_heads", "head_dim", "mlp_dim", "num_layers")


def import_haiku(weights: str, num_heads: int, out: str) -> str:
    """Writes a Haiku Transformer-XL as `checkpoint_0` of `out`, with `model.gin` for it.

    Args:
      weights: see `from_haiku.read_haiku`.
      num_heads: heads of a layer, which the parameters do not tell.
      out: the new MODEL_DIR.

    Returns:
      What was done, and how to use it.

    Raises:
      UserError: the file does not fit, or `out` already holds a checkpoint.
    """
    config, params = load_haiku(weights, num_heads)
    metadata = {"ckl_jax": __version__, "imported_from": Path(weights).name}
    with CheckpointStore(out) as store:
        store.require_empty()
        with files.atomic_write(Path(out) / "model.gin") as f:
            f.write(model_gin(config))
        store.save(0, {"params": params, "step": np.zeros((), np.int32)}, metadata)
    count = sum(x.size for x in jax.tree.leaves(params))
    return (
        f"{count:,} parameters in {out}/checkpoint_0. Use them with\n"
        f"  --gin_file=mind_the_gap_train.gin --gin_file={out}/model.gin \\\n"
        f"  --gin.INITIAL_CHECKPOINT_PATH=\"'{out}'\"\n"
        "and the vocabulary of this model as VOCABULARY_PATH."
    )


def model_gin(config: TransformerXLConfig) -> str:
    """The gin file of a model, to be laid over one that says how it trains."""
    lines = [
        "# The configuration of the imported model; lay it over mind_the_gap_train.gin.",
        "from __gin__ import dynamic_registration",
        "from ckl_jax.models import transformer_xl",
        "transformer_xl.TransformerXLConfig:",
        *(f"    {name} = {getattr(config, name)!r}" for name in _FIELDS),
    ]
    return "\n".join([*lines, ""])
