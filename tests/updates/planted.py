"""Company news in prose with planted facts: some stay, some change, some are new.

Each fact is told several times in several wordings; none of the sentences is a template of a probe.

    python -m tests.updates.planted DIR [EACH [SEED]]   writes DIR/2024.jsonl and DIR/2025.jsonl
    python -m tests.updates.planted                     how many of them are asked with their class
"""

import dataclasses
import random
import sys
from collections.abc import Iterable
from pathlib import Path

from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.updates import items

_FIRST = (
    "Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Karla Louis Maria Nils Olga Paul"
)
_FIRST += " Rosa Simon Thea Ulrich Vera Walter Yvonne Zoltan"
_SYLLABLES = (
    "bar cor del fen gal hol jun kel lor mun nor pel quil ros sten tor vand wex yar zim".split()
)
_ENDS = "ani berg dale ford hart ingen lund mark ova rick son stein ton vik worth".split()
_KINDS = "Systems Foods Motors Textiles Energy Instruments Logistics Chemicals".split()
WORDINGS = {
    "chief": (
        "{x} is led by {y}, its chief executive.",
        "{y} is the chief executive of {x} and reports to its board.",
        "The board of {x} has confirmed {y} as chief executive.",
        "Speaking for {x}, chief executive {y} thanked the staff.",
        "As chief executive of the company, {y} runs the daily business of {x}.",
    ),
    "seat": (
        "{x} has its head office in {y}, near the old harbour.",
        "The head office of {x} stands in {y}.",
        "Visitors find the headquarters of {x} in {y}, close to the station.",
        "From its headquarters in {y}, the group {x} serves the whole region.",
        "Most people who work for {x} do so at the head office in {y}.",
    ),
    "product": (
        "The best known product of {x} is called {y}.",
        "{x} sells more of {y} than of any other product.",
        "Customers know {x} for its product {y}.",
        "With {y}, its main product, the company {x} made most of its money.",
        "Half of the sales of {x} come from the product {y}.",
    ),
}
FILLER = (
    "The weather stayed mild for most of the week and the roads were dry.",
    "Analysts expect the market to grow a little over the next few months.",
    "The local football club lost again after a long and tiring match.",
    "A spokesman said that more details would be published in due time.",
    "Prices of raw materials have hardly moved since the last report.",
)


@dataclasses.dataclass(frozen=True)
class Fact:
    """One fact: its kind is kept, changed or new; `old` is what a changed one was."""

    kind: str
    relation: str
    subject: str
    answer: str
    old: str = ""


def _name(rng: random.Random) -> str:
    return (rng.choice(_SYLLABLES) + rng.choice(_SYLLABLES) + rng.choice(_ENDS)).capitalize()


def facts(each: int, seed: int = 0, shared: float = 0.0) -> list[Fact]:
    """`each` facts of each kind; a fraction `shared` of the answers are other facts' too."""
    rng, used, found = random.Random(seed), set(), []
    given: dict[str, list[str]] = {relation: [] for relation in WORDINGS}

    def fresh(make) -> str:
        while (name := make()) in used:
            pass
        used.add(name)
        return name

    def answer(relation: str, but: str = "") -> str:
        others = [name for name in given[relation] if name != but]
        if shared and others and rng.random() < shared:
            return rng.choice(others)
        given[relation].append(fresh(answers[relation]))
        return given[relation][-1]

    answers = {
        "chief": lambda: f"{rng.choice(_FIRST.split())} {_name(rng)}",
        "seat": lambda: _name(rng),
        "product": lambda: f"{_name(rng)} {_name(rng)}",
    }
    for kind in ("kept", "changed", "new"):
        for i in range(each):
            relation = tuple(WORDINGS)[i % len(WORDINGS)]
            subject = fresh(lambda: f"{_name(rng)} {rng.choice(_KINDS)}")
            old = answer(relation) if kind == "changed" else ""
            found.append(Fact(kind, relation, subject, answer(relation, old), old))
    return found


