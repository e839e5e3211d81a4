"""The paper's claims hold of seeds that are like the paper, and fail of ones turned round."""

import shutil

import numpy as np
import pytest

from ckl_jax.analysis.claims import judge
from ckl_jax.analysis.rows import ProbedRun
from ckl_jax.cli.ckl import main
from ckl_jax.files import read_json, write_json, write_jsonl
from ckl_jax.papers.ckl.analysis import claims
from tests.analysis.helpers import METHODS, make_demo, make_rows, make_run

TEXTS = [claim.text for claim in claims.CLAIMS]
BY_TEXT = dict(zip(TEXTS, claims.CLAIMS, strict=True))
BEST, LORA = TEXTS[0], "LoRA has a lower FUAR than Vanilla"
WORST, KEPT = "Mix-Review has the highest FUAR", TEXTS[7]


def _like_paper(seed, noise=0.001, sign=1):
    """Numbers like the paper's, or like them turned round, each with its resamples."""
    generator = np.random.default_rng(seed)

    def numbers(value):
        value = np.inf if value is None else sign * value
        return value + noise * generator.standard_normal(201)

    unprinted = {
        key: float(number)
        for claim in claims.CLAIMS
        for number, key in enumerate(reversed(claim.effect.keys))
        if key not in claims.PUBLISHED
    }
    return {key: numbers(value) for key, value in (claims.PUBLISHED | unprinted).items()}


def _judge(seeds):
    return judge(claims.CLAIMS, seeds)


def _verdicts(*seeds):
    return {row["claim"]: row["verdict"] for row in _judge(seeds)}


def test_the_papers_numbers_bear_its_claims_out():
    printed = [claim for claim in claims.CLAIMS if claim.paper is not None]
    assert {c.where for c in claims.CLAIMS} - {c.where for c in printed} == {
        "Table 12",
        "Figure 8a",
        "Figure 8b",
    }
    assert len(BY_TEXT) == len(TEXTS) and all(claim.paper > 0 for claim in printed)
    paper = {text: claim.paper for text, claim in BY_TEXT.items()}
    assert paper[BEST] == pytest.approx(0.84 - 0.28)
    assert paper[LORA] == pytest.approx(1.08 - 0.55)
    assert paper[WORST] == pytest.approx(1.74 - 1.08)
    assert paper[KEPT] == pytest.approx((16.58 + 19.59 + 19.76 + 20.29) / 4 - 12.89)
    assert paper["a lower learning rate forgets less"] == pytest.approx(19.15 - 11.19)
    assert paper["a lower learning rate learns less"] == pytest.approx(18.77 - 13.56)
    assert paper["of GPT-2's, Mix-Review has the lowest FUAR"] == pytest.approx(0.06)
    assert paper[TEXTS[-1]] == pytest.approx(4.37 - 1.64)
    survives = "after P2, methods that add parameters know more of P1 than Vanilla"
    assert paper[survives] == pytest.approx((16.07 + 16.07 + 15.31 + 15.31) / 4 - 14.37)


def test_five_seeds_decide_and_four_do_not():
    seeds = [_like_paper(seed) for seed in range(5)]
    assert set(_verdicts(*seeds).values()) == {"yes"}
    for row in _judge(seeds[:4]):
        assert (row["verdict"], row["seeds"], row["seeds_needed"]) == ("undecided", 4, 5)
        expected = 1.0 if row["paper"] is None else row["paper"]
        assert row["low"] < expected < row["high"]
        assert row["mean"] == pytest.approx(expected, abs=0.01)
    turned = _verdicts(*(_like_paper(seed, sign=-1) for seed in range(5)))
    least = (BEST, WORST)  # of numbers turned round, another method is the best or the worst
    assert {v for text, v in turned.items() if BY_TEXT[text].unit == "points"} == {"no"}
    assert turned[LORA] == "no" and all(turned[text] != "yes" for text in least)


