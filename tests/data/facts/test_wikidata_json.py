"""Entities of Wikidata's dumps of all years, and what became of their facts."""

import contextlib
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.data.facts.wikidata_json import (
    UNKNOWN,
    Entity,
    FactRules,
    Statement,
    parse_entity,
    read_entities,
)
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data.fact_diff import (
    LATE,
    classify,
    classify_current,
    is_about_wikimedia,
)
from ckl_jax.papers.temporalwiki.data.fact_store import Labels, extract, index, merge
from ckl_jax.papers.temporalwiki.data.page_map import PageMap, read_page_map
from tests.mutated import mutated
from tests.papers.temporalwiki.data.dump_files import write
from tests.real_data import shared_data, wikidata_excerpt


def snak(prop, value, kind="wikibase-entityid"):
    datavalue = {"value": value, "type": kind}
    return {"snaktype": "value", "property": prop, "datavalue": datavalue}


def item(number, **new_form):
    return {"entity-type": "item", "numeric-id": number, **new_form}


ENTITY = {
    "type": "item",
    "id": "Q5",
    "lastrevid": 77,
    "labels": {"de": {"value": "Ding"}, "mul": {"value": "Thing  one"}},
    "sitelinks": {"enwiki": {"site": "enwiki", "title": "Thing (one)"}},
    "claims": {
        "P1": [
            {"mainsnak": snak("P1", item(7)), "rank": "normal"},
            {
                "mainsnak": snak("P1", item(8, id="Q8")),
                "rank": "preferred",
                "qualifiers": {"P2": [snak("P2", item(9))], "P580": [snak("P580", {}, "time")]},
                "references": [{"snaks": {"P3": [snak("P3", item(10))]}}],
            },
            {"mainsnak": snak("P1", item(11)), "rank": "deprecated"},
            {"mainsnak": {"snaktype": "novalue", "property": "P1"}, "rank": "normal"},
            {"mainsnak": {"snaktype": "somevalue", "property": "P1"}, "rank": "normal"},
            {"mainsnak": snak("P1", item(7)), "rank": "normal"},
        ],
        "P4": [
            {"mainsnak": snak("P4", "text", "string")},
            {"mainsnak": snak("P4", {"entity-type": "property", "numeric-id": 3})},
        ],
    },
}


def parsed(entity, **rules):
    return parse_entity("f", (1, 0, json.dumps(entity).encode()), FactRules(**rules))


def test_an_entity():
    facts = (("P1", "Q7"), ("P1", "Q8"))
    statements = (Statement(*facts[0], best=False), Statement(*facts[1], start=UNKNOWN))
    assert parsed(ENTITY) == Entity("Q5", "Thing one", "Thing (one)", 77, statements)
    assert parsed(ENTITY).facts == facts
    assert parsed(ENTITY, language="de").label == "Ding"
    assert parsed(ENTITY, site="dewiki").title == ""
    assert parsed(ENTITY, deprecated=True).facts == (*facts, ("P1", "Q11"))
    assert parsed(ENTITY, qualifiers=True).facts == (*facts, ("P2", "Q9"))
    assert parsed(ENTITY, references=True).facts == (*facts, ("P3", "Q10"))
    empty = {"id": "P9", "labels": [], "claims": [], "type": "property"}
    assert parsed(empty) == Entity("P9") and parsed({"id": "P9"}) == Entity("P9")
    assert parsed({"id": "L1", "lemmas": {}}) is None


def test_aliases_are_read_where_asked_for():
    names = {"en": [{"value": "One"}, {"value": " one\tof  them"}, {"value": "One"}]}
    names |= {"mul": [{"value": "I"}, {"value": " "}], "de": [{"value": "Eins"}]}
    assert parsed({**ENTITY, "aliases": names}).aliases == ()
    found = parsed({**ENTITY, "aliases": names}, aliases=True)
    assert found.aliases == ("One", "one of them", "I")
    assert parsed({**ENTITY, "aliases": names}, aliases=True, language="de").aliases[0] == "Eins"
    assert parsed({**ENTITY, "aliases": []}, aliases=True).aliases == ()
    assert parsed(ENTITY, aliases=True).aliases == ()
    with pytest.raises(UserError, match="no entity as Wikidata's dumps have them"):
        parsed({**ENTITY, "aliases": {"en": ["One"]}}, aliases=True)


