"""Questions from a file of dated facts, a relational dataset such as BEAR, or a Wikidata dump.

A row of a file is `question` (a sentence with a blank, written ____), `answer`, and if there are
any `date` (the day from which the answer is right), `relation` (whose answers are offered beside
it) and `aliases` (other right answers, with | between). Rows of one question are its history.
"""

import bisect
import collections
import dataclasses
import datetime
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ckl_jax.data.buckets import hash64
from ckl_jax.data.facts.ckl_files import BLANK, normalize_blank
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.data.facts.statements import fill
from ckl_jax.data.text.document_files import read_records
from ckl_jax.data.text.documents import encodable
from ckl_jax.data.text.sentences import normalise
from ckl_jax.errors import UserError
from ckl_jax.updates import wikidata_facts
from ckl_jax.updates.items import CANDIDATES, TAGS, Item


@dataclasses.dataclass(frozen=True)
class _Answer:
    date: str
    text: str
    aliases: tuple[str, ...]


@dataclasses.dataclass
class Question:
    """A sentence with a blank, and the history of its right answers."""

    # before, after: the text around the blank
    before: str
    after: str
    relation: str  # whose answers are offered as wrong ones
    answers: list[_Answer] = dataclasses.field(default_factory=list)  # in the order of their dates

    def at(self, date: str) -> _Answer | None:
        """The right answer on a day; None before the first."""
        place = bisect.bisect_right([answer.date for answer in self.answers], date)
        return self.answers[place - 1] if place else None


def read(path: str | Path) -> list[Question]:
    """Reads a file of facts, or a relational dataset, whose facts have no dates.

    Args:
      path: .jsonl, .csv or .parquet; a Wikidata dump; or the folder of a dataset.

    Raises:
      UserError: the file cannot be read, a row lacks its question or answer, its question has no
        blank, or its date is none; the message names file, line and field.
    """
    path = Path(path)
    if path.is_dir():
        return list(_relational(path))
    is_dump = path.name.endswith(wikidata_facts.ENDINGS)
    return list(_wikidata(path) if is_dump else _dated(path))


def items(
    questions: Sequence[Question],
    since: str,
    until: str,
    limit: int,
    seed: int = 0,
    fits: Callable[[Item], bool] = lambda item: True,
) -> list[Item]:
    """Makes items of questions.

    Args:
      questions: of `read`.
      since: YYYY-MM-DD: answers from this day on are new.
      until: the last day of the text; later answers are left out.
      limit: items of each tag, at most.
      seed: of the choice of items and of wrong answers.
      fits: whether an item can be asked.
    """
    pools = collections.defaultdict(dict)
    for question in questions:
        for answer in question.answers:
            pools[question.relation].setdefault(normalise(answer.text), answer.text)
    chosen: dict[str, list[Item]] = {tag: [] for tag in TAGS}
    for question in sorted(questions, key=lambda q: hash64(seed, q.before, q.after)):
        now, was = question.at(until), question.at(_day_before(since))
        if now is None:
            continue
        same = was is not None and normalise(was.text) in _names(now)
        tag = "new" if was is None else "kept" if same else "changed"
        if len(chosen[tag]) < limit:
            old = was.text if tag == "changed" else ""
            item = _item(question, now, old, tag, pools[question.relation], seed)
            if item and fits(item):
                chosen[tag].append(item)
    return [item for tag in TAGS for item in chosen[tag]]


def _day_before(date: str) -> str:
    return (datetime.date.fromisoformat(date) - datetime.timedelta(days=1)).isoformat()


def _names(answer: _Answer) -> set[str]:
    return {normalise(name) for name in (answer.text, *answer.aliases)}


def _item(
    question: Question, now: _Answer, old: str, tag: str, pool: Mapping[str, str], seed: int
) -> Item | None:
    right = _names(now) | {normalise(old)}
    others = [text for key, text in pool.items() if key not in right]
    if not old and not others:
        return None
    room = CANDIDATES - 1 - bool(old)
    generator = random.Random(hash64(seed, question.before, question.after, now.text))
    wrong = generator.sample(others, min(room, len(others)))
    start, end = len(question.before), len(question.before) + len(now.text)
    text = question.before + now.text + question.after
    return Item(
        id=f"{hash64(text) % 16**10:010x}",
        tag=tag,
        text=text,
        start=start,
        end=end,
        candidates=(now.text, *((old,) if old else ()), *wrong),
        old=old,
        date=now.date,
    )


def _relational(path: Path) -> Iterator[Question]:
    for code, relation in Dataset.from_path(path).relations.items():
        for instance in relation.instances:
            label = relation.answer_labels[instance.answer_idx]
            statement = fill(relation.templates[0], instance.sub_label, label)
            if len(statement.answers) != 1:
                continue
            (start, end), text = statement.answers[0], statement.text
            answer = _Answer("", text[start:end], ())
            yield Question(text[:start], text[end:], code, [answer])


def _wikidata(path: Path) -> Iterator[Question]:
    for history in wikidata_facts.read(path):
        before, _, after = history.cloze.partition(BLANK)
        answers = [_Answer(*answer) for answer in history.answers]
        yield Question(before, after, history.relation, answers)


def _dated(path: Path) -> Iterator[Question]:
    questions: dict[str, Question] = {}
    for where, _, row in read_records(path):
        place = f"{path}, {where}"
        texts = {name: row.get(name) for name in ("question", "answer")}
        for name, value in texts.items():
            if not isinstance(value, str) or not value.strip():
                there = ", ".join(map(repr, list(row)[:8]))
                raise UserError(f"{place}: the field {name!r} is missing or empty; there: {there}.")
        blanked = normalize_blank(encodable(texts["question"].strip()), place)
        before, _, after = blanked.partition(BLANK)
        relation = str(row.get("relation") or "")
        question = questions.setdefault(blanked, Question(before, after, relation))
        aliases = row.get("aliases") or ()
        aliases = aliases.split("|") if isinstance(aliases, str) else aliases
        if not isinstance(aliases, Sequence) or not all(isinstance(a, str) for a in aliases):
            raise UserError(f"{place}: the field 'aliases' is neither a text nor a list of texts.")
        answer = encodable(texts["answer"].strip())
        question.answers.append(_Answer(_date(row.get("date"), place), answer, tuple(aliases)))
    if not questions:
        raise UserError(f"{path} holds no facts.")
    for question in questions.values():
        _refuse_two_at_once(question, path)
        question.answers.sort(key=lambda answer: answer.date)
        yield question


def _refuse_two_at_once(question: Question, path: Path) -> None:
    """Raises `UserError` if a question has two answers of one day: neither is wrong."""
    days: dict[str, _Answer] = {}
    for answer in question.answers:
        other = days.setdefault(answer.date, answer)
        if _names(other).isdisjoint(_names(answer)):
            cloze = f"{question.before}____{question.after}"
            when = f"of {answer.date}" if answer.date else "without a date"
            raise UserError(
                f"{path}: the question {cloze!r} has two answers {when}, {other.text!r} and "
                f"{answer.text!r}; give one, with the other as an alias, or another date."
            )


def _date(given: object, place: str) -> str:
    """Parses a date; a year or month means its first day, and a missing date sorts first."""
    if given in (None, ""):
        return ""
    text = str(given).strip()[:10]
    day = text + "-01" * (2 - text.count("-"))
    try:
        return datetime.date.fromisoformat(day).isoformat()
    except ValueError as e:
        raise UserError(
            f"{place}: the field 'date' is {text!r}; give YYYY-MM-DD, YYYY-MM or YYYY."
        ) from e
