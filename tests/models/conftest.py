"""A GPU that is not there."""

import jax
import pytest
from jax._src.cudnn.fused_attention_stablehlo import AttentionLayout, check_layout

from ckl_jax.parallel import topology


@pytest.fixture
def cudnn(monkeypatch):
    """A GPU whose kernel takes what cuDNN's takes, and is JAX's own attention.

    Value: the arguments by name of each call.
    """
    calls, real = [], jax.nn.dot_product_attention

    def stand_in(query, key, value, bias=None, *, implementation, **given):
        check_layout(query, key, value, bias, *[None] * 6, AttentionLayout.BTNH)
        assert query.dtype in ("bfloat16", "float16") and query.shape[-1] % 8 == 0
        if bias is not None:
            rows, heads, *lengths = bias.shape
            assert bias.dtype == query.dtype and not any(n % 2 for n in lengths)
            assert rows in (1, query.shape[0]) and heads in (1, query.shape[2])
        calls.append({"implementation": implementation} | given)
        return real(query, key, value, bias, **given, implementation="xla")

    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    monkeypatch.setattr(topology, "_compiled_for", "gpu")
    # JAX's own code in the kernel's place promotes dtypes and ranks.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield calls
