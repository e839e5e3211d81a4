"""Dated questions, closed-book or about a passage: their files and batches.

A file is JSON lines: `id`, `question`, `answers` (the first is trained on), `date` (a month,
"2019-03", or a day; "" if unknown), `passage` ("" for closed-book ones), `role` and `place`.
"""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import UserError
from ckl_jax.files import write_jsonl


@dataclasses.dataclass(frozen=True)
class Question:
    """One question."""

    id: str  # unique in its file
    question: str  # text, tokenised as the text that the model reads
    answers: tuple[str, ...]  # accepted ones; the first is trained on
    date: str = ""  # that it is about, or was asked on
    passage: str = ""  # in which the answer is; "" if there is none
    # role, place: of a question about an office
    role: str = ""
    place: str = ""

    @property
    def prompt(self) -> str:
        """The prompt, up to the answer."""
        return f"{self.passage}\n{self.question}" if self.passage else self.question


def write_questions(path: str | os.PathLike, questions: Iterable[Question]) -> int:
    """Writes questions; returns how many there were."""
    rows = [dataclasses.asdict(question) for question in questions]
    write_jsonl(path, rows)
    return len(rows)


def read_questions(path: str | os.PathLike) -> list[Question]:
    """Reads a file of questions.

    Raises:
      UserError: it cannot be read, has none, or one lacks a field or has no answer.
    """
    questions = []
    for number, (where, row) in enumerate(numbered_rows(path), 1):
        where = f"{where}, question {number}"
        if not all(row.get(k) for k in ("id", "question", "answers")):
            raise UserError(f"{where}: it needs an 'id', a 'question' and 'answers'.")
        fields = {f.name: row[f.name] for f in dataclasses.fields(Question) if f.name in row}
        answers = fields.pop("answers")
        if not isinstance(answers, list) or not all(isinstance(a, str) for a in answers):
            raise UserError(f"{where}: 'answers' is {str(answers)[:40]!r}; give a list of texts.")
        for name, value in fields.items():
            if not isinstance(value, str):
                raise UserError(f"{where}: {name!r} is {str(value)[:40]!r}; give a text.")
        questions.append(Question(**fields, answers=tuple(answers)))
    if not questions:
        raise UserError(f"{os.fspath(path)} has no questions.")
    return questions


def question_rows(
    questions: Sequence[Question], encoder: Any, eos_id: int, length: int
) -> list[tuple[list[int], list[int]]]:
    """Encodes questions as (prompt, answer with its end), word by word.

    Args:
      questions: to encode.
      encoder: a `dated_task.WordEncoder`.
      eos_id: what ends an answer.
      length: of both together at most; of a longer prompt the beginning is cut off.
    """
    prompts = encoder([q.prompt for q in questions])
    answers = encoder([q.answers[0] for q in questions])
    rows = []
    for prompt, answer in zip(prompts, answers, strict=True):
        target = [*answer.tokens, eos_id][:length]
        room = length - len(target)
        rows.append((prompt.tokens[max(0, len(prompt.tokens) - room) :], target))
    return rows


def question_batch(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], length: int, eos_id: int
) -> dict[str, np.ndarray]:
    """A batch of a decoder-only model that trains on the answers only.

    Args:
      rows: of `question_rows`, together `length` at most.
      length: T.
      eos_id: the context of the first token; behind a row there are zeros.

    Returns:
      `decoder_input_tokens`, `decoder_target_tokens` int32 [B, T], `decoder_loss_weights` float32
      [B, T]: 1 on the answer and its end.
    """
    targets = np.zeros((len(rows), length), np.int32)
    weights = np.zeros((len(rows), length), np.float32)
    for i, (prompt, answer) in enumerate(rows):
        targets[i, : len(prompt) + len(answer)] = [*prompt, *answer]
        weights[i, len(prompt) : len(prompt) + len(answer)] = 1.0
    inputs = np.concatenate([np.full((len(rows), 1), eos_id, np.int32), targets[:, :-1]], axis=1)
    return {
        "decoder_input_tokens": inputs,
        "decoder_target_tokens": targets,
        "decoder_loss_weights": weights,
    }
