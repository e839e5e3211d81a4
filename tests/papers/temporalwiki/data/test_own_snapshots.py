"""Snapshots of one's own documents and dated facts, through the commands that read dumps."""

import csv
import gzip
import json
from pathlib import Path

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts.wikidata_json import FactRules, read_entities
from ckl_jax.data.text.documents import read_documents
from ckl_jax.errors import UserError
from ckl_jax.files import read_json
from ckl_jax.papers.temporalwiki.data import checksums
from ckl_jax.papers.temporalwiki.data.own_snapshots import WIKI
from ckl_jax.papers.temporalwiki.data.snapshots import check_series, check_sizes, find_all
from ckl_jax.papers.temporalwiki.data.wiki_xml import read_pages

OLD, NEW = "2020-01-01", "2021-01-01"
BRACES = "{{Not a template}} [[nor a link]] <b>nor</b> markup.\n* A line, no item of a list."
DOCUMENTS = [
    ("no", OLD, "Norland", "Norland lies in the north.\nIts king is Olaf Grey."),
    ("no", NEW, "Norland", "Norland lies in the north.\nIts king is Erik Blue."),
    ("so", OLD, "Sorland", "Sorland is warm. Its king is Ada Green."),
    ("a", NEW, "Notes", BRACES),
    ("b", NEW, "Notes", "More notes."),
    ("gone", OLD, "Gone", "This page goes."),
    ("gone", NEW, "Gone", ""),
]
FACTS = [
    ("Norland", "king", "Olaf Grey", "2010", "2020-06-01"),
    ("Norland", "king", "Erik Blue", "2020-06-01", ""),
    ("Sorland", "king", "Ada Green", "2001-05", ""),
    ("Sorland", "king", "Later Queen", "2030", ""),
]


@pytest.fixture
def inputs(tmp_path):
    fields = ("key", "day", "title", "body")
    rows = [json.dumps(dict(zip(fields, row, strict=True))) for row in DOCUMENTS]
    # In no order: neither of pages nor of dates.
    (tmp_path / "documents.jsonl").write_text("\n".join(rows[::-1]))
    fields = ("subject", "relation", "object", "valid_from", "valid_to")
    facts = "\n".join(json.dumps(dict(zip(fields, row, strict=True))) for row in FACTS)
    (tmp_path / "facts.jsonl").write_text(facts)
    return tmp_path


def snapshots(folder, *more, out="out"):
    names = ("--id-field=key", "--date-field=day", "--text-field=body")
    places = (f"--{name}={folder / name}.jsonl" for name in ("documents", "facts"))
    return main(["data", "snapshots", *places, *names, f"--out={folder / out}", *more])


def dumps(folder, date):
    stamp = date.replace("-", "")
    return (
        folder / "out" / f"{WIKI}-{stamp}-pages-articles-multistream.xml.bz2",
        folder / "out" / f"wikidata-{stamp}-all.json.gz",
    )


def test_a_snapshot_has_the_newest_version_of_each_document(inputs):
    assert snapshots(inputs) == 0
    pages = {page.title: page for page in read_pages(dumps(inputs, NEW)[0])}
    assert set(pages) == {"Norland", "Sorland", "Notes (a)", "Notes (b)"}
    assert pages["Norland"].text.endswith("Erik Blue.")
    old = {page.title: page for page in read_pages(dumps(inputs, OLD)[0])}
    assert set(old) == {"Norland", "Sorland", "Gone"}
    # An untouched document is the same revision of the same page.
    assert old["Sorland"].revision == pages["Sorland"].revision
    assert old["Norland"].id == pages["Norland"].id
    assert old["Norland"].revision != pages["Norland"].revision