def test_an_entity_has_the_types_it_says_or_is_refused():
    """Whatever is in the place of any value of it."""
    every = dict(deprecated=True, qualifiers=True, references=True, aliases=True)
    read = 0
    for entity in mutated(ENTITY | {"aliases": {"en": [{"value": "One"}], "mul": []}}):
        with contextlib.suppress(UserError):
            if found := parsed(entity, **every):
                read += 1
                assert all(type(x) is str for x in (found.label, found.title, *found.aliases))
                assert re.fullmatch(r"[QP]\d+", found.id) and type(found.revision) is int
                for prop, key, best, *dates in found.statements:
                    assert re.fullmatch(r"P\d+", prop) and re.fullmatch(r"Q\d+", key)
                    assert type(best) is bool and all(type(date) is str for date in dates)
    assert read > 100


def test_bad_lines_name_file_line_and_byte(tmp_path):
    def complaint(name, text):
        path = write(tmp_path / name, text)
        with pytest.raises(UserError) as e:
            list(read_entities(path))
        assert str(path) in str(e.value) and "\n" not in str(e.value)
        return str(e.value)

    good = json.dumps(ENTITY)
    assert len(list(read_entities(write(tmp_path / "a.json", f"[\n{good},\n{good}\n]\n")))) == 2
    assert len(list(read_entities(write(tmp_path / "b.json.gz", f"{good}\n{good}")))) == 2
    assert f"line 3 (byte {len(good) + 4:,} of the JSON): not JSON" in complaint(
        "c.json.bz2", f"[\n{good},\n{good[:50]}\n]\n"
    )
    assert "line 2 (byte 2 of the JSON): no entity" in complaint("d.json", "[\n[1],\n]\n")
    deep = complaint("g.json", f"[\n{good},\n{'[' * 100_000}\n]\n")
    assert f"line 3 (byte {len(good) + 4:,} of the JSON): not JSON (too deep)" in deep
    assert "stops without its ']'" in complaint("e.json", f"[\n{good},\n{good}")
    path = write(tmp_path / "f.json.bz2", f"[\n{good}\n]\n")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="truncated"):
        list(read_entities(path))


@pytest.mark.parametrize(
    "name, items, properties",
    [
        ("201412", 184, 1304),
        ("20150113", 4, 0),
        ("201703", 25, 0),
        ("20190923", 2, 0),
        ("202512", 1, 0),
    ],
)
def test_real_excerpts_are_read_whole(name, items, properties):
    found = list(read_entities(wikidata_excerpt(name)))
    kinds = [e.id[0] for e in found]
    assert (kinds.count("Q"), kinds.count("P")) == (items, properties)
    assert all(e.label for e in found)


@pytest.mark.parametrize(
    "item, old, new, rules, expected",
    [  # data/README.md
        ("Q220", "201412", "201703", {}, (46, 9, 53)),
        ("Q288", "201412", "201703", {}, (24, 2, 24)),
        ("Q42", "20150213", "20180727", {"deprecated": True}, (23, 4, 24)),
        ("Q42", "20150213", "20180727", {}, (23, 4, 23)),  # one of the new ones is deprecated
    ],
)
def test_kept_gone_and_new_facts_of_real_items(item, old, new, rules, expected):
    sides = []
    for date in (old, new):
        entities = read_entities(wikidata_excerpt(date), FactRules(**rules))
        sides.append(next(e.facts for e in entities if e.id == item))
    changes = list(classify(*sides))
    kept = sum(c.kind == "unchanged" for c in changes)
    come = sum(c.kind in ("updated", "new") for c in changes)
    replaced = {(c.relation, o) for c in changes for o in c.old}
    gone = len(replaced) + sum(c.kind == "deleted" for c in changes)
    assert (kept, gone, come) == expected


def test_a_statement_of_2025_has_its_label_in_mul():
    (douglas,) = read_entities(wikidata_excerpt("202512"))
    assert douglas.label == "Douglas Adams" and douglas.title == "Douglas Adams"


# --- Algorithm 2

fact = st.tuples(st.sampled_from(["P1", "P2", "P3"]), st.sampled_from(["Q1", "Q2", "Q3"]))


