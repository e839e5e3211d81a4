"""What tests of checkpoints share."""

import jax

from ckl_jax.checkpoints.layout import tree_digest


def abstract(tree):
    return jax.eval_shape(lambda: tree)


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert tree_digest(a) == tree_digest(b)
