"""The texts of the legacy world, which state every fact in the very wording of its probe."""

import datetime
import itertools
import random
from collections import defaultdict
from collections.abc import Iterator

from ckl_jax.data.text.documents import Document
from ckl_jax.world.facts import Fact, World
from ckl_jax.world.templates import EVENT, FILLERS

PHRASINGS = 3  # of every fact of D0, one per page of its subject
_PAGE_DAYS = 850  # before the cut, in which the pages were written
_MONTHS = (
    "January February March April May June July August September October November December".split()
)


def say(world: World, fact: Fact, template: str) -> str:
    """Returns `template` filled in with the names and the date of `fact`."""
    date = datetime.date.fromisoformat(fact.valid_from)
    written = f"{date.day} {_MONTHS[date.month - 1]} {date.year}"
    return template.format(s=world.name(fact.subject), o=world.name(fact.object), d=written)


def pages(world: World) -> Iterator[tuple[Document, list[Fact]]]:
    """Yields D0: pages about each known entity, dated before the cut, in a shuffled order.

    Every fact that holds at the end of D0 is said on each of its subject's three pages, in another
    phrasing on each.
    """
    rng = random.Random(f"pages {world.seed} {world.size}")
    facts = defaultdict(list)
    for fact in world.at(world.before).values():
        facts[fact.subject].append(fact)
    cut = datetime.date.fromisoformat(world.cut)
    subjects = list(facts)
    rng.shuffle(subjects)
    size = world.shape.per_document
    order = [(i, k) for i in range(0, len(subjects), size) for k in range(PHRASINGS)]
    rng.shuffle(order)
    for i, k in order:
        about = subjects[i : i + size]
        sentences = [
            say(world, f, world.relations[f.relation].state[k]) for s in about for f in facts[s]
        ]
        date = cut - datetime.timedelta(days=1 + rng.randrange(_PAGE_DAYS))
        if rng.random() < 0.1:
            sentences.append(rng.choice(FILLERS))
        title = world.name(about[0])
        document = Document(f"d0-{about[0]}-{k}", date.isoformat(), title, " ".join(sentences))
        yield document, [fact for subject in about for fact in facts[subject]]


def articles(world: World) -> Iterator[tuple[Document, list[Fact]]]:
    """Yields D1, by date: news articles that report the facts that begin on or after the cut."""
    rng = random.Random(f"articles {world.seed} {world.size}")
    begun = world.begun()
    rng.shuffle(begun)
    begun.sort(key=lambda f: f.valid_from)
    half = sum(f.valid_from < world.half for f in begun)  # no article belongs to both phases
    size = world.shape.per_document
    starts = [*range(0, half, size), *range(half, len(begun), size)]
    for i, (start, stop) in enumerate(itertools.pairwise([*starts, len(begun)])):
        facts = begun[start:stop]
        lines = [
            say(world, f, template) for f in facts for template in _news_templates(world, f, rng)
        ]
        title = lines[0].removesuffix(".")
        if rng.random() < 0.4:
            lines.append(rng.choice(FILLERS))
        yield Document(f"d1-{i:06d}", facts[-1].valid_from, title, " ".join(lines)), facts


def _news_templates(world: World, fact: Fact, rng: random.Random) -> list[str]:
    """Returns how an article says its fact: as news, and (a state) also as what is now true."""
    relation = world.relations[fact.relation]
    if relation.kind == EVENT:
        return list(relation.news[: 1 + (rng.random() < 0.4)])
    report = rng.choice(relation.news) if relation.news else relation.state[1]
    return [report, relation.state[0]]
