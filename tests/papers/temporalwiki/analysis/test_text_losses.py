"""Perplexities of words in running text, against literal sums; their ratios as table and figure."""

import math

import numpy as np
import pytest

from ckl_jax.cli import ckl
from ckl_jax.errors import UserError
from ckl_jax.files import read_json, write_jsonl
from ckl_jax.papers.temporalwiki.analysis.text_losses import (
    FORMULAS,
    as_columns,
    ratios,
    read_losses,
    summarize,
)


def make_rows(n=40, better=0.0, seed=0):
    """Losses of rows of two tasks; of the first four rows none has a proper noun."""
    rng, rows = np.random.default_rng(seed), []
    for task in ("diffset", "rest"):
        for i in range(n):
            total, names = int(rng.integers(20, 64)), 0 if i < 4 else int(rng.integers(1, 9))
            losses = {
                "all": [5.0 * total, total],
                "proper_nouns": [(rng.gamma(9.0, 1.0) - better) * names, names],
            }
            rows.append({"task": task, "step": 3, "row": i, "tagger": "t", "losses": losses})
    return rows


def write(root, name, **kwargs):
    write_jsonl(root / name / "proper_nouns" / "rows_000003.jsonl", make_rows(**kwargs))
    return root / name


def test_perplexity_is_over_all_marked_tokens_and_a_batch_without_any_is_left_out():
    rows = make_rows()
    found = summarize(rows)["diffset"]
    mine = [row["losses"]["proper_nouns"] for row in rows if row["task"] == "diffset"]
    total, count = map(sum, zip(*mine, strict=True))
    assert found["perplexity/proper_nouns"] == pytest.approx(math.exp(total / count))
    assert found["perplexity/all"] == pytest.approx(math.exp(5)) and (
        found["tokens/proper_nouns"] == count
    )
    batches = [mine[i : i + 4] for i in range(4, 40, 4)]  # the first four rows have none
    means = [sum(x for x, _ in b) / sum(n for _, n in b) for b in batches]
    assert found["perplexity_batch_mean_legacy/proper_nouns"] == pytest.approx(
        math.exp(sum(means) / len(means))
    )
    assert summarize(rows[:4])["diffset"] == {
        "tokens/all": sum(r["losses"]["all"][1] for r in rows[:4]),
        "tokens/proper_nouns": 0.0,
        "perplexity/all": pytest.approx(math.exp(5)),
        "perplexity_batch_mean_legacy/all": pytest.approx(math.exp(5)),
    }


def test_ratios_pair_the_rows_of_both_models():
    ours, theirs = as_columns(make_rows(better=0.1)), as_columns(make_rows())
    found = ratios(ours, theirs, samples=200)
    for task in ("diffset", "rest"):  # every token is 0.1 nats cheaper, whatever is drawn
        x = found[task]["proper_nouns"]
        assert (x["value"], x["low"], x["high"]) == pytest.approx((math.exp(-0.1),) * 3)
        counts = theirs[task]["proper_nouns"].tokens
        assert (x["rows"], x["tokens"]) == (np.count_nonzero(counts), counts.sum())
    with pytest.raises(UserError, match="different rows .all of diffset"):
        ratios(as_columns(make_rows(seed=1)), theirs)


