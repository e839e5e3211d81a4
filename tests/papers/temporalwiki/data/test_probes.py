"""Filters of probes as defined, published files read as text, bad input of the whole chain."""

import bz2
import collections
import dataclasses
import gzip
import json
import re
import warnings
from pathlib import Path

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.data.dump_writer import write_entities
from ckl_jax.data.facts import fact_files
from ckl_jax.data.facts.wikidata_json import FactRules
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data import diffsets, fact_store, probe_stages, probes
from ckl_jax.papers.temporalwiki.data.probe_filters import Probe, apply, cap, table_7
from ckl_jax.papers.temporalwiki.data.probe_rows import Job, is_named
from ckl_jax.world.dump_files import SITE, write_dumps
from ckl_jax.world.timeline import make_world
from tests.papers.temporalwiki.data.dump_files import dump, page, write


def probe(subject="S", relation="r", answer="O", n=1):
    return Probe("new", f"Q{n}", "P1", f"Q{n + 1000}", subject, relation, answer)


def test_rules_one_and_two_and_repeats():
    rows = [
        probe("Paris", answer="Paris Club", n=1),
        probe("Lake Tahoe", answer="tahoe", n=2),
        probe("A", answer="one two three four five six", n=3),
        probe("Ann, Jr.", answer="Rome", n=4),
        probe("Ann Jr.", answer="Rome", n=5),
        probe("Bob", "q", "x y z u v", n=6),
    ]
    left, steps = apply(rows, 0)
    assert steps == {"distinct": 5, "rule 1": 3, "rule 2": 2, "rule 3": 2}
    assert [p.subject for p in left] == ["Ann Jr.", "Bob"]  # without commas, the first of equals


many = st.lists(st.tuples(*[st.integers(0, k) for k in (40, 6, 9)]), min_size=1, max_size=300)