def test_texts_have_a_language_and_facts_names_in_all(inputs, tmp_path):
    rows = [
        ("f", OLD, "Firma", "Die Firma kam am 3. Mai 1990 nach Ulm. Sie ist z. B. in Bonn."),
        ("f", NEW, "Firma", "Die Firma kam am 4. Mai 1990 nach Ulm. Sie ist z. B. in Kiel."),
    ]
    fields = ("key", "day", "title", "body")
    lines = (json.dumps(dict(zip(fields, row, strict=True))) for row in rows)
    (inputs / "documents.jsonl").write_text("\n".join(lines))
    fact = {"subject": "Firma", "relation": "seat", "object": "Stadt Kiel"}
    fact |= {"valid_from": "2020-03-01", "object_aliases": ["Kiel"]}
    (inputs / "facts.jsonl").write_text(json.dumps(fact))
    assert snapshots(inputs, "--language=de") == 0
    assert snapshots(inputs, "--dates=2022-01-01") == 2  # of another language
    (old, _), (new, items) = (dumps(inputs, date) for date in (OLD, NEW))
    out = str(tmp_path / "diff")
    assert main(["data", "diffsets", f"--old={old}", f"--new={new}", f"--out={out}"]) == 0
    (document,) = read_documents(next((tmp_path / "diff").glob("diffset_*.jsonl")))
    assert document.text == rows[1][3]
    for language in ("en", "de"):
        rules = FactRules(site=WIKI, language=language, aliases=True)
        known = {e.label: e.aliases for e in read_entities(items, rules)}
        assert known["Stadt Kiel"] == ("Kiel",) and known["Firma"] == ()


@pytest.mark.parametrize(
    "valid_from, valid_to, stated",
    [("2019", "?", (0, 0)), ("?", "", (0, 0)), ("?", "2020-06-01", (0, 1)), ("", "", (1, 1))],
)
def test_facts_of_which_the_dates_leave_open_whether_they_hold(
    inputs, valid_from, valid_to, stated
):
    fact = {"subject": "Norland", "relation": "king", "object": "Olaf Grey"}
    fact |= {"valid_from": valid_from, "valid_to": valid_to}
    (inputs / "facts.jsonl").write_text(json.dumps(fact))
    assert snapshots(inputs) == 0
    for date, number in zip((OLD, NEW), stated, strict=True):
        entities = read_entities(dumps(inputs, date)[1], FactRules(site=WIKI))
        assert sum(len(entity.statements) for entity in entities) == number


def test_without_facts_pages_have_items_that_state_nothing(inputs):
    fields = ("--id-field=key", "--date-field=day", "--text-field=body")
    documents = f"--documents={inputs / 'documents.jsonl'}"
    assert main(["data", "snapshots", documents, *fields, f"--out={inputs / 'out'}"]) == 0
    pages = {page.title for page in read_pages(dumps(inputs, NEW)[0])}
    with gzip.open(dumps(inputs, NEW)[1], "rt") as f:
        items = json.load(f)
    assert {item["sitelinks"][WIKI]["title"] for item in items} == pages
    assert not any(item["claims"] for item in items)


def test_complete_dates_drop_what_they_lack(inputs):
    assert snapshots(inputs, "--complete") == 0
    titles = {page.title for page in read_pages(dumps(inputs, NEW)[0])}
    assert titles == {"Norland", "Notes (a)", "Notes (b)"}
    for other in ((), ("--complete", "--title-field=key"), ("--complete", "--id-field=title")):
        assert snapshots(inputs, "--dates=2022-01-01", *other) == 2
    assert snapshots(inputs, "--complete", "--dates=2022-01-01") == 0


def test_facts_have_begun_and_know_their_end(inputs):
    assert snapshots(inputs) == 0
    known = {}
    for date in (OLD, NEW):
        entities = list(read_entities(dumps(inputs, date)[1], FactRules(site=WIKI)))
        label = {entity.id: entity.label for entity in entities}
        known[date] = {
            label[entity.id]: [(label[s.item], s.start, s.end) for s in entity.statements]
            for entity in entities
            if entity.title
        }
    queen = ("Ada Green", "2001-05-00", "")
    before, after = ("Olaf Grey", "2010-00-00", ""), ("Erik Blue", "2020-06-01", "")
    assert known[OLD] == {"Norland": [before], "Sorland": [queen]}
    assert known[NEW] == {"Norland": [(*before[:2], "2020-06-01"), after], "Sorland": [queen]}


