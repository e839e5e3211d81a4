"""Templates of statements and questions: `[X]` is the subject, `[Y]` the answer.

The 28 relations are those of the CKL paper's Table 4, with its templates; the questions are ours.
A file of templates is JSON lines: `relation`, `cloze`, `question` ("" or absent: none), `kind`.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ckl_jax.data.facts.relational import ANSWER, SUBJECT
from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import UserError, refuse_unknown

INVARIANT, CHANGING, EVENT = "invariant", "changing", "event"
KINDS = (INVARIANT, CHANGING, EVENT)


@dataclasses.dataclass(frozen=True)
class Template:
    """The templates of a relation."""

    cloze: str  # statement with one `[X]` and one `[Y]`
    question: str = ""  # with one `[X]`; "" if there is none
    kind: str = CHANGING  # invariant, changing, or event (happens once, is not a state)


_TABLE_4 = {
    "P19": ("[X] was born in [Y] .", "Where was [X] born?"),
    "P20": ("[X] died in [Y] .", "Where did [X] die?"),
    "P279": ("[X] is a subclass of [Y] .", "What is [X] a subclass of?"),
    "P37": ("The official language of [X] is [Y] .", "What is an official language of [X]?"),
    "P449": ("[X] was originally aired on [Y] .", "Who originally aired [X]?"),
    "P47": ("[X] shares border with [Y] .", "With what does [X] share a border?"),
    "P138": ("[X] is named after [Y] .", "What is [X] named after?"),
    "P364": ("The original language of [X] is [Y] .", "What is the original language of [X]?"),
    "P527": ("[X] consists of [Y] .", "What does [X] consist of?"),
    "P176": ("[X] is produced by [Y] .", "Who produces [X]?"),
    "P27": ("[X] is [Y] citizen .", "Of which country is [X] a citizen?"),
    "P407": ("[X] was written in [Y] .", "In which language was [X] written?"),
    "P30": ("[X] is located in [Y] .", "On which continent is [X]?"),
    "P178": ("[X] is developed by [Y] .", "Who developed [X]?"),
    "P1376": ("[X] is the capital of [Y] .", "Of what is [X] the capital?"),
    "P131": ("[X] is located in [Y] .", "Where is [X] located?"),
    "P1412": ("[X] used to communicate in [Y] .", "In which language did [X] communicate?"),
    "P17": ("[X] is located in [Y] .", "In which country is [X] located?"),
    "P276": ("[X] is located in [Y] .", "In which place is [X] located?"),
    "P937": ("[X] used to work in [Y] .", "Where did [X] work?"),
    "P140": ("[X] is affiliated with the [Y] religion .", "What is the religion of [X]?"),
    "P103": ("The native language of [X] is [Y] .", "What is the native language of [X]?"),
    "P190": ("[X] and [Y] are twin cities .", "What is a twin city of [X]?"),
    "P1001": ("[X] is a legal term in [Y] .", "Where is [X] a legal term?"),
    "P495": ("[X] was created in [Y] .", "In which country was [X] created?"),
    "P36": ("The capital of [X] is [Y] .", "What is the capital of [X]?"),
    "P740": ("[X] was founded in [Y] .", "Where was [X] founded?"),
    "P361": ("[X] is part of [Y] .", "What is [X] part of?"),
}
INVARIANT_RELATIONS = tuple(_TABLE_4)  # the paper's 28

# T-REx relations that may change, and are asked for as if they did not, by whoever wants them.
_OTHERS = {
    "P159": ("The headquarter of [X] is in [Y] .", "Where is the headquarters of [X]?"),
    "P264": ("[X] is represented by music label [Y] .", "Which label represents [X]?"),
}

# Wikidata's property -> what its value is called: the holder of an office of the subject, or
# something that the subject belongs to.
OFFICES = {
    "P6": "head of government",
    "P35": "head of state",
    "P286": "head coach",
    "P488": "chairperson",
    "P1037": "director",
    "P127": "owner",
}
MEMBERSHIPS = {"P54": "team", "P102": "party", "P108": "employer", "P39": "position"}
PREVIOUS = "_previous"  # ends the name of a relation to the holder before the current one


def office(title: str, previous: bool = False) -> Template:
    """The templates of an office held by the subject."""
    if previous:
        return Template(
            f"The previous {title} of [X] was [Y].", f"Who was the previous {title} of [X]?"
        )
    return Template(f"The {title} of [X] is [Y].", f"Who is the {title} of [X]?")


def membership(title: str, previous: bool = False) -> Template:
    """The templates of a group to which the subject belongs."""
    when, verb = ("previous", "was") if previous else ("current", "is")
    return Template(
        f"The {when} {title} of [X] {verb} [Y].", f"What {verb} the {when} {title} of [X]?"
    )


def property_of(relation: str) -> str:
    """The property in a relation's name, such as "P17" of "P17_trex"; "" if there is none."""
    match = re.match(r"P\d+", relation)
    return match[0] if match else ""


