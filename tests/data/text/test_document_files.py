import collections
import datetime
import gzip
import json
import os
import textwrap

import numpy as np
import pytest

from ckl_jax.data.text.document_files import Fields, read_place
from ckl_jax.errors import UserError


def texts(place, **fields):
    return [(d.date, d.title, d.text) for d in read_place(place, Fields(**fields))]


def test_json_lines_with_names_of_ones_own(tmp_path):
    path = tmp_path / "posts.jsonl.gz"
    rows = [{"body": "One.", "when": "2024-05-01T10:00:00Z", "head": "A"}, {"body": "Two."}]
    with gzip.open(path, "wt") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    os.utime(path, (86400, 86400))
    found = texts(path, text="body", date="when", title="head")
    assert found == [("2024-05-01", "A", "One."), ("1970-01-02", "", "Two.")]


def test_a_folder_of_text_markdown_and_csv(tmp_path):
    (tmp_path / "2024-02-03-note.md").write_text("# A title\n\nBody.")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.csv").write_text('date,title,text\n2024-01-01,T,"two\nlines"\n')
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    assert texts(tmp_path) == [
        ("2024-02-03", "A title", "# A title\n\nBody."),
        ("2024-01-01", "T", "two\nlines"),
    ]
    assert len({d.id for d in read_place(tmp_path)}) == 2


@pytest.mark.parametrize(
    "content, expected",
    [
        ("---\ntitle: 'A note'\ndate: 2024-05-06T07:08:09Z\ntags: [a]\n---\n# One\n\nB.", "A note"),
        ("---\ndate: 2024-05-06\n---\n# One\n\nB.", "One"),
    ],
)
def test_front_matter_says_date_and_title(tmp_path, content, expected):
    path = tmp_path / "2020-01-01-x.md"
    path.write_text(content)
    assert texts(path) == [("2024-05-06", expected, "# One\n\nB.")]
    path.write_bytes(b"\xef\xbb\xbf" + content.replace("\n", "\r\n").encode())
    assert texts(path) == [("2024-05-06", expected, "# One\n\nB.")]
    path.write_text(content.replace("date: 2024", "date: May"))
    with pytest.raises(UserError, match="x.md, 'date' of its front matter: 'May-05-06"):
        list(read_place(path))
    for text in ("---\nNo end of it.", "---\n\nOf two rules.\n\n---\n\nMore."):
        path.write_text(text)
        assert texts(path) == [("2020-01-01", "2020-01-01-x", text)]
    path.write_text('---\ntitle: The "Big One"\n---\nB.')
    assert texts(path) == [("2020-01-01", 'The "Big One"', "B.")]


def test_a_folder_within_that_cannot_be_read_is_not_skipped(tmp_path, monkeypatch):
    (tmp_path / "2024-01-02.txt").write_text("Read.")
    for name in ("within", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "2024-01-03.txt").write_text("Not to be read.")

    def refusing(listing):
        def listed(path="."):
            if os.path.basename(path) in ("within", ".hidden"):
                raise PermissionError(13, "Permission denied", path)
            return listing(path)

        return listed

    for name in ("listdir", "scandir"):  # which a superuser may read
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    with pytest.raises(UserError, match="Cannot read .*within: Permission denied"):
        list(read_place(tmp_path))
    monkeypatch.undo()
    assert [d.text for d in read_place(tmp_path)] == ["Read.", "Not to be read."]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": ["a"], "date": [datetime.date(2024, 1, 2)], "other": [1]})
    parquet.write_table(table, tmp_path / "x.parquet")
    assert texts(tmp_path / "x.parquet") == [("2024-01-02", "", "a")]
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(UserError, match=r"bad.parquet: it cannot be read as Parquet"):
        texts(tmp_path / "bad.parquet")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("x.jsonl", '{"body": "a"}', r"line 1: the field 'text' is missing .* there are 'body'"),
        ("x.jsonl", '{"text": "a", "date": "May"}', r"line 1, 'date': 'May' is not a day"),
        ("x.jsonl", '{"text": 5}', "line 1: the field 'text' is missing or not text"),
        ("x.jsonl", "[1]", "line 1: not an object"),
        ("x.jsonl", "{", "line 1"),
        ("x.csv", "a,b\n1,2\n", r"line 2: the field 'text' is missing"),
        ("x.txt", b"\xff\xfe", r"x.txt, line 1: not UTF-8 .the byte 0xff"),
        ("x.csv", "date,text\n2020-03-01,Berta, the queen.\n", "line 2: 3 cells where .* has 2"),
        ("x.csv", "text, text\na,b\n", "names the column 'text' twice"),
        ("x.csv", 'text\na\n"b\nc\n', r"x.csv, line 3: the row .* does not end"),
        ("x.doc", "a", r"x.doc is of no known kind; give .jsonl"),
        ("2024-13-01.txt", "a", r"its name: '2024-13-01' is not a day"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message):
        texts(tmp_path / name)


def test_fields_of_given_names_that_no_record_has(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "One."}\n{"text": "Two.", "day": "2026-01-02"}\n')
    found = list(read_place(path, Fields(date="day")))
    assert [d.date for d in found][1] == "2026-01-02"  # the first has the day of its file
    assert len(list(read_place(path))) == 2
    for names in ({"date": "when"}, {"title": "head"}):
        with pytest.raises(UserError, match=r"a.jsonl: no record has the field '(when|head)'"):
            list(read_place(path, Fields(**names)))