@pytest.mark.parametrize("name", ["Norland", "__nor_land"])
def test_diffset_and_probes(inputs, name):
    for path in (inputs / "documents.jsonl", inputs / "facts.jsonl"):
        path.write_text(path.read_text().replace("Norland", name))
    assert snapshots(inputs) == 0
    (old, old_facts), (new, new_facts) = dumps(inputs, OLD), dumps(inputs, NEW)
    diff, out = inputs / "diff", inputs / "probes"
    made = f"--old={old} --new={new} --out={diff} --deletions --workers=1"
    assert main(["data", "diffsets", *made.split()]) == 0
    found = read_documents(diff / read_json(diff / "manifest.json")["documents"])
    documents = {document.title: document.text for document in found}
    assert documents[name] == "Its king is Erik Blue."
    assert documents["Notes (a)"] == BRACES  # plain text: nothing in it is markup
    assert "Sorland" not in documents
    made = f"--old={old_facts} --new={new_facts} --diffset={diff} --wikipedia={new} --out={out}"
    assert main(["data", "probes", *made.split(), "--unchanged-fraction=1", "--workers=1"]) == 0
    found = {p.stem.rpartition("_")[2]: rows(p) for p in out.glob("*.csv")}
    assert found["updated"] == [[name, "king", "Erik Blue", "Olaf Grey"]]
    assert found["unchanged"] == [["Sorland", "king", "Ada Green"]]


def rows(path):
    with open(path, newline="") as f:
        return list(csv.reader(f))[1:]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ("--dates=2019-01-01,2020-01-01", "--dates has 2019-01-01, but the first document is of"),
        ("--dates=2019-13-01", "--dates is '2019-13-01'; give a day as YYYY-MM-DD."),
    ],
)
def test_dates_that_are_none_are_refused(inputs, capsys, more, sentence):
    assert snapshots(inputs, more) == 2
    assert sentence in capsys.readouterr().err


def test_one_date_is_enough_where_it_is_asked_for(inputs, capsys):
    assert snapshots(inputs, f"--dates={NEW}", "--out", str(inputs / "month")) == 0
    stamp = NEW.replace("-", "")
    assert (inputs / "month" / f"wikidata-{stamp}-all.json.gz").is_file()
    (inputs / "documents.jsonl").write_text('{"key": "a", "day": "2020-01-01", "body": "Text."}\n')
    assert snapshots(inputs) == 2
    assert (
        "The documents are of one date only, 2020-01-01; give --dates." in capsys.readouterr().err
    )


def test_characters_that_xml_forbids_are_blanks(inputs):
    row = {"key": "ff", "day": OLD, "title": "A\x0bb", "body": "Page one\fPage two.\0\uffff Three."}
    with open(inputs / "documents.jsonl", "a") as f:
        f.write("\n" + json.dumps(row))
    assert snapshots(inputs) == 0
    pages = {page.title: page.text for page in read_pages(dumps(inputs, OLD)[0])}
    assert pages["A b"] == "Page one Page two.   Three."


def test_titles_are_of_one_line_and_no_text_is_a_redirect(inputs, tmp_path):
    rows = [
        {"key": "l", "day": OLD, "title": "Two\n lines", "body": "#REDIRECT [[A]] is how."},
        {"key": "a\nb", "day": OLD, "title": " ", "body": "Text."},
    ]
    with open(inputs / "documents.jsonl", "a") as f:
        f.write("\n" + "\n".join(map(json.dumps, rows)))
    assert snapshots(inputs) == 0
    pages = {page.title: page for page in read_pages(dumps(inputs, OLD)[0])}
    assert pages["Two lines"].text == rows[0]["body"] and not pages["Two lines"].redirect
    assert pages["a b"].text == "Text."
    old, new = (str(dumps(inputs, date)[0]) for date in (OLD, NEW))
    out = str(tmp_path / "diff")
    assert main(["data", "diffsets", "--old", old, "--new", new, "--out", out]) == 0


