"""The forms in which dated facts and wordings come, real ones too."""

import csv
import dataclasses
import gzip
import json

import pytest

pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.data.facts import templates
from ckl_jax.data.facts.dated_facts import read_dated_facts
from ckl_jax.data.facts.fact_probes import Period
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl.data import benchmark
from tests.papers.mind_the_gap.data.dated_rows import YEAR, fact_row
from tests.real_data import shared_data


def test_the_forms_of_real_facts():
    period = Period("2021-12-30", "2023-12-30")
    trex = list(read_dated_facts([shared_data("probes", "pararel", "trex")]))
    assert len(trex) == 14263 and all(f.holds(period.before) for f in trex)
    wikidata = shared_data("probes", "wikidata-facts-2021-2023-2024.jsonl.gz")
    facts = read_dated_facts([wikidata])
    poland = [f for f in facts if f.subject == "Poland" and f.relation == "P6"]
    assert [(f.object, f.holds(period.before), f.holds(period.after)) for f in poland] == [
        ("Mateusz Morawiecki", True, False),
        ("Donald Tusk", False, True),
    ]
    terms = list(read_dated_facts([shared_data("probes", "dyknow-dated-facts.jsonl")]))
    holders = [f for f in terms if f.relation == "Prime Minister of Italy"]
    assert [f.object for f in holders if f.holds("2015-06-01")] == ["Matteo Renzi"]
    assert holders[0].cloze == "The Prime Minister of Italy is [Y]."


def test_tables_of_offices_and_facts_without_ids(tmp_path):
    (tmp_path / "terms.csv").write_text(
        "role,place,holder,start,end,aliases\nmayor,Oslo,Ann,2015-01-01,2019-00-00,Anna;A.\n"
        "mayor,Oslo,Ben,,2015-01-01,\n"
    )
    (tmp_path / "facts.jsonl").write_text('{"subject": "Oslo", "relation": "P6", "object": "Ann"}')
    ann, ben, fact = read_dated_facts([tmp_path / "terms.csv", tmp_path / "facts.jsonl"])
    assert ann.answers == ("Ann", "Anna", "A.") and ann.cloze == "The mayor of [X] is [Y]."
    assert (ann.holds("2018-12-31"), ann.holds("2019-05-01"), ann.holds("2020-01-01")) == (
        True,
        None,
        False,
    )
    assert ben.holds("2014-01-01") is None and not ben.holds("2015-01-01")
    assert (fact.subject, fact.object, fact.subject_id) == ("Oslo", "Ann", "Oslo")


