"""NewsQA: questions about news stories whose answers are spans of them, with the stories' dates.

Read is the combined JSON that Microsoft's scripts make. Only questions on whose span the annotators
agreed (`consensus`) are kept. When a story was published is in the address of its page, and a
story's id is the SHA-1 of that address in the published lists of addresses (CNN/DailyMail).
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ckl_jax.data.compressed import text_lines
from ckl_jax.data.facts.questions import Question
from ckl_jax.data.json_rows import text_field
from ckl_jax.errors import UserError
from ckl_jax.files import read_json

_PLACE = re.compile(r"cnn\.com/((?:19|20)\d\d)/(.*)")
_DAY = re.compile(r"(?:^|/)(0[1-9]|1[0-2])/(0[1-9]|[12]\d|3[01])(?:/|$)")


def date_of_address(address: str) -> str:
    """The day, or else the year, in the address of a story of CNN's; "" if there is none."""
    match = _PLACE.search(address)
    if not match:
        return ""
    day = _DAY.search(match[2])
    return f"{match[1]}-{day[1]}-{day[2]}" if day else match[1]


def read_dates(path: str | os.PathLike) -> dict[str, str]:
    """Returns story id -> date, of a list of addresses (one a line)."""
    addresses = map(str.strip, text_lines(path))
    return {hashlib.sha1(a.encode()).hexdigest(): date_of_address(a) for a in addresses if a}


def read_newsqa(
    path: str | os.PathLike,
    dates: Mapping[str, str] | None = None,
    year: str = "",
    tokenize: Callable[[str], str] = str,
) -> Iterator[Question]:
    """Yields the questions that have a span.

    Args:
      path: `combined-newsqa-data-v1.json`.
      dates: story id -> date; see `read_dates`.
      year: of the stories; "": all.

    Raises:
      UserError: the file cannot be read, is not in this format, or lacks the texts.
    """
    content = read_json(path)
    stories = content.get("data") if isinstance(content, dict) else None
    if not isinstance(stories, list):
        raise UserError(f"{os.fspath(path)} is not NewsQA's combined file: it has no list 'data'.")
    for number, story in enumerate(stories):
        where = f"{os.fspath(path)}, story {number + 1}"
        if not isinstance(story, dict) or not {"storyId", "text", "questions"} <= set(story):
            raise UserError(f"{where}: it lacks 'storyId', 'text' or 'questions'.")
        # "./cnn/stories/<sha1>.story"
        name, text = Path(text_field(story, "storyId", where)).stem, story["text"]
        text_field(story, "text", where)  # kept as it is, for spans count its characters
        if not isinstance(story["questions"], list):
            raise UserError(f"{where}: 'questions' is no list.")
        date = (dates or {}).get(name, "")
        if date.startswith(year):
            passage = tokenize(text)
            for i, row in enumerate(story["questions"]):
                asked = f"{where}, question {i + 1}"
                if answer := _answer(row, text, asked):
                    question = tokenize(text_field(row, "q", asked))
                    yield Question(f"{name}/{i}", question, (tokenize(answer),), date, passage)


def _answer(row: Any, text: str, where: str) -> str:
    """The text of a question's span; "" for a bad question, or one without an answer."""
    span = row.get("consensus", {}) if isinstance(row, dict) else None
    if not isinstance(span, dict):
        raise UserError(f"{where}: it is no object, or its 'consensus' is none.")
    if "s" not in span or "e" not in span:
        return ""
    ends = span["s"], span["e"]
    if not all(type(end) is int and 0 <= end <= len(text) for end in ends):
        raise UserError(f"{where}: its span, {str(ends)[:40]}, is none of the text's characters.")
    if not (answer := text[slice(*ends)].strip()):
        raise UserError(f"{where}: its span is empty.")
    return answer
