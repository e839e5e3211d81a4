"""Writes the facts of a world as KILT's data sets, in their published format.

The facts were known before the cut. Three quarters of the records are for training; of Zero-Shot
RE the relations are divided instead, so that those of the dev file were never trained on.
"""

import collections
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.errors import UserError
from ckl_jax.files import read_json, write_json, write_jsonl
from ckl_jax.papers.ckl.data.kilt import DEV, KILT_SETS, TRAIN, file_name
from ckl_jax.world.facts import Fact, World, fraction_of
from ckl_jax.world.render import say
from ckl_jax.world.templates import EVENT, FILLERS

_WORLD = "world.json"  # in the folder: what its files were made of
_DEV = 0.25  # fraction of the records of the dev files
Record = dict[str, Any]


def write_kilt(world: World, folder: str | os.PathLike, replace: bool = False) -> dict[str, int]:
    """Writes the files of all data sets, deterministically for a world.

    Args:
      replace: write over KILT's files of another world.

    Returns:
      The number of records by file.

    Raises:
      UserError: the folder holds KILT's files of another world, or real ones.
    """
    origin = {"source": world.source, "seed": world.seed, "size": world.size}
    _claim(Path(folder), origin, replace)
    writer, counts = _Writer(world), {}
    for name, form in KILT_SETS.items():
        records = list(getattr(writer, name)())
        parts = {DEV: [r for r in records if writer.is_dev(name, r)]}
        if form.trains:
            parts[TRAIN] = [r for r in records if not writer.is_dev(name, r)]
        for split, some in parts.items():
            write_jsonl(Path(folder) / file_name(name, split), some)
            counts[file_name(name, split)] = len(some)
    return counts


def _claim(folder: Path, world: Mapping[str, Any], replace: bool) -> None:
    """Records the world of the folder, unless it contains other files."""
    record = folder / _WORLD
    held = read_json(record) if record.exists() else None
    others = held is not None or any(folder.glob("*-kilt.jsonl*"))
    if held != world and others and not replace:
        raise UserError(f"{folder} holds KILT's files of another origin; choose another --out.")
    write_json(record, world)


