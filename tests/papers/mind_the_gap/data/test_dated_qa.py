"""Questions of published sets, in lines of their forms."""

import gzip
import json

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts.questions import read_questions
from ckl_jax.papers.mind_the_gap.data.dated_qa import read_dated_qa

OSLO = {"wikidata_id": "Q1", "name": "Ann Oslo"}
ROWS = {
    "templama": {
        "query": "_X_ is the mayor of Bergen.",
        "answer": [OSLO, {"wikidata_id": "Q2", "name": "Bo Oslo"}],
        "date": "2014",
        "id": "Q26793_P6_2014",
        "most_frequent_answer": OSLO,
        "most_recent_answer": OSLO,
        "relation": "P6",
    },
    "streamingqa": {
        "qa_id": "eval-7",
        "question": "Who won the race?",
        "answers": ["Ann", "Ann Oslo", "Oslo"],
        "answers_additional": ["Nobody"],
        "question_ts": 1588723200,
        "evidence_ts": 1546300799,
        "evidence_id": "20181231000000000000_ab",
        "recent_or_past": "past",
        "written_or_generated": "written",
    },
    "realtimeqa": {
        "question_id": "20220708_3",
        "question_date": "2022/07/08",
        "question_source": "CNN",
        "question_url": "https://example.org",
        "question_sentence": "Which city held the race?",
        "choices": ["Oslo", "Bergen", "Paris", "Rome"],
        "answer": ["1"],
        "evidence": "",
    },
}
BEGINNINGS = {
    "templama": "year: 2014 text: ",
    "streamingqa": "Today is Wednesday, May 6, 2020. ",
    "realtimeqa": "Today is July 08, 2022. ",
}


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("dated", [False, True])
def test_a_published_line_becomes_a_dated_question(tmp_path, form, dated):
    source, out = tmp_path / "test.json", tmp_path / "questions.jsonl"  # TempLAMA's name
    source.write_text(json.dumps(ROWS[form]) + "\n")
    argv = ["data", "questions", "--source", str(source), "--form", form, "--out", str(out)]
    assert main([*argv, "--tokenizer", "none", *(["--dated"] if dated else [])]) == 0
    (found,) = read_questions(out)
    expected = {
        "templama": ("_X_ is the mayor of Bergen.", ("Ann Oslo", "Bo Oslo"), "2014"),
        "streamingqa": ("Who won the race?", ("Ann", "Ann Oslo", "Oslo"), "2018-12-31"),
        "realtimeqa": ("Which city held the race?", ("Bergen",), "2022-07-08"),
    }[form]
    beginning = BEGINNINGS[form] if dated else ""
    assert (found.question, found.answers, found.date) == (beginning + expected[0], *expected[1:])


def test_days_of_realtimeqa_since_2024_have_dashes(tmp_path):
    path = tmp_path / "qa.jsonl"
    path.write_text(json.dumps({**ROWS["realtimeqa"], "question_date": "2024-03-22"}))
    (found,) = read_dated_qa(path, "realtimeqa", dated=True)
    assert found.date == "2024-03-22" and found.question.startswith("Today is March 22, 2024. ")


def test_templama_as_its_script_writes_it_compressed_and_by_year(tmp_path, capsys):
    source, out = tmp_path / "val.json.gz", tmp_path / "questions.jsonl"
    rows = [{**ROWS["templama"], "answer": OSLO, "date": str(y), "id": f"a{y}"} for y in (2014, 15)]
    with gzip.open(source, "wt") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    argv = ["data", "questions", "--source", str(source), "--form", "templama", "--out", str(out)]
    argv += ["--tokenizer", "none"]
    assert main([*argv, "--year", "2014"]) == 0
    (found,) = read_questions(out)
    assert found.answers == ("Ann Oslo",)
    assert main([*argv, "--year", "1999", "--overwrite"]) == 2
    assert "gives no question with an answer; give another --year" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("form", "change", "message"),
    [
        ("templama", {"answer": []}, "must be text"),
        ("templama", {"date": 2014}, "must be text"),
        ("templama", {"query": None}, "must be text"),
        ("streamingqa", {"evidence_ts": "2018"}, "line 1: not a line of streamingqa (TypeError"),
        ("streamingqa", {"evidence_ts": 10**20}, "not a line of streamingqa"),
        ("realtimeqa", {"answer": ["4"]}, "not a line of realtimeqa (IndexError"),
        ("realtimeqa", {"question_date": "8 July"}, "not a line of realtimeqa (ValueError"),
        ("realtimeqa", {"question_date": 2022}, "not a line of realtimeqa (AttributeError"),
        ("realtimeqa", {"question_sentence": ""}, "must be text; remove the line"),
        ("realtimeqa", {"choices": ["a", "None of the above"]}, "give the file without '_nota'"),
        ("streamingqa", {"answers": {"a": 7}}, "ValueError: 'answers' is no list"),
        ("streamingqa", {"answers": "Ann"}, "ValueError: 'answers' is no list"),
        ("streamingqa", {"question_ts": True}, "ValueError: True is no number of seconds"),
        ("realtimeqa", {"choices": "xyz"}, "ValueError: 'choices' is no list"),
        ("realtimeqa", {"answer": "12"}, "ValueError: 'answer' is no list"),
        ("realtimeqa", {"answer": ["-1"]}, "not a line of realtimeqa (IndexError"),
        ("realtimeqa", {"answer": [1.0]}, "not a line of realtimeqa (IndexError"),
        ("realtimeqa", {"answer": [True]}, "not a line of realtimeqa (IndexError"),
        ("templama", None, "not a line of templama (it has no 'answer')"),
    ],
)
def test_another_line_is_one_sentence(tmp_path, capsys, form, change, message):
    source = tmp_path / "bad.jsonl"
    source.write_text(json.dumps({} if change is None else {**ROWS[form], **change}) + "\n")
    argv = ["data", "questions", "--source", str(source), "--form", form]
    assert main([*argv, "--tokenizer", "none", "--out", str(tmp_path / "out.jsonl")]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1 and not (tmp_path / "out.jsonl").exists()
