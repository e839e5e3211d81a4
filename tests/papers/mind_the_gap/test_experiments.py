"""`ckl experiment mind_the_gap/...`: what each name needs, cut-offs, and all of them at once."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap import experiments, study
from ckl_jax.papers.mind_the_gap.analysis import cutoffs, other_test_years, published
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy, compute
from ckl_jax.papers.mind_the_gap.data.split_files import split, split_by_cutoff
from ckl_jax.papers.mind_the_gap.data.time_splits import Options
from ckl_jax.papers.mind_the_gap.settings import TITLES, Gap, Paper
from ckl_jax.world.newsqa import ADDRESSES, QUESTIONS, write_newsqa
from ckl_jax.world.stream import stream
from tests.papers.mind_the_gap.analysis.dumps import write_scored

QUICK = ["--size=tiny", "--past-documents=2", "--rates=0.03", "--jobs=1", "--per-month=2"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Ten documents a month of 2015 to 2019, of 20 to 29 words."""
    path = tmp_path_factory.mktemp("corpus") / "posts.jsonl"
    months = [f"{y}-{m:02d}" for y in range(2015, 2020) for m in range(1, 13)]
    write_documents(
        path,
        (
            Document(f"{month}-{i}", f"{month}-{i + 1:02d}", "", "word " * (20 + i))
            for month in months
            for i in range(10)
        ),
    )
    return path


def test_names_and_titles_are_of_the_same_experiments():
    assert [f"mind_the_gap/{name}" for name in experiments.EXPERIMENTS] == list(TITLES)


def test_cutoffs_are_of_one_size_and_have_no_test_document(corpus, tmp_path):
    options = Options(per_month=2)
    split(corpus, tmp_path / "splits", options)
    split_by_cutoff(corpus, tmp_path / "cutoffs", options, (2016, 2017, 2019))
    held_out = {
        d.id
        for name in ("test", "time_stratified_validation", "control_validation")
        for d in read_documents(tmp_path / "splits" / f"{name}.jsonl.gz")
    }
    words = {}
    for year in (2016, 2017, 2019):
        documents = list(read_documents(tmp_path / "cutoffs" / f"{year}.jsonl.gz"))
        assert not held_out & {d.id for d in documents}
        assert max(d.date for d in documents)[:4] == str(year)
        words[year] = sum(len(d.text.split()) for d in documents)
    assert 0 <= words[2016] - min(words.values()) < 30  # two years of text, all that there is
    assert words[2016] == 24 * sum(range(20, 30))
    with pytest.raises(UserError, match="--cutoffs 2014: the corpus has documents of 2015 to 2019"):
        split_by_cutoff(corpus, tmp_path / "other", options, (2014, 2016))
    with pytest.raises(UserError, match="other"):
        split_by_cutoff(corpus, tmp_path / "cutoffs", options, (2016, 2018))


