"""Dumps of all versions are read page by page; bad ones are one sentence with file, line, byte."""

import bz2
import os
import re
import tracemalloc
import xml.etree.ElementTree as ElementTree

import pytest

from ckl_jax.data.compressed import BLOCK_BYTES, read_blocks
from ckl_jax.errors import UserError
from ckl_jax.papers.temporalwiki.data.dumps import (
    check_pair,
    date_of,
    id_ranges,
    open_dump,
    wiki_of,
)
from ckl_jax.papers.temporalwiki.data.wiki_xml import Page, read_pages, read_site
from tests.papers.temporalwiki.data.dump_files import dump, page, write, write_multistream
from tests.real_data import FOLDER

EXCERPTS = sorted((FOLDER / "wikipedia").glob("*.xml.bz2"))


@pytest.mark.parametrize("name", ["d.xml", "d.xml.gz", "d.xml.bz2"])
def test_a_page_as_written(tmp_path, name):
    text = 'It\'s <b>bold</b> & "quoted" – ‘text’\n\n' * 50_000  # larger than a block
    path = write(tmp_path / name, dump([page(7, "A & B", text, ns=4, revision=99, sha1="abc")]))
    assert list(read_pages(path)) == [
        Page(7, "A & B", 4, "", 99, "2020-01-01T00:00:00Z", "abc", "wikitext", text, 3)
    ]
    site = read_site(path)
    assert (site.dbname, site.language, site.version) == ("enwiki", "en", "0.10")
    assert site.url == "https://en.wikipedia.org/wiki?curid=" and len(site.url) == 36


def test_old_versions_have_no_ns_and_no_redirect_element(tmp_path):
    pages = [
        page(1, "Talk:A", "x"),
        page(2, "B: the film", "y"),
        page(3, "C", "#REDIRECT [[D#e|f]]"),
        page(4, "E", "# redirect numbering is a list"),
    ]
    text = re.sub("<ns>.*</ns>\n|<model>.*</format>\n", "", dump(pages, version="0.3"))
    found = list(read_pages(write(tmp_path / "d.xml", text)))
    assert [p.namespace for p in found] == [1, 0, 0, 0]
    assert [p.redirect for p in found] == ["", "", "D", ""]
    bare = re.sub("<siteinfo>.*</siteinfo>| xmlns=\\S+| version=\\S+", "", text)
    assert [p.namespace for p in read_pages(write(tmp_path / "e.xml", bare))] == [1, 0, 0, 0]


def test_version_0_11_has_content_slots_and_deleted_texts(tmp_path):
    slots = (
        "<origin>9</origin><model>wikitext</model><text bytes='1' sha1='zz'>main</text>"
        "<content><role>mediainfo</role><model>json</model><text>{}</text></content>"
    )
    text = dump([page(1, "A", "x"), page(2, "B", "x")], version="0.11")
    text = re.sub("<text.*?</text>", slots, text, count=1)
    text = re.sub("<text xml.*?</text>", '<text deleted="deleted" />', text)
    first, second = read_pages(write(tmp_path / "d.xml", text))
    assert (first.text, first.sha1, first.model) == ("main", "zz", "wikitext")
    assert second.text == "" and second.revision == 20


def test_the_last_of_many_revisions_counts(tmp_path):
    xml = page(1, "A", "old", revision=5).replace(
        "</page>",
        "<revision><id>6</id><text>new</text></revision><upload><id>8</id></upload></page>",
    )
    (found,) = read_pages(write(tmp_path / "d.xml", dump([xml])))
    assert (found.id, found.revision, found.text, found.timestamp) == (1, 6, "new", "")


@pytest.mark.skipif(not EXCERPTS, reason="needs the real excerpts: set CKL_DATA")
@pytest.mark.parametrize("path", EXCERPTS, ids=lambda p: p.name)
def test_real_pages_as_another_parser_reads_them(path):
    found = list(read_pages(path))
    root = ElementTree.fromstring(bz2.open(path).read())
    ns = root.tag.removesuffix("mediawiki")
    expected = root.findall(f"{ns}page")
    assert [p.title for p in found] == [e.find(f"{ns}title").text for e in expected]
    for ours, theirs in zip(found, expected, strict=True):
        revision = theirs.findall(f"{ns}revision")[-1]
        assert ours.text == (revision.find(f"{ns}text").text or "")
        assert ours.revision == int(revision.find(f"{ns}id").text)
        assert ours.timestamp == revision.find(f"{ns}timestamp").text
        assert (theirs.find(f"{ns}redirect") is not None) <= bool(ours.redirect)
        if theirs.find(f"{ns}ns") is not None:
            assert ours.namespace == int(theirs.find(f"{ns}ns").text)