def test_seeds_that_differ_decide_nothing():
    seeds = [_like_paper(seed, sign=1 if seed % 2 else -1) for seed in range(6)]
    rows = {row["claim"]: row for row in _judge(seeds)}
    assert rows[KEPT]["verdict"] == "undecided" and rows[KEPT]["seeds_needed"] is None
    assert rows[KEPT]["low"] < 0 < rows[KEPT]["high"]
    # Five may be too few; the estimate is more than there are.
    wide = [_like_paper(seed, noise=4.0) for seed in range(5)]
    few = {row["claim"]: row for row in _judge(wide)}[TEXTS[-1]]
    assert few["verdict"] == "undecided" and (few["seeds_needed"] or 101) > 5


def _with_ratios(**given):
    """FUAR of all seven methods; where it is not given, nothing was gained."""
    methods = {row for scenario, row, _ in claims.PUBLISHED if scenario == "main"} - {"initial"}
    return {("main", m, "fuar"): np.full(201, given.get(m, np.inf)) for m in methods}


def test_where_no_method_gains_none_is_the_best():
    nothing = [_with_ratios()] * 5
    row = _judge(nothing)[0]
    assert (row["verdict"], row["mean"], row["seeds_needed"]) == ("undecided", None, None)
    assert (row["low"], row["high"]) == (None, None)
    assert _verdicts(*[_with_ratios(vanilla=0.1)] * 5)[BEST] == "no"
    assert _verdicts(*[_with_ratios(lora=0.1)] * 5)[BEST] == "yes"
    tie = _judge([_with_ratios(vanilla=0.1, lora=0.1)] * 5)[0]
    assert (tie["verdict"], tie["mean"]) == ("undecided", 0.0)  # no less, no more
    row = _judge([_with_ratios(vanilla=0.5, lora=0.1), _with_ratios()])[0]
    assert row["values"] == [pytest.approx(0.4), None]


def test_what_is_missing_is_named():
    assert set(_verdicts({}).values()) == {"not run"}
    only = {key: values for key, values in _like_paper(0).items() if key[:2] == ("main", "lora")}
    rows = {row["claim"]: row for row in _judge([only, _like_paper(1)])}
    assert rows[LORA]["missing"] == [["main/vanilla"], []] and rows[LORA]["seeds"] == 1
    assert rows[TEXTS[-1]]["missing"] == [["gpt2_1e-3"], []]
    del only["main", "lora", "fuar"]  # which takes the Initial model
    row = {row["claim"]: row for row in _judge([only])}[LORA]
    assert row["missing"] == [["main/vanilla", "main/lora/fuar"]]
    assert row["verdict"] == "not run"


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    """Folders of demos of five seeds, which tests must not write into."""
    root = tmp_path_factory.mktemp("demos")
    return [make_demo(root / f"seed-{s}", seed=s, epochs=1) for s in range(5)]


def _told(out):
    return {row["claim"]: row for row in read_json(out / "claims.json")["claims"]}


def test_a_demo_for_each_seed_is_enough_for_table_2(demos, tmp_path, capsys):
    assert main(["claims", *map(str, demos), "--out", str(tmp_path)]) == 0
    rows = _told(tmp_path)
    # What the synthetic runs are drawn from: Mix-Review forgets a third and gains as much.
    table_2 = {t: row["verdict"] for t, row in rows.items() if row["where"] == "Table 2"}
    assert len(table_2) == 8 and table_2[LORA] == table_2[KEPT] == table_2[BEST] == "yes"
    assert table_2[WORST] == "no"
    # Its models answer the questions of appendices H and I too.
    also = {t for t, row in rows.items() if row["where"] in ("Table 12", "Appendix I")}
    assert {row["verdict"] for t, row in rows.items() if t not in {*table_2, *also}} == {"not run"}
    assert rows["Modular gets more right that Initial got wrong than Vanilla does"]["mean"] > 0
    told = capsys.readouterr().out
    page = (tmp_path / "claims.html").read_text()
    command = f"ckl experiment ckl/table3 --seed 4 --source simulated --out {demos[4]}-tables"
    assert f"Missing in {demos[4]}: small, p1_p2; make it by `{command}`." in told
    assert "Mix-Review has the highest FUAR" in page and "95 % interval" in page
    assert (tmp_path / "claims.md").read_text().count("| yes |") >= 3
    again = tmp_path / "again"
    assert main(["claims", *map(str, demos), "--out", str(again), "--samples", "2000"]) == 0
    assert (again / "claims.json").read_text() == (tmp_path / "claims.json").read_text()


