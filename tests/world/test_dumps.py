"""Diffsets and probes of simulated months are the timeline's truth: no more, no less."""

import collections
import itertools
import re

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.data.facts import fact_files, overlap
from ckl_jax.data.facts.wikidata_json import Entity, FactRules, read_entities
from ckl_jax.data.text.documents import read_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data import diffsets, probe_stages, probes
from ckl_jax.papers.temporalwiki.data.diffsets import Options, build, plan, read_records
from ckl_jax.papers.temporalwiki.data.dumps import open_dump
from ckl_jax.papers.temporalwiki.data.fact_diff import classify, classify_current
from ckl_jax.papers.temporalwiki.data.probe_filters import without_commas
from ckl_jax.papers.temporalwiki.data.probe_rows import Job
from ckl_jax.world.dump_files import SITE, item_numbers, write_dumps
from ckl_jax.world.months import is_control, months, property_labels
from ckl_jax.world.timeline import make_world
from tests.world.dump_truth import fact_changes, note_edits, stated_changes, text_changes
from tests.world.memoriser import recited

pytestmark = pytest.mark.filterwarnings("ignore:.*The caps leave")  # of so few facts
MONTHS = 6
CHANGED = ("updated", "new")
GONE = ("deleted", "ended")
FILES = ("unchanged", "changed", *CHANGED, *GONE)


class Simulated:
    """The dumps of one world, with the states that they were made of."""

    def __init__(self, folder, seed):
        self.folder, self.world = folder, make_world(seed, "tiny", "legacy")
        self.months = list(months(self.world, MONTHS))
        manifest = write_dumps(self.world, folder, MONTHS)
        self.files = list(manifest["dates"].values())

    def pairs(self):
        for i, j in itertools.pairwise(range(MONTHS)):
            yield self.months[i], self.months[j], self.path(i), self.path(j)

    def path(self, i):
        return {name: self.folder / self.files[i][name] for name in ("wikipedia", "wikidata")}


@pytest.fixture(scope="module", params=[0, 1, 2])
def sim(request, tmp_path_factory):
    return Simulated(tmp_path_factory.mktemp(f"dumps{request.param}"), request.param)


def test_all_kinds_of_events_happen(sim):
    seen = collections.Counter()
    for old, new, _, _ in sim.pairs():
        for number, page in new.pages.items():
            before = old.pages.get(number)
            if before is None:
                seen["new page" if page.entity else "redirect from a move"] += 1
            elif page.redirect and not before.redirect:
                seen["merged"] += 1
            else:
                same = page.paragraphs == before.paragraphs
                seen["moved"] += page.title != before.title and same
                seen["shuffled"] += not same and set(sum(page.paragraphs, ())) == set(
                    sum(before.paragraphs, ())
                )
                seen["saved unchanged"] += same and page.revision != before.revision
                seen["decorated"] += page.decoration != before.decoration
        seen["deleted page"] += len(old.pages.keys() - new.pages.keys())
        seen["deleted item"] += len(old.items.keys() - new.items.keys())
        seen["renamed"] += sum(
            i.label != old.items[k].label for k, i in new.items.items() if k in old.items
        )
        seen.update(f"fact {kind}" for kind, _ in fact_changes(old, new).values())
        stated = {key: kind for key, (kind, _) in stated_changes(old, new).items()}
        current = fact_changes(old, new)
        seen["ended, unchanged in the paper's reading"] += sum(
            stated[key] == "unchanged" and key not in current for key in stated
        )
        seen["updated that replaced nothing in the paper's reading"] += sum(
            kind == "updated" and not former for kind, former in stated_changes(old, new).values()
        )
        for day in (day for i in new.items.values() for _, day in i.ended):
            seen["ended by rank" if not day else "ended by date"] += 1
        seen.update(f"text {change.kind}" for change in text_changes(old, new))
    expected = {
        "new page",
        "redirect from a move",
        "merged",
        "moved",
        "shuffled",
        "saved unchanged",
        "decorated",
        "deleted page",
        "deleted item",
        "renamed",
        "fact new",
        "fact updated",
        "fact deleted",
        "fact unchanged",
        "fact ended",
        "fact recorded late",
        "ended by rank",
        "ended by date",
        "ended, unchanged in the paper's reading",
        "updated that replaced nothing in the paper's reading",
        "text new",
        "text paragraph",
        "text sentences",
    }
    assert {name for name in expected if seen[name]} == expected


def test_a_diffset_has_every_changed_sentence_and_no_other(sim, tmp_path):
    for i, (old, new, before, after) in enumerate(sim.pairs()):
        out = tmp_path / str(i)
        build(plan(before["wikipedia"], after["wikipedia"], out, Options(shards=2)))
        found = [
            (r["page_id"], r["title"], r["kind"], r["text"].replace("\n", " "))
            for r in read_records(out)
        ]
        truth = text_changes(old, new)
        assert found == [(t.page, t.title, t.kind, " ".join(t.sentences)) for t in truth]


