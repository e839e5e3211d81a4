"""Dated documents as chunks of their tokens, in blocks of a fixed shape for a compiled step.

A segment is a run of documents between two points where a stream may stop: the end of a month, or
a multiple of a period. A block is up to N rows of one segment. A row is a chunk of each of B slots;
a slot takes the next document when its own is at its end. The stream of one slot is in order.
"""

import dataclasses
import itertools
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ckl_jax.data.tasks.dated_task import DatedTask
from ckl_jax.data.tasks.word_losses import WordLosses
from ckl_jax.errors import UserError

EOS_WORD = "</s>"  # what the end of a document is called where it is scored
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class StreamDocument:
    """A document."""

    number: int  # its row in the task
    # id, date: of the document; ISO date
    id: str
    date: str
    words: Sequence[str]  # its W words
    tokens: np.ndarray  # [P] int32
    counts: np.ndarray  # [W] int32, how many tokens each word has

    def losses(self, nll: np.ndarray, context_start: np.ndarray) -> WordLosses:
        """The losses of its words.

        Args:
          nll: [P], of its tokens.
          context_start: [P] int, the first token of the chunk or window that scored each.
        """
        first = np.cumsum(self.counts, dtype=np.int64) - self.counts
        by_word = np.add.reduceat(nll.astype(np.float64), first) if len(first) else np.zeros(0)
        return WordLosses(
            self.id,
            self.date,
            self.words,
            by_word.astype(np.float32),
            self.counts,
            context_start[first].astype(np.int32),
        )


@dataclasses.dataclass(frozen=True)
class Segment:
    """Consecutive documents of one month."""

    documents: list[StreamDocument]  # in order, at least one
    month_end: bool  # whether the next document is of another month, or there is none

    @property
    def end(self) -> int:
        """The number of the document after the last."""
        return self.documents[-1].number + 1

    @property
    def month(self) -> str:
        return self.documents[-1].date[:7]


class Place(NamedTuple):
    """Position of a chunk: row and slot of its block; document of its segment, and its tokens."""

    row: int
    slot: int
    document: int
    start: int
    stop: int


class Block(NamedTuple):
    """Rows for the compiled step."""

    # `tokens` [N, B, T + 1] int32, the token before a chunk, then the chunk; `lengths` [N, B]
    # int32, tokens of a chunk, 0 for an idle slot; `begins` [N, B] bool, whether a document begins;
    # `bucket` [N] int32, which of the lengths that are compiled is the shortest that holds a row
    rows: dict[str, np.ndarray]
    count: int  # rows that are filled
    positions: list[Place]  # of every chunk in it


def stream_documents(
    task: DatedTask, start: int = 0, eos_id: int | None = None
) -> Iterator[StreamDocument]:
    """Yields the documents of a task from `start` on.

    Args:
      start: number of the first.
      eos_id: append it to each document as a word of its own; None does not.

    Raises:
      UserError: the words of a document are not those of its tokens.
    """
    texts = task.documents(start)
    for number, about in zip(range(start, len(task)), texts, strict=True):
        row = task.task.row(number)
        words, counts = about["text"].split(), list(row["tokens_per_word"])
        tokens = list(row["targets"])
        if len(words) != len(counts) or sum(counts) != len(tokens):
            raise UserError(
                f"Document {number} of {task.folder} has {len(words)} words in its text and "
                f"{len(counts)} in its tokens; make the task again by `ckl data dated`."
            )
        if eos_id is not None:
            words, counts, tokens = [*words, EOS_WORD], [*counts, 1], [*tokens, eos_id]
        yield StreamDocument(
            number,
            about["id"],
            about["date"],
            words,
            np.array(tokens, np.int32),
            np.array(counts, np.int32),
        )


def segments(documents: Iterator[StreamDocument], period: int) -> Iterator[Segment]:
    """Cuts a stream at the end of each month and after every `period`-th document of the task."""

    def place(document: StreamDocument) -> tuple[str, int]:
        return document.date[:7], document.number // period

    groups = itertools.groupby(documents, key=place)
    held = next(((key, list(group)) for key, group in groups), None)
    while held is not None:
        (month, _), members = held
        held = next(((key, list(group)) for key, group in groups), None)
        yield Segment(members, held is None or held[0][0] != month)


