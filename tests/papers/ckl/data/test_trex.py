"""Facts of T-REx to tune on: drawn by lot, of the probe's relations, none of them asked."""

import json

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.facts.ckl_files import read_probe
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl.data.trex import draw


@pytest.fixture
def facts(tmp_path):
    """Two relations as LAMA has them, one of them unknown, and a probe that asks one fact."""
    (tmp_path / "trex").mkdir()
    for name in ("P19", "P9999"):
        rows = [{"sub_label": f"Person {i}", "obj_label": f"Town {i % 7}"} for i in range(60)]
        text = "".join(json.dumps(row) + "\n" for row in [*rows, rows[0]])
        (tmp_path / "trex" / f"{name}.jsonl").write_text(text)
    (tmp_path / "il.csv").write_text(
        "id,input,output,relation\n1,Person 3 was born in <extra_id_0> .,Town 3,P19\n"
    )
    return tmp_path


def test_a_draw_of_the_probes_relations_without_what_it_asks(facts):
    counts = draw([facts / "trex"], facts / "il.csv", facts / "out.csv", 20, seed=1)
    expected = {"of other relations": 61, "asked by the probe": 1, "written": 20}
    assert expected.items() <= counts.items()
    items = read_probe("trex_5000", path=facts / "out.csv")
    assert len({item.input for item in items}) == 20
    assert {item.relation for item in items} == {"P19"}
    assert not any("Person 3 " in item.input for item in items)
    assert {item.answers[0] for item in items} <= {f"Town {i}" for i in range(7)}
    again = draw([facts / "trex"], facts / "il.csv", facts / "again.csv", 20, seed=1)
    assert again == counts
    assert (facts / "again.csv").read_bytes() == (facts / "out.csv").read_bytes()
    draw([facts / "trex"], facts / "il.csv", facts / "other.csv", 20, seed=2)
    assert (facts / "other.csv").read_bytes() != (facts / "out.csv").read_bytes()


def test_all_there_are_and_bad_input(facts, capsys):
    counts = draw([facts / "trex"], facts / "il.csv", facts / "out.csv")
    assert counts["written"] == 59 and counts["twice in the facts"] == 1
    with pytest.raises(UserError, match="None of the facts is left"):
        draw([facts / "trex" / "P9999.jsonl"], facts / "il.csv", facts / "none.csv")
    argv = ["data", "trex", "--facts", str(facts / "trex"), "--invariant", str(facts / "il.csv")]
    assert main([*argv, "--out", str(facts / "cli.csv"), "--count", "0"]) == 2
    assert main([*argv, "--out", str(facts / "cli.csv"), "--count", "5"]) == 0
    assert "5  facts in" in capsys.readouterr().out
    held = (facts / "cli.csv").read_bytes()
    assert main([*argv, "--out", str(facts / "cli.csv"), "--count", "9"]) == 2
    told = "cli.csv is there already; choose another --out, or add --overwrite"
    assert told in capsys.readouterr().err
    assert (facts / "cli.csv").read_bytes() == held
    assert main([*argv, "--out", str(facts / "cli.csv"), "--count", "9", "--overwrite"]) == 0