def question(relation: str) -> str:
    """The question for a T-REx relation that has one here."""
    return (_TABLE_4 | _OTHERS)[relation][1]


def built_in() -> dict[str, Template]:
    """{relation: templates} of all relations with built-in templates."""
    templates = {name: Template(*texts, INVARIANT) for name, texts in _TABLE_4.items()}
    templates |= {name: Template(*texts) for name, texts in _OTHERS.items()}
    for titles, make in ((OFFICES, office), (MEMBERSHIPS, membership)):
        for name, title in titles.items():
            templates[name], templates[name + PREVIOUS] = make(title), make(title, previous=True)
    return templates


def read_templates(path: str | os.PathLike) -> dict[str, Template]:
    """Reads a file of templates.

    Raises:
      UserError: it cannot be read, or a line lacks a field or has one that is wrong.
    """
    templates: dict[str, Template] = {}
    for where, row in numbered_rows(path):
        if not isinstance(row.get("relation"), str):
            raise UserError(f"{where}: the field 'relation' is missing or no text.")
        name, kind = row["relation"], row.get("kind", CHANGING)
        refuse_unknown(str(kind), KINDS, f"{where}: 'kind' is {kind!r}; it is one of")
        if name in templates:
            raise UserError(f"{where}: the relation {name!r} has a template already.")
        templates[name] = check(
            Template(row.get("cloze", ""), row.get("question") or "", kind), where
        )
    return templates


def check(template: Template, where: str) -> Template:
    """Validates and returns the templates.

    Raises:
      UserError: it has not one place for the subject and, in the statement, one for the answer.
    """
    blanks = {"cloze": (SUBJECT, ANSWER), "question": (SUBJECT,)}
    for field, wanted in blanks.items():
        text = getattr(template, field)
        if field == "question" and text == "":
            continue
        if not isinstance(text, str) or any(text.count(p) != 1 for p in wanted):
            raise UserError(
                f"{where}: {field!r} is {text!r}; it must have {' and '.join(wanted)} once."
            )
    return template


def with_patterns(
    templates: Mapping[str, Template], folder: str | os.PathLike
) -> dict[str, Template]:
    """The templates with clozes from a folder of ParaRel patterns, `P19.jsonl` and so on.

    Raises:
      UserError: the folder has none, or one has no whole sentence.
    """
    paths = sorted(Path(folder).glob("*.jsonl"))
    if not paths:
        raise UserError(f"{folder} has no patterns, such as P19.jsonl; give ParaRel's folder.")
    known = dict(templates)
    for path in paths:
        template = known.get(path.stem, Template(""))
        known[path.stem] = dataclasses.replace(template, cloze=whole_sentences(path)[0])
    return known


def whole_sentences(path: str | os.PathLike) -> list[str]:
    """ParaRel's patterns of a relation that are whole sentences, at least one.

    Raises:
      UserError: the file cannot be read, or has none.
    """
    kept: dict[str, None] = {}
    for where, row in numbered_rows(path):
        text = row.get("pattern")
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{where}: the field 'pattern' is missing or no text.")
        text = " ".join(text.split())
        is_whole = text.endswith(".") and "," not in text and text[0] in "[T"
        if is_whole and SUBJECT in text and ANSWER in text:
            kept[text.replace(" .", ".")] = None
    if not kept:
        raise UserError(f"{path} has no pattern that is a whole sentence.")
    return list(kept)
