"""Fills templates: `[X]` is the subject, `[Y]` an answer (LM-PUB-QUIZ)."""

import dataclasses
import os
import re
from collections.abc import Iterator

from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.probe import ProbeItem
from ckl_jax.data.facts.relational import ANSWER, SUBJECT, Dataset, Relation

_PLACES = re.compile(f"({re.escape(SUBJECT)}|{re.escape(ANSWER)})")

Span = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Statement:
    """A filled template.

    Attributes:
      subjects, answers: [start, end) in characters of each inserted label.
    """

    text: str
    subjects: tuple[Span, ...]
    answers: tuple[Span, ...]


def fill(template: str, subject: str, answer: str, capitalize: bool = True) -> Statement:
    """Puts labels into a template, verbatim.

    Args:
      template: a statement with `[Y]` and usually `[X]`, each any number of times.
      subject, answer: the labels.
      capitalize: write the first character of the whole in upper case, and nothing else.
    """
    labels = {SUBJECT: subject, ANSWER: answer}
    spans: dict[str, list[Span]] = {SUBJECT: [], ANSWER: []}
    text = ""
    for piece in _PLACES.split(template):
        label = labels.get(piece, piece)
        if piece in spans:
            spans[piece].append((len(text), len(text) + len(label)))
        text += label
    # A letter such as "ß" would become two, and every span be off by one.
    if capitalize and len(text[:1].upper()) == 1:
        text = text[:1].upper() + text[1:]
    return Statement(text, tuple(spans[SUBJECT]), tuple(spans[ANSWER]))


def probe_items(path: str | os.PathLike) -> Iterator[ProbeItem]:
    """Yields a relational dataset's right statements as cloze items, one of each template.

    Raises:
      UserError: see `Dataset.from_path`.
    """
    for code, relation in Dataset.from_path(path).relations.items():
        for number, template in enumerate(relation.templates):
            for place, instance in enumerate(relation.instances):
                yield ProbeItem(
                    id=f"{code}-{number}-{place}",
                    input=fill(template, instance.sub_label, BLANK).text,
                    answers=(relation.answer_labels[instance.answer_idx],),
                    relation=code,
                )


def statements(
    relation: Relation, *templates: int, start: int = 0, stop: int | None = None
) -> Iterator[Statement]:
    """Instances `start` to `stop` in each template with every option, options fastest."""
    for instance in relation.instances[start:stop]:
        for template in templates:
            for label in relation.answer_labels:
                yield fill(relation.templates[template], instance.sub_label, label)