def test_each_year_of_distance_adds_what_was_planted(tmp_path):
    texts = [(f"2019-{m:02d}-{d:02d}", ["a", "b"]) for m in range(1, 7) for d in (1, 2, 3)]
    generator = np.random.default_rng(0)

    def perplexity(distance):
        return lambda date, word: 20.0 * (1 + 0.05 * distance) * np.exp(0.001 * generator.normal())

    dumps = {
        str(2019 - i): write_scored(tmp_path / str(i), texts, perplexity(i)) for i in (3, 2, 1, 0)
    }
    last = dumps.pop("2019")
    study_of = StalenessStudy(control=last, models=dumps, tagger="", samples=50)
    section = cutoffs.write_cutoffs(study_of, "2019", tmp_path)
    found = json.loads((tmp_path / "cutoffs.json").read_text())
    assert found["trend"]["value"] == pytest.approx(5.0, abs=0.05)
    assert found["trend"]["low"] <= found["trend"]["value"] <= found["trend"]["high"]
    overall = [found["months"][year]["overall"]["value"] for year in ("2016", "2017", "2018")]
    np.testing.assert_allclose(overall, [15, 10, 5], atol=0.1)
    assert section.png and found["perplexity"]["2019"] == pytest.approx(20.0, rel=1e-3)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["appendix_a2", "--documents={corpus}"], "needs --cutoffs: years of the corpus"),
        (["figure4", "--documents={corpus}"], "asks who holds the simulated stream's offices"),
        (["appendix_a2", "--cutoffs=2019"], "two years or more"),
        (["appendix_a2", "--cutoffs=2019..2012"], "give years, such as 2012..2019"),
        (["figure1", "--methods=lora"], "unrecognized arguments: --methods"),
        (["figure6"], "no experiment 'mind_the_gap/figure6'"),
        (["appendix_a1", "--documents={corpus}"], "needs --shifted-years"),
        (["appendix_a1", "--shifted-years=-1"], "--shifted-years is -1"),
        (["appendix_a3"], "needs --documents in another language, and its code: --language de"),
        (["appendix_a3", "--language=de"], "the simulated stream is English; give --documents"),
        (["appendix_a3", "--documents={corpus}"], "needs --documents in another language"),
        (["newsqa", "--documents={corpus}"], "needs --documents and --newsqa, or neither"),
        (["newsqa", "--newsqa=a.json"], "--newsqa and --addresses go together"),
        (["newsqa", "--newsqa=a", "--addresses=b"], "needs --documents and --newsqa, or neither"),
        (["table2", "--newsqa=a", "--addresses=b"], "asks no questions of --newsqa"),
    ],
)
def test_bad_input_is_one_sentence(corpus, tmp_path, capsys, arguments, sentence):
    name, *options = [argument.format(corpus=corpus) for argument in arguments]
    out = tmp_path / "out"
    assert main(["experiment", f"mind_the_gap/{name}", *options, f"--out={out}"]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1 and not out.exists()


def test_other_test_years_are_studies_of_earlier_periods(corpus, tmp_path, monkeypatch):
    gap = Gap(
        out=str(tmp_path / "out"), corpus=str(corpus), clean=False, per_month=2, shifted_years=2
    )
    monkeypatch.setattr(study, "DatedVocabulary", _no_vocabulary)
    monkeypatch.setattr(study, "Vocabulary", lambda path: None)
    monkeypatch.setattr(study, "prepare_dated", lambda *unused: None)
    monkeypatch.setattr(study, "spread", lambda *unused: [])
    study.prepare(gap)
    earlier = study.shifted(gap)
    assert [(one.test_end, one.root.name, one.masks) for one in earlier] == [
        ("2018-12", "2018-12", ()),
        ("2017-12", "2017-12", ()),
    ]
    for one in earlier:
        study.prepare(one)
        made = json.loads((one.data / "splits" / "split.json").read_text())
        assert made["test_months"][-1] == one.test_end
        assert made["train_until"] == f"{int(one.test_end[:4]) - 2}-09-30"
        assert one.corpus == str(corpus)
    [before] = study.shifted(dataclasses.replace(gap, shifted_years=1, test_end="2018-06"))
    assert before.test_end == "2018-12"  # by the splits there are


def _no_vocabulary(**unused):
    return SimpleNamespace(train=lambda *unused: None)


def test_a_test_period_that_is_too_early_is_named(tmp_path, monkeypatch):
    gap = Gap(out=str(tmp_path), size="tiny", shifted_years=1)
    monkeypatch.setattr(study, "prepare", lambda one, progress: _refuse_shifted(gap, one))
    monkeypatch.setattr(study, "shifted", lambda gap: [dataclasses.replace(gap, test_end="2018")])
    with pytest.raises(UserError, match="The test period that ends in 2018: there is no text"):
        study.measure(SimpleNamespace(step=print), gap, None)


def _refuse_shifted(gap, one):
    if one is not gap:
        raise UserError("there is no text.")


def test_periods_in_which_the_gap_grows_are_counted(tmp_path):
    texts = [(f"2019-{m:02d}-{d:02d}", ["a", "b"]) for m in range(1, 7) for d in (1, 2, 3)]
    generator = np.random.default_rng(0)
    control = write_scored(tmp_path / "control", texts, lambda date, word: 20.0)

    def found(growth):
        def perplexity(date, word):
            return 20.0 * np.exp(growth * int(date[5:7]) + 0.001 * generator.normal())

        stale = write_scored(tmp_path / str(growth), texts, perplexity)
        models = {"time_stratified": stale}
        return compute(StalenessStudy(control=control, models=models, tagger="", samples=50))

    section = other_test_years.write_test_years(
        {"late": found(0.02), "early": found(-0.01)}, tmp_path
    )
    assert "grows with time in 1 of 2 periods" in section.notes[0] and section.png
    [table] = section.sections
    assert list(table.headers[1:3]) == ["control", "time_stratified"]
    assert [row[1].text for row in table.rows] == ["20.00", "20.00"]
    kept = json.loads((tmp_path / "other_test_years.json").read_text())
    assert kept["late"]["line"]["slope"] > 1.5 > 0 > kept["early"]["line"]["slope"]


def test_a_folder_from_before_there_were_languages_goes_on(tmp_path):
    gap = Gap(out=str(tmp_path / "out"), size="tiny")
    with study.opened(gap):
        (gap.root / "data").mkdir()
    record = gap.root / study.RECORD
    kept = json.loads(record.read_text())
    assert kept.pop("language") == "en"
    record.write_text(json.dumps(kept))
    with study.opened(gap):
        pass
    (posts := tmp_path / "posts.jsonl").touch()
    german = dataclasses.replace(gap, corpus=str(posts), language="de")
    with pytest.raises(UserError, match="another"), study.opened(german):
        pass


def test_other_languages_have_no_heuristic_tagger():
    assert Gap(corpus="posts.jsonl", language="de").tagger == ""
    assert Gap(corpus="posts.jsonl").tagger == "heuristic"


def test_what_would_be_trained_is_told(tmp_path, capsys):
    command = ["experiment", "mind_the_gap/figure3", "--dry-run", f"--out={tmp_path / 'out'}"]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "time_stratified, control, time_stratified_larger." in told
    assert not (tmp_path / "out").exists()


def test_the_larger_model_is_wider_by_a_quarter(tmp_path, monkeypatch):
    gap = Gap(out=str(tmp_path), size="tiny", larger=True)
    gap.data.mkdir()
    monkeypatch.setattr(study, "Vocabulary", lambda path: type("V", (), {"vocab_size": 512}))
    bindings = {
        arm: " ".join(study.training(gap, arm).command)
        for arm in ("time_stratified", "time_stratified_larger")
    }
    config = "transformer_xl.TransformerXLConfig"
    for name, value in (("emb_dim", 40), ("head_dim", 20), ("mlp_dim", 80)):
        assert f"{config}.{name}={value}" in bindings["time_stratified_larger"]
    assert f"{config}.emb_dim" not in bindings["time_stratified"]


def test_printed_percentages_agree_with_printed_perplexities():
    """Table 3's reductions of WMT, within the rounding of the perplexities."""
    for before, after, percent in published.TABLE_3.values():
        assert 100 * (1 - after / before) == pytest.approx(percent, abs=0.03)
    assert published.TABLE_3["all"][:2] == (
        published.TABLE_2[published.STALE][0],
        published.TABLE_4[published.UPDATED][0],
    )


@pytest.mark.slow
def test_all_experiments_share_one_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLA_FLAGS")
    out = tmp_path / "out"
    for name in TITLES:
        if name == "mind_the_gap/appendix_a3":  # the simulated stream is English
            continue
        assert main(["experiment", name, *QUICK, "--cutoffs=2016,2018", f"--out={out}"]) == 0
        short = name.replace("/", "-")
        assert "<h1" in (out / f"{short}.html").read_text()
        assert (out / f"{short}.md").stat().st_size
        if name == "mind_the_gap/table2":
            page = (out / f"{short}.html").read_text()
            assert "The perplexity of" in page and "differs from the control" in page
    text = (out / "mind_the_gap-table2.md").read_text()
    assert "22.45" in text and "16.05" in text
    assert {p.parent.name for p in out.glob("*/summary.json")} == {
        "time_stratified",
        "control",
        "time_stratified_larger",
        "until_2016",
        "until_2018",
    }


def test_stories_without_questions_are_named_before_a_training(corpus, tmp_path, capsys):
    write_newsqa(tmp_path, (2018, 2019), 0, "tiny", 2)
    files = [f"--newsqa={tmp_path / QUESTIONS}", f"--addresses={tmp_path / ADDRESSES}"]
    given = ["experiment", "mind_the_gap/newsqa", f"--documents={corpus}", "--no-clean", *files]
    for years, sentence in (
        ("2016,2018", "no question on a dated story of up to 2016, to tune on"),
        ("2018,2020", "no question on a dated story of 2020."),
    ):
        out = tmp_path / "out"
        assert main([*given, f"--cutoffs={years}", f"--out={out}"]) == 2
        told = capsys.readouterr().err
        assert sentence in told and told.count("\n") == 1 and not out.exists()
    assert main([*given, "--cutoffs=2018,2019", "--dry-run", f"--out={out}"]) == 0
    assert "Dynamic evaluation" not in capsys.readouterr().out  # of no parameters
    gap = experiments._complete(
        "mind_the_gap/newsqa",
        Paper(
            corpus=str(corpus),
            clean=False,
            newsqa=str(tmp_path / QUESTIONS),
            addresses=str(tmp_path / ADDRESSES),
            cutoffs=(2018, 2019),
        ),
    )[1]
    asked = experiments._real_stories(gap)
    assert {y: {q.date[:4] for q in found} for y, found in asked.items()} == {
        2018: {"2018"},
        2019: {"2019"},
    }


@pytest.mark.slow
def test_german_text_and_questions_on_real_stories(tmp_path, monkeypatch):
    """The simulated stream as a file stands for real text."""
    monkeypatch.delenv("XLA_FLAGS")
    documents, newsqa, out = (tmp_path / name for name in ("posts.jsonl", "newsqa", "out"))
    write_documents(documents, stream(0, "tiny"))
    write_newsqa(newsqa, (2018, 2019), 0, "tiny", 6)
    given = [f"--documents={documents}", "--no-clean", "--language=de", f"--out={out}", *QUICK]
    given += ["--gin=EPOCHS=None", "--gin=TRAIN_STEPS=20"]
    assert main(["experiment", "mind_the_gap/appendix_a3", *given]) == 0
    text = (out / "mind_the_gap-appendix_a3.md").read_text()
    assert "22.45" in text and "the same patterns" in text
    files = [f"--newsqa={newsqa / QUESTIONS}", f"--addresses={newsqa / ADDRESSES}"]
    given += ["--cutoffs=2018,2019", *files]
    assert main(["experiment", "mind_the_gap/newsqa", *given]) == 0
    rows = (out / "mind_the_gap-newsqa.md").read_text().splitlines()
    models = [line.split(" | ")[0] for line in rows if line.startswith("| ")][2:]
    assert models == ["| 2018", "| 2019", "| the paper's 2008", "| the paper's 2009"]
    scores = json.loads((out / "newsqa" / "asked.json").read_text())
    assert len(scores["2019"]["by_date"]) > 6  # months