def test_the_effect_is_that_of_the_rows_and_its_interval_of_their_items(demos):
    """Against float64 loops over the rows."""
    numbers = claims.read_numbers(demos[0], 400, 0, is_demo=True)
    em = {}
    for name in ("initial", "vanilla", "lora"):
        em[name] = {probe: x.em for probe, x in ProbedRun.open(demos[0] / name).last.items()}

    def fuar(name, draw):
        score = {m: {p: 100 * em[m][p][draw[p]].mean() for p in draw} for m in ("initial", name)}
        gap = {p: score[name][p] - score["initial"][p] for p in draw}
        lost = max(0.0, -gap["invariant_lama"])
        return lost / (max(0.0, gap["updated_lama"]) + max(0.0, gap["new_lama"]))

    probes = ("invariant_lama", "updated_lama", "new_lama")
    sizes = {p: len(em["lora"][p]) for p in probes}
    every = {p: np.arange(n) for p, n in sizes.items()}
    effect = numbers["main", "vanilla", "fuar"] - numbers["main", "lora", "fuar"]
    assert effect[0] == pytest.approx(fuar("vanilla", every) - fuar("lora", every))
    generator = np.random.default_rng(0)
    loop = []
    for _ in range(400):
        draw = {p: generator.integers(n, size=n) for p, n in sizes.items()}
        loop.append(fuar("vanilla", draw) - fuar("lora", draw))
    assert effect[1:].std() == pytest.approx(np.std(loop), rel=0.15)
    assert effect[1:].mean() == pytest.approx(np.mean(loop), abs=4 * np.std(loop) / 20)


def _experiment(folder, seed, **settings):
    """A folder of Table 2 and of GPT-2, in `ckl experiment`'s layout."""
    make_run(folder, "initial", seed=seed, epochs=1)
    for method in METHODS:
        if method != "initial":
            make_run(folder / "main", method, seed=seed, epochs=1)
            path = folder / "main" / method / "summary.json"
            write_json(path, read_json(path) | {"base_checkpoint": str(folder / "initial")})
    for name in ("gpt2_initial", "gpt2_1e-3/vanilla"):
        method = name.removeprefix("gpt2_").removeprefix("1e-3/")
        for tuning in ("invariant", "questions"):
            probe = {"invariant": "invariant_lama", "questions": "new_lama_easy"}[tuning]
            for i in range(2):
                at = folder / name / "light_tuned"
                made = make_run(at, method, seed=seed, epochs=1, sizes={probe: 60})
                shutil.move(made, at / f"{tuning}_{i}")
    write_json(folder / "experiments.json", {"seed": seed, "size": "small", **settings})
    return folder


def test_experiments_of_t5_and_gpt2(tmp_path, capsys):
    folder = _experiment(tmp_path / "a b", 3, bindings=["EPOCHS=2"], world="disjoint", data=None)
    (folder / "main" / "modular" / "summary.json").unlink()  # which trains still
    assert main(["claims", str(folder)]) == 0
    rows = _told(folder)
    assert rows[LORA]["verdict"] == "undecided" and rows[LORA]["seeds_needed"] >= 5
    assert rows[BEST]["missing"] == [["main/modular"]]
    assert rows[TEXTS[-1]]["verdict"] == "undecided" and rows[TEXTS[-1]]["mean"] is not None
    told = capsys.readouterr().out
    command = "--seed 3 --size small --world disjoint --gin.EPOCHS=2 --out "
    assert f"ckl experiment ckl/table2 {command}'{folder}'" in told.replace("\n", " ")
    assert "undecided (1 seed)" in told