def test_a_table_of_facts_is_read_as_its_lines_of_json(tmp_path):
    rows = [
        fact_row("A", "B", "2020", object_aliases=["b", "c"]),
        fact_row("C", "D", end="2021-01-02"),
    ]
    (tmp_path / "facts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = list(dict.fromkeys(name for row in rows for name in row))
    with gzip.open(tmp_path / "facts.csv.gz", "wt", newline="") as f:
        writer = csv.DictWriter(f, names)
        writer.writeheader()
        writer.writerows(
            {k: ";".join(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows
        )
    lines, cells = (
        [dataclasses.replace(fact, where="") for fact in read_dated_facts([tmp_path / name])]
        for name in ("facts.jsonl", "facts.csv.gz")
    )
    assert lines == cells and lines[0].answers == ("B", "b", "c")
    (tmp_path / "bad.csv").write_text(
        "subject_name,relation,object_name,subject,object\n,P36,Paris,Q1,Q2\n"
    )
    with pytest.raises(UserError, match="bad.csv, line 2: the field 'subject_name' is ''"):
        list(read_dated_facts([tmp_path / "bad.csv"]))
    (tmp_path / "terms.csv").write_text("role,place,holder,start,end\nmayor,,Ann,2021-01-01,\n")
    with pytest.raises(UserError, match="terms.csv, line 2: the field 'place' is ''"):
        list(read_dated_facts([tmp_path / "terms.csv"]))


GOOD, SNAPSHOT = fact_row("A", "B"), '{"subject": "A", "relation": "P6", "objects": '
BAD = (
    ("{", "line 1: not JSON"),
    ("[]", "line 1: give an object, not a list"),
    ('{"a": 1}', "line 1: this is not a fact: none of the fields 'subject_name', 'sub_label'"),
    (json.dumps(GOOD) + "\n" + json.dumps(GOOD | {"object_name": " "}), "line 2: the field 'obje"),
    (json.dumps(GOOD | {"valid_from": "soon"}), "field 'valid_from': 'soon' is not of the form"),
    (json.dumps(GOOD | {"valid_from": "2021-02-30"}), "'2021-02-30' is not of the form YYYY-MM-DD"),
    (json.dumps(GOOD | {"valid_from": "2021", "valid_to": "2020"}), "'valid_to' 2020 is before"),
    (
        '{"subject": "A", "relation": "P6", "object": "B", "start": "2020", "end": "2021"}',
        "line 1: name the dates of the fact 'valid_from' and 'valid_to'",
    ),
    (
        '{"subject": "A", "relation": "P6", "object": "B", "date": "2020-01-01"}',
        "line 1: name the dates of the fact 'valid_from' and 'valid_to'",
    ),
    (
        '{"subject": "A", "relation": "P6", "object": "B", "start_date": "2020", "end_date": ""}',
        "line 1: name the dates of the fact 'valid_from' and 'valid_to', not 'start_date'",
    ),
    (
        '{"subject": "A", "relation": "P6", "object": "B", "valid_from": "2020", "Until": "2021"}',
        "line 1: name the dates of the fact 'valid_from' and 'valid_to', not 'Until'",
    ),
    (json.dumps(GOOD | {"kind": "ivnariant"}), "line 1: 'kind' is 'ivnariant'; it is one of"),
    (json.dumps(GOOD | {"object_aliases": "C"}), "'object_aliases' is 'C'; give a list"),
    (SNAPSHOT + '{"May": [["Q1", "B"]]}}', "'May' in 'objects'"),
    (SNAPSHOT + '{"2021-01-01": ["B"]}}', "is not [[id, name]"),
    ('{"subject": "A", "answers": [{"name": "B", "start": "x"}], "prompts": {}}', "answer 1, fie"),
    ("", "has no facts; leave it out"),
)


@pytest.mark.parametrize("text, expected", BAD)
def test_bad_facts_are_named_by_file_line_and_field(tmp_path, text, expected):
    path = tmp_path / "facts.jsonl"
    path.write_text(text)
    with pytest.raises(UserError) as info:
        benchmark.build([path], [], YEAR, tmp_path / "out")
    assert expected in str(info.value) and str(path) in str(info.value)
    assert not (tmp_path / "out").exists() and len(list(tmp_path.iterdir())) == 1


def test_facts_of_other_dates_are_refused(tmp_path):
    path = tmp_path / "facts.jsonl"
    path.write_text('{"subject": "A", "relation": "P6", "objects": {"2021-01": [["Q1", "B"]]}}')
    with pytest.raises(UserError, match="2022-01-01, but the facts were looked up on 2021-01 only"):
        benchmark.build([path], [], ("2021-01-09", "2022-01-01"), tmp_path / "out")


def test_wordings(tmp_path):
    path = tmp_path / "wordings.jsonl"
    path.write_text('{"relation": "P6", "cloze": "[X] has [Y]."}')
    assert templates.read_templates(path) == {"P6": templates.Template("[X] has [Y].")}
    for text, expected in (
        ('{"relation": "P6", "cloze": "[X] has."}', "'cloze' is '[X] has.'; it must have [X] and"),
        ('{"relation": "P6", "cloze": "[X] [Y]", "question": "Who?"}', "'question' is 'Who?'"),
        ('{"relation": "P6", "cloze": "[X] [Y]", "kind": "x"}', "'kind' is 'x'"),
        ('{"cloze": "[X] has [Y]."}', "line 1: the field 'relation' is missing"),
    ):
        path.write_text(text)
        with pytest.raises(UserError) as info:
            templates.read_templates(path)
        assert expected in str(info.value)
    known = templates.built_in()
    assert len(templates.INVARIANT_RELATIONS) == 28
    assert all(templates.check(w, name) for name, w in known.items())
    assert all(known[name].question for name in templates.INVARIANT_RELATIONS)


def test_pararels_patterns():
    folder = shared_data("probes", "pararel", "patterns")
    changed = templates.with_patterns(templates.built_in(), folder)
    assert changed["P138"].cloze == "[X] is named after [Y]."
    assert changed["P138"].question == "What is [X] named after?"