def test_other_folders_are_left_alone(inputs, capsys):
    (inputs / "out").mkdir()
    (inputs / "out" / "mine.txt").write_text("mine")
    assert snapshots(inputs) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_sums_of_dumps_are_verified(tmp_path):
    dump, parts = tmp_path / "x.json.gz", tmp_path / "parts"
    parts.mkdir()
    for path in (dump, parts / "a.xml", parts / "b.xml"):
        path.write_bytes(b"abc")
    abc = "a9993e364706816aba3e25717850c26c9cd0d89d"  # of FIPS 180-1
    (tmp_path / "w-sha1sums.txt").write_text(f"{abc.upper()}  x.json.gz\n{'0' * 40}  other\n")
    files = {"a.xml": {"sha1": abc.upper(), "size": 3}, "c.xml": {"sha1": abc}, "d.xml": {}}
    status = {"jobs": {"articles": {"status": "done", "files": files}, "later": {}}}
    (parts / checksums.STATUS).write_text(json.dumps(status))
    assert checksums.verify([dump, parts]) == 2
    dump.write_bytes(b"abcd")
    with pytest.raises(UserError, match="x.json.gz is damaged or unfinished: its SHA-1 is 81fe8bf"):
        checksums.verify([dump, parts])
    (tmp_path / "w-sha1sums.txt").write_text(f"{abc}\n")
    with pytest.raises(UserError, match="w-sha1sums.txt, line 1: not 'SHA-1 NAME'"):
        checksums.verify([dump])
    for jobs, wrong in [
        ([], ""),
        ([1], "jobs is not an object of objects"),
        ({"a": 1}, "jobs is not"),
        ({"a": {"files": [1]}}, "files is not"),
        ({"a": {"files": {"a.xml": {"sha1": 5}}}}, "the sha1 of a.xml is no SHA-1"),
    ]:
        (parts / checksums.STATUS).write_text(json.dumps({"jobs": jobs}))
        if wrong:
            with pytest.raises(UserError, match=f"dumpstatus.json: {wrong}"):
                checksums.verify([parts])


def test_snapshots_of_a_folder_and_deleted_ones(inputs):
    assert snapshots(inputs) == 0
    folder = str(inputs / "out")
    (inputs / "out" / "ownwiki-20220101-pages-articles.xml.bz2").write_text("alone")
    both = find_all([folder])
    assert [s.date for s in both] == ["20200101", "20210101"]
    known = [s.describe() for s in both]
    for path in dumps(inputs, OLD):
        path.unlink()
    assert [s.date for s in find_all([folder])] == ["20210101"]
    old, new = find_all([folder], known)
    assert old.was == old.describe() == known[0] and not new.was
    assert find_all([f"{folder}/20200101", f"{folder}/20210101"], known) == [old, new]
    check_series([old, new])
    with pytest.raises(UserError, match="20200101"):
        find_all([f"{folder}/20200101"])
    # What the shell makes of a pattern once the first date's folder is gone.
    place = inputs / "later" / "20220101"
    place.mkdir(parents=True)
    for name in ("ownwiki-20220101-pages-articles.xml.bz2", "wikidata-20220101-all.json.bz2"):
        (place / name).touch()
    later = [f"{folder}/20210101", str(place)]
    assert find_all(later, known)[:2] == [old, new] and len(find_all(later, known)) == 3
    # Also of several, and of the newest: whether their dumps are needed is asked later.
    assert [s.was for s in find_all(later[1:], known)] == [*known, ""]
    newest = find_all(later[1:])[0].describe()
    assert [s.was for s in find_all(later[:1], [*known, newest])] == [known[0], "", newest]
    with pytest.raises(UserError, match="not later than"):
        check_series(find_all([*later[1:], f"{folder}/20200101"], known))


def test_wikidata_s_dumps_in_one_folder_may_be_of_days_of_their_own(tmp_path):
    pages = [f"enwiki-{day}-pages-articles.xml.bz2" for day in ("20210801", "20210901")]
    items = [f"wikidata-{day}-all.json.bz2" for day in ("20210802", "20210830", "20211004")]
    for name in (*pages, *items, "enwiki-20211001-pages-articles.xml.bz2.part"):
        (tmp_path / name).touch()
    found = find_all([str(tmp_path)])
    names = [(Path(s.wikipedia).name, Path(s.wikidata).name) for s in found]
    assert names == list(zip(pages, items, strict=False))
    assert find_all([f"{tmp_path}/202109"]) == found[1:] == find_all([f"{tmp_path}/20210901"])
    (tmp_path / items[0]).unlink()
    with pytest.raises(UserError, match="20210801 has no Wikidata dump"):
        find_all([str(tmp_path)])