def test_null_is_no_text(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": null}\n{"text": "a"}\n')
    assert [document.text for document in read_place(tmp_path / "x.jsonl")] == ["", "a"]


def test_later_days_are_refused_and_documents_without_one_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"text": "One.", "day": "2024-05-01"},
        {"text": "Two."},
        {"text": "3", "day": "2031-01-01"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (86400, 86400))
    (tmp_path / "2024-02-03.txt").write_text("Text.")
    undated = collections.Counter()
    fields = Fields(date="day")
    assert len(list(read_place(tmp_path, fields, latest="2031-01-01", undated=undated))) == 4
    assert undated == {str(path): 1}
    with pytest.raises(UserError, match="a.jsonl, line 3, 'day': 2031-01-01 is after today"):
        list(read_place(tmp_path, fields, latest="2030-12-31"))
    with pytest.raises(UserError, match="2024-02-03.txt, its date: 2024-02-03 is after today"):
        list(read_place(tmp_path, fields, latest="2024-02-02"))


def test_places_without_documents(tmp_path):
    with pytest.raises(UserError, match="holds no documents"):
        texts(tmp_path)
    with pytest.raises(UserError, match="There is no file or folder"):
        texts(tmp_path / "missing")


def test_parquet_that_expands_to_gigabytes_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    whole = pyarrow.array(["a" * (1 << 20)] * 17)
    longer = pyarrow.array(["short", "a" * (1 << 24) + "a"])  # over the limit of a record
    for name, text in (("many", pyarrow.array(["ab" * (1 << 23)] * 20)), ("long", longer)):
        table = pyarrow.table({"text": text})
        plain = {"compression": "zstd", "use_dictionary": False}
        parquet.write_table(table, tmp_path / f"{name}.parquet", **plain)
    with pytest.raises(UserError, match=r"many.parquet: .*expands to 33\d,\d+,\d+ bytes"):
        texts(tmp_path / "many.parquet")
    with pytest.raises(UserError, match=r"long.parquet, row 2: it is longer than 16,777,216 bytes"):
        texts(tmp_path / "long.parquet")
    # Equal values are stored once: what they expand to is no larger than a batch.
    parquet.write_table(pyarrow.table({"text": whole}), tmp_path / "equal.parquet")
    assert len(texts(tmp_path / "equal.parquet")) == 17


def test_what_python_cannot_hold_is_told_with_its_rows(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    days = pyarrow.array([0, 2**31 - 1], pyarrow.int32()).cast(pyarrow.date32())
    parquet.write_table(
        pyarrow.table({"text": ["A.", "B."], "date": days}), tmp_path / "days.parquet"
    )
    with pytest.raises(UserError, match="days.parquet, rows 1 to 2: it cannot be read as Parquet"):
        list(read_place(tmp_path / "days.parquet"))


def test_a_table_of_equal_rows_that_expands_to_gigabytes_is_refused(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from ckl_jax.data.facts.tables import table_rows

    count = 50_000
    texts = pyarrow.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["x" * 20_000])
    parquet.write_table(
        pyarrow.table({"sub_label": texts, "obj_label": texts}), tmp_path / "P.parquet"
    )
    assert (tmp_path / "P.parquet").stat().st_size < 100_000
    with pytest.raises(UserError, match="row .*: it expands to 268,.* it does not fit into memory"):
        for _ in table_rows(tmp_path / "P.parquet"):
            pass


def test_text_that_was_wrapped_has_a_line_for_each_paragraph(tmp_path):
    paragraphs = [
        "Harrion is a firm that makes lamps and clocks in a town by the sea, and has done so since "
        "its two founders met there in the spring of a cold year.",
        "At Harrion, Yuri Duval runs the company, which has a hall of its own for each of its many "
        "kinds of lamps.",
    ]
    (tmp_path / "wrapped.txt").write_text("\n\n".join(textwrap.fill(p, 60) for p in paragraphs))
    (document,) = read_place(tmp_path / "wrapped.txt")
    assert document.text == "\n\n".join(paragraphs)
    # Of Markdown, with Windows' line ends; short items, headings and long lines are no paragraphs.
    first, second = paragraphs
    item = textwrap.fill(second, 60, initial_indent="- ", subsequent_indent="  ")
    quoted = textwrap.fill(first, 60, initial_indent="> ", subsequent_indent="> ")
    wrapped = ["# News", textwrap.fill(first, 60), "", "http://" + 99 * "x", "", "- Item one"]
    text = "\n".join([*wrapped, "- Item two", item, "", quoted])
    (tmp_path / "wrapped.md").write_bytes(text.replace("\n", "\r\n").encode())
    (document,) = read_place(tmp_path / "wrapped.md")
    kept = [line for line in document.text.split("\n") if line and "http" not in line]
    said = [first, "- Item one", "- Item two", f"- {second}", f"> {first}"]
    assert kept[-5:] == said and "http" in document.text
    lines = "A list of all of the things that we have to do today:\nbread\nmilk\nhoney\n\nThe end."
    (tmp_path / "lines.txt").write_text(lines)
    (document,) = read_place(tmp_path / "lines.txt")
    assert document.text == lines
