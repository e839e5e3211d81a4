import gzip
import json

import pytest

from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.ckl_files import CORPORA, corpus_texts, read_probe
from ckl_jax.errors import UserError
from ckl_jax.world.ckl import build_world
from ckl_jax.world.factbook import _FACTS, _TEXTS, factbook_world
from ckl_jax.world.factbook_templates import RELATIONS
from tests.real_data import shared_data
from tests.world.memoriser import recited

FIRST, OLD, MIDDLE, NEW, LAST = "2003-12-15", "2017-12-18", "2020-11-27", "2023-01-05", "2026-01-22"


def _fact(name, begin, end, relation="head_of_government", code="xx", **others):
    row = {"subject_code": code, "subject": f"Land {code.upper()}", "relation": relation}
    row |= {"object": name, "valid_from_snapshot": begin, "valid_to_snapshot": end}
    return row | others


def _text(text, *snapshots, field="Background", code="xx"):
    return {"code": code, "field": field, "text": text, "snapshots": list(snapshots)}


def _write(folder, facts, texts=((), ())):
    (folder / "factbook").mkdir(exist_ok=True)
    for name, rows in zip((_FACTS, *_TEXTS), (facts, *texts), strict=True):
        with gzip.open(folder / name, "wt") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def _said(world):
    facts = world.facts
    return {(f.relation, world.name(f.object), f.valid_from, f.valid_to) for f in facts}


@pytest.fixture
def uncontrolled(monkeypatch):
    monkeypatch.setattr("ckl_jax.world.facts.World.is_control", lambda world, subject: False)


def test_a_fact_ends_with_the_first_snapshot_that_leaves_it_out(tmp_path, uncontrolled):
    rows = [
        _fact("Ann Old", FIRST, OLD, aliases=["A. Old"]),
        _fact("Ben Short", MIDDLE, MIDDLE),
        _fact("Cy New", NEW, LAST),
        _fact("Mount X", FIRST, FIRST, "highest_point"),
        _fact("French", FIRST, LAST, "official_language"),
        _fact("Dutch", FIRST, LAST, "official_language"),
        _fact("Dee Late", NEW, LAST, "us_ambassador"),
        _fact("Land XX Republic", FIRST, LAST, "official_name"),
        _fact("one two three four five six seven", FIRST, LAST, "government_type"),
        _fact("skipped", FIRST, LAST, "area"),
    ]
    world = factbook_world(_write(tmp_path, rows), 0, "tiny")
    # Who came and went after the cut, several languages and long answers are left out.
    assert _said(world) == {
        ("head_of_government", "Ann Old", FIRST, MIDDLE),
        ("head_of_government", "Cy New", NEW, ""),
        ("highest_point", "Mount X", FIRST, ""),
        ("us_ambassador", "Dee Late", NEW, ""),
        ("official_name", "Land XX Republic", FIRST, ""),
    }
    [(old, new)] = world.updated()
    assert world.answers(old.object) == ("Ann Old", "A. Old") and world.name(new.object) == "Cy New"
    assert [world.name(f.object) for f in world.new()] == ["Dee Late"]
    assert [world.name(f.object) for f in world.invariant()] == ["Mount X"]


def test_a_sentence_belongs_to_the_first_snapshot_that_has_it(tmp_path, uncontrolled, monkeypatch):
    monkeypatch.setattr("ckl_jax.world.factbook._NEWS", 1.0)
    facts = [_fact("Ann Old", FIRST, OLD), _fact("Cyr New", MIDDLE, LAST)]
    kept = "President OLD rules the land of XX with help of NATO."
    texts = (
        [_text(f"{kept} | Too short. | And this one has no end", OLD)],
        [
            _text(f"{kept} Then CYR NEW followed with help of NATO.", MIDDLE, LAST),
            _text("Nobody reads what is said of the coast here.", OLD, field="Coastline"),
            _text("Nobody reads what is said of another land here.", OLD, code="yy"),
        ],
    )
    world = factbook_world(_write(tmp_path, facts, texts), 0, "tiny")
    # Names that the facts have are written as there.
    assert [(p.date, p.text) for p in world.prose] == [
        (OLD, "President Old rules the land of XX with help of NATO."),
        (MIDDLE, "Then Cyr New followed with help of NATO."),
    ]


def test_every_relation_can_be_said():
    for relation in RELATIONS.values():
        assert len(set(relation.trained)) == 8 and len(relation.state) == 3
        asked = {*relation.state, *relation.news}
        assert not set(relation.trained) & asked
        for template in (*relation.trained, *asked):
            assert template.count("{s}") == template.count("{o}") == 1
        assert relation.question.count("{s}") == 1


@pytest.mark.slow
def test_no_probe_stands_in_the_texts(tmp_path):
    facts = {"source": "factbook", "data_dir": shared_data()}
    shared_data(_FACTS)
    counts = build_world(tmp_path, 0, "small", **facts)["counts"]
    assert counts[CORPORA["d0"]] > 10 * counts[CORPORA["d1"]]
    for probe, corpora in overlap.measure_folder(tmp_path).items():
        assert all(o.exact == 0 for o in corpora.values()), probe
    texts = list(corpus_texts(tmp_path / CORPORA["d0"]))
    assert recited(read_probe("invariant_lama", tmp_path)[:60], texts) < 0.1
    assert len(read_probe("updated_lama", tmp_path)) > 200
    assert len(read_probe("new_lama", tmp_path)) > 80
    assert len(read_probe("invariant_lama", tmp_path)) > 400
    assert sum(len(text.split()) > 20 for text in texts) > 500  # the Factbook's own sentences


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(
        UserError, match="'factbook' needs --data=DIR, a folder that holds factbook"
    ):
        build_world(tmp_path / "out", source="factbook")
    with pytest.raises(UserError, match="lacks factbook/factbook-facts-2003-2026.jsonl.gz"):
        build_world(tmp_path / "out", source="factbook", data_dir=tmp_path)
    good = _fact("Ann Old", FIRST, OLD)
    for row, sentence in (
        ({"subject": "A"}, "line 2: the field 'subject_code' is missing"),
        (good | {"valid_from_snapshot": "soon"}, "valid_from_snapshot is 'soon'; give a day"),
        (good | {"aliases": "x"}, "line 2: the field 'aliases' is not a list of texts"),
    ):
        with pytest.raises(UserError, match=sentence):
            factbook_world(_write(tmp_path, [good, row]))
    with pytest.raises(UserError, match="has no fact of a relation that is known here"):
        factbook_world(_write(tmp_path, [good | {"relation": "area"}]))
    with pytest.raises(UserError, match="line 1: the field 'snapshots' is not a list of dates"):
        factbook_world(_write(tmp_path, [good], ([_text("x", OLD) | {"snapshots": []}], ())))
