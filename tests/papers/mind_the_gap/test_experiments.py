"""`ckl experiment mind_the_gap/...`: what each name needs, cut-offs, and all of them at once."""

import json

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.errors import UserError
from ckl_jax.papers.mind_the_gap import experiments, study
from ckl_jax.papers.mind_the_gap.analysis import cutoffs, published
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy
from ckl_jax.papers.mind_the_gap.data.split_files import split, split_by_cutoff
from ckl_jax.papers.mind_the_gap.data.time_splits import Options
from ckl_jax.papers.mind_the_gap.settings import TITLES, Gap
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
    section = cutoffs.write(study_of, "2019", tmp_path)
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
    ],
)
def test_bad_input_is_one_sentence(corpus, tmp_path, capsys, arguments, sentence):
    name, *options = [argument.format(corpus=corpus) for argument in arguments]
    out = tmp_path / "out"
    assert main(["experiment", f"mind_the_gap/{name}", *options, f"--out={out}"]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1 and not out.exists()


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
        assert main(["experiment", name, *QUICK, "--cutoffs=2016,2018", f"--out={out}"]) == 0
        short = name.replace("/", "-")
        assert "<h1" in (out / f"{short}.html").read_text()
        assert (out / f"{short}.md").stat().st_size
    text = (out / "mind_the_gap-table2.md").read_text()
    assert "22.45" in text and "16.05" in text
    assert {p.parent.name for p in out.glob("*/summary.json")} == {
        "time_stratified",
        "control",
        "time_stratified_larger",
        "until_2016",
        "until_2018",
    }
