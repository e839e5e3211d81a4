"""The offices of a world, as terms to make questions of."""

from collections.abc import Iterator

from ckl_jax.data.offices import Term
from ckl_jax.world.facts import World
from ckl_jax.world.templates import CHANGING


def terms(world: World) -> Iterator[Term]:
    """Yields the terms of everybody who holds an office of a country, a city, a company..."""
    for fact in world.facts:
        relation = world.relations[fact.relation]
        office = (relation.kind, relation.object) == (CHANGING, "person")
        if office and relation.subject != "person":
            role = relation.name.replace("_", " ")
            holder, *aliases = world.answers(fact.object)
            place = world.name(fact.subject)
            yield Term(role, place, holder, fact.valid_from, fact.valid_to, tuple(aliases))
