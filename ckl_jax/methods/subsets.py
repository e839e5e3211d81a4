"""Which parameters dynamic evaluation moves, by name (Mind the Gap, Table 4).

- all: everything;
- bias: all leaves named `bias`. Of Transformer-XL they are those of the feed-forward layers, of the
  attention's output, of the norms and of the output, and neither u and w nor the norms' scales; of
  GPT-2 also those of query, key and value. T5 has none: refused;
- embedding: the token embedder: the table, which is tied to the output (T5 1.1's is not; T5Gemma's
  two tables), and the output bias where it has one;
- none: nothing: static evaluation.

A list of patterns stands for any other choice.
"""

from collections.abc import Sequence

from ckl_jax.errors import UserError, nearest
from ckl_jax.trees.partition import select

SUBSETS = {
    "all": ("",),
    # LayerNorm offsets are named `bias` too; Table 4's 198K parameters include them.
    "bias": (r"(^|/)bias$",),
    # With tied weights the table receives gradients from the lookup and from the softmax.
    "embedding": (r"^(decoder_)?token_embedder/",),
    "none": (),
}
_OUTPUT_BIAS = r"!^token_embedder/bias$"

Mask = str | Sequence[str]


def patterns_of(
    mask: Mask, paths: Sequence[str], *, include_output_bias: bool = True, architecture: str = ""
) -> tuple[str, ...]:
    """The patterns over parameter paths that a mask means, see `trees.partition.select`.

    Args:
      mask: one of SUBSETS, or a list of patterns.
      paths: of all parameters.
      include_output_bias: False leaves the output bias out of "embedding".
      architecture: what the model is called in complaints.

    Returns:
      The patterns; () is nothing.

    Raises:
      UserError: there is no mask of that name, or one that is not "none" selects nothing.
    """
    if not isinstance(mask, str):
        patterns = tuple(mask)
        # An empty selection would run as static evaluation under another name.
        if not patterns or not any(select(paths, patterns)):
            raise UserError(f"MASK {patterns!r} selects no parameter; give 'none' for that.")
        return patterns
    if mask not in SUBSETS:
        raise UserError(
            f"MASK is {mask!r}; choose from {', '.join(SUBSETS)}, or give a list of patterns over "
            f"parameter paths such as ({mask!r},).{nearest(mask, SUBSETS)}"
        )
    patterns = SUBSETS[mask]
    # `select` refuses a pattern that matches nothing; the error is raised again in terms of the
    # mask.
    try:
        select(paths, patterns)
    except UserError as e:
        raise UserError(
            f"MASK {mask!r} matches none of the {len(paths)} parameters of {architecture or 'it'}: "
            f"it has no {mask}; choose another mask or a list of patterns."
        ) from e
    # Table 4's 52M counts the output bias (51,515,475); the table alone has 51,465,216.
    if mask == "embedding" and not include_output_bias and "token_embedder/bias" in paths:
        patterns = (*patterns, _OUTPUT_BIAS)
    return patterns