def test_what_was_fine_tuned_and_what_figure_8_says(tmp_path):
    """Of one seed: scores of zero-shot relation extraction, and the numbers of a figure."""
    scores = dict.fromkeys(METHODS, 3) | {"initial": 6, "vanilla": 2, "modular": 5}
    for row, right in scores.items():
        folder = tmp_path / "kilt_structured_zeroshot" / row
        asked = make_rows(row, (0.0,) * 5, step=9, epoch=1, sizes={"structured_zeroshot": 10})
        kilt = {"probe": "structured_zeroshot", "metric": "accuracy", "cut": 0}
        rows = [r | kilt | {"score": float(i < right)} for i, r in enumerate(asked)]
        write_jsonl(folder / "probes" / "rows_000009.jsonl", rows)
        write_json(folder / "summary.json", {"run": row, "steps": 9, "base_checkpoint": "b"})
    parts = {"updated_lama": {"person": 6.0, "date": 1.0}, "new_lama": {"person": 2.0}}
    figure = {"contributions": parts, "shared_persons": {"vanilla": [9, 30.0, 12.5]}}
    write_json(tmp_path / "ckl-figure8.json", figure)
    write_json(tmp_path / "experiments.json", {"seed": 3, "size": "small"})
    assert main(["claims", str(tmp_path), "--samples", "100"]) == 0
    rows = _told(tmp_path)
    means = {row["where"]: [] for row in rows.values()}
    for row in rows.values():
        means[row["where"]].append(row["mean"])
    assert means["Table 8"] == pytest.approx([40.0, 15.0, 20.0])
    assert (means["Figure 8a"], means["Figure 8b"]) == ([7.0], [17.5])
    assert means["Table 2"] == [None] * 8


@pytest.mark.parametrize(
    "change, what",
    [
        ({"seed": 0}, "has the seed 0 of another folder"),
        ({"seed": 1, "size": "tiny"}, "other settings than"),
        ({"seed": 1, "bindings": ["EPOCHS=3"]}, "other settings than"),
        ({"seed": 1, "bindings": ["EPOCHS=2", "EVAL_PERIOD=9"]}, ""),  # when it is asked
    ],
)
def test_folders_that_do_not_go_together(change, what, tmp_path, capsys):
    settings = {"seed": 0, "size": "small", "world": "disjoint", "bindings": ["EPOCHS=2"]}
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder, its in zip(folders, (settings, settings | change), strict=True):
        make_demo(folder, ("initial", "vanilla", "lora"), epochs=1, seed=its["seed"])
        write_json(folder / "demo.json", its)
    code = main(["claims", *map(str, folders), "--samples", "100"])
    told = capsys.readouterr().err
    assert code == (2 if what else 0) and what in told and told.count("\n") <= 1


def test_the_size_of_a_demo_is_that_of_the_experiments_that_it_lacks(tmp_path, capsys):
    make_demo(tmp_path, ("initial", "vanilla"), epochs=1)
    write_json(tmp_path / "demo.json", {"seed": 0, "size": "medium", "bindings": ["EPOCHS=1"]})
    assert main(["claims", str(tmp_path), "--samples", "100"]) == 0
    told = capsys.readouterr().out
    tables = f"--gin.EPOCHS=1 --out {tmp_path}-tables`"
    assert f"make it by `ckl experiment ckl/table3 --seed 0 --size medium {tables}" in told
    assert (
        f"`ckl demo --methods all --seed 0 --size medium --gin.EPOCHS=1 --out {tmp_path}`" in told
    )
    tables = tmp_path.with_name(f"{tmp_path.name}-tables")
    tables.mkdir()
    write_json(tables / "ckl-table3.json", {})
    assert main(["claims", str(tmp_path), "--samples", "100"]) == 0
    assert f"it is in {tables}, which is a folder of its own" in capsys.readouterr().out


def test_bad_folders(demos, tmp_path, capsys):
    def refused(*words):
        assert main(["claims", *map(str, words), "--out", str(tmp_path / "out")]) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    assert "named twice" in refused(demos[0], f"{demos[0]}/.")
    assert "is a folder of none of `ckl experiment`, `ckl demo`, `ckl temporalwiki`" in refused(
        tmp_path / "nowhere"
    )
    write_json(tmp_path / "empty" / "experiments.json", {"seed": 7})
    assert "has no finished training" in refused(tmp_path / "empty")
    assert "has no finished training" in refused(demos[0], tmp_path / "empty")
    assert "--samples is 0" in refused(demos[0], "--samples", "0")
    write_json(tmp_path / "list" / "demo.json", [1])
    assert "not a JSON object" in refused(tmp_path / "list")
