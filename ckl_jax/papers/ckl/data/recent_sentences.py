"""NewLAMA-Easy: sentences of recent documents with one entity blanked.

The paper had people choose an article's most recent sentence and the word to blank, models make it
stand alone (Choi et al. 2021) and paraphrase it (English-German-English), and people ask and answer
a question. Here rules choose, the two models are plug-ins, and the review page is for people.
"""

import calendar
import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.plugins import PlugIn
from ckl_jax.data.process_pool import batches
from ckl_jax.data.text.documents import Document
from ckl_jax.data.text.sentences import normalise
from ckl_jax.data.text.spans import mask_spans
from ckl_jax.data.text.taggers import EntityFinder, Span

MIN_WORDS, MAX_WORDS = 8, 60
_MAX_ANSWER_WORDS = 5
_PER_DOCUMENT = 4  # sentences that are considered, should the first ones turn out to be known
_MONTHS = frozenset(calendar.month_name[1:])
_CONTEXT = 600  # characters before the sentence that a plug-in gets
_BATCH = 32

# What a sentence that does not stand alone begins with, or speaks of.
_LEANS = re.compile(
    r"^[\"'“(]*(?:he|she|it|they|his|her|its|their|this|that|these|those|such|another|both|but|"
    r"and|or|so|however|also|then|there|here|instead|moreover|meanwhile|additionally|"
    r"for example|for instance|in addition|as a result)\b",
    re.IGNORECASE,
)
_WE_OR_YOU = re.compile(
    r"\b(?:i|we|us|our|ours|you|your|yours|my|me|let's)\b|"
    r"^(?:check|read|see|learn|visit|find|watch|join|for more)\b",
    re.IGNORECASE,
)
_NOT_PROSE = re.compile(r"https?:|www\.|[|{}<>\[\]=_*#]|\bextra_id_\d")
_END = re.compile(r"[.!][\"”')]*$")

# What stands beside a piece of a longer name, which is not an answer: "the Department of the ____",
# "the ____ Network", "the National Weather Service (____)".
_HEAD = re.compile(r"(?:\b[A-Z][\w.’'&-]*(?: (?:of|for)(?: the)?|,? and|,? or| &)? |\d |\) |[(-])$")
_FIRST = re.compile(
    r"(?:In|On|At|The|An?|For|With|From|By|After|Before|When|While|As|To|Under|Since|During) "
)
_TAIL = re.compile(r"-| (?:(?:of|for|and|&) (?:the )?)?[A-Z]| \(| \d")
_ABBREVIATED = re.compile(r"\.\w$")  # its full stop is outside: U.S


@dataclasses.dataclass(frozen=True)
class Recent:
    """A sentence with the place of its blank."""

    # document, date, title: where it is from
    document: str
    date: str
    title: str
    sentence: str  # the text
    answer: str  # what is blanked; it occurs once
    others: tuple[str, ...]  # the other entities in it
    context: str = ""  # what stands before it

    @property
    def statement(self) -> str:
        return blanked(self.sentence, self.answer)


def blanked(sentence: str, answer: str) -> str:
    """The sentence with its answer blanked; "" unless the answer occurs exactly once."""
    matches = list(_whole(answer).finditer(sentence))
    return mask_spans(sentence, [matches[0].span()])[0] if len(matches) == 1 else ""


