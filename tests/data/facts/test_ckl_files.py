import dataclasses
import functools
import gzip
import json
import re

import pytest

from ckl_jax.data.compressed import csv_table
from ckl_jax.data.facts.ckl_files import (
    CsvFormat,
    available_probes,
    normalize_blank,
    read_corpus,
    read_probe,
)
from ckl_jax.data.facts.probe import Probe, ProbeItem
from ckl_jax.data.tasks.prepare import prepare_ckl
from ckl_jax.data.text.vocabularies import Vocabulary, train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.train.vocabulary_check import check_task_vocabulary

BLANK = "<extra_id_0>"
ITEM = ProbeItem(id="1", input="The mayor is _X_.", answers=("Brel",))


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# --- corpora


def test_a_corpus_is_read_as_text(tmp_path):
    path = _write(
        tmp_path / "c.csv",
        'original,output,input\n"a, ""b""\nc",None,NA\n,,nothing masked\n',
    )
    assert list(read_corpus(path)) == [
        {"input": "NA", "output": "None", "original": 'a, "b"\nc'},
        {"input": "nothing masked", "output": "", "original": ""},
    ]


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path):
    path = _write(tmp_path / "c.csv", "\ufeffinput,output\r\na,b\r\n")
    assert list(read_corpus(path)) == [{"input": "a", "output": "b", "original": ""}]


def test_a_missing_column_is_named(tmp_path):
    path = _write(tmp_path / "c.csv", "inputs,output\na,b\n")
    advice = "If 'inputs' is that column, rename it to 'input'"
    with pytest.raises(UserError, match=f"c.csv has no column 'input'; .* {advice}"):
        list(read_corpus(path))
    with pytest.raises(UserError, match="e.csv is empty: it has no header"):
        list(csv_table(_write(tmp_path / "e.csv", ""), ["input"]))


def test_of_a_long_header_the_ends_are_shown(tmp_path):
    path = _write(tmp_path / "c.csv", ",".join(f"c{i}" for i in range(9999)) + "\n")
    with pytest.raises(UserError, match="no column 'input'; its header has c0, .*, c9998.") as e:
        list(read_corpus(path))
    assert len(str(e.value)) < 4000


def test_an_empty_corpus_is_named(tmp_path):
    with pytest.raises(UserError, match="c.csv is empty"):
        list(read_corpus(_write(tmp_path / "c.csv", "input,output\n")))


def test_a_ragged_row_is_named_with_its_line(tmp_path):
    path = _write(tmp_path / "c.csv", 'input,output\n"a\nb",c\nd, e, f\n')
    with pytest.raises(UserError, match="c.csv, line 4: 3 cells where the header has 2"):
        list(read_corpus(path))


def test_a_table_that_is_parted_by_other_marks_is_told(tmp_path):
    path = _write(tmp_path / "c.csv", "input;output\na, b;c\n")
    with pytest.raises(UserError, match="line 2: 2 cells .* is parted by ';'; save it with commas"):
        list(csv_table(path))


def test_a_quote_that_ends_in_a_later_row_is_named(tmp_path):
    path = _write(tmp_path / "c.csv", 'input,output\n"a","b\n"c","d"\n"e","f"\n')
    with pytest.raises(UserError, match="c.csv, line 2: the row that begins here is not CSV"):
        list(read_corpus(path))


def test_a_row_without_end_is_named_with_its_first_line(tmp_path):
    path = _write(tmp_path / "c.csv", 'input,output\na,b\n"a,b\nc,d\n' + "e,f\n" * 90)
    with pytest.raises(UserError, match="c.csv, line 3: the row that begins here does not end"):
        list(read_corpus(path))
    with pytest.raises(UserError, match="c.csv, line 3: .* than 300 characters; end the cell"):
        list(read_corpus(path, limit=300))
    with pytest.raises(UserError, match="c.csv, line 1: it is longer than 3 bytes"):
        list(read_corpus(path, limit=3))
    path = _write(tmp_path / "d.csv", 'input,output\n"' + "a\n" * 20 + '",b\n')
    assert list(read_corpus(path, limit=45))  # 40 of them in the cell, two quotes, comma, b
    with pytest.raises(UserError, match="d.csv, line 2: .* longer than 40 characters"):
        list(read_corpus(path, limit=40))