@given(st.lists(fact, unique=True), st.lists(fact, unique=True))
@settings(max_examples=300, deadline=None)
def test_classes_as_algorithm_2_is_printed(old, new):
    found = {(c.relation, c.object): c for c in classify(old, new)}
    relations = {r for r, _ in old}
    for f in new:
        if not old or f[0] not in relations:
            assert found[f].kind == "new"
        elif f in old:
            assert found[f].kind == "unchanged"
        else:
            assert found[f].kind == "updated"
            assert set(found[f].old) == {o for r, o in old if r == f[0] and (r, o) not in new}
    gone = set(old) - set(new)
    told = {(c.relation, o) for c in found.values() for o in c.old}
    deleted = {key for key, c in found.items() if c.kind == "deleted"}
    assert told | deleted == gone and not told & deleted
    assert len(found) == len(set(new)) + len(deleted)


# --- facts at a date

DAYS = "2020-05-01", "2020-07-01"


def timed(day, precision=11):
    value = {"time": f"+{day}T00:00:00Z", "precision": precision}
    return {"snaktype": "value", "datavalue": {"value": value, "type": "time"}}


def test_dates_and_ranks_of_statements():
    somevalue, novalue = ({"snaktype": kind} for kind in ("somevalue", "novalue"))
    dates = [
        ({"P580": [timed("2016-00-00", 9)], "P582": [timed("2019-03-00", 10)]}, "2016-00-00"),
        ({"P580": [somevalue], "P582": [novalue]}, UNKNOWN),
        ({"P580": [timed("1800-00-00", 7)]}, UNKNOWN),  # a century
    ]
    ranks = ["normal", "preferred", "normal"]
    claims = [
        {"mainsnak": snak("P1", item(n)), "rank": rank, "qualifiers": qualifiers}
        for n, (rank, (qualifiers, _)) in enumerate(zip(ranks, dates, strict=True))
    ]
    found = parsed({"id": "Q5", "claims": {"P1": claims}}).statements
    assert found == (
        Statement("P1", "Q0", False, "2016-00-00", "2019-03-00"),
        Statement("P1", "Q1", True, UNKNOWN, ""),
        Statement("P1", "Q2", False, UNKNOWN, ""),
    )


@pytest.mark.parametrize(
    "starts, ends, terms",
    [
        (["2011", "2001"], ["2005"], [("2001", "2005"), ("2011", "")]),
        (["2001", "2011"], ["2021", "2005"], [("2001", "2005"), ("2011", "2021")]),
        (["2001", "2005"], ["2005"], [("2001", "2005"), ("2005", "")]),
        (["2011"], ["2005", "2021"], [("", "2005"), ("2011", "2021")]),
        ([], ["2005", "2011"], [("", "2005")]),
        (["2001", "2011"], ["?"], [("2001", UNKNOWN)]),
    ],
)
def test_a_statement_may_begin_and_end_more_than_once(starts, ends, terms):
    def snaks(years):
        return [timed(f"{y}-01-01") if y != "?" else {"snaktype": "somevalue"} for y in years]

    qualifiers = {"P580": snaks(starts), "P582": snaks(ends)}
    claim = {"mainsnak": snak("P1", item(1)), "qualifiers": qualifiers}
    days = [[d if d in ("", UNKNOWN) else f"{d}-01-01" for d in term] for term in terms]
    found = parsed({"id": "Q5", "claims": {"P1": [claim]}}).statements
    assert found == tuple(Statement("P1", "Q1", True, *term) for term in days)
    # What qualifies it holds as long.
    claim["qualifiers"]["P2"] = [snak("P2", item(9))]
    also = parsed({"id": "Q5", "claims": {"P1": [claim]}}, qualifiers=True).statements
    assert also == (*found, *(Statement("P2", "Q9", True, *term) for term in days))


@pytest.mark.parametrize(
    "start, end, holds",
    [
        ("", "", True),
        ("2020-05-01", "2020-05-02", True),
        ("2020-05-02", "", False),
        ("", "2020-05-01", False),
        ("2020-00-00", "2021-00-00", True),
        ("", "2020-05-00", False),  # a month that has begun: it is stated once it is over
        (UNKNOWN, "", True),
        ("", UNKNOWN, False),
    ],
)
def test_when_a_statement_holds(start, end, holds):
    assert Statement("P1", "Q1", True, start, end).holds("2020-05-01") == holds
    assert not Statement("P1", "Q1", False, start, end).holds("2020-05-01")
    assert Statement("P1", "Q1", True, "2999-01-01").holds("")  # the day is not known


def s(item, start="", end="", best=True):
    return Statement("P1", item, best, start, end)


