"""Two dumps to a diffset: the join, the filters, shards, resumption, bad input."""

import csv
import json

import pytest

pytest.importorskip("mwparserfromhell", reason="needs the extra `data`")
pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data import diffsets, wiki_xml
from ckl_jax.papers.temporalwiki.data.diffsets import (
    Options,
    build,
    join,
    plan,
    read_manifest,
    read_records,
)
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page, read_pages
from tests.papers.temporalwiki.data.dump_files import dump, page, write, write_multistream
from tests.real_data import wikipedia_excerpt

OLD = [
    page(1, "Same", "Same text."),
    page(2, "Edited", "One here. Two here.\n\nThree here."),
    page(4, "Gone", "It was here."),
    page(5, "Moved", "It moved.", sha1="s", revision=50),
    page(6, "Was redirect", "#REDIRECT [[X]]", redirect="X"),
    page(7, "Becomes redirect", "Text."),
    page(8, "Reshuffled", "A a is.\n\nB b is."),
    page(9, "Talk:X", "Old.", ns=1),
]
NEW = [
    page(1, "Same", "Same text."),
    page(2, "Edited", "Zero here.\n\nOne here. Too here.\n\nThree here.", revision=21),
    page(5, "Moved to", "It moved.", sha1="s", revision=51),
    page(6, "Was redirect", "Now an article.", revision=61),
    page(7, "Becomes redirect", "#REDIRECT [[X]]", redirect="X", revision=71),
    page(8, "Reshuffled", "B b is.\n\n'''A''' a is.", revision=81),
    page(9, "Talk:X", "New.", ns=1, revision=91),
    page(10, "New", "All new. Really.\n\nYes."),
    page(11, "List", "{{disambig}}"),
    page(12, "Empty", "{{x}}"),
]
EXPECTED = [
    (2, "Edited", "paragraph", "Zero here."),
    (2, "Edited", "sentences", "Too here."),
    (6, "Was redirect", "new", "Now an article."),
    (10, "New", "new", "All new. Really.\nYes."),
]
GONE = [
    (2, "Edited", "deleted", "Two here."),
    (4, "Gone", "deleted_page", "It was here."),
    (7, "Becomes redirect", "deleted_page", "Text."),
]


def numbered(pages):
    return [(int(p.split("<id>")[1].split("<")[0]), p) for p in pages]


@pytest.fixture
def dumps(tmp_path):
    names = ("enwiki-20200101.xml.bz2", "enwiki-20200201.xml.bz2")
    return [write(tmp_path / n, dump(p)) for n, p in zip(names, (OLD, NEW), strict=True)]


def rows(folder):
    return [(r["page_id"], r["title"], r["kind"], r["text"]) for r in read_records(folder)]


def test_what_is_new_and_why_the_rest_is_not(dumps, tmp_path):
    manifest = build(plan(*dumps, tmp_path / "out", Options()))
    assert rows(tmp_path / "out") == EXPECTED
    assert manifest["pages"] == {
        "same revision": 1,
        "changed": 1,
        "article gone: not in the new dump": 1,
        "same sha1": 1,
        "new article": 2,
        "article gone: redirect": 1,
        "no new text": 1,
        "namespace 1": 1,
        "disambiguation": 1,
        "no prose": 1,
    }
    assert manifest["articles"] == 3 and manifest["words"] == 11
    assert [manifest[d]["date"] for d in ("old", "new")] == ["20200101", "20200201"]
    with open(tmp_path / "out/wikipedia_20200101_20200201_subset.csv", newline="") as f:
        table = list(csv.reader(f))
    assert table[0] == ["id", "url", "title", "text"] and len(table) == 4
    assert table[1] == [
        "2",
        "https://en.wikipedia.org/wiki?curid=2",
        "Edited",
        "Zero here.\nToo here.",
    ]


def test_options(dumps, tmp_path):
    build(plan(*dumps, tmp_path / "a", Options(deletions=True)))
    assert sorted(rows(tmp_path / "a")) == sorted(EXPECTED + GONE)
    build(plan(*dumps, tmp_path / "b", Options(legacy=True)))
    assert [r[2:] for r in rows(tmp_path / "b")] == [
        ("new", "Now an article."),
        ("new", "All new. Really.Yes."),
    ]  # Edited has one known paragraph, so no text between two of them
    build(plan(*dumps, tmp_path / "c", Options(namespaces=(1,))))
    assert rows(tmp_path / "c") == [(9, "Talk:X", "paragraph", "New.")]


def test_shards_and_workers_give_the_same_records(tmp_path):
    old = write_multistream(tmp_path / "e-20200101-m.xml.bz2", numbered(OLD))
    new = write_multistream(tmp_path / "e-20200201-m.xml.bz2", numbered(NEW))
    todo = plan(old, new, tmp_path / "out", Options(shards=4))
    assert len(todo.shards) == 4
    assert build(todo, part=(0, 2)) is None and build(todo, workers=2, part=(1, 2)) is not None
    assert rows(tmp_path / "out") == EXPECTED
    parsed = build(plan(old, new, tmp_path / "one", Options(shards=1)), workers=2)
    assert rows(tmp_path / "one") == EXPECTED and parsed["articles"] == 3