@pytest.mark.parametrize("formula", FORMULAS)
def test_intervals_are_those_of_texts_that_have_the_group(formula):
    """Against resamples drawn here; the model's gain differs from text to text."""
    theirs, ours = make_rows(), make_rows()
    for row in ours:
        for losses in row["losses"].values():
            losses[0] -= 0.02 * row["row"] * losses[1]
    found = ratios(as_columns(ours), as_columns(theirs), formula, samples=4000)["diffset"]
    values = np.array(
        [
            [a["losses"]["proper_nouns"][0], *b["losses"]["proper_nouns"]]
            for a, b in zip(ours, theirs, strict=True)
            if a["task"] == "diffset"
        ]
    )
    if formula == "token_micro":
        units = values[values[:, 2] > 0]
    else:
        sums = values.reshape(-1, 4, 3).sum(1)
        sums = sums[sums[:, 2] > 0]
        units = np.column_stack([sums[:, :2] / sums[:, 2:], np.ones(len(sums))])
    drawn = units[np.random.default_rng(5).integers(len(units), size=(4000, len(units)))].sum(1)
    expected = np.percentile(np.exp((drawn[:, 0] - drawn[:, 1]) / drawn[:, 2]), [2.5, 97.5])
    x = found["proper_nouns"]
    np.testing.assert_allclose([x["low"], x["high"]], expected, rtol=0.03)
    assert x["low"] < x["value"] - 0.02 < x["high"] - 0.04


def test_one_text_with_the_group_has_no_interval(tmp_path, capsys):
    rows = make_rows(n=6)
    for row in rows:
        if row["row"] != 5:
            row["losses"]["proper_nouns"] = [0.0, 0]
    x = ratios(as_columns(rows), as_columns(rows))["rest"]["proper_nouns"]
    assert x["value"] == 1.0 and math.isnan(x["low"]) and math.isnan(x["high"])
    for name in ("initial", "lora"):
        write_jsonl(tmp_path / name / "proper_nouns" / "rows_000003.jsonl", rows)
    runs = ["proper-nouns", f"{tmp_path}/lora", "--initial", f"{tmp_path}/initial"]
    assert ckl.main([*runs, "--out", f"{tmp_path}/out"]) == 0
    said = next(x for x in capsys.readouterr().out.splitlines() if "LoRA, rest, proper" in x)
    assert "of one text" in said and "nan" not in said
    written = read_json(tmp_path / "out" / "proper_nouns.json")["lora"]["rest"]["proper_nouns"]
    assert written["value"] == 1.0 and written["low"] is written["high"] is None


def test_bad_losses_are_named(tmp_path):
    rows = make_rows()
    rows[5]["losses"]["all"][0] = math.nan
    with pytest.raises(UserError, match="loss of row 5 of diffset is nan"):
        as_columns(rows)
    with pytest.raises(UserError, match="no losses of running text; evaluate"):
        read_losses(tmp_path)
    folder = write(tmp_path, "run")
    with pytest.raises(UserError, match="no losses of running text at step 7"):
        read_losses(folder, 7)
    write_jsonl(folder / "proper_nouns" / "rows_000009.jsonl", [{"task": "diffset"}])
    with pytest.raises(UserError, match="rows_000009.jsonl: a row has no losses"):
        read_losses(folder)


def test_the_command_prints_and_draws(tmp_path, capsys):
    runs = [str(write(tmp_path, n, better=b)) for n, b in (("lora", 0.2), ("vanilla", 0.1))]
    initial = str(write(tmp_path, "initial"))
    argv = ["proper-nouns", *runs, "--initial", initial, "--out", str(tmp_path / "out")]
    assert ckl.main(argv) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if "LoRA, rest, proper" in x)
    assert f"{math.exp(-0.2):.3f}" in line
    table = read_json(tmp_path / "out" / "proper_nouns.json")
    assert table["vanilla"]["diffset"]["proper_nouns"]["value"] == pytest.approx(math.exp(-0.1))
    assert (tmp_path / "out" / "proper_nouns.png").stat().st_size > 5000
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "proper_nouns.json").write_text("mine")
    assert ckl.main([*argv[:-1], str(tmp_path / "mine")]) == 2
    assert "mine is there already; choose another --out" in capsys.readouterr().err
    assert (tmp_path / "mine" / "proper_nouns.json").read_text() == "mine"
    assert ckl.main([*argv, "--formula", "per_fact_mean"]) == 2
    assert "--formula is 'per_fact_mean'; choose" in capsys.readouterr().err
