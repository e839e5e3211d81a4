"""Questions about offices by month, NewsQA's format, and batches of which answers count."""

import hashlib
import json
import re

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts.offices import Term, office_questions, read_terms
from ckl_jax.data.facts.questions import (
    Question,
    question_batch,
    question_rows,
    read_questions,
)
from ckl_jax.data.tasks.dated_task import WordEncoder
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap.data.newsqa import date_of_address, read_dates, read_newsqa
from ckl_jax.probes.metrics import f1
from ckl_jax.world.facts import office_terms
from ckl_jax.world.stream import stream_world
from tests.real_data import shared_data

TERMS = (
    Term("mayor", "Oslo", "Anna Brel", "2018-06-01", "2019-03-20", ("Brel",)),
    Term("mayor", "Oslo", "Carl Dahl", "2019-03-20", "2019-07-01"),
    Term("mayor", "Oslo", "Eva Falk", "2019-07-01"),
    Term("consul", "Rome", "Gaius", "2019-00-00"),
    Term("consul", "Rome", "Marcus", "", "2019-02-00"),
)


def asked(first, last, **more):
    return {q.id: q.answers for q in office_questions(TERMS, first, last, **more)}


def test_a_question_for_each_month_without_a_change():
    found = asked("2018-12", "2019-08")
    assert found == {
        "mayor/Oslo/2018-12": ("Anna Brel", "Brel"),
        "mayor/Oslo/2019-01": ("Anna Brel", "Brel"),
        "mayor/Oslo/2019-02": ("Anna Brel", "Brel"),
        "mayor/Oslo/2019-04": ("Carl Dahl",),
        "mayor/Oslo/2019-05": ("Carl Dahl",),
        "mayor/Oslo/2019-06": ("Carl Dahl",),
        "mayor/Oslo/2019-07": ("Eva Falk",),
        "mayor/Oslo/2019-08": ("Eva Falk",),
        "consul/Rome/2018-12": ("Marcus",),
    }
    assert list(found) == sorted(found)  # by office and month
    ambiguous = asked("2019-01", "2019-03", keep_ambiguous=True)
    assert ambiguous["mayor/Oslo/2019-03"] == ("Anna Brel", "Brel")  # on the 15th
    assert ambiguous["consul/Rome/2019-01"] == ("Gaius", "Marcus")
    [question] = office_questions(TERMS[2:3], "2020-03", "2020-03")
    assert question.question == "Who is the mayor of Oslo in March 2020?"


@pytest.mark.parametrize("months", (("2019", "2019-02"), ("2019-13", "2020-01")))
def test_wrong_months(months):
    with pytest.raises(UserError, match="is not a month"):
        asked(*months)
    with pytest.raises(UserError, match="no month from 2019-02 to 2019-01"):
        asked("2019-02", "2019-01")


def test_the_offices_of_a_stream_are_asked_for_as_they_are():
    world = stream_world(0, "tiny")
    found = list(office_questions(office_terms(world), "2019-01", "2019-12"))
    roles = {"prime minister", "mayor", "chief executive", "head coach", "rector"}
    assert {q.role for q in found} == roles and len(found) > 200
    holders = {}
    for fact in world.facts:
        key = fact.relation.replace("_", " "), world.name(fact.subject)
        holders.setdefault(key, []).append(fact)
    for question in found:
        held = [f for f in holders[question.role, question.place] if f.holds(f"{question.date}-15")]
        assert [world.name(f.object) for f in held] == [question.answers[0]]


def test_tables(tmp_path):
    table = tmp_path / "offices.csv"
    table.write_text(
        "role,place,holder,start,end,aliases\nmayor,Oslo,Anna Brel,2018-06-01,,Brel; A. Brel\n"
    )
    assert read_terms(table) == [
        Term("mayor", "Oslo", "Anna Brel", "2018-06-01", "", ("Brel", "A. Brel"))
    ]
    table.write_text("role,place,holder,start,end\nmayor,Oslo,Anna Brel,1 June 2018,\n")
    with pytest.raises(UserError, match="line 2: '1 June 2018' is not of the form"):
        read_terms(table)
    table.write_text("role,place,holder,start,end\nmayor,Oslo,,2018-06-01,\n")
    with pytest.raises(UserError, match="line 2: the field 'holder' is ''"):
        read_terms(table)
    table.write_text("role,place,holder\nmayor,Oslo,Anna Brel\n")
    with pytest.raises(UserError, match="no column 'start'"):
        read_terms(table)