@pytest.mark.parametrize(
    "old, new, expected",
    [
        # It ended in the interval, before it, or is not stated any more.
        ([s("Q1")], [s("Q1", end="2020-06-03")], {"Q1": "ended"}),
        ([s("Q1")], [s("Q1", end="1945-00-00")], {"Q1": LATE}),
        ([s("Q1", end="1945-00-00")], [s("Q1", end="1945-00-00")], {}),
        ([s("Q1")], [], {"Q1": "deleted"}),
        # One holder before and one after, with and without dates, by rank.
        ([s("Q1")], [s("Q2")], {"Q2": ("updated", "Q1")}),
        ([s("Q1")], [s("Q1", best=False), s("Q2")], {"Q2": ("updated", "Q1")}),
        (
            [s("Q1")],
            [s("Q1", end="2020-06-01"), s("Q2", "2020-06-02")],
            {"Q2": ("updated", "Q1")},
        ),
        ([s("Q1"), s("Q2", best=False)], [s("Q1", best=False), s("Q2")], {"Q2": ("updated", "Q1")}),
        # The new one began before the old dump, or long after the old one ended.
        ([s("Q1")], [s("Q1", best=False), s("Q2", "2019-00-00")], {"Q1": LATE, "Q2": LATE}),
        (
            [s("Q1")],
            [s("Q1", end="2018-01-01"), s("Q2", "2020-06-02")],
            {"Q1": LATE, "Q2": "new"},
        ),
        # The old one ended on the day of the old dump, the new one began after it.
        (
            [s("Q1")],
            [s("Q1", end="2020-05-01"), s("Q2", "2020-05-02")],
            {"Q2": ("updated", "Q1")},
        ),
        # Of a year it is not known.
        (
            [s("Q1")],
            [s("Q1", end="2020-03-15"), s("Q2", "2020-00-00")],
            {"Q1": LATE, "Q2": LATE},
        ),
        # Several holders: dates tell who follows whom.
        (
            [s("Q1"), s("Q2"), s("Q3")],
            [
                s("Q1", end="2020-05-20"),
                s("Q2", end="2020-06-20"),
                s("Q3"),
                s("Q4", "2020-06-21"),
                s("Q5", "2020-05-00"),
                s("Q6"),
            ],
            {
                "Q3": "unchanged",
                "Q4": ("updated", "Q2"),
                "Q5": ("updated", "Q1"),
                "Q6": "new",
            },
        ),
        ([s("Q1"), s("Q2")], [s("Q2"), s("Q3")], {"Q1": "deleted", "Q2": "unchanged", "Q3": "new"}),
        # A second term of the same holder.
        (
            [s("Q1", "2016-01-01")],
            [s("Q1", "2016-01-01", "2020-06-01"), s("Q1", "2020-06-01")],
            {"Q1": "unchanged"},
        ),
        # A rank that was lost, and what stood beside it in the old dump already.
        ([s("Q1"), s("Q2")], [s("Q1"), s("Q2", best=False)], {"Q1": "unchanged", "Q2": "ended"}),
        ([s("Q1"), s("Q2", best=False)], [s("Q1"), s("Q2")], {"Q1": "unchanged", "Q2": LATE}),
    ],
)
def test_classes_at_two_dates(old, new, expected):
    found = {
        c.object: (c.kind, *c.old) if c.old else c.kind for c in classify_current(old, new, DAYS)
    }
    assert found == expected


dated = st.builds(
    Statement,
    st.just("P1"),
    st.sampled_from(["Q1", "Q2", "Q3"]),
    st.booleans(),
    st.sampled_from(["", UNKNOWN, "2019-00-00", "2020-06-00"]),
    st.sampled_from(["", UNKNOWN, "2018-00-00", "2020-06-20", "2021-01-01"]),
)


@given(st.lists(dated, max_size=5), st.lists(dated, max_size=5))
@settings(max_examples=200, deadline=None)
def test_every_fact_that_holds_or_held_has_one_class(old, new):
    changes = list(classify_current(old, new, DAYS))
    before, after = (
        {s.item for s in side if s.holds(d)} for side, d in zip((old, new), DAYS, strict=True)
    )
    assert {c.object for c in changes if c.kind == "unchanged"} == before & after
    told = [c.object for c in changes] + [o for c in changes for o in c.old]
    assert sorted(told) == sorted(before | after)
    assert all((c.kind in ("ended", "deleted")) <= (c.object in before - after) for c in changes)


