"""The paper's claims hold of the paper's own numbers, and fail of numbers that are turned round."""

import json

import pytest

from ckl_jax.analysis import claims
from ckl_jax.analysis.published_ckl import TABLE_2, TABLE_3, TABLE_7, TABLE_10, TABLE_11
from ckl_jax.cli.ckl import main

PUBLISHED = {**TABLE_2, **TABLE_3, **TABLE_7, **TABLE_10, **TABLE_11}


def _verdicts(*numbers):
    return [row["verdict"] for row in claims.judge(numbers)]


def test_the_papers_numbers_bear_its_claims_out():
    rows = claims.judge([PUBLISHED])
    assert [row["verdict"] for row in rows] == ["yes"] * len(claims.CLAIMS)
    assert rows[0]["mean"] == pytest.approx(0.84 - 0.28)
    assert rows[1]["mean"] == pytest.approx(1.53 - 0.61)
    assert rows[4]["mean"] == pytest.approx(19.15 - 11.19)
    assert rows[5]["mean"] == pytest.approx(18.77 - 13.56)
    assert rows[6]["mean"] == pytest.approx(0.06) and rows[7]["mean"] == pytest.approx(4.37 - 1.64)


def _turned(numbers):
    return {
        s: {m: {c: None if v is None else -v for c, v in row.items()} for m, row in rows.items()}
        for s, rows in numbers.items()
    }


def test_numbers_turned_round_do_not():
    turned = _verdicts(_turned(PUBLISHED))
    assert turned[2:] == ["no"] * 6
    assert _verdicts(PUBLISHED, _turned(PUBLISHED))[2:] == ["unclear"] * 6
    worse = {"main": {"vanilla": {"fuar": 0.1}, "lora": {"fuar": None}}}
    assert _verdicts(worse)[0] == "no"


def test_where_no_method_gains_none_is_the_best():
    nothing = {"main": {"vanilla": {"fuar": None}, "lora": {"fuar": None}}}
    assert _verdicts(nothing)[0] == "no"
    row = claims.judge([PUBLISHED, nothing, {}])[0]
    assert (row["verdict"], row["seeds"]) == ("unclear", 2)
    assert row["values"] == [pytest.approx(0.84 - 0.28), None, None]


def test_what_is_missing_was_not_run():
    assert set(_verdicts({})) == {"not run"}
    assert _verdicts(TABLE_2, TABLE_3)[2] == "not run"  # one seed has one table, one the other


def test_the_command(tmp_path, capsys):
    for name, table in (("table2", TABLE_2), ("table3", TABLE_3)):
        parts = {
            scenario: {"rows": {
                row: {c: {"ours": v, "defined": True} for c, v in columns.items()}
                for row, columns in rows.items()
            }}
            for scenario, rows in table.items()
        }  # fmt: skip
        (tmp_path / f"ckl-{name}.json").write_text(json.dumps(parts))
    assert main(["claims", str(tmp_path)]) == 0
    told = (tmp_path / "claims.md").read_text()
    assert told.count("| yes |") == 4 and told.count("| not run |") == 4
    assert main(["claims", str(tmp_path), f"{tmp_path}/."]) == 2
    assert "named twice" in capsys.readouterr().err
    assert main(["claims", str(tmp_path / "nowhere")]) == 2
    assert "has no table of an experiment" in capsys.readouterr().err