@pytest.mark.parametrize("unsorted", [False, True])
def test_files_without_an_index_are_decoded_by_threads(tmp_path, monkeypatch, unsorted):
    paths = [
        write(tmp_path / f"e-2020010{i}.xml.bz2", dump(pages))
        for i, pages in enumerate((OLD, NEW), 1)
    ]
    asked, read = [], wiki_xml.read_blocks

    def read_blocks(path, start=0, stop=None, threads=1):
        asked.append(threads)
        return read(path, start, stop, threads)

    monkeypatch.setattr(wiki_xml, "read_blocks", read_blocks)
    for workers in (1, 2):
        todo = plan(*paths, tmp_path / str(workers), Options(unsorted=unsorted, shards=1))
        asked.clear()  # of the heads
        build(todo, workers=workers)
        assert asked == [workers] * 2
        assert sorted(rows(todo.out)) == EXPECTED
    files = [
        {p.name: p.read_bytes() for p in (tmp_path / n / "shards").glob("*.jsonl")} for n in "12"
    ]
    assert files[0] == files[1]
    # Shards of their own processes, each with one thread.
    indexed = [
        write_multistream(tmp_path / f"i-2020010{i}-m.xml.bz2", numbered(pages))
        for i, pages in enumerate((OLD, NEW), 1)
    ]
    todo = plan(*indexed, tmp_path / "indexed", Options(shards=4))
    asked.clear()
    build(todo, part=(0, 4))
    assert set(asked) == {1}


def test_unsorted_dumps_go_through_buckets(tmp_path):
    paths = [
        write(tmp_path / f"e-2020010{i}.xml", dump(pages[::-1]))
        for i, pages in enumerate((OLD, NEW), 1)
    ]
    with pytest.raises(UserError, match="add --unsorted"):
        build(plan(*paths, tmp_path / "out", Options()))
    todo = plan(*paths, tmp_path / "un", Options(unsorted=True, shards=3))
    build(todo)
    assert rows(tmp_path / "un") == EXPECTED and not (tmp_path / "un/sorted").exists()
    in_order = [
        write(tmp_path / f"f-2020010{i}.xml", dump(pages)) for i, pages in enumerate((OLD, NEW), 1)
    ]
    by_id = build(plan(*in_order, tmp_path / "by_id", Options(shards=3)))
    for name in (by_id["csv"], by_id["documents"]):
        assert (tmp_path / "un" / name).read_bytes() == (tmp_path / "by_id" / name).read_bytes()
    twice = write(
        tmp_path / "e-20200301.xml", dump([page(3, "A", "x"), page(2, "B", "y"), page(3, "C", "z")])
    )
    with pytest.raises(UserError, match="page id 3 .'C'. was there before"):
        build(plan(paths[0], twice, tmp_path / "tw", Options(unsorted=True)))


def test_finished_shards_are_kept_when_a_dump_is_damaged(tmp_path, monkeypatch):
    old = write_multistream(tmp_path / "e-20200101-m.xml.bz2", numbered(OLD))
    new = write_multistream(tmp_path / "e-20200201-m.xml.bz2", numbered(NEW))
    whole = new.read_bytes()
    todo = plan(old, new, tmp_path / "out", Options(shards=4))
    start = todo.new.spans[-1].start
    new.write_bytes(whole[: start + 40] + b"\0" * 40 + whole[start + 80 :])
    with pytest.raises(UserError, match="damaged near byte"):
        build(todo)
    done = sorted(p.name for p in (tmp_path / "out/shards").iterdir())
    assert len(done) == 6 and not any(".part" in name for name in done)
    new.write_bytes(whole)
    made = []
    real = diffsets.make_shard
    monkeypatch.setattr(diffsets, "make_shard", lambda *a, **k: made.append(a[1]) or real(*a, **k))
    build(todo)
    assert made == [3] and rows(tmp_path / "out") == EXPECTED


def test_a_folder_of_other_settings_is_refused(dumps, tmp_path):
    build(plan(*dumps, tmp_path / "out", Options()))
    with pytest.raises(UserError, match=r"begun with other settings \(options\)"):
        build(plan(*dumps, tmp_path / "out", Options(legacy=True)))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("x")
    with pytest.raises(UserError, match="not empty"):
        build(plan(*dumps, tmp_path / "mine", Options()))
    for out in (tmp_path / "mine/notes.txt", tmp_path / "mine/notes.txt/sub"):
        with pytest.raises(UserError, match="notes.txt is a file; give a folder as --out"):
            build(plan(*dumps, out, Options()))
    with pytest.raises(UserError, match="no finished diffset"):
        next(read_records(tmp_path / "mine"))


def test_the_join_has_every_page_once():
    old, new = [Page(i, "") for i in (1, 3, 5, 6)], [Page(i, "") for i in (2, 3, 6, 9)]
    found = [(a and a.id, b and b.id) for a, b in join(old, new)]
    assert found == [(1, None), (None, 2), (3, 3), (5, None), (6, 6), (None, 9)]


