"""Terms of office of a Wikidata dump, and of one whose entities are malformed."""

import json

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts.offices import Term
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data.wikidata_offices import read_offices
from tests.mutated import mutated


def item(key):
    value = {"entity-type": "item", "id": key}
    return {
        "snaktype": "value",
        "property": "P6",
        "datavalue": {"type": "wikibase-entityid", "value": value},
    }


def day(text):
    value = {"time": f"+{text}T00:00:00Z", "precision": 11}
    return [{"snaktype": "value", "datavalue": {"type": "time", "value": value}}]


def named(key, name, *aliases, **more):
    others = {"en": [{"value": alias} for alias in aliases]}
    return {"id": key, "labels": {"en": {"value": name}}, "aliases": others, **more}


QUALIFIERS = {"P580": day("2013-10-16"), "P582": day("2021-10-14"), "P39": [item("Q3")]}
TERM = {"mainsnak": item("Q2"), "rank": "normal", "qualifiers": QUALIFIERS}
OLD = {"mainsnak": item("Q2"), "rank": "deprecated", "qualifiers": QUALIFIERS}
ENTITIES = [
    named("Q1", "Norway", claims={"P31": [{"mainsnak": item("Q9")}], "P6": [TERM, OLD]}),
    named("Q2", "Erna Solberg", "Solberg", "a; b"),
    named("Q3", "prime minister of Norway"),
]


def write(path, entities):
    lines = ",\n".join(map(json.dumps, entities))
    path.write_text(f"[\n{lines}\n]\n")
    return path


def test_the_terms_of_a_dump(tmp_path):
    path = write(tmp_path / "dump.json", ENTITIES)
    term = Term(
        "prime minister", "Norway", "Erna Solberg", "2013-10-16", "2021-10-14", ("Solberg",)
    )
    assert read_offices(path) == read_offices(path, kinds=["Q9"]) == [term]
    with pytest.raises(UserError, match="no dated statements of P6, P35 of Q8"):
        read_offices(path, kinds=["Q8"])


@pytest.mark.parametrize("end", [[{"snaktype": "somevalue"}], day("2019-13-45"), day("some")])
def test_a_term_that_ended_on_an_unknown_day_does_not_go_on(end, tmp_path):
    ended = {**TERM, "qualifiers": {**QUALIFIERS, "P582": end}}
    place = named("Q1", "Norway", claims={"P6": [ended]})
    with pytest.raises(UserError, match="has no dated statements"):
        read_offices(write(tmp_path / "dump.json", [place, *ENTITIES[1:]]))
    ended["qualifiers"]["P582"] = [{"snaktype": "novalue"}]
    [term] = read_offices(write(tmp_path / "dump.json", [place, *ENTITIES[1:]]))
    assert term.end == ""


def test_every_malformed_entity_is_named_or_left_out(tmp_path):
    refused = 0
    for entities in mutated(ENTITIES):
        try:
            read_offices(write(tmp_path / "dump.json", entities))
        except UserError as e:
            refused += "fetch the dump again" in str(e)
            assert "dump.json, line " in str(e) or "has no dated statements" in str(e)
    assert refused > 50


def test_the_command_says_one_sentence(tmp_path, capsys):
    entities = [{**ENTITIES[0], "labels": 7}, *ENTITIES[1:]]
    path = write(tmp_path / "dump.json", entities)
    argv = ["data", "offices", "--wikidata", str(path), "--out", str(tmp_path / "o.csv")]
    assert main(argv) == 2 and not (tmp_path / "o.csv").exists()
    told = capsys.readouterr().err
    assert "dump.json, line 2 (byte 2 of the JSON): no entity" in told and told.count("\n") == 1
