"""Questions about stories of the simulated stream, in NewsQA's form.

The stories are not in the stream, but of its world and its time. An answer is a span of its story:
the object of a fact that the story states. A subject is asked about in one of the years only: what
a model is tuned on does not answer what it is asked.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ckl_jax.files import write_file, write_json
from ckl_jax.world.facts import World, fraction_of, occurs_in
from ckl_jax.world.stream import Story, stories, stream_world

QUESTIONS, ADDRESSES = "combined-newsqa.json", "addresses.txt"


def write_newsqa(
    folder: Path, years: Sequence[int], seed: int = 0, size: str = "small", each: int = 3
) -> int:
    """Writes the stories of some years and the list of their addresses, which say their dates.

    Args:
      each: stories of a month.

    Returns:
      How many questions there are.
    """
    world = stream_world(seed, size)
    data, addresses = [], []
    for i, story in ((i, s) for i, y in enumerate(years) for s in stories(seed, size, each, y)):
        if questions := list(_questions(world, story, i, len(years))):
            addresses.append(_address(story))
            name = hashlib.sha1(addresses[-1].encode()).hexdigest()
            text = "\n".join(story.lines)
            data.append(
                {"storyId": f"./cnn/stories/{name}.story", "text": text, "questions": questions}
            )
    write_json(folder / QUESTIONS, {"data": data, "version": "1"})
    write_file(folder / ADDRESSES, "".join(f"{address}\n" for address in addresses))
    return sum(len(story["questions"]) for story in data)


def _address(story: Story) -> str:
    """The address of a story's page at CNN, which holds its date."""
    year, month, day = story.date.split("-")
    page = f"cnn.com/{year}/{story.topic.upper()}/{month}/{day}/{story.id}/index.html"
    return f"http://web.archive.org/web/{year}id_/http://www.{page}"


def _questions(world: World, story: Story, part: int, parts: int) -> Iterator[dict[str, Any]]:
    """The facts of a story whose object stands in it by its full name, but of controls.

    Of `parts` equal parts of the subjects, only one is asked about.
    """
    text = "\n".join(story.lines)
    for fact in sorted(story.facts, key=lambda fact: (fact.subject, fact.relation)):
        subject, answer = world.entities[fact.subject], world.entities[fact.object]
        start = text.find(answer.name)
        drawn = int(parts * fraction_of(f"newsqa {world.seed} {fact.subject}")) == part
        if start < 0 or not drawn or world.is_control(fact.subject) or occurs_in(answer, subject):
            continue
        question = world.relations[fact.relation].question.format(s=subject.name)
        yield {"q": question, "consensus": {"s": start, "e": start + len(answer.name)}}
