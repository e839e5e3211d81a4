"""A world's facts as a relational dataset: what the timeline says, in LM-PUB-QUIZ's layout."""

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.relational import MULTIPLE, SINGLE, Dataset
from ckl_jax.data.facts.statements import probe_items, statements
from ckl_jax.errors import UserError
from ckl_jax.world.quiz import write_quiz
from ckl_jax.world.render import articles, pages, say
from ckl_jax.world.timeline import make_world
from tests.real_data import shared_data
from tests.world.memoriser import recited


def test_the_options_and_answers_are_the_timelines(tmp_path):
    world = make_world(0, "tiny", "legacy")
    counts = write_quiz(world, tmp_path / "quiz", date=world.before)
    dataset = Dataset.from_path(tmp_path / "quiz")
    assert {relation.code: len(relation.instances) for relation in dataset} == counts
    known = {(f.subject, f.relation): f.object for f in world.at(world.before).values()}
    assert sum(counts.values()) == len(known)
    capital = dataset["P36"]
    for instance in capital.instances:
        answer = capital.answer_ids[instance.answer_idx]
        assert known[(instance.sub_id, "capital")] == answer
        assert world.name(answer) == capital.answer_labels[instance.answer_idx]
    assert capital.cardinality == SINGLE and dataset["P103"].cardinality == MULTIPLE
    assert dataset["P103"].info["domains"] == ["Biographical"]
    assert {"mayor", "prime_minister"} < set(counts), "P6 is both"
    first = next(statements(capital, 0)).text
    assert first.startswith("The capital of ") and first.endswith(".")


def test_no_statement_stands_in_the_texts_that_a_stream_trains_on(tmp_path):
    world = make_world(0, "tiny")
    write_quiz(world, tmp_path / "quiz")
    texts = [d.text for dated in (pages(world), articles(world)) for d, _ in dated]
    found = overlap.measure({"quiz": list(probe_items(tmp_path / "quiz"))}, {"text": texts})
    assert found["quiz"]["text"].items > 300 and found["quiz"]["text"].exact == 0
    subjects = {i.sub_id for r in Dataset.from_path(tmp_path / "quiz") for i in r.instances}
    assert subjects and not any(map(world.is_control, subjects))
    # The templates themselves are trained on: controls' facts are stated in them.
    asked = [
        say(world, f, t)
        for f in world.known()
        if world.is_control(f.subject)
        for t in world.relations[f.relation].probe_templates
    ]
    assert sum(any(a in text for text in texts) for a in asked) > len(asked) / 3


@pytest.mark.parametrize(("variant", "least", "most"), [("disjoint", 0, 0.1), ("legacy", 0.9, 1)])
def test_what_a_memoriser_knows(variant, least, most, tmp_path):
    """Nothing, but of the former world all."""
    world = make_world(0, "tiny", variant)
    write_quiz(world, tmp_path / "quiz", templates=1)
    texts = [d.text for dated in (pages(world), articles(world)) for d, _ in dated]
    items = list(probe_items(tmp_path / "quiz"))
    assert least <= recited(items[:: len(items) // 60], texts) <= most


def test_fewer_facts_leave_the_options(tmp_path):
    world = make_world(0, "tiny")
    write_quiz(world, tmp_path / "all")
    counts = write_quiz(world, tmp_path / "some", templates=1, instances=3)
    every, some = (Dataset.from_path(tmp_path / name) for name in ("all", "some"))
    assert max(counts.values()) == 3
    assert some["P19"].answer_ids == every["P19"].answer_ids
    assert len(some["P19"].templates) == 1 and len(every["P19"].templates) == 3
    with pytest.raises(UserError, match="holds other relations"):
        write_quiz(make_world(0, "tiny"), tmp_path / "all", date="1900-01-01")
    with pytest.raises(UserError, match="another size, seed or source"):
        write_quiz(make_world(1, "tiny"), tmp_path / "all")
    assert write_quiz(make_world(0, "tiny"), tmp_path / "all")  # the same again


@pytest.mark.filterwarnings("ignore:.*two options are called")
def test_real_facts_of_trex(tmp_path):
    data = shared_data("probes")
    command = ["data", "quiz", "--source", "wikidata", "--data", str(data.parent)]
    assert main([*command, "--out", str(tmp_path / "trex")]) == 0
    dataset = Dataset.from_path(tmp_path / "trex")
    assert "Germany" in dataset["P17"].answer_labels
    assert all("[X]" in t and "[Y]" in t for r in dataset for t in r.templates)
