"""Documents as chunks: nothing is lost or doubled, whatever the shape of the blocks."""

import itertools

import numpy as np
import pytest

from ckl_jax.data.tasks import chunks
from ckl_jax.data.tasks.chunks import Assembler, Segment, StreamDocument

T, EOS = 4, 1


def document(number: int, date: str = "2018-01-01") -> StreamDocument:
    rng = np.random.default_rng(number)
    counts = rng.integers(1, 4, rng.integers(1, 6)).astype(np.int32)
    tokens = rng.integers(2, 90, counts.sum()).astype(np.int32)
    return StreamDocument(number, f"id{number}", date, ["w"] * len(counts), tokens, counts)


def test_segments_end_with_a_month_and_with_a_period():
    dates = ["2018-01-31"] * 5 + ["2018-02-01"] * 2 + ["2018-04-01"] * 4
    stream = [document(i, date) for i, date in enumerate(dates)]
    for start in range(len(stream)):
        found = list(chunks.segments(iter(stream[start:]), 3))
        ends = [(s.end, s.month_end) for s in found]
        every = [(3, False), (5, True), (6, False), (7, True), (9, False), (11, True)]
        assert ends == [e for e in every if e[0] > start]  # the same ends after any restart
        assert list(itertools.chain(*(s.documents for s in found))) == stream[start:]


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("rows", [1, 3, 50])
def test_blocks_hold_every_token_once_with_the_token_before_it(slots, rows):
    documents = [document(i) for i in range(9)]
    segment = Segment(documents, True)
    assembler = Assembler(segment, T)
    out, lengths = [], (2, T)
    for block in chunks.blocks(segment, lengths, rows, EOS, slots):
        tokens = block.rows["tokens"]
        for place in block.positions:
            expected = documents[place.document].tokens
            row, size = tokens[place.row, place.slot], place.stop - place.start
            assert row[1 : size + 1].tolist() == expected[place.start : place.stop].tolist()
            assert row[0] == (expected[place.start - 1] if place.start else EOS)
            assert block.rows["begins"][place.row, place.slot] == (place.start == 0)
            assert block.rows["lengths"][place.row, place.slot] == size
            out += assembler.add(place, row[1 : size + 1].astype(np.float32))
        longest = block.rows["lengths"].max(axis=1)[: block.count]
        assert (block.rows["bucket"][: block.count] == (longest > 2)).all()
        assert (longest > 0).all()
    assert [d.id for d in out] == [d.id for d in documents]
    for found, given in zip(out, documents, strict=True):
        ends = np.cumsum(given.counts)
        expected = [given.tokens[a:b].sum() for a, b in zip([0, *ends], ends, strict=False)]
        assert found.nll.tolist() == expected
        assert found.context_start.tolist() == [T * (p // T) for p in found.first_token]


def test_lengths():
    assert chunks.buckets(512) == (128, 256, 512)
    assert chunks.buckets(100) == (100,) and chunks.buckets(130) == (65, 130)


def test_reading_ahead_keeps_order_and_errors():
    def items():
        yield from range(50)
        raise ValueError("at the end")

    found = []
    with pytest.raises(ValueError, match="at the end"):
        found.extend(x for x in chunks.read_ahead(items()))
    assert list(itertools.islice(chunks.read_ahead(itertools.count()), 5)) == list(range(5))