def documents(
    planted: list[Fact],
    seed: int = 0,
    tellings: int = 4,
    reminded: float = 0.0,
    reminders: int = 1,
) -> list[Document]:
    """Documents of 2024 (kept and changed facts as they were) and of 2025 (all as they are).

    Of a fraction `reminded` of the changed facts those of 2025 also tell what was before, in so
    many sentences.
    """
    rng, found = random.Random(seed), []
    for year, kinds in ((2024, ("kept", "changed")), (2025, ("changed", "new"))):
        told = []
        for fact in planted:
            if fact.kind in kinds:
                answer = fact.old if fact.old and year == 2024 else fact.answer
                wordings = rng.sample(WORDINGS[fact.relation], tellings)
                told += [w.format(x=fact.subject, y=answer) for w in wordings]
                if fact.old and year == 2025 and reminded and rng.random() < reminded:
                    again = rng.sample(wordings, reminders)
                    told += [w.format(x=fact.subject, y=fact.old) for w in again]
        rng.shuffle(told)
        for number, start in enumerate(range(0, len(told), 4)):
            text = " ".join(s for t in told[start : start + 4] for s in (t, rng.choice(FILLER)))
            day = f"{year}-{1 + number % 12:02}-{1 + number % 28:02}"
            found.append(Document(f"{year}-{number}", day, f"News of {day}", text))
    return found


def right(made: Iterable[items.Item], planted: Iterable[Fact]) -> list[Fact]:
    """The facts that are asked with their class and their old answer."""
    known = {frozenset((f.subject.lower(), f.answer.lower())): f for f in planted}
    found = []
    for item in made:
        fact = known.get(frozenset((item.about, item.answer.lower())))
        if fact and fact.kind == item.tag and item.old in ("", fact.old):
            found.append(fact)
    return found


def asked(each: int, shared: float = 0.0, seeds: int = 3, **told) -> dict[str, int]:
    """How many facts of each kind are asked rightly, and how many questions are wrong."""
    counts = dict.fromkeys((*items.TAGS, "wrong"), 0)
    for seed in range(seeds):
        planted = facts(each, seed, shared)
        text = documents(planted, seed, **told)
        parts = [[d for d in text if (d.date >= "2025") == is_new] for is_new in (True, False)]
        made, _ = items.make(*parts, dict.fromkeys(items.TAGS, 500), seed)
        found = set(right(made, planted))
        for fact in found:
            counts[fact.kind] += 1
        counts["wrong"] += len(made) - len(found)
    return counts


def show() -> None:
    cases = {
        "in four of five wordings": {"tellings": 4},
        "in three": {"tellings": 3},
        "in two": {"tellings": 2},
        "in four; one answer in five is another fact's too": {"shared": 0.2},
        "in four; of one change in five what was before is told again": {"reminded": 0.2},
        "of two in five": {"reminded": 0.4},
        "of two in three, twice": {"reminded": 2 / 3, "reminders": 2},
        "of two in three, as often as before": {"reminded": 2 / 3, "reminders": 4},
    }
    print("| told | new | changed | kept | wrong |\n| --- | ---: | ---: | ---: | ---: |")
    for name, case in cases.items():
        *right_ones, wrong = asked(50, **case).values()
        print("|", " | ".join([name, *(f"{n} of 150" for n in right_ones), str(wrong)]), "|")


def main() -> None:
    if not sys.argv[1:]:
        show()
        return
    out, each, seed = Path(sys.argv[1]), *(*map(int, sys.argv[2:]), 60, 3)[:2]
    out.mkdir(parents=True, exist_ok=True)
    found = documents(facts(each, seed), seed, tellings=5)
    for year in ("2024", "2025"):
        write_documents(out / f"{year}.jsonl", (d for d in found if d.date.startswith(year)))


if __name__ == "__main__":
    main()