class _Writer:
    """The records of each data set, one method per data set."""

    def __init__(self, world: World):
        self.world = world
        facts = world.at(world.before).values()
        # Facts with three phrasings at least: eli5 uses each of them.
        self.facts = [f for f in facts if world.kind(f) != EVENT and len(self._said(f)) > 2]
        self.of: Mapping[str, list[Fact]] = collections.defaultdict(list)
        self.objects: Mapping[str, list[str]] = collections.defaultdict(list)
        for fact in self.facts:
            self.of[fact.subject].append(fact)
            self.objects[fact.relation].append(fact.object)
        self.rng = random.Random(f"kilt {world.seed} {world.size}")

    def is_dev(self, name: str, record: Record) -> bool:
        if name == "structured_zeroshot":
            # Every fourth relation is evaluated and never trained on: that makes it zero-shot.
            known = sorted({f.relation for f in self.facts})
            return known.index(record["meta"]["relation"]) % 4 == 3
        # By hash of the id, the same whatever the order.
        return fraction_of(f"kilt {self.world.seed} {record['id']}") < _DEV

    def _said(self, fact: Fact) -> Sequence[str]:
        return self.world.relations[fact.relation].state

    def _sentence(self, fact: Fact, phrasing: int) -> str:
        return say(self.world, fact, self._said(fact)[phrasing])

    def _phrase(self, fact: Fact) -> str:
        return fact.relation.removesuffix("_trex").replace("_", " ")

    def _record(self, name: str, fact: Fact, text: str, answers: Sequence[str]) -> Record:
        page = {"wikipedia_id": fact.subject, "title": self.world.name(fact.subject)}
        return {
            "id": f"{name}-{fact.subject}-{fact.relation}",
            "input": text,
            "output": [{"answer": answer, "provenance": [page]} for answer in answers],
            "meta": {"relation": fact.relation},
        }

    def _about(self, name: str, fact: Fact, text: str) -> Record:
        return self._record(name, fact, text, self.world.answers(fact.object))

    def fever(self) -> Iterator[Record]:
        for fact in self.facts:
            # A false claim names the object of another fact of the relation, so that it is of the
            # right type.
            others = [o for o in self.objects[fact.relation] if o != fact.object]
            wrong = bool(others) and self.rng.random() < 0.5
            stated = self.rng.choice(others) if wrong else fact.object
            claim = self.world.relations[fact.relation].cloze.format(
                s=self.world.name(fact.subject), o=self.world.name(stated)
            )
            yield self._record("fever", fact, claim, ["REFUTES" if wrong else "SUPPORTS"])

    def aidayago2(self) -> Iterator[Record]:
        return self._links("aidayago2", 0)

    def wned(self) -> Iterator[Record]:
        return self._links("wned", 1)

    def cweb(self) -> Iterator[Record]:
        return self._links("cweb", 2, FILLERS[:2])

    def _links(self, name: str, phrasing: int, around: Sequence[str] = ()) -> Iterator[Record]:
        for fact in self.facts:
            # The marks of KILT's entity linking; the last alias, where there is one, which has to
            # be resolved.
            mention = f"[START_ENT] {self.world.answers(fact.object)[-1]} [END_ENT]"
            sentence = self._said(fact)[phrasing].format(
                s=self.world.name(fact.subject), o=mention, d=fact.valid_from
            )
            before = [self._sentence(f, phrasing) for f in self.of[fact.subject] if f != fact][:1]
            text = " ".join([*around[:1], *before, sentence, *around[1:]])
            yield self._record(name, fact, text, [self.world.name(fact.object)])

    def trex(self, name: str = "trex") -> Iterator[Record]:
        for fact in self.facts:
            slot = f"{self.world.name(fact.subject)} [SEP] {self._phrase(fact)}"
            yield self._about(name, fact, slot)

    def structured_zeroshot(self) -> Iterator[Record]:
        return self.trex("structured_zeroshot")

    def nq(self) -> Iterator[Record]:
        for fact in self.facts:
            question = self.world.relations[fact.relation].question
            yield self._about("nq", fact, question.format(s=self.world.name(fact.subject)))

    def triviaqa(self) -> Iterator[Record]:
        for fact in self.facts:
            relation = self.world.relations[fact.relation]
            stated = relation.cloze.format(
                s=self.world.name(fact.subject), o=f"which {relation.object}"
            )
            stated = stated.replace("the which", "which").rstrip(".")
            yield self._about("triviaqa", fact, f"{stated}?")

    def hotpotqa(self) -> Iterator[Record]:
        """Two facts, of which the second is about the first one's object."""
        for fact in self.facts:
            further = [f for f in self.of.get(fact.object, ()) if f.object != fact.subject]
            if not further:
                continue
            second = self.rng.choice(further)
            about = f"the {self._phrase(fact)} of {self.world.name(fact.subject)}"
            question = self.world.relations[second.relation].question.format(s=about)
            answers = self.world.answers(second.object)
            yield self._record("hotpotqa", fact, question, answers)

    def eli5(self) -> Iterator[Record]:
        """All that is known of a subject, in each of three phrasings."""
        for subject, facts in self.of.items():
            texts = [" ".join(self._sentence(f, k) for f in facts) for k in range(3)]
            question = f"What is known about {self.world.name(subject)}?"
            yield self._record("eli5", facts[0], question, texts)

    def wow(self) -> Iterator[Record]:
        for fact in self.facts:
            before = [self._sentence(f, 0) for f in self.of[fact.subject] if f != fact][:1]
            turns = [
                f"I would like to hear about {self.world.name(fact.subject)}.",
                *before,
                f"And the {self._phrase(fact)}?",
            ]
            yield self._record("wow", fact, "\n".join(turns), [self._sentence(fact, 1)])
