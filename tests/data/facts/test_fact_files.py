"""Names, kinds and bad input of files of facts."""

import json

import pytest

from ckl_jax.data.facts.fact_files import read_all, read_facts
from ckl_jax.errors import UserError


def write(path, *rows, head="subject,relation,object"):
    path.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    return path


def test_names_say_interval_and_class_and_the_file_beside_says_what_changed(tmp_path):
    path = write(tmp_path / "0801-0901_changed.csv", "Ann,mayor of,Rome", "Bob,club,NA", "X,y,z")
    assert [f.kind for f in read_facts(path).facts] == ["", "", ""]
    rows = [
        {
            "subject": "Ann",
            "relation": "mayor of",
            "object": "Rome",
            "kind": "updated",
            "old_objects": ["Bari"],
        },
        {"subject": "Bob", "relation": "club", "object": "NA", "kind": "new", "old_objects": []},
    ]
    beside = tmp_path / "0801-0901_changed.jsonl"
    beside.write_text("\n".join(map(json.dumps, rows)))
    file = read_facts(path)
    assert (file.name, file.interval, file.title) == ("0801-0901_changed", "0801-0901", "changed")
    assert [f.kind for f in file.facts] == ["updated", "new", ""]
    first = file.facts[0]
    assert (first.text, first.prompt, first.old_objects) == (
        "Ann mayor of Rome",
        "Ann mayor of",
        ("Bari",),
    )
    part = read_facts(write(tmp_path / "0801-0901_updated.csv", "Ann,mayor of,Rome"))
    assert (part.title, part.facts[0].kind, part.facts[0].old_objects) == (
        "changed",
        "updated",
        ("Bari",),
    )
    with pytest.raises(UserError, match="facts of 0801-0901_updated are given twice"):
        read_all([path, tmp_path / "0801-0901_updated.csv"])


def test_older_columns_repeats_and_files_without_a_class(tmp_path):
    path = write(tmp_path / "IL.csv", "A,b,c", "A,b,c", head="subject,relation,objective")
    file = read_facts(path)
    assert (file.interval, file.title) == ("IL", "")
    assert [f.id for f in file.facts] == ["A | b | c", "A | b | c (2)"]


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("0801-0901_chnged.csv", ["A,b,c"], "'chnged' is none of .*mean 'changed'"),
        ("0801-0901_new.csv", [], "has no facts"),
        ("0801-0901_new.csv", ["A,b,c", "A,b,"], "line 3: the object is empty; remove the line"),
        ("0801-0901_new.csv", ["A,b"], "line 2: 2 cells where"),
    ],
)
def test_bad_files_are_named(tmp_path, name, rows, message):
    with pytest.raises(UserError, match=message):
        read_facts(write(tmp_path / name, *rows))
    with pytest.raises(UserError, match="no column 'relation'"):
        read_facts(write(tmp_path / "x_new.csv", "a,b", head="subject,object"))
