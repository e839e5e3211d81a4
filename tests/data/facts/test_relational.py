"""Relational datasets: BEAR as published, small ones by hand, and what is wrong with some."""

import json

import numpy as np
import pytest

from ckl_jax.data.facts.relational import MULTIPLE, SINGLE, Dataset
from ckl_jax.data.facts.statements import fill, statements
from ckl_jax.errors import UserError
from tests.real_data import shared_data


def write(folder, metadata, **tables):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata_relations.json").write_text(json.dumps(metadata))
    for code, rows in tables.items():
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (folder / f"{code}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def row(subject, answer, **more):
    return {
        "sub_id": f"s{subject}",
        "sub_label": subject,
        "obj_id": f"o{answer}",
        "obj_label": answer,
        **more,
    }


CAPITAL = {"templates": ["[X]'s capital is [Y].", "[Y] is in [X]."]}


@pytest.mark.parametrize(
    "name, relations, instances, options, statements_per_template",
    [("BEAR", 60, 7731, 1902, 209_499), ("BEAR-big", 78, 40_916, 6535, 2_803_084)],
)
@pytest.mark.filterwarnings("ignore:.*`sub_label` is empty")
@pytest.mark.filterwarnings("ignore:.*BEAR-big has no <relation>.jsonl")
def test_bear_is_as_published(name, relations, instances, options, statements_per_template):
    bear = Dataset.from_path(shared_data("bear", name))
    assert len(bear) == relations and bear.name == name
    assert sum(len(r.instances) for r in bear) == instances
    assert sum(len(r.answer_ids) for r in bear) == options
    assert sum(len(r.instances) * len(r.answer_ids) for r in bear) == statements_per_template
    assert all(len(r.templates) == 3 for r in bear)
    assert list(bear.relations)[:3] == ["P6", "P19", "P20"]
    assert bear["P6"].info["domains"] == ["Political", "Biographical", "Historical"]


def test_bear_has_46_relations_with_several_instances_an_answer():
    bear = Dataset.from_path(shared_data("bear", "BEAR"))
    kinds = {kind: [r for r in bear if r.cardinality == kind] for kind in (SINGLE, MULTIPLE)}
    assert [len(kinds[k]) for k in (SINGLE, MULTIPLE)] == [14, 46]
    assert [sum(len(r.instances) for r in kinds[k]) for k in (SINGLE, MULTIPLE)] == [840, 6891]


@pytest.mark.filterwarnings("ignore:.*`sub_label` is empty")
@pytest.mark.filterwarnings("ignore:.*BEAR-big has no <relation>.jsonl")
def test_bear_lies_in_bear_big():
    bear = Dataset.from_path(shared_data("bear", "BEAR"))
    big = Dataset.from_path(shared_data("bear", "BEAR-big"))
    rows = json.loads(shared_data("bear", "bear_lite_indices.json").read_text())
    found = big.filter_subset({code: rows[code] for code in ("P36", "P30")})
    for code in ("P36", "P30"):
        assert found[code].instances == bear[code].instances or [
            (i.sub_id, found[code].answer_ids[i.answer_idx]) for i in found[code].instances
        ] == [(i.sub_id, bear[code].answer_ids[i.answer_idx]) for i in bear[code].instances]
        assert found[code].cardinality == bear[code].cardinality


def test_the_answer_space_is_the_objects_in_order_and_ids_stay_text(tmp_path):
    rows = [row("B", "2"), row("A", "007"), row("C", "2")]
    data = Dataset.from_path(write(tmp_path / "own", {"P1": CAPITAL}, P1=rows))
    relation = data["P1"]
    assert relation.answer_labels == ("2", "007") and relation.answer_ids == ("o2", "o007")
    assert [i.answer_idx for i in relation.instances] == [0, 1, 0]
    assert relation.cardinality == MULTIPLE


def test_a_byte_order_mark_is_no_text(tmp_path):
    folder = write(tmp_path / "own", {"P1": CAPITAL}, P1=[row("A", "1"), row("B", "2")])
    for path in folder.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert Dataset.from_path(folder)["P1"].answer_labels == ("1", "2")


def test_a_subset_shrinks_the_answer_space_and_keeps_the_cardinality(tmp_path):
    rows = [row(s, a) for s, a in ("Ax", "By", "Cx", "Dz")]
    data = Dataset.from_path(write(tmp_path / "own", {"P1": CAPITAL}, P1=rows))
    few = data.filter_subset({"P1": [3, 0]})
    assert few.name == "own (subset)" and few["P1"].answer_labels == ("z", "x")
    assert [i.answer_idx for i in few["P1"].instances] == [0, 1]
    assert few["P1"].cardinality == MULTIPLE
    assert data.filter_subset({"P1": [3]}, True)["P1"].answer_labels == ("x", "y", "z")
    with pytest.raises(UserError, match="P1 has no instance 4; it has 4"):
        data["P1"].take([4])


def test_a_sample_is_the_librarys(tmp_path):
    rows = [row(str(i), str(i % 3)) for i in range(10)]
    relation = Dataset.from_path(write(tmp_path / "own", {"P1": CAPITAL}, P1=rows))["P1"]
    chosen = [int(i.sub_label) for i in relation.subsample(4).instances]
    assert chosen == np.random.RandomState(23).choice(10, 4, replace=False).tolist()


def test_statements_capitalize_one_letter_and_know_their_spans(tmp_path):
    filled = fill("[X] and [Y]: [Y] of [X]", "iOS", "de l'Eau")
    assert filled.text == "IOS and de l'Eau: de l'Eau of iOS"
    for spans, label in ((filled.subjects, "ios"), (filled.answers, "de l'eau")):
        assert [filled.text[a:b].lower() for a, b in spans] == [label, label]
    assert fill("[Y] is", "", "ß").text == "ß is", "one letter stays one letter"
    assert fill("[X] is [Y]", "a", "b", capitalize=False).text == "a is b"
    rows = [row("a", "b"), row("c", "d")]
    relation = Dataset.from_path(write(tmp_path / "own", {"P1": CAPITAL}, P1=rows))["P1"]
    texts = [s.text for s in statements(relation, 0)]
    assert texts == [
        "A's capital is b.",
        "A's capital is d.",
        "C's capital is b.",
        "C's capital is d.",
    ]


GOOD = [row("A", "x"), row("B", "y")]
SPACE = {"answer_space_ids": ["ox", "oy"], "answer_space_labels": ["x", "y"]}


@pytest.mark.parametrize(
    "metadata, rows, message",
    [
        ({}, GOOD, "no entry 'P1', but there is a P1.jsonl"),
        ({"templates": ["[X] is."]}, GOOD, r"P1: template 0, '\[X\] is.', has no \[Y\]"),
        ({"templates": "[X] [Y]"}, GOOD, "`templates` is '.X. .Y.'; give a list"),
        ({**CAPITAL, "answer_space": ["x"]}, GOOD, "P1: `answer_space` is not read by any"),
        ({**CAPITAL, "answer_space_ids": ["ox"]}, GOOD, "`answer_space_labels` is None; give"),
        ({**CAPITAL, **SPACE, "answer_space_labels": ["x", ""]}, GOOD, "P1: `answer_space_labels`"),
        ({**CAPITAL, **SPACE}, [*GOOD, row("C", "z")], "line 3: the answer 'oz' is not in the an"),
        ({**CAPITAL, **SPACE}, [{**GOOD[0], "answer_idx": 2}], "line 1: the answer 2 is not in"),
        ({**CAPITAL, **SPACE}, [{**GOOD[0], "answer_idx": 1}], "`answer_idx` 1 is 'oy', but"),
        (CAPITAL, [GOOD[0], row("B", "")], "P1.jsonl, line 2: `obj_label` is ''; give a text"),
        (CAPITAL, [{**GOOD[0], "obj_label": 7}], "line 1: `obj_label` is 7; give a text"),
        (CAPITAL, [{**GOOD[0], "sub_id": 7}], "P1.jsonl, line 1: `sub_id` is 7; give a text"),
        (CAPITAL, [{"sub_id": "1", "sub_label": "A"}], "line 1: `obj_id` is missing; without it"),
        (CAPITAL, [GOOD[0], "{"], "P1.jsonl, line 2: not JSON"),
        (CAPITAL, [""], "P1.jsonl is empty"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, metadata, rows, message):
    folder = write(tmp_path / "own", {"P1": metadata} if metadata else {}, P1=rows)
    with pytest.raises(UserError, match=message):
        Dataset.from_path(folder)


def test_an_empty_subject_is_scored_with_a_warning(tmp_path):
    folder = write(tmp_path / "own", {"P1": CAPITAL}, P1=[GOOD[0], row("", "y")])
    with pytest.warns(UserWarning, match="line 2: `sub_label` is empty"):
        assert Dataset.from_path(folder)["P1"].instances[1].sub_label == ""


def test_a_folder_without_relations(tmp_path):
    with pytest.raises(UserError, match="holds no <relation>.jsonl"):
        Dataset.from_path(write(tmp_path / "own", {}))
    with pytest.raises(UserError, match="has no relation 'P2'"):
        Dataset.from_path(write(tmp_path / "own", {"P1": CAPITAL}, P1=GOOD), only=["P2"])


def test_parquet_is_read_as_json_lines_are(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="the extra parquet is not installed")
    from pyarrow import parquet

    rows = [row("B", "2", sub_aliases=["b"]), row("A", "007", sub_aliases=[])]
    plain = Dataset.from_path(write(tmp_path / "a", {"P1": CAPITAL}, P1=rows))["P1"]
    folder = write(tmp_path / "b", {"P1": CAPITAL})
    file = folder / "P1.parquet.gzip"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file, compression="gzip")
    assert Dataset.from_path(folder)["P1"] == plain
    parquet.write_table(pyarrow.Table.from_pylist([{**rows[0], "obj_label": ""}]), file)
    with pytest.raises(UserError, match="P1.parquet.gzip, row 1: `obj_label` is ''"):
        Dataset.from_path(folder)
    file.write_text("{}")
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        Dataset.from_path(folder)


def test_the_librarys_own_copy_of_bear_is_found_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LM_PUB_QUIZ_CACHE_ROOT", str(tmp_path))
    with pytest.raises(UserError, match="no folder BEAR, and lm-pub-quiz has no copy of it in"):
        Dataset.from_path("BEAR")
    write(tmp_path / "datasets/bear", {"P1": CAPITAL}, P1=GOOD)
    assert len(Dataset.from_path("BEAR")["P1"].instances) == 2
