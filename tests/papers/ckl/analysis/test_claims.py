"""The paper's claims hold of the paper's own numbers, and fail of numbers that are turned round."""

import json
import shutil

import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.papers.ckl.analysis import claims
from ckl_jax.papers.ckl.analysis.published_ckl import TABLE_2, TABLE_3, TABLE_7, TABLE_10, TABLE_11

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


def _ratios(**given):
    """FUAR of all seven methods; where it is not given, nothing was gained."""
    return {m: {"fuar": given.get(m)} for m in TABLE_2["main"] if m != "initial"}


def _turned(numbers):
    return {
        s: {m: {c: None if v is None else -v for c, v in row.items()} for m, row in rows.items()}
        for s, rows in numbers.items()
    }


def test_numbers_turned_round_do_not():
    turned = _verdicts(_turned(PUBLISHED))
    assert turned[2:] == ["no"] * 6
    assert _verdicts(PUBLISHED, _turned(PUBLISHED))[2:] == ["unclear"] * 6
    worse = {"main": _ratios(vanilla=0.1)}
    assert _verdicts(worse)[0] == "no"
    assert _verdicts({"main": _ratios(vanilla=0.1, lora=0.1)})[0] == "unclear"  # no less, no more
    some = {"main": {"vanilla": {"fuar": 0.1}, "lora": {"fuar": 0.2}}}
    assert _verdicts(some)[0] == "not run"  # for the best, all of them are needed


def test_where_no_method_gains_none_is_the_best():
    nothing = {"main": _ratios()}
    assert _verdicts(nothing)[0] == "unclear"
    row = claims.judge([PUBLISHED, nothing, {}])[0]
    assert (row["verdict"], row["seeds"]) == ("unclear", 2)
    assert row["values"] == [pytest.approx(0.84 - 0.28), None, None]


def test_what_is_missing_was_not_run():
    assert set(_verdicts({})) == {"not run"}
    assert _verdicts(TABLE_2, TABLE_3)[2] == "not run"  # one seed has one table, one the other


def _cell(value):
    numbers = dict.fromkeys(("ours", "low", "high", "paper"), value)
    return {**numbers, "defined": True, "printed": False}


def test_the_command(tmp_path, capsys):
    for name, table in (("table2", TABLE_2), ("table3", TABLE_3)):
        parts = {
            scenario: {
                "probes": [c for c in rows["vanilla"] if c != "fuar"],
                "rows": {
                    row: {c: _cell(v) for c, v in columns.items()} for row, columns in rows.items()
                },
            }
            for scenario, rows in table.items()
        }
        (tmp_path / f"ckl-{name}.json").write_text(json.dumps(parts))
    assert main(["claims", str(tmp_path)]) == 0
    told = (tmp_path / "claims.md").read_text()
    assert told.count("| yes |") == 4 and told.count("| not run |") == 4
    assert main(["claims", str(tmp_path), f"{tmp_path}/."]) == 2
    assert "named twice" in capsys.readouterr().err
    settings = {"seed": 0, "size": "small", "bindings": ["EPOCHS=2", "EVAL_PERIOD=9"]}
    for seed in (0, 1):
        settings |= {"seed": seed}
        (tmp_path / "experiments.json").write_text(json.dumps(settings))
        shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-{seed}"))
    first, second = (f"{tmp_path}-{seed}" for seed in (0, 1))
    assert main(["claims", first, second]) == 0
    assert main(["claims", str(tmp_path), second]) == 2
    assert "has the seed 1 of another folder" in capsys.readouterr().err
    for bindings, code in ((["EPOCHS=2"], 0), (["EPOCHS=3"], 2)):  # when it is asked, and what is
        settings |= {"bindings": bindings}
        (tmp_path / "experiments.json").write_text(json.dumps(settings))
        assert main(["claims", first, str(tmp_path)]) == code
    assert "was made with other settings" in capsys.readouterr().err
    assert main(["claims", str(tmp_path / "nowhere")]) == 2
    assert "has no table of an experiment" in capsys.readouterr().err