def _whole(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")


def recent_sentences(
    document: Document,
    sentences: Sequence[str],
    finder: EntityFinder,
    counts: collections.Counter[str],
    standing: bool = True,
) -> list[Recent]:
    """The best few sentences of a document from which an item can be made.

    Args:
      counts: gets the sentences by why they are left out.
      standing: leave out those that do not stand alone.
    """
    recent: list[Recent] = []
    before = ""
    for text in (" ".join(s.split()) for s in sentences):
        counts["sentences read"] += 1
        # The finder is the slow part, so it runs last.
        spans = finder.find(text) if not (why := _unfit(text, standing)) else []
        answer, others = _choice(text, spans)
        why = why or ("" if answer else "with no entity to ask for beside another")
        if why:
            counts[f"sentences {why}"] += 1
        else:
            recent.append(
                Recent(
                    document.id, document.date, document.title, text, answer, others, before.strip()
                )
            )
        # The end of what came before is what a pronoun refers to.
        before = f"{before} {text}"[-_CONTEXT:]
    # What names the year is likelier to report what is recent; `sort` keeps the order otherwise.
    recent.sort(key=lambda r: document.date[:4] not in r.sentence)
    return recent[:_PER_DOCUMENT]


def _unfit(text: str, standing: bool) -> str:
    """The reason why a sentence makes no item, or ""."""
    words = len(text.split())
    if words < MIN_WORDS or words > MAX_WORDS:
        return f"shorter than {MIN_WORDS} or longer than {MAX_WORDS} words"
    if _NOT_PROSE.search(text) or not _END.search(text) or not text[0].isupper():
        return "that are not whole sentences of prose"
    if text.count('"') % 2 or any(text.count(a) != text.count(b) for a, b in ("“”", "()")):
        return "with a quotation or bracket that is cut"
    if standing and _LEANS.search(text):
        return "that begin with what leans on another sentence"
    if standing and _WE_OR_YOU.search(text):
        return "that speak of I, we or you, or bid the reader"
    return ""


def _choice(text: str, spans: Sequence[Span]) -> tuple[str, tuple[str, ...]]:
    """(the last entity that occurs once, the others); "" if there are fewer than two."""
    names = [(text[start:end], label) for start, end, label in spans if label != "DATE"]
    # The last one: a blank near the end leaves a decoder-only model the most to read.
    for name, _ in reversed(names):
        # Another entity is what identifies the fact; parts of the answer's own name do not.
        others = tuple(dict.fromkeys(n for n, _ in names if n not in name and name not in n))
        if others and _can_be_blank(text, name):
            return name, others
    return "", ()


def _can_be_blank(text: str, name: str) -> bool:
    """Whether a name occurs once, is whole, and is not revealed by its initials."""
    if not 1 <= len(name.split()) <= _MAX_ANSWER_WORDS or len(name) < 2:
        return False
    if name in _MONTHS or _ABBREVIATED.search(name):
        return False
    before, blank, after = blanked(text, name).partition(BLANK)
    if not blank or (_HEAD.search(before) and not _FIRST.fullmatch(before)) or _TAIL.match(after):
        return False
    # "World Health Organization (WHO)": the initials give the answer away.
    initials = "".join(word[0] for word in name.split() if word[0].isupper())
    return len(initials) < 2 or not _whole(initials).search(before + after)


def rewritten(
    chosen: Iterable[Sequence[Recent]],
    counts: collections.Counter[str],
    stand_alone: PlugIn | None = None,
    paraphrase: PlugIn | None = None,
) -> Iterator[Recent]:
    """Yields one sentence per document, the first that passes the plug-ins.

    Args:
      chosen: the sentences of each document.
      counts: gets those that do not.
      stand_alone: (sentences, contexts) -> sentences.
      paraphrase: sentences -> sentences.
    """
    for batch in batches(chosen, lambda _: 1, _BATCH):
        yield from _of_batch(batch, counts, stand_alone, paraphrase)


def _of_batch(batch, counts, stand_alone, paraphrase) -> Iterator[Recent]:
    done: dict[int, Recent] = {}
    # The next sentence of a document is tried only if the one before was lost.
    for turn in range(_PER_DOCUMENT):
        todo = [i for i, s in enumerate(batch) if i not in done and len(s) > turn]
        if not todo:
            break
        items = [batch[i][turn] for i in todo]
        for what, function in (
            ("decontextualisation", stand_alone),
            ("back-translation", paraphrase),
        ):
            if function is None or not items:
                continue
            texts = [item.sentence for item in items]
            contexts = [[f"{r.title} {r.context}".strip() for r in items]]
            new = function(texts, *(contexts if function is stand_alone else ()))
            pairs = [
                (i, dataclasses.replace(r, sentence=text))
                for i, r, text in zip(todo, items, new, strict=True)
                # A rewriting must keep the answer, once.
                if blanked(text, r.answer)
            ]
            counts[f"sentences whose answer {what} lost"] += len(items) - len(pairs)
            todo, items = [i for i, _ in pairs], [r for _, r in pairs]
        done |= dict(zip(todo, items, strict=True))
    yield from (done[i] for i in sorted(done))


def question(statement: str) -> str:
    """A question for a statement, by rule.

    A blank that is the subject becomes "Who or what"; else the statement itself is asked about.
    """
    # A lower-case word behind a blank at the start is taken for its verb.
    after = re.fullmatch(rf"{re.escape(BLANK)} ([a-z]\w*)\b(.*?)[.!]", statement)
    if after and after[1] not in ("and", "or", "of", "in", "at", "on", "for", "with"):
        return f"Who or what {after[1]}{after[2]}?"
    return f'What is missing from "{statement.replace(BLANK, "____")}"?'


def same(recent: Recent) -> str:
    """A sentence without case and punctuation, for comparison."""
    return normalise(recent.sentence)