@pytest.mark.parametrize("name", ["c.csv", "c.csv.gz"])
def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path, name):
    content = b"input,output\n" + b"a,b\n" * 5000 + b"caf\xe9,b\n" + b"a,b\n" * 5000
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(UserError, match=f"{name}, line 5002: not UTF-8 .the byte 0xe9"):
        list(read_corpus(tmp_path / name))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UserError, match="Cannot read .*c.csv: No such file"):
        list(read_corpus(tmp_path / "c.csv"))


# --- blanks


@pytest.mark.parametrize("blank", ["_____", "[BLANK]", "[MASK]", "_X_", BLANK, "___"])
def test_every_blank_becomes_the_first_sentinel(blank):
    assert normalize_blank(f"Born in ({blank}).", "f") == f"Born in ({BLANK})."


@pytest.mark.parametrize(
    "text, count", [("none", "no"), ("_X_ and _____", 2), (f"{BLANK} or <extra_id_1>", 2)]
)
def test_other_than_one_blank_is_refused(text, count):
    with pytest.raises(UserError, match=f"f.csv, line 3: the statement .* has {count} blanks"):
        normalize_blank(text, "f.csv, line 3")


# --- probes


def _updated(tmp_path, answers, statement="The mayor is _____."):
    _write(
        tmp_path / "updatedlama/updatedLAMA.csv",
        f"unique_id,statement,new_answer,note\n7,{statement},Brel,x\n",
    )
    _write(tmp_path / "updatedlama_val_answers.json", json.dumps(answers))
    return tmp_path


def test_updated_lama_has_old_and_new_aliases(tmp_path):
    _updated(tmp_path, {"7": [{"old": ["Moe", ""], "new": ["Anna Brel", "Brel", "Brel"]}]})
    (item,) = read_probe("updated_lama", tmp_path)
    assert item.id == "7" and item.input == f"The mayor is {BLANK}."
    assert item.answers == ("Anna Brel", "Brel") and item.old_answers == ("Moe",)
    assert item.meta == {"note": "x"}
    assert available_probes(tmp_path) == ["updated_lama"]


@pytest.mark.parametrize(
    "answers",
    [
        *({"8": []}, {"7": [{"old": []}]}, {"7": "Brel"}, {"7": []}),
        *(
            {"7": [{"old": ["Moe"], "new": new}]}
            for new in ([None], [["Brel"]], {"Brel": 1}, [True])
        ),
    ],
)
def test_unusable_answers_are_named(tmp_path, answers):
    with pytest.raises(UserError, match="line 2: the file of answers must have .* id '7'"):
        read_probe("updated_lama", _updated(tmp_path, answers))


def test_updated_lama_needs_its_answers(tmp_path):
    _updated(tmp_path, {})
    (tmp_path / "updatedlama_val_answers.json").unlink()
    with pytest.raises(UserError, match="Cannot read .*updatedlama_val_answers.json"):
        read_probe("updated_lama", tmp_path)


def test_a_bad_statement_is_named_with_line_and_column(tmp_path):
    _updated(tmp_path, {"7": [{"old": ["a"], "new": ["b"]}]}, "The mayor is known.")
    with pytest.raises(
        UserError, match="updatedLAMA.csv, line 2, column 'statement': .* no blanks"
    ):
        read_probe("updated_lama", tmp_path)


def test_easy_answers_are_split_where_there_is_no_json(tmp_path):
    path = _write(
        tmp_path / "newlama/newLAMA_easy.csv",
        "unique_id,statement,question,answer,relation\n1,[BLANK] won.,Who won?,A B; B;,win\n",
    )
    (item,) = read_probe("new_lama_easy", tmp_path)
    assert item.answers == ("A B", "B")
    assert (item.question, item.relation, item.meta) == ("Who won?", "win", {})
    assert read_probe("new_lama_easy_p1", path=path)[0].probe == "new_lama_easy_p1"


def test_invariant_answers_stay_whole(tmp_path):
    _write(tmp_path / "invariantLAMA.csv", f"id,input,output\n1,x {BLANK} .,None; NA\n")
    assert read_probe("invariant_lama", tmp_path)[0].answers == ("None; NA",)


@pytest.mark.parametrize(
    "rows, message",
    [
        ("", "is empty"),
        (f"1,x {BLANK},\n", "line 2, column 'output': no answer for '1'"),
        (f"1,x {BLANK},a\n1,y {BLANK},b\n", "line 3, column 'id': 1 occurs twice"),
    ],
)
def test_bad_probes_are_named(tmp_path, rows, message):
    _write(tmp_path / "invariantLAMA.csv", "id,input,output\n" + rows)
    with pytest.raises(UserError, match=message):
        read_probe("invariant_lama", tmp_path)


