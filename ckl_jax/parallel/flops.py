"""FLOPs of the matrix products in a traced function; loop bodies count once per iteration."""

import math
from typing import Any

from jax.extend import core

# Dense bfloat16 products in TFLOP/s, of vendors' data sheets, by what a device's kind begins with.
_PEAKS = {
    "NVIDIA A100": 312,
    "NVIDIA H100": 989,
    "NVIDIA H200": 989,
    "NVIDIA L4": 121,
    "Tesla V100": 125,
    "TPU v3": 123,
    "TPU v4": 275,
    "TPU v5 lite": 197,
    "TPU v5": 459,
    "TPU v6 lite": 918,
    "TPU7x": 1153,  # a chip has two devices
}


def peak(device_kind: str) -> float | None:
    """FLOP/s of bfloat16 products of a device, None where its kind is not known."""
    names = [name for name in _PEAKS if device_kind.startswith(name)]
    return 1e12 * _PEAKS[max(names, key=len)] if names else None


def of_jaxpr(jaxpr: Any) -> int:
    """Counts 2 M N K for each product over all devices; rematerialised products count again.

    A `while` loop, whose length is not known, counts once; of branches the costliest counts.
    """
    # A ClosedJaxpr holds its Jaxpr as `jaxpr`.
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name = equation.primitive.name
    if name == "dot_general":
        return _of_product(equation)
    if name.startswith("dot_product_attention_fwd"):  # cuDNN's kernels
        return 2 * _of_attention(equation)
    if name.startswith("dot_product_attention_bwd"):
        return 5 * _of_attention(equation)
    if name == "pallas_call":  # of each block of its grid; blocks that a mask hides count as well
        body = of_jaxpr(equation.params["jaxpr"])
        return body * math.prod(equation.params["grid_mapping"].grid)
    if name == "shard_map":  # the body is of one device
        return of_jaxpr(equation.params["jaxpr"]) * equation.params["mesh"].size
    # jit, remat, scan, while and custom derivatives all hold their bodies as parameters.
    inner = [of_jaxpr(j) for j in core.jaxprs_in_params(equation.params)]
    if name == "cond":
        return max(inner, default=0)
    return sum(inner) * (equation.params["length"] if name == "scan" else 1)


def _of_attention(equation: Any) -> int:
    """FLOPs of one product of all queries with all keys, [B, T, N, H] and [B, S, K, H]."""
    query, key = (v.aval.shape for v in equation.invars[:2])
    return 2 * math.prod(query) * key[1]


def _of_product(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    depth = math.prod(left[i] for i in contracted)
    # Batch and free dimensions are all in the output's shape.
    return 2 * math.prod(equation.outvars[0].aval.shape) * depth
