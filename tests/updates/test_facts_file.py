"""Questions of the user's own."""

import json
import types

import pytest

from ckl_jax.errors import UserError
from ckl_jax.updates import facts_file, items, records

ROWS = """question,answer,date,relation,aliases
The head of government of Japan is ____.,Fumio Kishida,2021-10-04,head,F. Kishida
The head of government of Japan is ____.,Shigeru Ishiba,2024-10,head,
The head of government of Malta is ____.,Robert Abela,2020,head,Mr Abela|R. Abela
The head of government of Latvia is ____.,Evika Silina,2024-11-02,head,
The capital of Japan is ____.,Tokyo,,capital,
The capital of Malta is ____.,Valletta,,capital,
The head of government of Poland is ____.,Someone Later,2025-06-01,head,
"""


def write(folder, text, name="facts.csv"):
    path = folder / name
    path.write_text(text)
    return path


def made(path, limit=9):
    found = facts_file.items(facts_file.read(path), "2024-09-01", "2024-12-31", limit)
    return {item.question: item for item in found}


def test_dates_tell_what_is_new_changed_and_kept(tmp_path):
    found = made(write(tmp_path, ROWS)).values()
    assert {(item.answer, item.tag, item.old) for item in found} == {
        ("Tokyo", "kept", ""),
        ("Valletta", "kept", ""),
        ("Robert Abela", "kept", ""),
        ("Evika Silina", "new", ""),
        ("Shigeru Ishiba", "changed", "Fumio Kishida"),
    }


def test_wrong_answers_are_of_the_same_relation_and_no_other_names(tmp_path):
    found = made(write(tmp_path, ROWS.replace("Evika Silina", "R. Abela")))
    for question, item in found.items():
        assert item.text == question.replace("____", item.answer)
        assert item.text[item.start : item.end] == item.answer == item.candidates[0]
        assert len({*item.candidates}) == len(item.candidates) > 1
        assert ("Tokyo" in item.candidates) == ("capital" in question)
    malta = next(i for i in found.values() if i.answer == "Robert Abela")
    assert "R. Abela" not in malta.candidates and "Fumio Kishida" in malta.candidates


def test_questions_beyond_the_positions_take_no_place(tmp_path):
    read = facts_file.read(write(tmp_path, ROWS))
    letters = types.SimpleNamespace(encode_many=lambda texts: [[1] * len(texts[0])])
    positions = items.Positions(types.SimpleNamespace(max_positions=34), letters)
    fits = positions.hold_item
    found = facts_file.items(read, "2024-09-01", "2024-12-31", 2, fits=fits)
    # "The capital of Japan is Valletta." has 33 letters, and a first and a last token 35.
    assert found == [] and positions.too_long
    positions = items.Positions(types.SimpleNamespace(max_positions=35), letters)
    found = facts_file.items(read, "2024-09-01", "2024-12-31", 2, fits=positions.hold_item)
    assert {item.answer for item in found} == {"Tokyo", "Valletta"}
    assert all(text.startswith("The head of government") for text in positions.too_long)
    measured = records.overlap(found, (), ()) | positions.left_out
    said = f"{len(positions.too_long)} more are longer than the model's 35 positions and are not"
    assert said in records.described(measured)


def test_an_answer_that_only_changed_its_name_is_kept(tmp_path):
    rows = """question,answer,date,aliases
Burma's name is ____.,Burma,2001-01-01,
Burma's name is ____.,Myanmar,2024-10-01,Burma
Another is ____.,Peru,,
"""
    assert made(write(tmp_path, rows))["Burma's name is ____."].tag == "kept"


def test_limits_hold_for_each_kind(tmp_path):
    assert sorted(i.tag for i in made(write(tmp_path, ROWS), limit=1).values()) == [
        "changed",
        "kept",
        "new",
    ]


