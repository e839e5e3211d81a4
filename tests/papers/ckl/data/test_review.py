"""What decisions of a review make of probes' files."""

import json

import pytest

pytest.importorskip("sentencex", reason="needs the extra `data`")

from ckl_jax.cli import ckl
from ckl_jax.data.facts.ckl_files import BLANK, PROBES, ProbeItem, is_left_out, read_probe
from ckl_jax.data.facts.ckl_writer import write_answers, write_probe, write_rows
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, read_jsonl, write_json, write_jsonl
from ckl_jax.papers.ckl.data.review import apply, read_reviewable


def item(probe, i, answers=("A;1", "B"), old=(), **more):
    return ProbeItem(
        id=str(i),
        probe=probe,
        input=f"Item {i} is {BLANK}.",
        answers=answers,
        old_answers=old,
        **more,
    )


@pytest.fixture
def folder(tmp_path):
    out = tmp_path / "probes"
    write_probe("invariant_lama", out, [item("invariant_lama", i, ("A",)) for i in range(2)])
    updated = [item("updated_lama", i, ("New",), ("Old",)) for i in range(2)]
    write_probe("updated_lama", out, updated)
    easy = [item("new_lama_easy", i, question="Q?", meta={"date": "2021-01-01"}) for i in range(4)]
    write_rows("new_lama_easy", out, easy)
    write_rows("new_lama_easy_small", out, easy[1:3])
    write_answers("new_lama_easy", out, easy)
    write_jsonl(
        out / "evidence.jsonl",
        [
            {"probe": "new_lama_easy", "id": str(i), "side": "D1", "answer": "new", "sentence": "S"}
            for i in range(4)
        ],
    )
    return out


@pytest.fixture
def decide(folder, tmp_path):
    """Writes decisions and applies them; returns the folder."""

    def run(decisions, undecided="keep", **more):
        value = {
            "format": "ckl-review-1",
            "benchmark": read_reviewable(folder).digest,
            "decisions": decisions,
        }
        write_json(tmp_path / "decisions.json", value | more)
        apply(folder, tmp_path / "decisions.json", tmp_path / "out", undecided, replace=True)
        return tmp_path / "out"

    return run


DROP, KEEP = {"action": "drop"}, {"action": "keep"}


def edit(**fields):
    return {"action": "edit", **fields}


def ids(name, directory):
    return [i.id for i in read_probe(name, directory)]


def test_without_decisions_everything_stays(folder, decide):
    out = decide({})
    for name in ("invariant_lama", "updated_lama", "new_lama_easy", "new_lama_easy_small"):
        assert read_probe(name, out) == read_probe(name, folder)
    assert list(read_jsonl(out / "evidence.jsonl")) == list(read_jsonl(folder / "evidence.jsonl"))


def test_parts_of_a_probe_follow_it(folder, decide):
    assert len(read_reviewable(folder).items) == 2 + 2 + 4
    new = edit(statement=f"It  is {BLANK}.", question="Which?", answers=["C", " C", "D"])
    out = decide({"new_lama_easy/1": DROP, "new_lama_easy/2": new, "new_lama_easy/3": KEEP})
    assert ids("new_lama_easy", out) == ["0", "2", "3"]
    (small,) = read_probe("new_lama_easy_small", out)
    assert (small.input, small.answers, small.question) == (f"It is {BLANK}.", ("C", "D"), "Which?")
    assert small.meta == {"date": "2021-01-01"}
    answers = read_json(out / PROBES["new_lama_easy"].read.answers)
    assert answers == {"0": ["A;1", "B"], "2": ["C", "D"], "3": ["A;1", "B"]}
    assert [row["id"] for row in read_jsonl(out / "evidence.jsonl")] == ["0", "2", "3"]
    counts = read_json(out / "manifest.json")["probes"]
    assert counts["new_lama_easy"] == {"items": 3, "dropped": 1, "edited": 1, "undecided": 1}