@given(many, st.integers(0, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_caps_are_shares_of_what_rules_one_and_two_leave(rows, seed, fix_point):
    rows = [probe(f"s{a}", f"r{b}", f"o{c}", n) for n, (a, b, c) in enumerate(rows)]
    left = cap(rows, seed, fix_point)
    total = len(left) if fix_point else len(rows)
    for field, share in (("subject", 0.01), ("relation", 0.05), ("object", 0.05)):
        most = max(collections.Counter(getattr(p, field) for p in left).values())
        assert most <= max(1, int(total * share))
    assert set(left) <= set(rows) and left and left == cap(rows[:], seed, fix_point)


def test_caps_go_subject_relation_object_in_one_seeded_order():
    rows = [probe(f"s{i}", f"r{i % 40}", f"o{i % 30}", i) for i in range(200)]
    rows += [probe("s", "r", f"p{i}", 500 + i) for i in range(100)]
    left = cap(rows, 0)
    assert sum(p.subject == "s" for p in left) == 3  # 1 % of 300
    assert max(collections.Counter(p.relation for p in left).values()) <= 15
    assert left != cap(rows, 1)


def test_the_cap_of_subjects_is_an_option():
    rows = [probe("s", f"r{i}", f"o{i}", i) for i in range(50)]
    rows += [probe(f"s{i}", f"q{i}", f"p{i}", 50 + i) for i in range(50)]
    kept = [sum(p.subject == "s" for p in cap(rows, 0, subjects=f)) for f in (0.01, 0.2, 1.0)]
    assert kept == [1, 20, 50]


@pytest.mark.parametrize(
    "label, text, language, named, substring",
    [
        ("Ohm", "the ohm, a unit", "en", True, True),
        ("Ohm", "in bohmia", "en", False, True),
        ("Rome", "romes of old", "en", False, True),
        ("C++", "c++ is old", "en", True, True),
        ("C", "written in C++.", "en", False, True),
        ("C", "written in C# today", "en", False, True),
        (".NET", "It runs on .NET.", "en", True, True),
        ("Guinea", "born in Guinea-Bissau", "en", False, True),
        ("Saint", "born in Saint-\u00c9tienne", "en", False, True),
        ("NET", "It runs on .NET.", "en", False, True),
        ("Node", "It runs on Node.js.", "en", False, True),
        ("Node", "It runs on Node.", "en", True, True),
        ("राम", "महापौर रामा देवी हैं।", "hi", False, True),
        ("राम", "महापौर राम हैं।", "hi", True, True),
        ("राम", "वह श्रीराम हैं।", "hi", False, True),
        ("\u81fa\u5317", "\u9996\u90fd\u662f\u81fa\u5317\u5e02\u3002", "zh-hant", True, True),
        ("\u81fa\u5317", "\u9996\u90fd\u662f\u81fa\u5317\u5e02\u3002", "en", True, True),
        ("Zo\u00eb", "by Zoe\u0308 Hart", "en", True, True),
        ("O'Hara", "born in O\u2019Hara.", "en", True, True),
        ("Bissau", "born in Guinea-Bissau", "en", False, True),
        ("\u0130zmir", "born in \u0130zmir", "en", True, True),
        ("Guinea", "a Guinea-based firm", "en", True, True),
        ("U.S.", "in the u.s.", "en", True, True),
        ("\u6771\u4eac", "\u6771\u4eac\u90fd", "ja", True, True),
        ("Paris", "rome", "en", False, False),
    ],
)
def test_a_name_is_not_a_part_of_a_word(tmp_path, label, text, language, named, substring):
    row = {"kind": "new", "object": label}
    for facts, expected in (("current", named), ("paper", substring)):
        inputs = dict(old="o", new="n", diffset="d", wikipedia="w", out=tmp_path, facts=facts)
        todo = Job(**inputs, rules=FactRules(language=language))
        assert is_named(todo, row, {"diffset": [text]}, collections.Counter()) == expected
        assert not is_named(todo, row, {"deleted": [text]}, collections.Counter())


@pytest.mark.parametrize(
    "text, named",
    [
        ("born in the US", True),
        ("born in the us", False),  # a pronoun
        ("made in the USSR", False),
        ("the united states, as ever", True),  # the label, whose case does not count
        ("in Amerika", False),
        ("in America", True),
    ],
)
def test_an_alias_names_the_object_in_its_own_case(tmp_path, text, named):
    row = {"kind": "new", "object": "United States", "aliases": ["US", "America"]}
    inputs = dict(old="o", new="n", diffset="d", wikipedia="w", out=tmp_path)
    for facts in ("current", "paper"):
        counts = collections.Counter()
        assert is_named(Job(**inputs, facts=facts), row, {"diffset": [text]}, counts) == named
        assert counts["new aligned"] == named
        assert counts["new aligned by an alias"] == (named and "states" not in text)


def test_table_7():
    rows = [probe("A", "r", "x"), probe("A", "r", "y"), probe("B", "q", "x")]
    found = table_7(rows)
    assert found == {
        "facts": 3,
        "relations": 2,
        "max_repetition": 2,
        "subjects": 2,
        "objects": 2,
        "by_relation": {"r": 2, "q": 1},
        "subject_types": {},
        "object_types": {},
    }
    typed = [dataclasses.replace(row, subject_type="human") for row in rows[:2]]
    assert table_7([*typed, rows[2]])["subject_types"] == {"human": 2}
    assert table_7([])["max_repetition"] == 0


def test_a_type_is_what_an_item_is_an_instance_of(tmp_path):
    def line(number, label, *facts):
        snaks = [
            {
                "mainsnak": {
                    "snaktype": "value",
                    "property": p,
                    "datavalue": {
                        "value": {"entity-type": "item", "id": q},
                        "type": "wikibase-entityid",
                    },
                },
                "rank": "normal",
            }
            for p, q in facts
        ]
        labels = {"en": {"language": "en", "value": label}}
        claims = {s["mainsnak"]["property"]: [s] for s in snaks}
        return json.dumps({"type": "item", "id": f"Q{number}", "labels": labels, "claims": claims})

    dump = tmp_path / "wikidata.json"
    rows = [
        line(1, "Ann", ("P27", "Q3"), ("P31", "Q2")),
        line(2, "human"),
        line(3, "Utopia"),
        line(4, "Bob", ("P31", "Q9")),
    ]
    dump.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    fact_store.extract(dump, tmp_path / "store", 2, FactRules())
    for bucket in range(2):
        fact_store.index(tmp_path / "store", bucket, str(dump))
    labels = fact_store.Labels(tmp_path / "store", 2)
    assert [labels.type_of(f"Q{n}") for n in (1, 2, 3, 4, 7)] == ["human", "", "", "", ""]
    assert labels.item("Q1") == "Ann"


def test_published_files_are_read_as_text(tmp_path):
    path = write(tmp_path / "a.csv", "subject,relation,objective\nNA,year,1984\nNone,is,nan\n")
    assert [tuple(row.values()) for row in fact_files.read_probe_csv(path)] == [
        ("NA", "year", "1984"),
        ("None", "is", "nan"),
    ]
    with pytest.raises(UserError, match="no column 'subject'"):
        list(fact_files.read_probe_csv(write(tmp_path / "b.csv", "a,b\n1,2\n")))
    with pytest.raises(UserError, match="line 2: 2 cells where"):
        list(fact_files.read_probe_csv(write(tmp_path / "c.csv", "subject,relation,object\n1,2\n")))
    twice = write(tmp_path / "d.csv", "subject,relation,object,object\n1,2,3,4\n")
    with pytest.raises(UserError, match="column 'object' twice"):
        list(fact_files.read_probe_csv(twice))


# --- the chain


@pytest.fixture(scope="module")
def sim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sim")
    dates = write_dumps(make_world(1, "tiny", "legacy"), folder, 3)["dates"]
    names = [dates["20200501"], dates["20200701"]]
    old, new = ({k: str(folder / d[k]) for k in ("wikipedia", "wikidata")} for d in names)
    out = folder / "diff"
    diffsets.build(diffsets.plan(old["wikipedia"], new["wikipedia"], out, diffsets.Options()))
    return old, new, out


def job(sim, out, **changes):
    old, new, diff = sim
    inputs = dict(
        old=old["wikidata"],
        new=new["wikidata"],
        diffset=str(diff),
        wikipedia=new["wikipedia"],
        out=out,
        rules=FactRules(site=SITE),
        unchanged_fraction=1.0,
        buckets=3,
    )
    return Job(**{**inputs, **changes})


def files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".csv", ".jsonl")}


