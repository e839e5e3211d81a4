"""TempLAMA, StreamingQA and RealTimeQA in their published forms (JSON lines), as dated questions.

A question's date is that of its answer: TempLAMA's year (Dhingra et al. 2022), when the article
with the answer appeared (StreamingQA; Liška et al. 2022), when it was asked (RealTimeQA; Kasai et
al. 2022). With dates given, a question begins as its authors let it begin.
"""

import datetime
import os
from collections.abc import Callable, Iterator
from typing import Any

from ckl_jax.data.facts.questions import Question
from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import UserError

_NONE = "none of the above"


def _templama(row: dict[str, Any]) -> tuple[Question, str]:
    """`answer` is a list of {"wikidata_id", "name"} as downloaded, one as the script makes it."""
    objects = row["answer"] if isinstance(row["answer"], list) else [row["answer"]]
    names = tuple(x["name"] for x in objects)
    return Question(row["id"], row["query"], names, row["date"]), f"year: {row['date']} text: "


def _streamingqa(row: dict[str, Any]) -> tuple[Question, str]:
    """Times are seconds in UTC; `answers_additional` is no reference of the evaluation."""
    asked_on, answered_on = (_day(row[key]) for key in ("question_ts", "evidence_ts"))
    answers = tuple(_list(row, "answers"))
    question = Question(row["qa_id"], row["question"], answers, answered_on.isoformat())
    return question, f"Today is {asked_on:%A, %B} {asked_on.day}, {asked_on.year}. "


def _realtimeqa(row: dict[str, Any]) -> tuple[Question, str]:
    """`answer` are the numbers of `choices` that are right; dates are 2022/07/08 or 2024-07-08."""
    asked_on = datetime.date.fromisoformat(row["question_date"].replace("/", "-"))
    choices, numbers = _list(row, "choices"), map(str, _list(row, "answer"))
    # Of a number below 0 Python would count from the end.
    answers = tuple(choices[int(n) if n.isdecimal() else len(choices)] for n in numbers)
    question = Question(row["question_id"], row["question_sentence"], answers, asked_on.isoformat())
    return question, f"Today is {asked_on:%B %d, %Y}. "


def _list(row: dict[str, Any], field: str) -> list[Any]:
    if not isinstance(row[field], list):
        raise ValueError(f"{field!r} is no list")
    return row[field]


def _day(seconds: float) -> datetime.date:
    if isinstance(seconds, bool):
        raise ValueError(f"{seconds} is no number of seconds")
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date()


FORMS: dict[str, Callable[[dict[str, Any]], tuple[Question, str]]] = {
    "templama": _templama,
    "streamingqa": _streamingqa,
    "realtimeqa": _realtimeqa,
}


def read_dated_qa(
    path: str | os.PathLike,
    form: str,
    dated: bool = False,
    year: str = "",
    tokenize: Callable[[str], str] = str,
) -> Iterator[Question]:
    """Yields the questions of a file, plain or compressed.

    Args:
      form: one of FORMS.
      dated: begin each question with its date.
      year: of the answers; "" is all.

    Raises:
      UserError: a line is not of that form, or its answer is "None of the above".
    """
    for where, row in numbered_rows(path):
        try:
            question, beginning = FORMS[form](row)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, OSError) as e:
            reason = f"it has no {e}" if isinstance(e, KeyError) else f"{type(e).__name__}: {e}"
            raise UserError(f"{where}: not a line of {form} ({reason}).") from e
        texts = question.id, question.question, question.date, *question.answers
        if not question.answers or not all(isinstance(t, str) and t.strip() for t in texts):
            raise UserError(f"{where}: id, question, date, answers must be text; remove the line.")
        if _NONE in (answer.lower() for answer in question.answers):
            raise UserError(f"{where}: {_NONE!r} is no answer; give the file without '_nota'.")
        if question.date.startswith(year):
            text = tokenize(beginning * dated + question.question)
            yield Question(question.id, text, tuple(map(tokenize, question.answers)), question.date)