# --- real excerpts

PAIRS = [
    ("enwiki-20120104", "enwiki-20150112"),
    ("enwiki-20150112", "enwiki-20150305"),
    ("simplewiki-20190901", "simplewiki-20230820"),
]


@pytest.mark.parametrize("names", PAIRS, ids=" ".join)
def test_real_pages_are_all_accounted_for(names, tmp_path):
    paths = [wikipedia_excerpt(name) for name in names]
    manifest = build(plan(*paths, tmp_path / "out", Options(deletions=True)))
    pages = [{p.id: p for p in read_pages(path)} for path in paths]
    assert sum(manifest["pages"].values()) == len(set().union(*pages))
    texts = {}
    for record in read_records(tmp_path / "out"):
        texts.setdefault((record["page_id"], record["kind"].startswith("deleted")), []).append(
            record
        )
    for (number, gone), records in texts.items():
        raw = pages[0 if gone else 1][number].text
        words = {w for r in records for w in r["text"].split() if w.isascii() and w.isalpha()}
        missing = [w for w in words if w not in raw]  # every word stands in its version's wikitext
        assert len(missing) <= 0.02 * len(words), (number, missing[:9])


def test_the_users_templates_and_what_is_counted(tmp_path):
    table = tmp_path / "templates.txt"
    table.write_text("town = {1} (pop. 5)\n")
    text = "A is a thing. It is in {{town|Arlen}}. It is {{convert|5|km|mi}} off. It is {{x}} old."
    dumps = [
        write(tmp_path / f"e-2020010{i}.xml", dump([page(1, "A", t, revision=i)]))
        for i, t in enumerate(("A is a thing.", text), 1)
    ]
    todo = plan(*dumps, tmp_path / "out", Options(templates=str(table)))
    manifest = build(todo)
    (record,) = read_records(tmp_path / "out")
    assert record["text"] == "It is in Arlen (pop. 5). It is 5 kilometres off."
    assert manifest["templates"] == {"words of templates": 5, "sentences dropped": 1}
    assert manifest["edits"] == {"added": 2}
    table.write_text("town = {1}\n")
    with pytest.raises(UserError, match="other|templates"):
        build(plan(*dumps, tmp_path / "out", Options(templates=str(table))))


def test_a_folder_of_sorted_dumps_is_begun_anew_with_unsorted(tmp_path):
    dumps = [
        write(tmp_path / f"e-2020010{i}.xml", dump(pages[::-1]))
        for i, pages in enumerate((OLD, NEW), 1)
    ]
    with pytest.raises(UserError, match="add --unsorted"):
        build(plan(*dumps, tmp_path / "out", Options()))
    with pytest.raises(UserError, match="other settings"):
        build(plan(*dumps, tmp_path / "out", Options(unsorted=True, deletions=True)))
    build(plan(*dumps, tmp_path / "out", Options(unsorted=True)))
    assert rows(tmp_path / "out") == EXPECTED
    in_order = [
        write(tmp_path / f"f-2020010{i}.xml", dump(pages)) for i, pages in enumerate((OLD, NEW), 1)
    ]
    made = build(plan(*in_order, tmp_path / "finished", Options()))
    again = build(plan(*in_order, tmp_path / "finished", Options(unsorted=True)))
    assert again["words"] == made["words"] and rows(tmp_path / "finished") == EXPECTED


def test_a_damaged_diffset_is_named(tmp_path):
    dump = {"name": "simwiki.xml", "date": "20200601", "wiki": ""}
    found = {"format": 1, "files": ["a.jsonl"], "records": {"new": 2}, "new": dump, "old": None}
    found["options"] = {"deletions": False}
    damaged = [("format", None), ("records", {"new": "2"})]
    damaged += [("new", None), ("files", [7]), ("options", []), ("old", "x")]
    damaged += [("old", dump | {"date": 1.5}), ("options", found["options"] | {"templates": True})]
    for name, value in damaged:
        (tmp_path / "manifest.json").write_text(json.dumps({**found, name: value}))
        with pytest.raises(UserError, match=f"manifest.json: the field '{name}' has the value"):
            read_manifest(tmp_path)
    for name in ("a\0b", "../a.jsonl", "/a.jsonl"):
        (tmp_path / "manifest.json").write_text(json.dumps({**found, "files": [name]}))
        with pytest.raises(UserError, match="manifest.json: .* in 'files' is no name of a file"):
            read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(found))
    for record in ([], {"page_id": 1, "title": "", "kind": "new", "text": None}):
        (tmp_path / "a.jsonl").write_text(json.dumps(record))
        with pytest.raises(UserError, match="a.jsonl, record 1: .*make the diffset again"):
            list(read_records(tmp_path))
    record = {"page_id": 1, "title": "", "kind": "new", "text": "A text."}
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    with pytest.raises(UserError, match="hold 1 records, manifest.json counts 2; make the diffset"):
        list(read_records(tmp_path))
    (tmp_path / "manifest.json").write_text(json.dumps({**found, "format": 99}))
    with pytest.raises(UserError, match=r"another version \(format 99\)"):
        read_manifest(tmp_path)
