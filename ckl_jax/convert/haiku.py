"""`ckl import-haiku`: parameters of the public Haiku Transformer-XL as a checkpoint."""

from pathlib import Path

from ckl_jax.checkpoints.from_haiku import load_haiku
from ckl_jax.convert.hugging_face import new_model_dir, restore_flags, write_model_gin
from ckl_jax.train.artifacts import count


def import_haiku(weights: str, num_heads: int, out: str) -> str:
    """Writes a Haiku Transformer-XL as `checkpoint_0` of `out`, with `model.gin` for it.

    Args:
      weights: see `from_haiku.read_haiku`.
      num_heads: heads of a layer, which the shapes do not determine.

    Returns:
      What was done, and how to use it.

    Raises:
      UserError: the file does not fit, or `out` already holds a checkpoint.
    """
    config, params = load_haiku(weights, num_heads)
    with new_model_dir(out, params, {"imported_from": Path(weights).name}):
        write_model_gin(out, config)
    return (
        f"{count(params):,} parameters in {out}/checkpoint_0. Use them with\n"
        f"  --gin_file=mind_the_gap_train.gin \\\n  {restore_flags(out)}\n"
        "and the vocabulary of this model as VOCABULARY_PATH."
    )
