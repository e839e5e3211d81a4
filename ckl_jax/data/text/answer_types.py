"""Types of answers: person, organization, geographical, date and so on (CKL, Table 5).

The paper does not say how it classified them. Here, what first applies:

1. the kind of the relation's objects in a world's or a builder's own files (`entities.jsonl` and
   `facts.jsonl`, beside the probes);
2. the type that objects of a Wikidata property have, of InvariantLAMA's 28 relations;
3. a number or a date by its form;
4. spaCy's entities in the filled-in statement, where it is installed, by `finder`;
5. "unknown".
"""

import collections
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ckl_jax.data.facts.ckl_files import BLANK
from ckl_jax.data.facts.templates import property_of
from ckl_jax.data.text.taggers import EntityFinder, SpacyFinder, find_dates
from ckl_jax.errors import UserError
from ckl_jax.files import read_jsonl

PERSON, NUMBER, DATE, OTHER, UNKNOWN = "person", "number", "date", "other", "unknown"
_NAMED = ("organization", "geographical", "location", "nationality", "language")
TYPES = (PERSON, *_NAMED, NUMBER, DATE, OTHER, UNKNOWN)
_OF_KINDS = {
    "person": PERSON,
    "city": "geographical",
    "country": "geographical",
    "river": "location",
    "language": "language",
    **dict.fromkeys(("university", "company", "club", "league"), "organization"),
}
_PLACES = "P19 P20 P47 P1376 P131 P17 P27 P276 P937 P190 P1001 P495 P36 P740".split()
_OF_PROPERTIES = {
    **dict.fromkeys(_PLACES, "geographical"),
    **dict.fromkeys(("P37", "P364", "P407", "P1412", "P103"), "language"),
    **dict.fromkeys(("P449", "P176", "P178"), "organization"),
    **dict.fromkeys(("P279", "P138", "P527", "P361"), OTHER),
    "P30": "location",
    "P140": "nationality",
}
_OF_LABELS = {
    "PERSON": PERSON,
    "ORG": "organization",
    "GPE": "geographical",
    "LOC": "location",
    "FAC": "location",
    "NORP": "nationality",
    "LANGUAGE": "language",
    "DATE": DATE,
}
_NUMBER = re.compile(
    r"[$€£¥]?\s?\d[\d,.]*\s?(?:%|percent|st|nd|rd|th|hundred|thousand|million|billion|trillion|"
    r"people|years?|pounds|dollars|euros)?|(?:one|two|three|four|five|six|seven|eight|nine|ten|"
    r"eleven|twelve|dozens?|hundreds?|thousands?|millions?|billions?)",
    re.IGNORECASE,
)


class AnswerTypes:
    """Classifies answers by type.

    Attributes:
      how: in words, for below a table.
    """

    def __init__(self, kinds: Mapping[str, str] | None = None, finder: EntityFinder | None = None):
        """Takes {relation: kind of its objects}, and a finder of labelled entities."""
        self._kinds, self._finder = dict(kinds or {}), finder
        self._found: dict[tuple[str, str], str] = {}
        ways = ["kinds of objects in facts.jsonl"] if kinds else []
        ways += ["Wikidata's properties", "forms of numbers and dates"]
        ways += [f"entities of {finder.backend}"] if finder else []
        self.how = ", then ".join(ways)

    @classmethod
    def of_folder(cls, folder: str | os.PathLike, finder: EntityFinder | None = None):
        """The types of probes in a folder of CKL's layout."""
        return cls(relation_kinds(folder), finder)

    def __call__(self, relation: str, answer: str, statement: str = "") -> str:
        """The type of an answer.

        Args:
          relation: of the item; "" if it is not known.
          answer: its first one.
          statement: with the blank `<extra_id_0>`.
        """
        if kind := self._kinds.get(relation):
            return _OF_KINDS.get(kind, OTHER)
        if (known := property_of(relation)) in _OF_PROPERTIES:
            return _OF_PROPERTIES[known]
        key = (answer, statement)
        if key not in self._found:
            self._found[key] = self._by_form(answer, statement)
        return self._found[key]

    def _by_form(self, answer: str, statement: str) -> str:
        if any((start, end) == (0, len(answer)) for start, end, _ in find_dates(answer)):
            return DATE
        if _NUMBER.fullmatch(answer.strip()):
            return NUMBER
        if self._finder is None:
            return UNKNOWN
        start = statement.index(BLANK) if BLANK in statement else 0
        text = statement.replace(BLANK, answer) if statement else answer
        end = start + len(answer)
        labels = [label for a, b, label in self._finder.find(text) if a < end and start < b]
        return next((_OF_LABELS[label] for label in labels if label in _OF_LABELS), OTHER)


def relation_kinds(folder: str | os.PathLike) -> dict[str, str]:
    """{relation: most frequent kind of its objects} from a world's files; {} without them."""
    entities, facts = Path(folder) / "entities.jsonl", Path(folder) / "facts.jsonl"
    if not (entities.is_file() and facts.is_file()):
        return {}
    kind_of = {row["id"]: row["kind"] for row in read_jsonl(entities)}
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for fact in read_jsonl(facts):
        if kind := kind_of.get(fact["object"]):
            counts[fact["relation"]][kind] += 1
    kinds = {relation: count.most_common(1)[0][0] for relation, count in counts.items()}
    return {relation: kind for relation, kind in kinds.items() if kind != "item"}


def labelled_finder() -> EntityFinder | None:
    """spaCy's entity finder if it and its pipeline are installed, else None."""
    try:
        return SpacyFinder()
    except UserError:
        return None