def in_reverse(path, out):
    """Copies a dump with its pages in reverse."""
    head, *pages = re.split("(?=<page>)", bz2.decompress(Path(path).read_bytes()).decode())
    pages[-1], end = pages[-1].split("</mediawiki>")
    write(out, f"{head}{''.join(pages[::-1])}</mediawiki>{end}")
    return str(out)


def test_the_order_of_pages_changes_nothing(sim, tmp_path):
    old, new, _ = sim
    names = (f"{SITE}-20200501.xml", f"{SITE}-20200701.xml.gz")
    dumps = [
        in_reverse(side["wikipedia"], tmp_path / name)
        for side, name in zip((old, new), names, strict=True)
    ]
    options = diffsets.Options(unsorted=True)
    diffsets.build(diffsets.plan(*dumps, tmp_path / "diff", options))
    probes.build(job(sim, tmp_path / "a"))
    inputs = dict(diffset=str(tmp_path / "diff"), wikipedia=dumps[1])
    probes.build(job(sim, tmp_path / "b", **inputs))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_workers_and_buckets_change_nothing(sim, tmp_path):
    one = probes.build(job(sim, tmp_path / "a"))
    two = probes.build(job(sim, tmp_path / "b", buckets=7), workers=2)
    assert files(tmp_path / "a") == files(tmp_path / "b") and len(files(tmp_path / "a")) == 10
    assert one["steps"] == two["steps"] and one["table_2"] == two["table_2"]
    assert not (tmp_path / "a/stores").exists()
    assert probes.build(job(sim, tmp_path / "a")) == json.loads(
        (tmp_path / "a/manifest.json").read_text()
    )


def renamed(path, out):
    """Copies a dump in which every second item has another label, and its old one as an alias."""
    lines = gzip.decompress(Path(path).read_bytes()).decode().splitlines()
    entities = [json.loads(line.rstrip(",")) for line in lines if line.rstrip(",") not in "[]"]
    for entity in entities:
        number, labels = int(entity["id"][1:]), entity["labels"]
        if entity["id"][0] == "Q" and number % 2:
            [label] = labels.values()
            entity["aliases"] = {label["language"]: [dict(label), {"value": "Nowhere"}]}
            label["value"] = f"Thing {number}"
        elif entity["id"][0] == "Q":
            entity["aliases"] = []  # PHP writes an empty map as a list
    write_entities(out, entities)
    return str(out)