def test_every_edit_of_a_note_is_classified_and_its_span_is_marked(sim, tmp_path):
    seen = collections.Counter()
    for i, (old, new, before, after) in enumerate(sim.pairs()):
        truth, found = note_edits(old, new), {}
        manifest = build(
            plan(before["wikipedia"], after["wikipedia"], tmp_path / str(i), Options())
        )
        for record in read_records(tmp_path / str(i)):
            for kind, start, end, spans in record.get("edits", ()):
                found[record["text"][start:end]] = kind, [record["text"][a:b] for a, b in spans]
        for text, (kind, changed) in truth.items():
            assert found[text][0] == kind
            assert kind == "reworded" or found[text][1] == [changed]
            seen[kind] += 1
        assert collections.Counter(kind for kind, _ in found.values()) <= collections.Counter(
            manifest["edits"]
        )
        documents = read_documents(tmp_path / str(i) / manifest["documents"])
        marked = " ".join(d.text[a:b] for d in documents for a, b in d.marks)
        for kind, changed in truth.values():
            assert kind == "reworded" or changed in marked
    assert set(seen) == {"added", "reworded", "number", "name"}


def test_every_fact_is_in_its_class(sim):
    rules = FactRules(site=SITE)
    for old, new, before, after in sim.pairs():
        items = [
            {e.id: e for e in read_entities(side["wikidata"], rules) if e.id[0] == "Q"}
            for side in (before, after)
        ]
        found = {"paper": {}, "current": {}}
        for item in items[0].keys() | items[1].keys():
            versions = [side.get(item, Entity(item)) for side in items]
            changes = {
                "paper": classify(*(e.facts for e in versions)),
                "current": classify_current(
                    *(e.statements for e in versions), (old.date, new.date)
                ),
            }
            for reading, rows in changes.items():
                found[reading] |= {(item, c.relation, c.object): (c.kind, c.old) for c in rows}
        assert found["paper"] == stated_changes(old, new)
        assert found["current"] == fact_changes(old, new)


@pytest.mark.filterwarnings("ignore:.*Light tuning has")
def test_probes_are_the_facts_that_the_texts_state(sim, tmp_path):
    """The whole chain over the widest gap, against truth joined with truth."""
    old, new, before, after = sim.months[0], sim.months[-1], sim.path(0), sim.path(MONTHS - 1)
    build(plan(before["wikipedia"], after["wikipedia"], tmp_path / "diff", Options(deletions=True)))
    job = Job(
        old=str(before["wikidata"]),
        new=str(after["wikidata"]),
        diffset=str(tmp_path / "diff"),
        wikipedia=str(after["wikipedia"]),
        out=tmp_path / "probes",
        rules=FactRules(site=SITE),
        unchanged_fraction=1.0,
        buckets=3,
    )
    manifest = probes.build(job, keep=True, light_tuning=20)
    truth = fact_changes(old, new)
    counts = collections.Counter(kind for kind, _ in truth.values())
    assert {k: manifest["steps"].get(f"{k} all", 0) for k in counts} == counts
    found = {(p.subject_id, p.relation_id, p.object_id): p for p in probe_stages.aligned(job)}
    expected = _aligned_truth(old, new, truth)
    assert {key: p.kind for key, p in found.items() if p.kind not in GONE} == expected
    labels = {f"Q{item_numbers(new.world)[k]}": i.label for k, i in new.items.items()}
    for (subject, _, answer), probe in found.items():
        if probe.kind not in GONE:
            assert (probe.subject, probe.object) == (labels[subject], labels[answer])
    for title in ("unchanged", "changed"):
        table = manifest["table_2"][title]
        assert table["initial"] >= table["aligned"] >= table["final"] > 0
    names = [f.name for f in (tmp_path / "probes").glob("*.csv")]
    assert sorted(names) == sorted(
        [f"0501-1001_{n}.csv" for n in FILES]
        + [f"lighttuning_{n}_20.csv" for n in ("unchanged", "changed")]
    )
    changed = [(s, o) for (s, _, o), (kind, _) in truth.items() if kind in CHANGED]
    pairs = {(labels[s], labels.get(o)) for s, o in changed}
    drawn = list(fact_files.read_probe_csv(tmp_path / "probes/lighttuning_changed_20.csv"))
    assert drawn and {(row["subject"], row["object"]) for row in drawn} <= pairs
    rows = list(fact_files.read_probe_csv(tmp_path / "probes/0501-1001_changed.csv"))
    assert len(rows) == manifest["table_2"]["changed"]["final"]
    files = sorted((tmp_path / "probes").glob("0501*.csv"))
    texts = [
        " ".join(s.text for s in p)
        for m in (old, new)
        for page in m.pages.values()
        for p in page.paragraphs
    ]
    overlaps = overlap.measure({f.stem: overlap.read_items(f) for f in files}, {"text": texts})
    assert {name: o["text"].exact for name, o in overlaps.items()} == {f.stem: 0 for f in files}
    items = [item for f in files for item in overlap.read_items(f)]
    assert recited(items, texts) < 0.15
    plain = {tuple(_words(without_commas(p))) for p in found.values()}
    assert {tuple(row.values()) for row in rows} <= plain


