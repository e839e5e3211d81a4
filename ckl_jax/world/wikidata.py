"""The world of real facts: T-REx triples that stay, Wikidata facts as of 2021, 2023 and 2024.

The files are ParaRel's (`probes/pararel/trex/P*.jsonl` and `patterns/`, MIT) for what is invariant,
and `probes/wikidata-facts-2021-2023-2024.jsonl.gz` (CC0) for what changed. The texts are made from
ParaRel's patterns and the wordings of `data.facts.templates`, not from articles.
"""

import itertools
import os
import random
from pathlib import Path
from typing import Any

from ckl_jax.data.facts import templates
from ckl_jax.data.json_rows import numbered_rows
from ckl_jax.errors import UserError
from ckl_jax.files import read_jsonl
from ckl_jax.world import statement_templates
from ckl_jax.world.facts import Entity, Fact, World, occurs_in, without_news_of_controls
from ckl_jax.world.templates import CHANGING, INVARIANT, Relation
from ckl_jax.world.timeline import LEGACY_SIZES, SIZES, check_size

CUT, HALF, END = "2021-12-31", "2024-01-01", "2024-04-01"
_SNAPSHOTS = (("2021-12-30", "2000-01-01"), ("2023-12-30", "2023-12-30"), ("2024-03", "2024-03-15"))
_FACTS = "probes/wikidata-facts-2021-2023-2024.jsonl.gz"
_PER_RELATION = {"tiny": 8, "small": 75, "wide": 150, "medium": 400, "large": 10_000}

# T-REx relations whose objects are names and (nearly always) single.
_INVARIANT = tuple("P17 P20 P30 P37 P103 P131 P138 P159 P178 P264 P364 P937 P1412".split())


def _relation(
    prop: str,
    previous: bool,
    template: templates.Template,
    state: tuple,
    news: tuple,
    trained: tuple,
    title: str,
) -> Relation:
    """A relation that changes; its first phrasing is the cloze."""
    return Relation(
        name=prop + templates.PREVIOUS if previous else prop,
        property=prop,
        kind=CHANGING,
        subject="item",
        object="item",
        question=_placed(template.question),
        state=(_placed(template.cloze), *state),
        news=news,
        trained=tuple(text.replace("{t}", title) for text in trained),
    )


def _placed(text: str) -> str:
    """A text of `data` with the places as they are marked here."""
    return text.replace("[X]", "{s}").replace("[Y]", "{o}")


def _office(prop: str, title: str, previous: bool) -> Relation:
    if previous:
        state = (
            f"{{o}} was the previous {title} of {{s}}.",
            f"{{s}} had {{o}} as its previous {title}.",
        )
        news = (f"{{o}} is no longer the {title} of {{s}}.",)
    else:
        state = (f"{{o}} is the {title} of {{s}}.", f"{{s}} has {{o}} as its {title}.")
        news = (f"{{o}} is the new {title} of {{s}}.", f"{{o}} became {title} of {{s}}.")
    trained = (
        statement_templates.TRAINED_PAST_OFFICE if previous else statement_templates.TRAINED_OFFICE
    )
    template = templates.office(title, previous)
    return _relation(prop, previous, template, state, news, trained, title)


def _membership(prop: str, title: str, previous: bool) -> Relation:
    when, verb = ("previous", "was") if previous else ("current", "is")
    state = (
        f"{{o}} {verb} the {when} {title} of {{s}}.",
        f"{{s}} {'had' if previous else 'has'} {{o}} as {when} {title}.",
    )
    news = (f"{{o}} {'was the last' if previous else 'is the new'} {title} of {{s}}.",)
    trained = (
        statement_templates.TRAINED_PAST_MEMBERSHIP
        if previous
        else statement_templates.TRAINED_MEMBERSHIP
    )
    template = templates.membership(title, previous)
    return _relation(prop, previous, template, state, news, trained, title)


def wikidata_world(
    data_dir: str | os.PathLike, seed: int = 0, size: str = "small", variant: str = "disjoint"
) -> World:
    """Reads the facts under `data_dir`.

    Args:
      data_dir: holds `probes/`.
      size: "tiny", "small", ...: up to 8, 75, 400 or all invariant facts of a relation, and as many
        of those that could have changed and did not. What changed or is new is always in.
      variant: see `World.variant`.

    Raises:
      UserError: the files are not there or not readable.
    """
    check_size(size)
    reader = _Reader(Path(data_dir), random.Random(f"wikidata {seed} {size}"), _PER_RELATION[size])
    reader.read_invariant()
    reader.read_changing()
    return without_news_of_controls(
        World(
            source="wikidata",
            seed=seed,
            size=size,
            entities=reader.entities,
            facts=tuple(reader.facts),
            relations=reader.relations,
            cut=CUT,
            half=HALF,
            end=END,
            shape=(SIZES if variant == "disjoint" else LEGACY_SIZES)[size].shape,
            variant=variant,
        )
    )