def test_memory_does_not_grow_with_the_dump(tmp_path):
    text = "word " * 40_000
    path = write(tmp_path / "d.xml", dump(page(i, f"T{i}", text) for i in range(1, 120)))
    assert path.stat().st_size > 23e6
    tracemalloc.start()
    assert sum(1 for _ in read_pages(path)) == 119
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 6e6


@pytest.mark.parametrize("name", ["a.bz2", "a.gz"])
def test_what_compresses_too_well_comes_in_bounded_blocks(name, tmp_path):
    sizes = [len(b) for b in read_blocks(write(tmp_path / name, "0" * 20_000_000))]
    assert sum(sizes) == 20_000_000 and max(sizes) <= 4 * BLOCK_BYTES


# --- parts


def test_a_multistream_file_is_read_in_parts(tmp_path):
    numbers = [3, 4, 9, 12, 20, 21, 30]
    pages = [(n, page(n, f"T{n}", "x" * n)) for n in numbers]
    path = write_multistream(tmp_path / "enwiki-20200101-multistream.xml.bz2", pages)
    found = open_dump(path)
    assert [s.first for s in found.spans] == [3, 9, 20, 30] and found.date == "20200101"
    assert [p.id for p in found.pages()] == numbers
    for low, high in [(0, 4), (4, 10), (10, 21), (21, None)]:
        expected = [n for n in numbers if n >= low and (high is None or n < high)]
        assert [p.id for p in found.pages(low, high)] == expected
    ranges = id_ranges(found, 3)
    assert len(ranges) == 3 and ranges[0][0] == 0 and ranges[-1][1] is None
    assert [p.id for r in ranges for p in found.pages(*r)] == numbers
    assert id_ranges(open_dump(write(tmp_path / "d.xml", dump([]))), 5) == [(0, None)]


def test_a_folder_of_parts_is_one_dump(tmp_path):
    for first, last in [(10, 19), (1, 9)]:
        xml = [page(n, f"T{n}", "x") for n in (first, last)]
        write(tmp_path / f"enwiki-20200101-pages-articles.xml-p{first}p{last}.bz2", dump(xml))
    found = open_dump(tmp_path)
    assert [p.id for p in found.pages()] == [1, 9, 10, 19] and found.date == "20200101"
    assert [p.id for p in found.pages(10)] == [10, 19]
    write(tmp_path / "other.xml", dump([]))
    with pytest.raises(UserError, match="other.xml is one of several"):
        open_dump(tmp_path)


@pytest.mark.parametrize(
    "name, date",
    [
        ("enwiki-20150112-pages-articles.xml.bz2", "20150112"),
        ("wikidata-201412-excerpt", "20141201"),
        ("2015-03-01-all.json.gz", "20150301"),
        ("enwiki-latest-pages.xml", ""),
        ("p1p41242", ""),
    ],
)
def test_dates_in_names(name, date):
    assert date_of(name) == date


# --- bad input


def complaint(path):
    with pytest.raises(UserError) as e:
        list(open_dump(path).pages())
    assert str(path) in str(e.value) and "\n" not in str(e.value)
    return str(e.value)


@pytest.mark.parametrize(
    "name, wiki",
    [
        ("enwiki-20120104-pages-articles.xml.bz2", "enwiki"),
        ("be_x_oldwiki-latest-a", "be_x_oldwiki"),
        ("dewiktionary-20200101-p.xml", "dewiktionary"),
        ("enwiki.xml", ""),
        ("old-20120104.xml", ""),
    ],
)
def test_wikis_in_names(name, wiki):
    assert wiki_of(name) == wiki


