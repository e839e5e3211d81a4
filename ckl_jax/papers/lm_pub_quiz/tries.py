"""Statements that begin alike, as one tree of tokens, cut into rows of equal length.

Ranking scores every option in the same sentence, so most tokens repeat. A trie holds each prefix
once; its inner nodes in preorder are what a causal model must see, and every edge is a token that
it must score. In preorder a node's subtree is the stretch up to its `end`, so position i may look
at j iff j <= i < end[j]: the causal mask of every path at once, from one number a node.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Trie:
    """A forest of N nodes in preorder, over S sequences of at most L tokens.

    Attributes:
      tokens, depths, parents, ends: [N] int32; the parent of a root is -1; the subtree of node n
        is n to ends[n] - 1.
      paths: [S, L] int32, the nodes of each sequence; -1 behind its last.
    """

    tokens: Array
    depths: Array
    parents: Array
    ends: Array
    paths: Array

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> "Trie":
        """The trie of sequences of token ids, none of them empty."""
        lengths = np.array([len(s) for s in sequences])
        padded = np.full((len(sequences), lengths.max()), -1, np.int32)
        padded[np.arange(padded.shape[1]) < lengths[:, None]] = np.concatenate(sequences)
        # lexsort takes its last key as the first one; reversed columns sort by the first token,
        # then the second, and so on. In this order sequences with a common prefix are neighbours.
        order = np.lexsort(padded.T[::-1])
        padded, lengths = padded[order], lengths[order]
        shared = _shared_with_previous(padded)
        depth = np.arange(padded.shape[1])
        # A sequence adds the nodes after the prefix that it has in common with the one before it;
        # numbering them row by row is the preorder.
        new = (depth >= shared[:, None]) & (depth < lengths[:, None])
        number = np.cumsum(new).reshape(new.shape) - 1
        # A node that is not new is the newest one of its depth.
        nodes = np.maximum.accumulate(np.where(new, number, 0), axis=0)
        nodes = np.where(depth < lengths[:, None], nodes, -1).astype(np.int32)
        paths = np.empty_like(nodes)
        # Back into the order of the statements that were given.
        paths[order] = nodes
        # The parent of a node is the node before it on its path; roots have -1.
        above = np.concatenate([np.full((len(nodes), 1), -1, np.int32), nodes[:, :-1]], axis=1)
        return cls(
            tokens=padded[new],
            depths=np.broadcast_to(depth, new.shape)[new].astype(np.int32),
            parents=above[new],
            ends=_subtree_ends(shared, new, number)[new].astype(np.int32),
            paths=paths,
        )

    @property
    def inner(self) -> Array:
        """[N] bool: whether something follows a node."""
        return self.ends > np.arange(len(self.ends)) + 1


def _shared_with_previous(padded: Array) -> Array:
    """The number of first tokens that each sorted row has in common with the row before it. [S]"""
    # The cumulative product is 1 up to the first token that differs, and 0 from there on.
    same = np.cumprod(padded[1:] == padded[:-1], axis=1)
    # Equal padding counts as equal tokens, but only in rows that are equal as a whole.
    return np.concatenate([[0], same.sum(axis=1)])


def _subtree_ends(shared: Array, new: Array, number: Array) -> Array:
    """For a node new in row s at depth d: the first node of the next row that lacks it. [S, L]"""
    count, depth = new.shape
    # The number of the first node that each row adds, and in the end the number of all nodes.
    first = np.append(np.cumsum(new.sum(axis=1)) - new.sum(axis=1), new.sum())
    ends = np.empty(new.shape, np.int64)
    # A subtree at depth d ends where the next row begins that has less than d + 1 tokens in common
    # with the row before it.
    for d in range(depth):
        leaves = np.where(shared <= d, np.arange(count), count)  # rows that leave a node here
        # A minimum from the right: the next such row after each row, without its own ([1:]);
        # `count` if there is none.
        after = np.append(np.minimum.accumulate(leaves[::-1])[::-1][1:], count)
        ends[:, d] = first[after]
    return ends


@dataclasses.dataclass(frozen=True)
class Row:
    """Part of a trie that fits a model's row: [P] nodes to see, [M] edges to score."""

    # tokens, positions, ends: [P] int32; `ends` counts within the row
    tokens: Array
    positions: Array
    ends: Array
    parents: Array  # [M] int32, the position in the row of the node that an edge leaves
    targets: Array  # [M] int32, its token
    nodes: Array  # [M] int32, the node of the trie that it leads to


def rows(trie: Trie, width: int, edges: int) -> Iterator[Row]:
    """Cuts a trie into rows.

    A row is a stretch of inner nodes in preorder behind the ancestors of its first one, which the
    model sees again.

    Args:
      width: nodes in a row at most; more than any sequence has.
      edges: edges of a row at most; a node with more children takes several rows.
    """
    inner = np.flatnonzero(trie.inner)
    rank = np.cumsum(trie.inner) - trie.inner  # of a node among inner ones
    # Sorted by parent, the edges of consecutive inner nodes lie side by side.
    nodes = np.argsort(trie.parents, kind="stable")[np.count_nonzero(trie.parents < 0) :]
    owners = rank[trie.parents[nodes]]
    first = np.searchsorted(owners, np.arange(len(inner) + 1))
    start = 0
    # Edges in order of their parents; each row takes as many as fit both limits.
    while start < len(nodes):
        at = owners[start]
        above = _ancestors(trie, inner[at])
        # Edges of the inner nodes that have room beside the ancestors.
        room = first[min(at + width - len(above), len(inner))]
        stop = min(start + edges, room)
        # The ancestors are needed as context of the first node; nodes between are in preorder, so
        # their ancestors are either among these or in the row already.
        seen = np.array([*above, *inner[at : owners[stop - 1] + 1]])
        yield _row(trie, seen, at, len(above), rank, nodes[start:stop])
        start = stop


def _row(trie: Trie, seen: Array, at: int, above: int, rank: Array, nodes: Array) -> Row:
    last = np.append(rank, trie.inner.sum())[trie.ends[seen]]  # inner nodes before the end
    # Numbers within the row: the subtree's end among inner nodes, less those before the row;
    # ancestors' subtrees reach beyond the row and are cut to it. Every node sees itself at least.
    ends = np.clip(last - at + above, np.arange(len(seen)) + 1, len(seen))
    return Row(
        tokens=trie.tokens[seen],
        positions=trie.depths[seen],
        ends=ends.astype(np.int32),
        # An edge is scored by the model's output at its parent.
        parents=(rank[trie.parents[nodes]] - at + above).astype(np.int32),
        targets=trie.tokens[nodes],
        nodes=nodes.astype(np.int32),
    )


def _ancestors(trie: Trie, node: int) -> list[int]:
    ancestors, node = [], trie.parents[node]
    while node >= 0:
        ancestors.append(int(node))
        node = trie.parents[node]
    return ancestors[::-1]