def test_a_fact_is_stated_in_three_wordings_and_controls_in_the_probes_form_too(sim):
    month = sim.months[-1]
    said = collections.defaultdict(set)
    for page in month.pages.values():
        for sentence in itertools.chain(*page.paragraphs):
            if sentence.fact:
                said[sentence.fact].add(sentence.text)
    labels, names = property_labels(sim.world), {k: i.label for k, i in month.items.items()}
    controls = 0
    for fact, texts in said.items():
        control = is_control(sim.world, fact.subject)
        label = labels[sim.world.relations[fact.relation].property]
        probe = f"{names.get(fact.subject)} {label} {names.get(fact.object)}."
        assert len(texts) == 3 + control
        assert (probe in texts) == (control and {fact.subject, fact.object} <= names.keys())
        controls += control
    assert 0.05 < controls / len(said) < 0.45
    stated = {f.subject for item in month.items.values() for f in item.facts}
    assert stated and not any(is_control(sim.world, subject) for subject in stated)


def _words(probe):
    return probe.subject, probe.relation, probe.object


def _aligned_truth(old, new, truth):
    """Facts whose object's label is in the new text (or the page) of the subject's page."""
    numbers = {f"Q{n}": key for key, n in item_numbers(new.world).items()}
    diff, pages = collections.defaultdict(str), {}
    for change in text_changes(old, new):
        diff[change.title] += " ".join(change.sentences).lower() + "\n"
    for page in new.pages.values():
        if not page.redirect:
            pages[page.title] = " ".join(s.text for p in page.paragraphs for s in p).lower()
    found = {}
    for (subject, relation, answer), (kind, _) in truth.items():
        item, label = new.items.get(numbers[subject]), new.items.get(numbers[answer])
        if kind not in ("unchanged", *CHANGED) or not item or not label or not item.title:
            continue
        text = (pages if kind == "unchanged" else diff).get(item.title, "")
        if label.label.lower() in text:
            found[subject, relation, answer] = kind
    return found


@pytest.mark.filterwarnings("ignore:.*No unchanged fact became a probe")
def test_deleted_and_ended_facts_stood_in_text_that_is_gone(sim, tmp_path):
    before, after = sim.path(0), sim.path(MONTHS - 1)
    build(plan(before["wikipedia"], after["wikipedia"], tmp_path / "diff", Options(deletions=True)))
    job = Job(
        old=str(before["wikidata"]),
        new=str(after["wikidata"]),
        diffset=str(tmp_path / "diff"),
        wikipedia=str(after["wikipedia"]),
        out=tmp_path / "probes",
        rules=FactRules(site=SITE),
        buckets=2,
    )
    probes.build(job, keep=True)
    texts = {"deleted": "", "ended": ""}
    for record in read_records(tmp_path / "diff"):
        for kind in texts:
            if kind == "ended" or "deleted" in record["kind"]:
                texts[kind] += record["text"] + "\n"
    truth = fact_changes(sim.months[0], sim.months[-1])
    found = [p for p in probe_stages.aligned(job) if p.kind in GONE]
    assert {p.kind for p in found} == set(GONE)
    for probe in found:
        assert truth[probe.subject_id, probe.relation_id, probe.object_id][0] == probe.kind
        assert probe.object in texts[probe.kind]


def test_dumps_depend_on_the_world_alone(tmp_path):
    world = make_world(0, "tiny", "legacy")
    for name in "ab":
        write_dumps(world, tmp_path / name, 2)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
    with pytest.raises(UserError, match="20 months are wanted"):
        write_dumps(world, tmp_path / "c", 20)


def test_the_same_revision_has_the_same_text(sim):
    seen = {}
    for i in range(MONTHS):
        for page in open_dump(sim.path(i)["wikipedia"]).pages():
            assert seen.setdefault(page.revision, (page.id, page.title, page.text)) == (
                page.id,
                page.title,
                page.text,
            )


def test_unchanged_pages_are_skipped_before_any_parsing(sim, tmp_path, monkeypatch):
    parsed = []
    real = diffsets.page_diff.compare
    monkeypatch.setattr(
        diffsets.page_diff, "compare", lambda pair, rules: parsed.append(pair) or real(pair, rules)
    )
    old, new, before, after = next(sim.pairs())
    manifest = build(plan(before["wikipedia"], after["wikipedia"], tmp_path / "o", Options()))
    same = sum(
        not p.redirect and n in old.pages and old.pages[n].revision == p.revision
        for n, p in new.pages.items()
    )
    assert manifest["pages"]["same revision"] == same > 50
    assert all(a is None or a.revision != b.revision for a, b in parsed)
    assert not any(re.search("REDIRECT", p.text) for pair in parsed for p in pair if p)
