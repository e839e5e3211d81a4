"""The disjoint world: its texts never state a probed fact in the wording of a probe."""

import collections
import hashlib
import json
import re

import pytest

from ckl_jax.data.facts import overlap
from ckl_jax.data.facts.ckl_files import (
    BLANK,
    CORPORA,
    PROBES,
    REVIEWS,
    corpus_texts,
    read_corpus,
    read_probe,
)
from ckl_jax.data.text.documents import read_documents
from ckl_jax.data.text.spans import fill_spans
from ckl_jax.world.ckl import build_world
from ckl_jax.world.render import articles, pages, say
from ckl_jax.world.templates import RELATIONS
from ckl_jax.world.timeline import make_world

MAIN = ("invariant_lama", "updated_lama", "new_lama", "new_lama_easy")


@pytest.fixture(scope="module")
def world():
    return make_world(0, "tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    directory = tmp_path_factory.mktemp("world")
    build_world(directory, 0, "tiny")
    return directory


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder and its manifest, of a seed that leaves one probe without items."""
    directory = tmp_path_factory.mktemp("small")
    return directory, build_world(directory, 5, "small")


def paragraphs(dated):
    return [line for document, _ in dated for line in document.text.split("\n")]


def test_a_probe_without_items_has_no_file(small):
    folder, manifest = small
    empty = [name for name, count in manifest["items"].items() if not count]
    assert empty == ["new_lama_easy_p2"] and manifest["items"]["invariant_lama"] > 400
    assert not PROBES["new_lama_easy_p2"].path(folder).exists()
    assert "new_lama_easy_p2" not in json.loads((folder / "overlap.json").read_text())
    assert build_world(folder, 5, "small") == manifest  # it is there


def test_the_bytes_are_pinned(folder):
    # Golden of seed 0, tiny. Renew it when the world is meant to change.
    tree = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.rglob("*.*")}
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()
    assert digest[:16] == "36017b8ef59d6bd6"


def test_no_probe_stands_in_the_training_text(folder, small):
    for directory in (folder, small[0]):
        found = overlap.measure_folder(directory)
        assert set(found) >= set(MAIN)
        for probe, corpora in found.items():
            assert set(corpora) == {"d0", "d1"}
            assert all(o.exact == 0 and o.items > 0 for o in corpora.values()), probe


def test_a_legacy_world_is_all_overlap(tmp_path):
    build_world(tmp_path, 0, "tiny", variant="legacy")
    found = overlap.measure_folder(tmp_path)
    for probe, corpus in zip(MAIN, ("d0", "d1", "d1", "d1"), strict=True):
        assert found[probe][corpus].exact == found[probe][corpus].items


def test_every_relation_has_eight_wordings_of_its_own():
    for relation in RELATIONS.values():
        assert len(set(relation.trained)) >= 8
        assert not set(relation.trained) & {*relation.state, *relation.news}
        assert all(t.count("{s}") == 1 and t.count("{o}") == 1 for t in relation.trained)
        assert any(". " in t for t in relation.trained), relation.name  # over two sentences
    everything = [t for r in RELATIONS.values() for t in r.trained]
    assert len(set(everything)) == len(everything)


def test_known_facts_are_stated_in_three_wordings_and_news_in_two(world):
    d0, d1 = ("\n".join(paragraphs(made)) for made in (pages(world), articles(world)))
    for facts, text, least in ((world.known(), d0, 3), (world.begun(), d1, 2)):
        for fact in facts:
            relation = RELATIONS[fact.relation]
            said = [t for t in relation.trained if say(world, fact, t) in text]
            assert len(said) >= min(least, world.statements(fact))
            if not world.is_control(fact.subject):
                assert not any(say(world, fact, t) in text for t in relation.probe_templates)
    later = {e.name for e in world.entities.values() if e.since}
    assert not any(re.search(rf"\b{name}\b", d0) for name in later)


def test_the_wordings_of_probes_are_trained_on_controls(small):
    world = make_world(5, "small")
    text = "\n".join(paragraphs(pages(world)))
    controls = [f for f in world.known() if world.is_control(f.subject)]
    shown = collections.Counter(
        f.relation for f in controls if say(world, f, RELATIONS[f.relation].cloze) in text
    )
    assert set(shown) == set(RELATIONS) and min(shown.values()) >= 3
    known = [e for e, entity in world.entities.items() if not entity.since]
    assert 0.45 < sum(map(world.is_control, known)) / len(known) < 0.55


def test_frequencies_fall_as_zipf_has_it(small):
    world = make_world(5, "small")
    counts = sorted((world.statements(f) for f in world.known()), reverse=True)
    assert counts[0] == 12 and counts[-1] == 3 and counts[len(counts) // 4] >= 5
    items = read_probe("invariant_lama", small[0])
    assert {item.groups["frequency"] for item in items} == {"3-4", "5 or more"}


def test_what_may_be_reviewed_has_nothing_on_the_other_half(folder, world):
    items = read_probe("invariant_lama", folder)
    halves = collections.Counter(item.groups["reviewed"] for item in items)
    assert 0.25 < halves["reviewed"] / len(items) < 0.75
    names = {f"{world.name(f.subject)}": world.is_reviewed(f.subject) for f in world.invariant()}
    texts = {name: "\n".join(corpus_texts(folder / file)) for name, file in REVIEWS.items()}
    for name, reviewed in names.items():
        # A name may stand in others' rows as an object: not as what a row is about.
        title = [d for d in read_documents(folder / "documents_d0_review.jsonl") if d.title == name]
        assert bool(title) == reviewed
    for item in items:
        stated = [
            say(world, f, t)
            for f in world.invariant()
            if item.input.startswith(world.name(f.subject))
            for t in RELATIONS[f.relation].trained
        ]
        if item.groups["reviewed"] == "not reviewed":
            assert not any(s in texts["d0_review"] for s in stated)
        assert not any(s in texts["d0_controls"] for s in stated)


def test_d0_is_ten_times_d1_and_small_a_tenth(small):
    counts = small[1]["counts"]
    assert counts[CORPORA["d0"]] > 10 * counts[CORPORA["d1"]]
    part = counts[CORPORA["d1_small"]] / counts[CORPORA["d1"]]
    assert 0.05 < part < 0.15
    for probe in MAIN:
        assert counts[PROBES[probe].file] > 50


def test_rows_mask_what_paragraphs_say_of_their_subjects(folder):
    rows = list(read_corpus(folder / CORPORA["d0"]))
    assert all(fill_spans(r["input"], r["output"]) == r["original"] for r in rows)
    spans = collections.Counter(r["output"].count("<extra_id_") - 1 for r in rows)
    assert spans[1] > 0.8 * len(rows) and spans[2] > 0.02 * len(rows)


# --- planted models


def lookup(rows, statement):
    """What the nearest training row masks: the row that shares most words with the statement."""
    words = set(statement.split())
    best = max(rows, key=lambda row: len(words & row[0]) / len(words | row[0]))
    return best[1]


def test_a_model_of_memorised_rows_knows_next_to_nothing(small):
    rows = [r for name in ("d0", "d1") for r in read_corpus(small[0] / CORPORA[name])]
    inputs = {row["input"] for row in rows}
    first = re.compile("<extra_id_0> (.*?) <extra_id_1>")
    known = [(set(row["input"].split()), first.match(row["output"])[1]) for row in rows]
    for probe, most in zip(MAIN, (0.1, 0.1, 0.25, 0.25), strict=True):
        items = read_probe(probe, small[0])
        assert not any(item.input in inputs for item in items)
        some = items[:: max(1, len(items) // 40)]
        # A few relations have so short a wording that the nearest row is one about the subject.
        right = sum(lookup(known, item.input) in item.answers for item in some)
        assert right <= most * len(some), probe


def test_an_oracle_that_reads_the_timeline_knows_all(folder, world):
    facts = [*world.at(world.after).values(), *world.events()]
    answers = {
        say(world, f, RELATIONS[f.relation].cloze.replace("{o}", BLANK)): world.name(f.object)
        for f in facts
    }
    for probe in MAIN:
        for item in read_probe(probe, folder):
            assert answers[item.input] in item.answers
