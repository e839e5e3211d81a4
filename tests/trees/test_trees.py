"""Paths, splits and stacked layers of parameter trees, without a model."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.errors import UserError
from ckl_jax.trees import keys
from ckl_jax.trees.partition import merge, select, split
from ckl_jax.trees.paths import flatten, loop_to_scan, scan_to_loop, unflatten
from tests.helpers import assert_trees_close

TREE = {
    "token_embedder": {"embedding": 0},
    "encoder": {"layers_0": {"mlp": {"wi": {"kernel": 1}}}, "encoder_norm": {"scale": 2}},
    "decoder": {"layers_0": {"query": {"kernel": 3, "lora_0": {"a": 4}}}},
}


def test_flat_paths_and_back():
    flat = flatten(TREE)
    assert list(flat)[:2] == ["token_embedder/embedding", "encoder/layers_0/mlp/wi/kernel"]
    assert unflatten(flat) == TREE


@pytest.mark.parametrize(
    "patterns, expected",
    [
        (("",), {0, 1, 2, 3, 4}),
        (("^decoder/",), {3, 4}),
        (("", "!^encoder/"), {0, 3, 4}),
        (("!^encoder/", ""), {0, 1, 2, 3, 4}),  # the last that matches decides
        (("^decoder/", "!/lora_"), {3}),
        (("kernel$", "scale$"), {1, 2, 3}),
    ],
)
def test_the_last_pattern_that_matches_decides(patterns, expected):
    flat = flatten(TREE)
    chosen = select(list(flat), patterns)
    assert {value for value, yes in zip(flat.values(), chosen, strict=True) if yes} == expected
    yes, no = split(TREE, patterns)
    assert set(flatten(yes).values()) == expected
    assert flatten(yes).keys().isdisjoint(flatten(no))
    assert merge(yes, no) == TREE


@pytest.mark.parametrize(
    "patterns, expected",
    [
        (("^decodr/",), "Pattern '^decodr/' matches none of the 5 parameter paths"),
        (("(",), "Pattern '(' is not a regular expression"),
        (("^decoder/", "!"), "select no parameter: nothing would train"),
        ((), "select no parameter"),
        ("!^decoder/", "patterns is '!^decoder/'; give a list of names, such as ('!^decoder/',)"),
    ],
)
def test_patterns_that_select_nothing_are_refused(patterns, expected):
    with pytest.raises(UserError) as e:
        split(TREE, patterns)
    assert expected in str(e.value)


def layers(count):
    rng = np.random.RandomState(0)
    return {
        stack: {
            **{
                f"layers_{i}": {
                    "wi": {"kernel": jnp.asarray(rng.randn(2, 3))},
                    "norm": {"scale": jnp.asarray(rng.randn(2))},
                }
                for i in range(count)
            },
            "final_norm": {"scale": jnp.asarray(rng.randn(2))},
        }
        for stack in ("encoder", "decoder")
    }


@pytest.mark.parametrize("axis", [0, 1])
def test_layers_are_stacked_in_their_order_and_taken_apart_again(axis):
    apart = layers(11)  # layers_10 comes before layers_2 by name
    stacked = loop_to_scan(apart, axis)
    kernel = stacked["encoder"]["encoder"]["wi"]["kernel"]
    assert kernel.shape == ((11, 2, 3) if axis == 0 else (2, 11, 3))
    np.testing.assert_array_equal(
        jnp.take(kernel, 10, axis), apart["encoder"]["layers_10"]["wi"]["kernel"]
    )
    assert "layers_0" not in stacked["decoder"] and "final_norm" in stacked["decoder"]
    assert_trees_close(scan_to_loop(stacked, axis), apart, rtol=0, atol=0)


class Pair(NamedTuple):
    first: int
    second: int


@dataclasses.dataclass
class Unknown:
    value: int


def test_leaves_of_any_tree_have_names():
    tree = {"a/b": 1, "c": (2, [3]), "d": Pair(4, 5)}
    named = keys.named_leaves(tree)
    assert named == [("a/b", 1), ("c/0", 2), ("c/1/0", 3), ("d/first", 4), ("d/second", 5)]
    assert keys.named_leaves({"a": {"b": 1}}) == keys.named_leaves({"a/b": 1})
    whole = keys.named_leaves({"c": (2, 3)}, is_leaf=lambda x: isinstance(x, tuple))
    assert whole == [("c", (2, 3))]
    with pytest.raises(TypeError, match="Unknown kind of key"):
        keys.components((Unknown(1),))