def test_aliases_find_what_labels_do_not(sim, tmp_path):
    old, new, diff = sim
    other = [
        {**of, "wikidata": renamed(of["wikidata"], tmp_path / Path(of["wikidata"]).name)}
        for of in (old, new)
    ]
    made = {
        name: probes.build(job((*dumps, diff), tmp_path / name, rules=rules), keep=True)["steps"]
        for name, dumps, rules in (
            ("plain", (old, new), FactRules(site=SITE)),
            ("labels", other, FactRules(site=SITE)),
            ("aliases", other, FactRules(site=SITE, aliases=True)),
        )
    }

    def total(name, what="aligned"):
        kinds = ("unchanged", "updated", "new", "deleted", "ended")
        return sum(made[name].get(f"{kind} {what}", 0) for kind in kinds)

    assert total("labels") < total("aliases") == total("plain")
    assert total("aliases", "aligned by an alias") == total("plain") - total("labels")
    rows = list(probe_stages.aligned(job(sim, tmp_path / "aliases").sized()))
    assert any(p.aliases and p.object.startswith("Thing") for p in rows)
    # What was made without the option says nothing of it.
    assert "aliases" not in json.loads((tmp_path / "plain/settings.json").read_text())["rules"]
    [changed] = (tmp_path / "plain").glob("*_changed.jsonl")
    assert '"aliases"' not in changed.read_text()
    with pytest.raises(UserError, match="begun|other settings|choose another"):
        probes.build(job((*other, diff), tmp_path / "labels", rules=FactRules(aliases=True)))


def test_the_sample_of_unchanged_facts_is_seeded(sim, tmp_path):
    counts = []
    for seed in (0, 1):
        todo = job(sim, tmp_path / str(seed), unchanged_fraction=0.3, seed=seed)
        with pytest.warns(match="caps leave 1. of .. unchanged facts: .*--relation-cap"):
            manifest = probes.build(todo, keep=True)
        total, drawn = (manifest["steps"][f"unchanged {k}"] for k in ("all", "initial"))
        assert 0.15 * total < drawn < 0.45 * total
        counts.append({p.ids for p in probe_stages.aligned(todo) if p.kind == "unchanged"})
    assert counts[0] != counts[1]


def test_the_released_code_skips_new_subjects(sim, tmp_path):
    steps = probes.build(job(sim, tmp_path / "a", skip_new_subjects=True))["steps"]
    assert steps["items skipped as new"] > 0
    assert steps["new all"] < probes.build(job(sim, tmp_path / "b"))["steps"]["new all"]


