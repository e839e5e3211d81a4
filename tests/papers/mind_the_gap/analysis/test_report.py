"""The report on staleness, end to end on made dumps, and the paper's percentages."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.papers.mind_the_gap.analysis import report
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy, compute
from tests.papers.mind_the_gap.analysis.dumps import write_scored

# Tables 2 and 4: perplexity of CONTROL, and of TIME-STRATIFIED updated in all parameters, biases
# alone, embeddings alone and not at all. What is derived is computed from the printed values.
PUBLISHED = {
    "WMT": (21.11, 22.45, 22.17, 22.16, 22.32),
    "CUSTOMNEWS": (18.38, 21.33, 20.72, 20.96, 21.21),
    "ARXIV": (21.38, 23.07, 20.98, 21.24, 22.27),
}
REDUCTION = {
    "WMT": (1.25, 1.29, 0.58),
    "CUSTOMNEWS": (2.86, 1.73, 0.56),
    "ARXIV": (9.06, 7.93, 3.47),
}
EXCESS = {
    "WMT": (6.35, 5.02, 4.97, 5.73),
    "CUSTOMNEWS": (16.05, 12.73, 14.04, 15.40),
    "ARXIV": (7.90, -1.87, -0.65, 4.16),
}


@pytest.mark.parametrize("corpus", PUBLISHED)
def test_percentages_of_the_papers_tables(corpus, tmp_path):
    texts = [(f"2018-{m:02d}-01", ["w"]) for m in range(1, 5)]
    control, *others = PUBLISHED[corpus]
    dumps = [
        write_scored(tmp_path / str(i), texts, lambda d, w, ppl=ppl: ppl)
        for i, ppl in enumerate((control, *others))
    ]
    models = dict(zip(("none", "all", "bias", "embedding"), dumps[1:], strict=True))
    results = compute(StalenessStudy(control=dumps[0], models=models, tagger="", samples=10))
    excess = [curve["overall"]["value"] for curve in results["months"].values()]
    np.testing.assert_allclose(excess, EXCESS[corpus], atol=0.02)
    reduction = [groups["all"]["value"] for groups in results["reduction"].values()]
    np.testing.assert_allclose(reduction, REDUCTION[corpus], atol=0.02)


@pytest.fixture
def made(tmp_path):
    """Six months in which "zoom" appears; the stale model gets worse by the month."""
    generator = np.random.default_rng(0)
    texts = []
    for month in range(1, 7):
        for day in range(1, 29, 2):
            words = [f"word{i}" for i in generator.integers(0, 30, 12)]
            words += ["zoom"] * (2 if day % 4 == 1 else 1) if month > 1 else []
            texts.append((f"2019-{month:02d}-{day:02d}", words))
    rng = np.random.default_rng(1)

    def stale(date, word):
        noise = math.exp(0.01 * rng.normal())
        return (300.0 if word == "zoom" else 20.0) * (1 + 0.02 * int(date[5:7])) * noise

    def updated(date, word):
        return stale(date, word) / (2.0 if word == "zoom" else 1.05)

    train = tmp_path / "train.jsonl"
    write_documents(
        train,
        (
            Document(str(i), "2018-01-01", "", " ".join(f"word{j}" for j in range(i, i + 9)))
            for i in range(25)
        ),
    )
    control = write_scored(tmp_path / "control", texts, lambda date, word: 20.0)
    return (
        control,
        write_scored(tmp_path / "stale", texts, stale),
        write_scored(tmp_path / "updated", texts, updated),
        str(train),
    )


def test_a_report_of_three_dumps(made, tmp_path, capsys):
    control, stale, updated, train = made
    out = tmp_path / "report"
    past = {"2017": {"start": 0.0, "2019-01": 1.5, "2019-02": 2.5}}
    run = {"forgetting": {"past": past | {"all": past["2017"]}}}
    Path(updated).joinpath("shards").mkdir()
    for file in Path(updated).glob("*.*"):
        file.rename(Path(updated) / "shards" / file.name)
    Path(updated, "summary.json").write_text(json.dumps(run))
    updated = f"{updated}/shards"
    code = main(
        [
            "staleness",
            "--control",
            control,
            "--model",
            f"stale={stale}",
            "--model",
            f"updated={updated}",
            "--train",
            train,
            "--out",
            str(out),
            "--bootstrap",
            "50",
        ]
    )
    assert code == 0
    results = json.loads((out / "results.json").read_text())
    assert [w["word"] for w in results["emerging"]["words"]] == ["zoom"]
    assert results["emerging"]["unseen_types"]["2019-01"] == 0
    assert results["emerging"]["unseen_types"]["2019-02"] > 0
    low, high = (results["months"]["stale"]["line"][k] for k in ("low", "high"))
    assert low > 0 and results["months"]["stale"]["line"]["p"] < 0.1 and high < 100
    assert results["reduction"]["updated"]["emerging"]["value"] == pytest.approx(50, abs=1)
    assert results["words"]["emerging, 2nd, 1st in memory"] == 35
    # The paired test of two curves that are nearly proportional.
    assert results["slopes"]["updated"]["paired"]["degrees"] == 4
    assert {p.name for p in out.iterdir()} >= {"report.html", "tables.md", "months.png"}
    page = (out / "report.html").read_text()
    assert "New words, for example: “zoom” (" in page and "By month" in page
    assert "Emerging new words" in capsys.readouterr().out
    titles = report.tables_of(results)
    assert list(titles) == [
        "Perplexity",
        "Slopes",
        "Groups of words",
        "Emerging new words",
        "The past",
    ]
    assert [cell.text for cell in titles["The past"].rows[0]] == ["updated", "+2.50", "+2.50"]
    assert (out / "forgetting.png").exists()
    assert "The gap grows by" in report.headline(results)
    assert "The perplexity of updated is lower than stale's by" in report.headline(results)
    assert "2 models against a control" in page


def test_digits_are_those_that_the_interval_supports():
    shown = [
        report.rounded({"value": 16.8812, "low": 16.8812 - w, "high": 16.8812 + w}).text
        for w in (30, 5, 0.5, 0.004)
    ]
    assert shown == ["17", "16.9", "16.88", "16.881"]
    assert report.rounded({"value": -0.1, "low": -33.0, "high": 38.0}).text == "0"
    assert report.rounded(None).text == report.rounded({"value": float("nan")}).text == "–"


def test_no_rise_is_said_only_where_one_was_tested():
    lines = {"flat": {"low": -1.0, "p": 0.5}, "short": {"low": -1.0, "p": math.nan}}
    results = {"perplexity": {}, "cutoffs": dict.fromkeys(lines)}
    flat, short = report.cutoff_sentences(
        results | {"months": {name: {"line": line} for name, line in lines.items()}}
    )
    assert flat == "flat: no rise of perplexity with time is found."
    assert short == "short: no slope is tested, which needs three points."


def test_groups_without_test_documents_are_named():
    curve = {"overall": {"value": 1.0, "low": 0.5, "high": 1.5}}
    curve["line"] = {"slope": 0.1, "low": 0.0, "high": 0.2}
    topics = {"topic 1: rain": curve, "topic 2: golf": None}
    results = {
        "perplexity": {"control": {}},
        "settings": {"bin_months": 1},
        "words": {"topic 1: rain": 3},
    }
    (note,) = report._groups(results | {"groups": {"topics": topics}}).notes
    assert note == "Not in the test documents: topic 2: golf."


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["--model", "stale"], "NAME=FOLDER"),
        (["--model", "control={stale}"], "none is called 'control'"),
        (["--model", "stale={stale}", "--topics", "3"], "give --train too"),
        (["--model", "stale=nowhere"], "no dump of word losses"),
        (["--model", "stale={stale}", "--tagger", "spacey"], "there are heuristic"),
    ],
)
def test_bad_input_is_one_sentence(made, capsys, arguments, sentence):
    control, stale, *_ = made
    given = [a.format(stale=stale) for a in arguments]
    assert main(["staleness", "--control", control, *given]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1


def test_seeds_are_summarised(tmp_path, capsys):
    texts = [(f"2018-{m:02d}-01", ["w"]) for m in range(1, 5)]
    for seed, stale in enumerate((8.0, 10.0)):
        folder = tmp_path / f"gap-{seed}"
        dumps = {
            name: write_scored(folder / name, texts, lambda d, w, ppl=ppl: ppl)
            for name, ppl in (("control", 4.0), ("stale", stale), ("all", 6.0))
        }
        models = {"stale": dumps["stale"], "all": dumps["all"]}
        study = StalenessStudy(control=dumps["control"], models=models, tagger="", samples=10)
        report.write_report(study, folder)
        (folder / "mind_the_gap.json").write_text(json.dumps({"seed": seed, "size": "tiny"}))
    folders = [str(tmp_path / f"gap-{seed}") for seed in range(2)]
    assert main(["report", *folders, "--seeds", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "seeds.json").read_text())["rows"]
    control, stale, updated = (row["columns"] for row in rows)
    assert control["perplexity"]["mean"] == pytest.approx(4.0, rel=1e-6)
    assert stale["over_control"]["values"] == pytest.approx([100.0, 150.0], rel=1e-5)
    assert updated["under_stale"]["mean"] == pytest.approx((25.0 + 40.0) / 2, rel=1e-5)
    assert updated["past"]["mean"] is None
    assert main(["report", folders[0]]) == 2
    assert f"whose report is {folders[0]}/report.html" in capsys.readouterr().err
    record = tmp_path / "gap-1" / "mind_the_gap.json"
    for wrong, sentence in (
        ({"seed": 0}, "the seed 0 of another"),
        ({"seed": 1, "size": "small"}, "other settings than"),
        ({"seed": 1, "size": "tiny"}, ""),
    ):
        record.write_text(json.dumps(wrong))
        code = main(["report", *folders, "--seeds", "--out", str(tmp_path)])
        assert code == 2 * bool(sentence) and sentence in capsys.readouterr().err
    (tmp_path / "gap-1" / "results.json").unlink()
    assert main(["report", *folders, "--seeds", "--out", str(tmp_path)]) == 2
    assert "has no results yet" in capsys.readouterr().err