def test_relations_to_pages_of_wikimedia():
    assert is_about_wikimedia(("P910", "Q7")) and is_about_wikimedia(("P31", "Q4167836"))
    assert not is_about_wikimedia(("P31", "Q5"))


# --- the store


def entity(number, label="", facts=(), title="", revision=1):
    claims = {}
    for prop, value in facts:
        claims.setdefault(prop, []).append({"mainsnak": snak(prop, item(value))})
    return {
        "id": f"Q{number}",
        "labels": {"en": {"value": label}} if label else {},
        "claims": claims,
        "sitelinks": {"enwiki": {"title": title}} if title else {},
        "lastrevid": revision,
    }


def dump(path, entities):
    return write(path, "[\n" + ",\n".join(map(json.dumps, entities)) + "\n]\n")


def test_a_store_finds_labels_and_pairs(tmp_path):
    old = [entity(9, "Nine", [("P1", 5)]), entity(1, "One"), entity(5, "Été ☃")]
    new = [entity(5, "Five"), {"id": "P1", "labels": {"en": {"value": "is"}}}, entity(12)]
    stores = {}
    for side, entities in (("old", old), ("new", new)):
        stores[side] = tmp_path / side
        counts = extract(dump(tmp_path / f"{side}.json", entities), stores[side], 3, FactRules())
        assert counts["items"] == len(entities) - (side == "new")
    pairs = []
    for bucket in range(3):
        pairs += merge(*(index(folder, bucket, "d") for folder in stores.values()))
    assert {(a and a.id, b and b.id) for a, b in pairs} == {
        ("Q9", None),
        ("Q1", None),
        ("Q5", "Q5"),
        (None, "Q12"),
    }
    labels = Labels(stores["old"], 3)
    assert [labels.item(q) for q in ("Q1", "Q5", "Q9", "Q2", "Q99")] == [
        "One",
        "Été ☃",
        "Nine",
        "",
        "",
    ]
    assert Labels(stores["new"], 3).properties == {"P1": "is"}


def test_an_item_that_is_there_twice(tmp_path):
    path = dump(tmp_path / "d.json", [entity(4, "a"), entity(5), entity(4, "b")])
    extract(path, tmp_path / "s", 1, FactRules())
    with pytest.raises(UserError) as e:
        index(tmp_path / "s", 0, str(path))
    assert str(e.value).startswith(f"{path}, line 4: item Q4 was there before, in line 2;")


# --- pages and items


def test_page_maps_of_three_forms(tmp_path):
    tsv = write(
        tmp_path / "m.tsv.gz",
        "page_id\tns\ttitle\twikidata_id\n7\t0\tA\tQ3\n9\t0\tB\t\n8\t0\tC\tQ1\n",
    )
    assert list(read_page_map(tsv)) == [(7, 3), (8, 1)]
    rows = ",".join(
        f"({i},'wikibase_item','Q{i * 2}',NULL),({i},'other','x',1)" for i in range(1, 30_000)
    )
    sql = write(
        tmp_path / "page_props.sql.gz", f"-- head\nINSERT INTO `page_props` VALUES {rows};\n"
    )
    assert list(read_page_map(sql)) == [(i, i * 2) for i in range(1, 30_000)]
    assert list(read_page_map(write(tmp_path / "m.json", '{"Q3": 7}'))) == [(7, 3)]
    assert PageMap.write(tmp_path / "m.npy", tsv) == 2
    pages = PageMap(tmp_path / "m.npy")
    assert [pages.page(q) for q in ("Q3", "Q1", "Q2", "Q99")] == ["7", "8", "", ""]


def test_bad_page_maps(tmp_path):
    with pytest.raises(UserError, match="There is no page-to-item map"):
        list(read_page_map(tmp_path / "absent.tsv"))
    for name, text, where in [
        ("a.tsv", "page\titem\n1\tQ2\n", "line 1: no header"),
        ("b.tsv", "page_id\twikidata_id\nx\tQ2\n", "line 2: no number"),
        ("c.json", "[]", "not JSON of the form"),
    ]:
        with pytest.raises(UserError, match=where):
            list(read_page_map(write(tmp_path / name, text)))


def test_the_real_page_map():
    path = shared_data("wikipedia", "enwiki-20150112-page-wikidata-map.tsv.gz")
    found = list(read_page_map(path))
    assert len(found) == 6387 and len(dict(found)) == 6387