def test_facts_are_seen_at_the_dates_of_snapshots(inputs, capsys):
    days = '{"2020-01-01": [["Q1", "B"]], "2021-01-01": [["Q2", "C"]]}'
    facts = inputs / "facts.jsonl"
    facts.write_text(f'{{"subject": "A", "relation": "P6", "objects": {days}}}\n')
    assert snapshots(inputs, "--dates", "2020-01-01,2021-01-01") == 0
    assert snapshots(inputs, "--dates", "2020-01-01,2021-07-01", "--overwrite") == 2
    expected = (
        "on which days they were seen (2020-01-01 to 2021-01-01), and the snapshot 2021-07-01"
    )
    assert expected in capsys.readouterr().err


def test_a_dump_that_has_another_size_than_before_is_named(inputs):
    assert snapshots(inputs) == 0
    both = find_all([str(inputs / "out")])
    known = [s.describe() for s in both]
    check_sizes(both, known)
    path = Path(both[1].wikidata)
    size = path.stat().st_size
    path.write_bytes(b"")
    said = f"The dump {path.name} has 0 bytes, and had {size:,} when it was read"
    with pytest.raises(UserError, match=said):
        check_sizes(both, known)
    check_sizes(both, known[:1])  # of which nothing is made yet


def test_a_date_that_lacks_a_dump_is_named(inputs, capsys):
    assert snapshots(inputs) == 0
    folder = inputs / "out"
    later = folder / "wikidata-20220101-all.json.gz"
    later.write_text("")
    capsys.readouterr()
    assert [s.date for s in find_all([str(folder)])] == ["20200101", "20210101"]
    said = "20220101 has no Wikipedia dump: it is left out until it is whole."
    assert said in capsys.readouterr().out
    later.unlink()
    (folder / "wikidata-20200101-all.json.gz").unlink()
    with pytest.raises(UserError, match="20200101 has no Wikidata dump, and that of 20210101 is"):
        find_all([str(folder)])


@pytest.mark.parametrize("field", ["key", "day"])
def test_a_version_has_an_id_and_a_date(inputs, capsys, field):
    lines = (inputs / "documents.jsonl").read_text().splitlines()
    for lacking in ({}, {field: ""}):
        row = {"key": "1", "day": NEW, "body": "x", **lacking}
        if not lacking:
            del row[field]
        (inputs / "documents.jsonl").write_text("\n".join([*lines, json.dumps(row)]) + "\n")
        assert snapshots(inputs) == 2
        said = capsys.readouterr().err
        assert f"line {len(lines) + 1}: the field '{field}' is missing or empty" in said
        assert not (inputs / "out" / "dumps.json").exists()


def test_snapshots_of_other_text_do_not_mix(inputs, capsys):
    assert snapshots(inputs, "--dates", f"{OLD},{NEW}") == 0
    before = {path.name: path.read_bytes() for path in (inputs / "out").iterdir()}
    (inputs / "documents.jsonl").rename(inputs / "other.jsonl")
    others = [f"--documents={inputs}/other.jsonl", "--dates", f"{NEW},2021-06-01"]
    assert snapshots(inputs, *others) == 2
    assert "choose another --out, or add --overwrite" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (inputs / "out").iterdir()} == before
    assert snapshots(inputs, *others, "--overwrite") == 0
    assert not any(path.exists() for path in dumps(inputs, OLD))
    assert all(path.exists() for path in (*dumps(inputs, NEW), *dumps(inputs, "2021-06-01")))
    listed = json.loads((inputs / "out" / "dumps.json").read_text())["dates"]
    assert [*listed] == ["20210101", "20210601"]


def test_later_snapshots_come_to_those_that_are_there(inputs):
    assert snapshots(inputs, "--dates", f"{OLD},{NEW}") == 0
    first = [path.read_bytes() for path in dumps(inputs, OLD)]
    assert snapshots(inputs, "--dates", "2021-06-01") == 0
    assert [path.read_bytes() for path in dumps(inputs, OLD)] == first
    listed = json.loads((inputs / "out" / "dumps.json").read_text())["dates"]
    assert [*listed] == ["20200101", "20210101", "20210601"]