def test_json_lines_and_a_relational_dataset(tmp_path):
    rows = [
        {"question": "Paris is in _X_.", "answer": "France", "aliases": ["the Republic"]},
        {"question": "Rome is in _X_.", "answer": "Italy"},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "facts.jsonl")
    assert {i.answer for i in made(path).values()} == {"France", "Italy"}
    folder = tmp_path / "data"
    folder.mkdir()
    relation = {"templates": ["[X] is in [Y]."]}
    (folder / "metadata_relations.json").write_text(json.dumps({"P1": relation}))
    lines = [
        {"sub_label": "paris", "obj_label": "France", "sub_id": "1", "obj_id": "a"},
        {"sub_label": "rome", "obj_label": "Italy", "sub_id": "2", "obj_id": "b"},
    ]
    write(folder, "\n".join(map(json.dumps, lines)), "P1.jsonl")
    found = made(folder)
    assert {(q, i.answer, i.tag) for q, i in found.items()} == {
        ("Paris is in ____.", "France", "kept"),
        ("Rome is in ____.", "Italy", "kept"),
    }


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("question,answer\nA is _X_.,\n", "line 2: the field 'answer' is missing or empty"),
        ("question,reply\nA is _X_.,b\n", "there: 'question', 'reply'"),
        ("question,answer\nA is b.,b\n", "line 2: the statement 'A is b.' has no blanks"),
        ("question,answer,date\nA is _X_.,b,May\n", "line 2: the field 'date' is 'May'"),
        ("question,answer,date\nA is _X_.,b,2024-13-01\n", "'2024-13-01'"),
        ("question,answer\n", "holds no facts"),
        ("question,answer\nA _X_.,b\nA _X_.,c\n", "'A ____.' has two answers without a date, 'b'"),
        ("question,answer,date\nA _X_.,b,2024\nA _X_.,c,2024-01-01\n", "two answers of 2024-01-01"),
    ],
)
def test_bad_rows_are_told_with_line_and_field(tmp_path, rows, told):
    with pytest.raises(UserError, match="facts.csv") as complaint:
        facts_file.read(write(tmp_path, rows))
    assert told in str(complaint.value)


def claim(item, start="", end="", rank="normal"):
    qualifiers = {}
    for name, day in (("P580", start), ("P582", end)):
        value = {"time": f"+{day}T00:00:00Z", "precision": 11}
        if day:
            qualifiers[name] = [{"snaktype": "value", "datavalue": {"value": value}}]
    value = {"entity-type": "item", "id": item}
    data = {"type": "wikibase-entityid", "value": value}
    snak = {"snaktype": "value", "property": "P6", "datavalue": data}
    return {"mainsnak": snak, "rank": rank, "qualifiers": qualifiers}


HEADS = {
    "Japan": [
        claim("Q91", "2024-10-01", rank="preferred"),
        claim("Q90", "2021-10-04", "2024-10-01"),
    ],
    "Malta": [claim("Q92", "2020-01-13")],
    "Twice": [claim("Q90", "2020-01-13"), claim("Q91", "2021-01-13")],  # at a time
    "Over": [claim("Q90", "2020-01-13", "2021-01-13")],
    "Nameless": [claim("Q99", "2020-01-13")],
    "Namesake": [claim("Q90", "2020-01-13")],
    "Q90": [claim("Q92", "2020-01-13")],
}


def test_a_wikidata_dump_says_who_held_an_office_when(tmp_path):
    names = {"Q90": "Fumio Kishida", "Q91": "Shigeru Ishiba", "Q92": "Robert Abela"}
    rows = [(f"Q{n}", name, claims) for n, (name, claims) in enumerate(HEADS.items(), 1)]
    rows += [("Q80", "Namesake", HEADS["Malta"]), *((id, name, []) for id, name in names.items())]
    lines = [
        json.dumps({"id": id, "labels": {"en": {"value": name}}, "claims": {"P6": claims}})
        for id, name, claims in rows
    ]
    dump = write(tmp_path, "[\n" + ",\n".join(lines) + "\n]\n", "dump.json")
    found = made(dump)
    assert {(q, item.answer, item.tag, item.old) for q, item in found.items()} == {
        ("The head of government of Japan is ____.", "Shigeru Ishiba", "changed", "Fumio Kishida"),
        ("The head of government of Malta is ____.", "Robert Abela", "kept", ""),
        ("The head of government of Q90 is ____.", "Robert Abela", "kept", ""),
    }
    with pytest.raises(UserError, match="has no facts of P19, P20, P279 and 37 other relations"):
        facts_file.read(write(tmp_path, "[\n" + lines[-1] + "\n]\n", "none.json"))