def test_finished_steps_are_kept_and_halves_of_files_are_not(sim, tmp_path, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as m:
        m.setattr(probe_stages, "label", lambda run: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            probes.build(job(sim, out))
    folders = [out, *(path for path in out.rglob("*") if path.is_dir())]
    assert {len(folder.relative_to(out).parts) for folder in folders} == {0, 1, 2}
    for folder in folders:
        (folder / ".rows.json.0abc.part").touch()  # as a killed process leaves it
    monkeypatch.setattr(probe_stages.fact_store, "parse_entity", lambda *a: 1 / 0)
    assert probes.build(job(sim, out))["table_2"]["unchanged"]["final"] > 0
    assert not list(out.rglob("*.part"))


def notes(sim, out, **changes):
    """What a run says, of probes of all classes or with changes."""
    ends = {"light_tuning": changes.pop("light_tuning", 0)}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of the garbage collector
        manifest = probes.build(job(sim, out, **changes), **ends)
        assert probes.build(job(sim, out, **changes), **ends) == manifest  # and says it again
    texts = [str(w.message).removeprefix(f"{out}: ") for w in said]
    assert texts[: len(texts) // 2] == texts[len(texts) // 2 :]
    return manifest, texts[: len(texts) // 2]


def test_the_wikipedia_dump_is_the_diffsets(sim, tmp_path):
    old, new, diff = sim

    def complaint(wikipedia, diffset=diff):
        with pytest.raises(UserError) as e:
            probes.build(job(sim, tmp_path / "out", wikipedia=str(wikipedia), diffset=str(diffset)))
        assert not (tmp_path / "out").exists()
        return str(e.value)

    text = complaint(old["wikipedia"])
    assert f"{old['wikipedia']} is of 20200501, and the new dump of the diffset {diff}" in text
    assert f"{Path(new['wikipedia']).name}, of 20200701;" in text
    other = write(tmp_path / "x.xml", dump([page(1, "A", "x")], dbname="otherwiki"))
    assert "is of otherwiki, and " in complaint(other)
    bare = tmp_path / "bare"
    bare.mkdir()
    manifest = json.loads((diff / "manifest.json").read_text())
    manifest["new"] |= {"wiki": "", "name": "dewiki-20200701-a.xml"}
    (bare / "manifest.json").write_text(json.dumps(manifest))
    text = complaint(new["wikipedia"], bare)
    assert "is of simwiki, and " in text and ", of dewiki;" in text


@pytest.mark.parametrize(
    "dates, said",
    [
        (("20200502", "20200702"), ""),
        (("20200601", "20200703"), "The old Wikidata dump"),
        (("20200404", "20200515"), "The new Wikidata dump"),
        (("20200501", "latest"), ""),
    ],
)
def test_wikidata_of_other_dates_is_told(sim, tmp_path, dates, said):
    old, new, _ = sim
    paths = [tmp_path / f"wikidata-{date}-all.json.gz" for date in dates]
    for path, side in zip(paths, (old, new), strict=True):
        path.write_bytes(Path(side["wikidata"]).read_bytes())
    todo = job(sim, tmp_path / "out", old=str(paths[0]), new=str(paths[1]))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ResourceWarning)  # of the garbage collector
        probes.check(todo)
    assert len(found) == bool(said)
    if said:
        other = "new" if "old" in said else "old"
        text = str(found[0].message)
        assert text.startswith(said) and f"nearer to the diffset's {other} date" in text


def test_a_class_that_loses_all_facts_is_told_with_the_step(sim, tmp_path):
    manifest, said = notes(sim, tmp_path / "a", rules=FactRules(language="xx", site=SITE))
    steps = manifest["steps"]
    initial, lost = (steps[f"unchanged {k}"] for k in ("initial", "subject without a label"))
    assert lost > 0 and manifest["notes"] == said
    assert said[0] == (
        f"No unchanged fact became a probe: of {initial:,} the most, {lost:,}, were dropped in one "
        "step: no label of their subject in language xx."
    )
    assert said[1].startswith("No changed fact became a probe: of ") and "in one step" in said[1]
    assert len(said) == 2  # the diffset was made without deletions
    manifest, said = notes(sim, tmp_path / "b")
    assert manifest["table_2"]["changed"]["final"] > 0 and not said
    _, said = notes(sim, tmp_path / "c", unchanged_fraction=1e-9)
    drawn = manifest["steps"]["unchanged all"]
    assert said[0].endswith(f"a probe: none of {drawn:,} was drawn (--unchanged-fraction 1e-09).")


def test_too_few_facts_to_tune_on_are_told(sim, tmp_path):
    assert not notes(sim, tmp_path / "a", light_tuning=1)[1]
    manifest, said = notes(sim, tmp_path / "b", light_tuning=9999)
    for title in ("unchanged", "changed"):
        found = manifest["table_7_tuning"][title]["facts"]
        expected = f"Light tuning has {found:,} {title} facts and not 9,999:"
        assert 0 < found < 9999 and any(text.startswith(expected) for text in said)


def test_bad_input(sim, tmp_path):
    old, new, _ = sim
    out = tmp_path / "out"

    def complaint(out=out, **changes):
        with pytest.raises(UserError) as e:
            probes.build(job(sim, out, **changes))
        return str(e.value)

    assert "is not older than the new one" in complaint(old=new["wikidata"], new=old["wikidata"])
    assert "no Wikidata dump" in complaint(old=str(tmp_path / "absent.json"))
    assert "no page-to-item map" in complaint(page_map=str(tmp_path / "absent.tsv"))
    assert "no finished diffset" in complaint(diffset=str(tmp_path))
    assert not out.exists()
    assert "has no sitelinks to dewiki" in complaint(rules=FactRules(site="dewiki"))
    swapped = [tmp_path / n for n in ("a.json.gz", "b.json.gz")]
    for path, side in zip(swapped, (new, old), strict=True):
        path.write_bytes(open(side["wikidata"], "rb").read())
    text = complaint(old=str(swapped[0]), new=str(swapped[1]), out=tmp_path / "swapped")
    assert "have an older revision" in text
