"""Tries of token sequences, against a dictionary of prefixes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.papers.lm_pub_quiz import tries
from ckl_jax.papers.lm_pub_quiz.tries import Trie

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=30)


@settings(max_examples=150, deadline=None)
@given(SEQUENCES)
def test_every_prefix_is_one_node(sequences):
    trie = Trie.of(sequences)
    prefixes = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    names = {}
    for sequence, path in zip(sequences, trie.paths, strict=True):
        assert (path[len(sequence) :] == -1).all()
        for i, node in enumerate(path[: len(sequence)]):
            assert names.setdefault(int(node), tuple(sequence[: i + 1])) == tuple(sequence[: i + 1])
    assert sorted(names.values()) == sorted(prefixes) and len(trie.tokens) == len(prefixes)
    for node, prefix in names.items():
        assert trie.tokens[node] == prefix[-1] and trie.depths[node] == len(prefix) - 1
        parent = trie.parents[node]
        assert names.get(int(parent), ()) == prefix[:-1]
        below = {n for n, p in names.items() if p[: len(prefix)] == prefix}
        assert below == set(range(node, trie.ends[node]))


@settings(max_examples=150, deadline=None)
@given(SEQUENCES, st.integers(6, 12), st.integers(1, 9))
def test_rows_hold_every_edge_once_behind_its_own_ancestors(sequences, width, edges):
    trie = Trie.of(sequences)
    scored = []
    for row in tries.rows(trie, width, edges):
        count = len(row.tokens)
        assert count <= width and 0 < len(row.nodes) <= edges
        assert (row.ends > np.arange(count)).all() and (row.ends <= count).all()
        i = np.arange(count)
        sees = (i[None] <= i[:, None]) & (i[:, None] < row.ends[None])
        for parent, target, node in zip(row.parents, row.targets, row.nodes, strict=True):
            context = row.tokens[sees[parent]].tolist()
            assert row.positions[sees[parent]].tolist() == list(range(len(context)))
            path = next(p for p in trie.paths if node in p).tolist()
            want = [int(trie.tokens[n]) for n in path[: path.index(node) + 1]]
            assert [*context, int(target)] == want
            scored.append(int(node))
    assert sorted(scored) == np.flatnonzero(trie.parents >= 0).tolist()


@pytest.mark.parametrize("count", [1, 3])
def test_equal_sequences_share_all(count):
    trie = Trie.of([[1, 2]] * count)
    assert len(trie.tokens) == 2 and (trie.paths == [0, 1]).all()