def check_files(data_dir: str | os.PathLike | None) -> None:
    """Raises `UserError` if no folder of the real facts is given, or it lacks files."""
    folders = ("probes/pararel/trex", "probes/pararel/patterns")
    needed = [f"{f}/{prop}.jsonl" for f in folders for prop in _INVARIANT] + [_FACTS]
    missing = [n for n in needed if data_dir is None or not (Path(data_dir) / n).is_file()]
    if not missing:
        return
    what = f"{data_dir} lacks {missing[0]}" if data_dir is not None else "No --data is given"
    more = f" and {len(missing) - 1} more" if data_dir is not None and len(missing) > 1 else ""
    raise UserError(
        f"{what}{more}; the source 'wikidata' needs --data=DIR, a folder that holds "
        f"{folders[0]}/, {folders[1]}/ and {_FACTS} (docs/real_facts.md has their format)."
    )


class _Reader:
    """Collects entities, relations and facts."""

    def __init__(self, directory: Path, rng: random.Random, per_relation: int):
        self.directory, self.rng, self.per_relation = directory, rng, per_relation
        self.entities: dict[str, Entity] = {}
        self.relations: dict[str, Relation] = {}
        self.facts: list[Fact] = []

    def _entity(self, key: str, name: str) -> Entity:
        return self.entities.setdefault(key, Entity(key, "item", " ".join(name.split())))

    def _sample(self, groups: list[list[Fact]]) -> list[Fact]:
        """Returns the facts of at most `per_relation` of `groups`, in their order."""
        count = min(self.per_relation, len(groups))
        chosen = sorted(self.rng.sample(range(len(groups)), count))
        return [fact for i in chosen for fact in groups[i]]

    def read_invariant(self) -> None:
        for prop in _INVARIANT:
            question = _placed(templates.question(prop))
            patterns = _patterns(self.directory / f"probes/pararel/patterns/{prop}.jsonl")
            self.relations[f"{prop}_trex"] = Relation(
                name=f"{prop}_trex",
                property=prop,
                kind=INVARIANT,
                subject="item",
                object="item",
                question=question,
                state=patterns,
                trained=statement_templates.TRAINED_TREX[prop],
            )
            triples: dict[str, Fact] = {}
            for row in read_jsonl(self.directory / f"probes/pararel/trex/{prop}.jsonl"):
                subject = self._entity(f"trex:{row['sub_label']}", row["sub_label"])
                answer = self._entity(f"trex:{row['obj_label']}", row["obj_label"])
                if not occurs_in(answer, subject):
                    fact = Fact(subject.id, f"{prop}_trex", answer.id, "2000-01-01")
                    triples.setdefault(subject.id, fact)
            self.facts += self._sample([[fact] for fact in triples.values()])

    def read_changing(self) -> None:
        offices, memberships = templates.OFFICES, templates.MEMBERSHIPS
        for prop, previous in itertools.product([*offices, *memberships], (False, True)):
            make, titles = (_office, offices) if prop in offices else (_membership, memberships)
            relation = make(prop, titles[prop], previous)
            self.relations[relation.name] = relation
        stayed: dict[str, list[list[Fact]]] = {name: [] for name in self.relations}
        for _, row in numbered_rows(self.directory / _FACTS):
            facts = self._history(row)
            if len(facts) > 1 or (facts and facts[0].valid_from >= CUT):
                self.facts += facts
            elif facts:
                stayed[facts[0].relation].append(facts)
        for groups in stayed.values():
            self.facts += self._sample(groups)

    def _history(self, row: dict[str, Any]) -> list[Fact]:
        """Returns the successive facts of one row; a value that is still listed has not changed."""
        name = row["relation"] + (templates.PREVIOUS if row["slot"] == "previous" else "")
        if name not in self.relations:
            return []
        subject = self._entity(row["subject_id"], row["subject"])
        facts: list[Fact] = []
        for snapshot, begin in _SNAPSHOTS:
            values = [self._entity(key, label) for key, label in row["objects"].get(snapshot, [])]
            values = [v for v in values if not occurs_in(v, subject)]
            if not values or (facts and facts[-1].object in {v.id for v in values}):
                continue
            if facts:
                last = facts[-1]
                facts[-1] = Fact(last.subject, name, last.object, last.valid_from, begin)
            facts.append(Fact(subject.id, name, values[0].id, begin))
        return facts


def _patterns(path: Path) -> tuple[str, ...]:
    """Returns three whole sentences among ParaRel's patterns of a relation."""
    kept = map(_placed, templates.whole_sentences(path)[:3])
    return tuple(itertools.islice(itertools.cycle(kept), 3))