def buckets(chunk_len: int, count: int = 3, least: int = 64) -> tuple[int, ...]:
    """Possible row lengths: `chunk_len`, its half and its quarter, as long as they are at least
    `least`.

    Returns:
      Ascending.
    """
    halves = [chunk_len >> i for i in range(count)]
    return tuple(sorted({x for x in halves if x >= least} | {chunk_len}))


def blocks(
    segment: Segment, lengths: Sequence[int], rows: int, eos_id: int, slots: int = 1
) -> Iterator[Block]:
    """Yields the blocks of a segment.

    Args:
      lengths: of rows, ascending, see `buckets`; the last is T, a chunk's.
      rows: N.
      eos_id: what precedes a document.
      slots: B.
    """
    waiting = iter(enumerate(segment.documents))
    at: list[tuple[int, int] | None] = [None] * slots  # document and token of each slot
    while True:
        block = _Filling(segment, lengths, rows, eos_id, slots)
        while block.count < rows:
            for slot in range(slots):
                while at[slot] is None or at[slot][1] >= len(segment.documents[at[slot][0]].tokens):
                    taken = next(waiting, None)
                    at[slot] = None if taken is None else (taken[0], 0)
                    if taken is None:
                        break
            if all(place is None for place in at):
                break
            block.add(at)
        if block.count:
            yield block.done()
        if block.count < rows:
            return


class _Filling:
    """A block under construction."""

    def __init__(self, segment, lengths, rows, eos_id, slots):
        self.segment, self.lengths, self.eos_id = segment, np.array(lengths), eos_id
        self.tokens = np.zeros((rows, slots, lengths[-1] + 1), np.int32)
        self.sizes = np.zeros((rows, slots), np.int32)
        self.begins = np.zeros((rows, slots), bool)
        self.positions: list[Place] = []
        self.count = 0

    def add(self, at: list[tuple[int, int] | None]) -> None:
        """Adds a row, and moves the slots on."""
        for slot, place in enumerate(at):
            if place is None:
                continue
            index, start = place
            tokens = self.segment.documents[index].tokens
            stop = min(start + int(self.lengths[-1]), len(tokens))
            row = self.tokens[self.count, slot]
            row[0] = tokens[start - 1] if start else self.eos_id
            row[1 : 1 + stop - start] = tokens[start:stop]
            self.sizes[self.count, slot], self.begins[self.count, slot] = stop - start, start == 0
            self.positions.append(Place(self.count, slot, index, start, stop))
            at[slot] = (index, stop)
        self.count += 1

    def done(self) -> Block:
        bucket = np.searchsorted(self.lengths, self.sizes.max(axis=1)).astype(np.int32)
        rows = {
            "tokens": self.tokens,
            "lengths": self.sizes,
            "begins": self.begins,
            "bucket": bucket,
        }
        return Block(rows, self.count, self.positions)


class Assembler:
    """Joins the losses of chunks into documents, which it returns in order."""

    def __init__(self, segment: Segment, chunk_len: int):
        self._segment, self._chunk_len = segment, chunk_len
        self._open: dict[int, np.ndarray] = {}
        self._next = 0
        self._whole: set[int] = set()

    def add(self, place: Place, losses: np.ndarray) -> Iterator[WordLosses]:
        """Takes the losses [stop - start] of a chunk; yields the documents that are next."""
        documents = self._segment.documents
        size = len(documents[place.document].tokens)
        whole = self._open.setdefault(place.document, np.zeros(size, np.float32))
        whole[place.start : place.stop] = losses
        if place.stop == size:
            self._whole.add(place.document)
        while self._next in self._whole:
            self._whole.remove(self._next)
            nll = self._open.pop(self._next)
            starts = np.arange(len(nll)) // self._chunk_len * self._chunk_len
            yield documents[self._next].losses(nll, starts)
            self._next += 1


def read_ahead(items: Iterator[T], count: int = 2) -> Iterator[T]:
    """Yields `items`, up to `count` of them prepared ahead by a thread; its errors come here."""
    made: queue.Queue[Any] = queue.Queue(count)
    stop, end = threading.Event(), object()

    def put(item: Any) -> None:
        while not stop.is_set():
            try:
                made.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put((item, None))
                if stop.is_set():
                    return
            put((end, None))
        except BaseException as e:
            put((end, e))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item, error = made.get()
            if error is not None:
                raise error
            if item is end:
                return
            yield item
    finally:
        stop.set()
        thread.join()