def test_old_answers_are_edited_in_both_files(decide):
    out = decide({"updated_lama/0": edit(answers=["New er"], old_answers=["Old er", "Older"])})
    first, second = read_probe("updated_lama", out)
    assert (first.answers, first.old_answers) == (("New er",), ("Old er", "Older"))
    assert first.meta["old_answer"] == "Old er" and second.old_answers == ("Old",)


def test_what_is_not_decided_may_be_dropped(decide):
    out = decide({"invariant_lama/1": KEEP}, undecided="drop")
    assert ids("invariant_lama", out) == ["1"]
    assert not PROBES["updated_lama"].path(out).exists()
    assert is_left_out(PROBES["updated_lama"], out)  # which training and `t5x eval` ask
    assert not is_left_out(PROBES["invariant_lama"], out)
    with pytest.raises(UserError, match="leaves no item"):
        decide({}, undecided="drop")
    assert ids("invariant_lama", out) == ["1"]  # what was there stays


BAD = (
    ({"new_lama_easy/9": DROP}, "new_lama_easy/9: there is no such item. Did you mean"),
    ({"new_lama_easy/1": {"action": "dorp"}}, "'action' is 'dorp'; it is one of keep"),
    ({"new_lama_easy/1": "drop"}, "'action' is None"),
    ({"new_lama_easy/1": edit(statement="No blank.")}, "'statement': the statement 'No blank.'"),
    ({"new_lama_easy/1": edit(statement=f"{BLANK} {BLANK}")}, "has 2 blanks"),
    ({"new_lama_easy/1": edit(statement=3)}, "'statement' is '3'; give a text"),
    ({"new_lama_easy/1": edit(answers=[" "])}, "'answers' has no answer"),
    ({"new_lama_easy/1": edit(answers="C")}, "'answers' is 'C'; give a list of texts"),
    ({"updated_lama/1": edit(old_answers=[])}, "'old_answers' has no answer"),
    ({"updated_lama/1": edit(answers=["old"])}, "is both among 'answers' and among"),
)


@pytest.mark.parametrize("decisions, expected", BAD)
def test_bad_decisions_are_named(decide, tmp_path, decisions, expected):
    with pytest.raises(UserError) as info:
        decide(decisions)
    assert expected in str(info.value) and "decisions.json" in str(info.value)
    assert not (tmp_path / "out").exists()


def test_decisions_on_other_items_are_refused(folder, decide, tmp_path):
    with pytest.raises(UserError, match="was exported for other items"):
        decide({}, benchmark="0123")
    with pytest.raises(UserError, match="its 'format' is not"):
        decide({}, format="x")
    with pytest.raises(UserError, match="'decisions' is not a map"):
        decide([])
    out = decide({"invariant_lama/0": DROP})
    with pytest.raises(UserError, match="was exported for other items|there is no such item"):
        apply(out, tmp_path / "decisions.json", tmp_path / "again")
    assert read_reviewable(out).digest != read_reviewable(folder).digest


def test_commands_that_cannot_be_done_are_one_sentence(folder, tmp_path, capsys):
    path = tmp_path / "decisions.json"
    path.write_text(json.dumps({"format": "ckl-review-1", "decisions": {}}))
    review = ["data", "review", str(folder)]
    for argv, expected in (
        (["data", "review", str(tmp_path / "none")], "has no probe, such as newlama/newLAMA.csv"),
        ([*review, "--apply", str(path)], "--apply needs --out"),
        ([*review, "--apply", str(path), "--out", str(folder)], "the folder that was reviewed"),
        ([*review, "--apply", str(path), "--out", str(path)], "is a file; give a folder"),
        ([*review, "--apply", str(path), "--out", str(tmp_path)], "is not empty and was not made"),
        ([*review, "--apply", "no.json", "--out", str(tmp_path / "x")], "Cannot read no.json"),
        (
            [*review, "--apply", str(path), "--out", str(tmp_path / "x"), "--undecided", "ask"],
            "--undecided is 'ask'; choose from keep, drop",
        ),
    ):
        assert ckl.main(argv) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and expected in err, err
    assert not (tmp_path / "x").exists()
