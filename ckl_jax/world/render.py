"""From facts to documents: encyclopaedia pages before the cut, news articles after it.

A document's paragraphs are lines. In the disjoint world each states one fact, now and then two, in
one of the relation's `trained` wordings; the probes' wordings are for control subjects alone.
"""

import dataclasses
import datetime
import random
from collections import defaultdict
from collections.abc import Iterator

from ckl_jax.data.text.documents import Document
from ckl_jax.world import legacy
from ckl_jax.world.facts import Fact, Passage, World
from ckl_jax.world.legacy import say
from ckl_jax.world.templates import FILLERS

__all__ = ["articles", "pages", "say"]

_PAGE_DAYS = 850  # before the cut, in which the pages were written
_FILLED = 0.1  # fraction of the documents that end with a sentence without an entity
_PROBE_RATE = 0.5  # chance that a control's fact is stated in each of the probe's wordings
Dated = tuple[Document, list[Fact]]  # a document, and the facts that it states


def pages(world: World) -> Iterator[Dated]:
    """Yields D0: pages about each known entity, dated before the cut, in a shuffled order.

    A subject has as many pages as its facts are stated; each page words them differently.
    """
    if world.variant == "legacy":
        yield from legacy.pages(world)
        return
    rng = random.Random(f"pages {world.seed} {world.size}")
    facts = defaultdict(list)
    for fact in world.known():
        facts[fact.subject].append(fact)
    sayings = {s: [_sayings(world, fact, rng) for fact in some] for s, some in facts.items()}
    last = {s: max(map(len, some)) for s, some in sayings.items()}
    order = [(s, k) for s in sayings for k in range(last[s])]
    rng.shuffle(order)
    prose = defaultdict(list)
    for passage in world.prose:
        if passage.date < world.cut:
            prose[passage.subject].append(passage.text)
    cut = datetime.date.fromisoformat(world.cut)
    for subject, k in order:
        said = [
            (f, t[k]) for f, t in zip(facts[subject], sayings[subject], strict=True) if k < len(t)
        ]
        rng.shuffle(said)
        date = cut - datetime.timedelta(days=1 + rng.randrange(_PAGE_DAYS))
        page, stated = _document(world, f"d0-{subject}-{k}", date.isoformat(), said, rng)
        # The passages about a subject are spread over its pages.
        text = "\n".join([page.text, *prose[subject][k :: last[subject]]])
        yield dataclasses.replace(page, text=text), stated


def articles(world: World) -> Iterator[Dated]:
    """Yields D1, by date: news articles that report the facts that begin on or after the cut."""
    if world.variant == "legacy":
        yield from legacy.articles(world)
        return
    rng = random.Random(f"articles {world.seed} {world.size}")
    begun = world.begun()
    rng.shuffle(begun)
    news = [(fact.valid_from, fact) for fact in begun]
    news += [(p.date, p) for p in world.prose if world.cut <= p.date < world.end]
    news.sort(key=lambda dated: dated[0])
    for i, (date, reported) in enumerate(news):
        name = f"d1-{i:06d}"
        if isinstance(reported, Passage):
            yield Document(name, date, world.name(reported.subject), reported.text), []
            continue
        said = [(reported, template) for template in _sayings(world, reported, rng)]
        yield _document(world, name, date, said, rng)


def _sayings(world: World, fact: Fact, rng: random.Random) -> list[str]:
    """Returns the templates that state a fact, in order: as few as possible twice."""
    relation = world.relations[fact.relation]
    wordings = list(relation.trained)
    rng.shuffle(wordings)
    said = [wordings[i % len(wordings)] for i in range(world.statements(fact))]
    if world.is_control(fact.subject):
        said += [t for t in relation.probe_templates if rng.random() < _PROBE_RATE]
        rng.shuffle(said)
    return said


def _document(
    world: World, name: str, date: str, said: list[tuple[Fact, str]], rng: random.Random
) -> Dated:
    paragraphs: list[str] = []
    for fact, template in said:
        sentence = say(world, fact, template)
        if paragraphs and rng.random() < world.shape.joined:
            paragraphs[-1] += f" {sentence}"
        else:
            paragraphs.append(sentence)
    if rng.random() < _FILLED:
        paragraphs.append(rng.choice(FILLERS))
    document = Document(name, date, world.name(said[0][0].subject), "\n".join(paragraphs))
    return document, list(dict.fromkeys(fact for fact, _ in said))