def test_a_probe_of_a_strangers_own_is_read_as_its_record_says(tmp_path):
    _write(tmp_path / "m.csv", "unique_id,statement,answer,year\n1,The mayor is _X_.,Brel,2020\n")
    probe = Probe(name="mayors", file="m.csv", read=CsvFormat(date="year"))
    (item,) = read_probe(probe, tmp_path)
    assert (item.probe, item.date, item.answers) == ("mayors", "2020", ("Brel",))
    assert read_probe(probe, "elsewhere", path=tmp_path / "m.csv") == [item]
    assert (probe.short, probe.long, probe.role) == ("mayors", "mayors", None)


@pytest.mark.parametrize(
    "items, message",
    [
        ([], "m.csv is empty"),
        ([{"id": "1"}], "yielded {'id': '1'}, not a ProbeItem"),
        ([ITEM, ITEM], "m.csv: the item 1 occurs twice"),
        ([dataclasses.replace(ITEM, answers=(" ",))], "item '1': it has no answer"),
        ([dataclasses.replace(ITEM, answers="Brel")], "item '1': its answers must be a list"),
        ([dataclasses.replace(ITEM, date=2020)], "item '1': its date is 2020; give a text"),
        ([dataclasses.replace(ITEM, input="No blank.")], "item '1': the statement .* no blanks"),
    ],
)
def test_what_a_reader_gives_is_checked(items, message):
    probe = Probe(name="mayors", file="m.csv", read=lambda probe, folder: items)
    with pytest.raises(UserError, match=message):
        read_probe(probe)


def test_a_reader_without_a_file_is_named():
    for items, message in ((None, "returned None; let it yield"), ([ITEM] * 2, "1 occurs twice")):
        with pytest.raises(UserError, match=f"The probe mayors.*{message}"):
            read_probe(Probe(name="mayors", read=lambda probe, folder, items=items: items))


def test_a_record_without_a_reader_is_named():
    with pytest.raises(UserError, match="'mayors' has no reader"):
        read_probe(Probe(name="mayors"))


@pytest.mark.parametrize(
    "field, value, message",
    [
        ("name", "a/b", "Probe.name is 'a/b'"),
        ("role", "retaind", "Did you mean 'retained'"),
        ("order", 1.5, "is 1.5; give a whole number"),
        ("target_length", 1, "is 1; give 2 or more"),
        ("metrics", {"em": len}, "has 'em', which rows have already"),
    ],
)
def test_a_bad_record_is_named(field, value, message):
    with pytest.raises(UserError, match=message):
        Probe(**{"name": "mayors", field: value})


def test_an_unknown_probe_is_named():
    with pytest.raises(UserError, match="Did you mean 'invariant_lama'"):
        read_probe("invariant_lame")


# --- preparing


def _folder(tmp_path):
    rows = "".join(
        f"Anna {i} was in <extra_id_0>.,<extra_id_0> Oslo <extra_id_1>\n" for i in range(30)
    )
    _write(tmp_path / "in/recent_news_full.csv", "input,output\n" + rows + "No name here.,\n")
    return tmp_path / "in"


def test_preparing_twice_makes_nothing_twice(tmp_path):
    seen = []
    prepared = prepare_ckl(
        _folder(tmp_path), tmp_path / "out", 100, progress=lambda *a: seen.append(a)
    )
    task = prepared.open("d1")
    assert len(task) == 31 and seen == [("d1", 31)]
    row = task.row(3)
    assert row["inputs"][-1] == row["targets"][-1] == 1
    assert prepared.vocabulary.decode(row["targets"]) == "Oslo"
    assert task.row(30)["targets"] == [1]
    again = prepare_ckl(tmp_path / "in", tmp_path / "out", 100, progress=lambda *a: seen.append(a))
    assert len(seen) == 1 and again.vocabulary.digest == prepared.vocabulary.digest


def test_a_task_and_a_model_of_another_spacing_are_refused(tmp_path):
    prepared = prepare_ckl(_folder(tmp_path), tmp_path / "out", 100, legacy_spacing=True)
    task, plain = prepared.open("d1"), Vocabulary(prepared.vocabulary.path)
    check_task_vocabulary(task, "d1", prepared.vocabulary)
    with pytest.raises(UserError, match="'d1' was tokenised with legacy_spacing=True"):
        check_task_vocabulary(task, "d1", plain)
    sentinel, after = plain.sentinel(0), prepared.vocabulary.encode(".")[0]
    row = task.row(3)["inputs"]
    assert row[row.index(sentinel) + 1] == after and plain.encode("<extra_id_0>.")[1] != after