def test_cut_and_damaged_files(tmp_path):
    text = dump([page(i, f"T{i}", str(i) * 5000) for i in range(1, 40)])
    for name in ("a.xml.bz2", "a.xml.gz"):
        path = write(tmp_path / name, text)
        path.write_bytes(path.read_bytes()[:-20])
        assert "stop at byte" in complaint(path) and "truncated" in complaint(path)
    data = bytearray(write(tmp_path / "b.xml.bz2", text).read_bytes())
    data[len(data) // 2] ^= 255
    (tmp_path / "b.xml.bz2").write_bytes(data)
    assert "damaged near byte" in complaint(tmp_path / "b.xml.bz2")
    for end, inside in ((5, ""), (-600, " inside page 'T39'")):
        cut = text[: text.index("</mediawiki>")] if end == 5 else text[:end]
        assert f"stops{inside}, before its end" in complaint(write(tmp_path / "c.xml", cut))
    broken = text.replace("<ns>0</ns>", "<ns>", 1)
    assert "line 16" in complaint(write(tmp_path / "d.xml", broken))
    for name, nothing in (("e.xml", ""), ("h.xml.bz2", ""), ("i.xml", "\n \n")):
        path = write(tmp_path / name, nothing)
        assert complaint(path).startswith(f"{path} is empty: there is no XML in it;")
    assert "root element is <html>" in complaint(write(tmp_path / "f.xml", "<html></html>"))
    assert "line 1 (byte" in complaint(write(tmp_path / "g.xml", "{}"))


def test_entity_bombs_are_refused_before_they_are_read(tmp_path):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    path = write(tmp_path / "d.xml", bomb + "]>" + dump([page(1, "A", "x")]).replace("x", "&i;"))
    assert "document type" in complaint(path)
    outside = '<!DOCTYPE x SYSTEM "file:///etc/passwd">'
    assert "document type" in complaint(write(tmp_path / "e.xml", outside + dump([])))


def test_page_ids_grow(tmp_path):
    twice = [page(1, "A", "x"), page(1, "B", "y")]
    assert "page id 1 ('B') was there before, in line 3 ('A')" in complaint(
        write(tmp_path / "d.xml", dump(twice))
    )
    order = [page(2, "A", "x"), page(1, "B", "y")]
    assert "add --unsorted" in complaint(write(tmp_path / "e.xml", dump(order)))
    lacks = page(1, "A", "x").replace("<id>1</id>", "")
    assert "lacks <id>" in complaint(write(tmp_path / "f.xml", dump([lacks])))


def test_an_index_of_another_file_is_noticed(tmp_path):
    pages = [(n, page(n, "T", "x")) for n in range(1, 9)]
    path = write_multistream(tmp_path / "d-multistream.xml.bz2", pages)
    index = tmp_path / "d-multistream-index.txt.bz2"
    index.write_bytes(bz2.compress(b"12:1:A\nno line\n"))
    with pytest.raises(UserError, match="line 2: not 'offset"):
        open_dump(path)
    index.write_bytes(bz2.compress(b"12:5:A\n99999999:7:B\n"))
    with pytest.raises(UserError, match="is not the index of"):
        open_dump(path)
    other = [(n, page(n, "T", "xyz" * n)) for n in range(1, 9)]
    theirs = write_multistream(tmp_path / "e-multistream.xml.bz2", other)
    index.write_bytes((tmp_path / "e-multistream-index.txt.bz2").read_bytes())
    said = complaint(path)
    assert "index is another dump's; fetch both again" in said
    for found, shift in ((theirs, 1), (theirs, 0)):  # no stream begins there; one is not whole
        starts = [span.start + shift for span in open_dump(found).spans]
        with pytest.raises(UserError, match="the file is cut off|damaged near byte") as e:
            list(read_blocks(found, starts[1], starts[2] - 5))
        assert "or its index is another dump's" in str(e.value)


def test_pairs_in_the_wrong_order_or_of_two_wikis(tmp_path):
    def make(name, **options):
        time = options.pop("time", "2020-01-01T00:00:00Z")
        return open_dump(write(tmp_path / name, dump([page(1, "A", "x", time=time)], **options)))

    old, new = make("enwiki-20200101.xml"), make("enwiki-20200201.xml")
    check_pair(old, new)
    with pytest.raises(UserError, match="newer than the new one"):
        check_pair(new, old)
    with pytest.raises(UserError, match="of the same date as"):
        check_pair(new, new)
    with pytest.raises(UserError, match="dump of enwiki and .* of dewiki"):
        check_pair(old, make("dewiki-20200201.xml", dbname="dewiki"))
    bare = dump([page(1, "A", "x")]).partition("<siteinfo>")
    bare = bare[0] + bare[2].partition("</siteinfo>")[2]
    names = ("dewiki-20120104-pages.xml", "enwiki-20120104-pages.xml", "old-20120104.xml")
    german, english, unknown = (open_dump(write(tmp_path / name, bare)) for name in names)
    assert [d.wiki for d in (german, english, unknown, old)] == ["dewiki", "enwiki", "", "enwiki"]
    with pytest.raises(UserError, match="dump of dewiki and .* of enwiki"):
        check_pair(german, old)
    check_pair(english, old)
    check_pair(unknown, old)
    nameless = dump([page(1, "A", "x")], dbname="")
    hosts = [nameless, nameless.replace("//en.", "//de.")]
    hosts = [open_dump(write(tmp_path / f"h{i}.xml", text)) for i, text in enumerate(hosts)]
    with pytest.raises(UserError, match="dump of en.wikipedia.org and .* of de.wikipedia.org"):
        check_pair(*hosts)
    late = make("x.xml", time="2021-01-01T00:00:00Z")
    check_pair(old, late)
    with pytest.raises(UserError, match="were edited after those of"):
        check_pair(late, new)
    with pytest.raises(UserError, match="There is no dump"):
        open_dump(tmp_path / "absent")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="it is a pipe or a device"):
        open_dump(tmp_path / "pipe")
