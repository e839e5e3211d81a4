import gzip
import json
import random

import pytest

from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.ckl_files import CORPORA, read_corpus, read_probe
from ckl_jax.errors import UserError
from ckl_jax.world.ckl import build_world
from ckl_jax.world.facts import occurs_in
from ckl_jax.world.legacy import PHRASINGS
from ckl_jax.world.wikidata import _FACTS, _patterns, _Reader, wikidata_world
from tests.real_data import shared_data


@pytest.fixture(scope="module")
def world():
    shared_data(_FACTS)
    return wikidata_world(shared_data(), 0, "tiny", "legacy")


def test_what_changed_and_what_is_new_is_all_there(world):
    by_key = {(world.name(b.subject), b.relation): (a, b) for a, b in world.updated()}
    old, new = by_key["Poland", "P6"]
    assert (world.name(old.object), world.name(new.object)) == (
        "Mateusz Morawiecki",
        "Donald Tusk",
    )
    assert 250 < len(world.updated()) < 320 and 80 < len(world.new()) <= 102
    assert ("Canada", "P6") not in by_key
    assert 80 < len(world.invariant()) <= 13 * 8


def test_no_answer_stands_in_its_subject(world):
    entities = world.entities
    assert not any(occurs_in(entities[f.object], entities[f.subject]) for f in world.facts)


def test_every_relation_can_be_said(world):
    for relation in world.relations.values():
        assert len(relation.state) == PHRASINGS and relation.state[0] == relation.cloze
        for template in relation.state + relation.news:
            assert template.count("{s}") == template.count("{o}") == 1
            assert template.endswith(".") and "[" not in template and " ." not in template


def test_real_facts_fill_the_same_files(world, tmp_path):
    facts = {"source": "wikidata", "data_dir": shared_data()}
    manifest = build_world(tmp_path, 0, "tiny", variant="legacy", **facts)
    assert manifest["source"] == "wikidata" and all(manifest["counts"].values())
    assert len(read_probe("updated_lama", tmp_path)) == len(world.updated())
    assert len(read_probe("new_lama_easy", tmp_path)) == len(world.begun())
    for path in CORPORA.values():
        assert sum(1 for _ in read_corpus(tmp_path / path)) == manifest["counts"][path]
    with pytest.raises(UserError, match="holds the wikidata legacy world of seed 0"):
        build_world(tmp_path, 0, "tiny")


@pytest.mark.slow
def test_no_probe_stands_in_the_disjoint_texts(tmp_path):
    facts = {"source": "wikidata", "data_dir": shared_data()}
    manifest = build_world(tmp_path, 0, "small", **facts)
    counts = manifest["counts"]
    assert counts[CORPORA["d0"]] > 10 * counts[CORPORA["d1"]]
    for probe, corpora in overlap.measure_folder(tmp_path).items():
        assert all(o.exact == 0 for o in corpora.values()), probe
    world = wikidata_world(shared_data(), 0, "small")
    for relation in world.relations.values():
        assert len(set(relation.trained)) >= 8
        assert not set(relation.trained) & {*relation.state, *relation.news}
        assert all(t.count("{s}") == t.count("{o}") == 1 for t in relation.trained)
    assert len(read_probe("updated_lama", tmp_path)) == len(world.updated()) > 100


def _row(**objects):
    return {
        "subject_id": "Q1",
        "subject": "S",
        "relation": "P6",
        "slot": "current",
        "objects": {k.replace("_", "-"): v for k, v in objects.items()},
    }


def test_a_value_that_is_still_listed_has_not_changed(tmp_path):
    (tmp_path / "probes").mkdir()
    rows = [
        _row(
            **{
                "2021-12-30": [["A", "a"]],
                "2023-12-30": [["B", "b"], ["A", "a"]],
                "2024-03": [["B", "b"]],
            }
        ),
    ]
    with gzip.open(tmp_path / _FACTS, "wt") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    reader = _Reader(tmp_path, random.Random(0), 5)
    reader.read_changing()
    assert [(f.object, f.valid_from, f.valid_to) for f in reader.facts] == [
        ("A", "2000-01-01", "2024-03-15"),
        ("B", "2024-03-15", ""),
    ]


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(UserError, match="Cannot read .*patterns/P17.jsonl"):
        wikidata_world(tmp_path, 0, "tiny")
    with pytest.raises(UserError, match="needs --data=DIR, a folder that holds"):
        build_world(tmp_path, source="wikidata")
    with pytest.raises(UserError, match="there are simulated, wikidata, factbook"):
        build_world(tmp_path, source="wiki")
    with pytest.raises(UserError, match="No world has the size 'x'"):
        wikidata_world(tmp_path, 0, "x")
    path = tmp_path / "P1.jsonl"
    path.write_text('{"pattern": "[X], of [Y]"}\n')
    with pytest.raises(UserError, match="no pattern that is a whole sentence"):
        _patterns(path)
    (tmp_path / "probes").mkdir()
    with gzip.open(tmp_path / _FACTS, "wt") as f:
        f.write("{\n")
    with pytest.raises(UserError, match="line 1: not JSON"):
        _Reader(tmp_path, random.Random(0), 5).read_changing()
