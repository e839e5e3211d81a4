"""Writes the facts of a world as a relational dataset in LM-PUB-QUIZ's layout (like BEAR)."""

import collections
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax import checks
from ckl_jax.errors import UserError
from ckl_jax.files import read_text, write_file, write_json
from ckl_jax.world.facts import Fact, World
from ckl_jax.world.templates import EVENT

METADATA = "metadata_relations.json"
_DOMAINS = {  # of what a fact is about, in BEAR's words
    "person": "Biographical",
    "city": "Geographic",
    "country": "Geographic",
    "river": "Geographic",
    "company": "Economic",
    "club": "Sports",
    "university": "Scientific",
}
_PLACES = {"s": "[X]", "o": "[Y]"}


def write_quiz(
    world: World,
    folder: str | os.PathLike,
    date: str | None = None,
    templates: int = 3,
    instances: int | None = None,
    replace: bool = False,
) -> dict[str, int]:
    """Writes a relation a file, and their templates and answer spaces.

    Every object of a relation is an option; control subjects, whose facts the texts state in these
    templates, are left out. So is a relation without a fact or phrasings, or with one option.

    Args:
      folder: of the dataset; its name is the dataset's.
      date: ISO date at which the facts hold; None is the last day before the news.
      templates: phrasings of a relation at most.
      instances: facts of a relation at most, spread evenly; the options stay.
      replace: write over other facts of the same relations.

    Returns:
      The number of facts by relation.

    Raises:
      UserError: the folder holds another dataset.
    """
    checks.require_int(1, templates=templates, instances=instances)
    folder = Path(folder)
    by_relation = collections.defaultdict(list)
    for fact in world.at(date or world.before).values():
        by_relation[fact.relation].append(fact)
    metadata, rows = {}, {}
    for name, facts in by_relation.items():
        relation = world.relations[name]
        options = list(dict.fromkeys(fact.object for fact in facts))
        probed = [fact for fact in facts if not world.is_control(fact.subject)]
        if not probed or len(options) < 2 or not relation.state or relation.kind == EVENT:
            continue
        code = _code(world, name, by_relation)
        rows[code] = _instances(world, _some(probed, instances), options)
        metadata[code] = {
            "name": name.removesuffix("_trex").replace("_", " "),
            "templates": [text.format(**_PLACES) for text in relation.state[:templates]],
            "answer_space_ids": options,
            "answer_space_labels": [world.name(option) for option in options],
            **({"domains": [domain]} if (domain := _DOMAINS.get(relation.subject)) else {}),
        }
    tables = {
        f"{code}.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in some)
        for code, some in rows.items()
    }
    _refuse_others(folder, tables, replace)
    for name, content in tables.items():
        write_file(folder / name, content)
    write_json(folder / METADATA, metadata)
    return {code: len(some) for code, some in rows.items()}


def _code(world: World, name: str, relations: Iterable[str]) -> str:
    """Wikidata's property where it is of this relation alone."""
    code = world.relations[name].property
    same = [other for other in relations if world.relations[other].property == code]
    return code if code and len(same) == 1 else name


def _some(facts: Sequence[Fact], count: int | None) -> Sequence[Fact]:
    if count is None or len(facts) <= count:
        return facts
    return [facts[i * len(facts) // count] for i in range(count)]


def _instances(world: World, facts: Sequence[Fact], options: Sequence[str]) -> list[dict[str, Any]]:
    place = {option: i for i, option in enumerate(options)}
    return [
        {
            "sub_id": fact.subject,
            "sub_label": world.name(fact.subject),
            "sub_aliases": list(world.entities[fact.subject].aliases),
            "obj_id": fact.object,
            "obj_label": world.name(fact.object),
            "answer_idx": place[fact.object],
        }
        for fact in facts
    ]


def _refuse_others(folder: Path, tables: Mapping[str, str], replace: bool) -> None:
    """Refuses a folder that holds another dataset's relations, or other facts of these."""
    for path in sorted(folder.glob("*.jsonl")):
        if path.name not in tables:
            raise UserError(f"{folder} holds other relations ({path.name}); choose another folder.")
        if not replace and read_text(path) != tables[path.name]:
            raise UserError(
                f"{folder} holds a dataset of another size, seed or source ({path.name}); choose "
                "another folder, or remove it."
            )