@pytest.mark.parametrize("attribute", [7, [], {}, False])
def test_an_attribute_that_is_no_text(tmp_path, attribute):
    row = {"subject": "Norway", "answers": [], "attribute": attribute}
    (tmp_path / "offices.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="line 1: .*'attribute'"):
        read_terms(tmp_path / "offices.jsonl")


def test_real_offices():
    found = read_terms(shared_data("probes", "dyknow-dated-facts.jsonl"))
    asked = {q.id: q.answers for q in office_questions(found, "2011-01", "2019-12")}
    assert asked["prime minister/Norway/2013-09"] == ("Jens Stoltenberg",)
    assert "prime minister/Norway/2013-10" not in asked  # 16 October
    assert asked["prime minister/Norway/2013-11"] == ("Erna Solberg",)
    assert len(asked) > 2000


def entity(id, label, claims=None, aliases=()):
    labels = {"en": {"language": "en", "value": label}}
    return {
        "type": "item",
        "id": id,
        "labels": labels,
        "claims": claims or {},
        "aliases": {"en": [{"language": "en", "value": a} for a in aliases]},
    }


def item(prop, id):
    value = {"entity-type": "item", "numeric-id": int(id[1:]), "id": id}
    return {
        "snaktype": "value",
        "property": prop,
        "datavalue": {"type": "wikibase-entityid", "value": value},
    }


def time(text, precision=11):
    value = {"time": text, "precision": precision}
    return [{"snaktype": "value", "datavalue": {"type": "time", "value": value}}]


def held(holder, rank="normal", **qualifiers):
    return {"mainsnak": item("P6", holder), "rank": rank, "qualifiers": qualifiers}


def test_offices_out_of_a_dump(tmp_path, capsys):
    solberg = held("Q2", P580=time("+2013-10-16T00:00:00Z"), P39=[item("P39", "Q9")])
    stoltenberg = held(
        "Q3", P580=time("+00000002005-10-00T00:00:00Z", 10), P582=time("+2013-10-16T00:00:00Z")
    )
    others = [
        held("Q3"),
        held("Q4", P580=time("+2001-01-01T00:00:00Z")),
        held("Q3", "deprecated", P580=time("+1999-01-01T00:00:00Z")),
    ]
    kind = [{"mainsnak": item("P31", "Q3624078"), "rank": "normal"}]
    entities = [
        entity("Q20", "Norway", {"P6": [solberg, stoltenberg, *others], "P31": kind}),
        entity("Q21", "Oslo", {"P6": [solberg]}),
        entity("Q2", "Erna Solberg", aliases=["Solberg"]),
        entity("Q3", "Jens Stoltenberg"),
        entity("Q9", "prime minister of Norway"),
    ]
    dump, out = tmp_path / "w.json", tmp_path / "offices.csv"
    dump.write_text("[\n" + ",\n".join(map(json.dumps, entities)) + "\n]\n")
    made = ["data", "offices", "--wikidata", str(dump), "--out", str(out), "--overwrite"]
    assert main([*made, "--instance-of", "Q3624078"]) == 0
    assert read_terms(out) == [
        Term("prime minister", "Norway", "Erna Solberg", "2013-10-16", "", ("Solberg",)),
        Term("head of government", "Norway", "Jens Stoltenberg", "2005-10-00", "2013-10-16"),
    ]
    assert main([*made, "--properties", "P7"]) == 2
    assert main([*made, "--properties", "P169"]) == 2
    assert "has no dated statements of P169" in capsys.readouterr().err


# --- NewsQA

STORY = "LONDON, England (CNN) -- The bridge opened on Monday. It cost $3 million."
ADDRESS = (
    "http://web.archive.org/web/2010id_/http://www.cnn.com/2009/WORLD/europe/07/14/a.b/index.html"
)


def newsqa(tmp_path):
    name = hashlib.sha1(ADDRESS.encode()).hexdigest()
    questions = [
        {"q": "What did it cost?", "consensus": {"s": 62, "e": 72}},
        {"q": "Who?", "consensus": {"badQuestion": True}},
        {"q": "When?", "consensus": {"noAnswer": True}},
    ]
    story = {"storyId": f"./cnn/stories/{name}.story", "text": STORY, "questions": questions}
    path = tmp_path / "newsqa.json"
    path.write_text(json.dumps({"data": [story, story | {"storyId": "./x.story"}], "version": "1"}))
    (tmp_path / "urls.txt").write_text(ADDRESS + "\n\n")
    return path, name


def test_newsqa(tmp_path):
    path, name = newsqa(tmp_path)
    dates = read_dates(tmp_path / "urls.txt")
    assert dates == {name: "2009-07-14"}
    [question] = read_newsqa(path, dates, "2009")
    assert question == Question(
        f"{name}/0", "What did it cost?", ("$3 million",), "2009-07-14", STORY
    )
    assert len(list(read_newsqa(path))) == 2
    assert f1("about 3 million", question.answers) == pytest.approx(0.8)
    assert f1("$3 Million.", question.answers) == 1.0
    path.write_text("[]")
    with pytest.raises(UserError, match="no list 'data'"):
        list(read_newsqa(path))


@pytest.mark.parametrize(
    "change, question, told",
    [
        ({"storyId": 7}, {}, "story 1: the field 'storyId' is 7; give a text"),
        ({"text": None}, {}, "story 1: the field 'text' is None"),
        ({"questions": {}}, {}, "story 1: 'questions' is no list"),
        ({"questions": ["x"]}, {}, "story 1, question 1: it is no object"),
        ({}, {"consensus": [1]}, "question 1: it is no object, or its 'consensus' is none"),
        ({}, {"consensus": {"s": "1", "e": 3}}, "its span, ('1', 3), is none of the text's"),
        ({}, {"consensus": {"s": -3, "e": 70}}, "its span, (-3, 70), is none of the text's"),
        ({}, {"consensus": {"s": 0, "e": 10**9}}, "is none of the text's characters"),
        ({}, {"consensus": {"s": 3, "e": 3}}, "its span is empty"),
        ({}, {"q": ""}, "question 1: the field 'q' is ''; give a text"),
    ],
)
def test_newsqa_of_other_types(tmp_path, change, question, told):
    path, _ = newsqa(tmp_path)
    story = {**json.loads(path.read_text())["data"][0], **change}
    if question:
        story["questions"][0] |= question
    path.write_text(json.dumps({"data": [story]}))
    with pytest.raises(UserError, match=re.escape(told)):
        list(read_newsqa(path))


def test_dates_in_addresses():
    assert date_of_address("http://www.cnn.com/2009/US/index.html") == "2009"
    assert date_of_address("http://edition.cnn.com/2008/SPORT/12/31/x/index.html") == "2008-12-31"
    assert date_of_address("http://money.com/2008/x") == ""


# --- batches


def test_only_answers_count(tmp_path):
    lines = ["Who is the mayor of Oslo in May 2019 ? Anna Brel", "What is it ?"] * 4
    vocabulary = train_vocabulary(lines, tmp_path / "v.model", 330, byte_fallback=True)
    questions = [
        Question("a", "Who is the mayor ?", ("Anna Brel", "Brel"), "2019-05"),
        Question("b", "What is it ?", ("Oslo",), "2018-05", passage="the mayor " * 40),
    ]
    eos, length = vocabulary.eos_id, 40
    rows = question_rows(questions, WordEncoder(vocabulary), eos, length)
    batch = question_batch(rows, length, eos)
    for i, question in enumerate(questions):
        weights, targets = batch["decoder_loss_weights"][i] > 0, batch["decoder_target_tokens"][i]
        assert targets[weights].tolist() == [*vocabulary.encode(question.answers[0]), eos]
        assert batch["decoder_input_tokens"][i, 1:].tolist() == targets[:-1].tolist()
    assert batch["decoder_input_tokens"][:, 0].tolist() == [eos, eos]
    assert len(rows[1][0]) + len(rows[1][1]) == length  # the passage was cut, the question not
    assert vocabulary.decode(rows[1][0]).endswith("What is it ?")
    assert batch["decoder_loss_weights"].dtype == np.float32


def test_the_command(tmp_path, capsys):
    out = str(tmp_path / "q.jsonl")
    assert main(["data", "questions", "--size", "tiny", "--out", out]) == 0
    questions = read_questions(out)
    assert questions[0].question.startswith("Who is the ") and questions[0].question.endswith(" ?")
    path, _ = newsqa(tmp_path)
    assert main(["data", "questions", "--year", "2016", "--out", f"{out}2"]) == 2
    assert "--first and --last" in capsys.readouterr().err
    made = ["data", "questions", "--source", str(path), "--tokenizer", "none", "--overwrite"]
    made += ["--out", out]
    assert main([*made, "--addresses", str(tmp_path / "urls.txt"), "--year", "2009"]) == 0
    assert "1  questions" in capsys.readouterr().out
    (tmp_path / "bad.jsonl").write_text('{"id": "a", "question": "x", "answers": []}\n')
    with pytest.raises(UserError, match="question 1: it needs an 'id'"):
        read_questions(tmp_path / "bad.jsonl")