def test_other_settings_are_refused_or_replaced_and_damaged_tasks_made_anew(tmp_path):
    seen = []

    def prepare(**kwargs):
        seen.clear()
        prepared = prepare_ckl(
            tmp_path / "in", tmp_path / "out", 100, progress=lambda *a: seen.append(a), **kwargs
        )
        return prepared.open("d1"), list(seen)

    def refused(expected, **kwargs):
        before = _contents(tmp_path / "out")
        with pytest.raises(UserError, match=expected):
            prepare(**kwargs)
        assert _contents(tmp_path / "out") == before

    folder = _folder(tmp_path)
    prepare()
    short = {"inputs": 4, "targets": 3}
    refused("tasks/d1 was made with lengths = None, not .*'inputs': 4.* --overwrite", lengths=short)
    refused("vocabulary.model was made with max_piece_length = 16, not 4", max_piece_length=4)
    refused("tasks/d1 was made with legacy_spacing = False, not True", legacy_spacing=True)
    given = train_vocabulary(["a b c d"], tmp_path / "given.model", 20)
    refused("tasks/d1 was made with vocab_size = ", vocabulary=given)
    task, made = prepare(lengths=short, replace=True)
    assert made and len(task.row(0)["inputs"]) == 4 and task.row(0)["inputs"][-1] == 1
    tokens = tmp_path / "out/tasks/d1/inputs.tokens"
    tokens.write_bytes(tokens.read_bytes()[:-2])
    assert prepare(lengths={"inputs": 4, "targets": 3})[1]
    assert not prepare(lengths={"inputs": 4, "targets": 3})[1]
    with open(folder / "recent_news_full.csv", "a") as f:
        f.write("More,\n")
    refused("vocabulary.model was made with other corpora", lengths=short)
    task, made = prepare(lengths=short, replace=True)
    assert made and len(task) == 32
    (tmp_path / "out/vocabulary.model").unlink()
    refused("were made with a vocabulary that is not there", lengths=short)


def _contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "content, expected",
    [
        ("inptu,output\na,b\n", "has no column 'input'"),
        ("input,output\na,b\na,b,c\n", "line 3: 3 cells where"),
        ("input,output\na,b\ncaf\udce9,b\n", "line 3: not UTF-8"),
        ("input,output\n", "is empty"),
    ],
)
def test_a_bad_corpus_is_told_from_within_the_training_of_a_vocabulary(tmp_path, content, expected):
    path = tmp_path / "in/recent_news_full.csv"
    path.parent.mkdir()
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UserError, match=expected) as e:
        prepare_ckl(path.parent, tmp_path / "out", 100)
    assert "\n" not in str(e.value) and str(path) in str(e.value)
    assert not (tmp_path / "out").exists()


def test_a_vocabulary_that_cannot_be_trained_is_one_line(tmp_path):
    train = functools.partial(train_vocabulary, ["several different letters"], tmp_path / "v.model")
    with pytest.raises(UserError, match="a vocabulary of 6 tokens for .*: the characters") as e:
        train(6)
    assert "\n" not in str(e.value)
    # The number in the sentence is the least that works.
    (least,) = re.findall(r"alone take (\d+); give as many or more", str(e.value))
    with pytest.raises(UserError):
        train(int(least) - 1)
    train(int(least))


def test_bad_folders_and_vocabularies_are_refused(tmp_path):
    with pytest.raises(UserError, match="holds none of CKL's corpora"):
        prepare_ckl(tmp_path, tmp_path / "out")
    folder = _folder(tmp_path)
    with pytest.raises(UserError, match="has no split/recent_news_small1.csv, the corpus 'p1'"):
        prepare_ckl(folder, tmp_path / "out", corpora=["p1"])
    with pytest.raises(UserError, match="No corpus is called 'D1'"):
        prepare_ckl(folder, tmp_path / "out", corpora=["D1"])
    with pytest.raises(UserError, match="No corpus 'd0' was prepared; there are d1"):
        prepare_ckl(folder, tmp_path / "out", 100).open("d0")
    bare = train_vocabulary(["a b c d"], tmp_path / "bare.model", 20)
    with pytest.raises(UserError, match="has no sentinels"):
        prepare_ckl(folder, tmp_path / "out", vocabulary=bare.path, extra_ids=0)
