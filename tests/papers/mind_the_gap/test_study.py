"""`ckl mind-the-gap`: settings, the choice of rates, and the whole at its smallest size."""

import dataclasses
import json
import os

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses
from ckl_jax.errors import UserError
from ckl_jax.files import write_json, write_jsonl
from ckl_jax.papers.mind_the_gap import study as job
from ckl_jax.papers.mind_the_gap.dynamic_eval.job import DIVERGED
from tests.moved import assert_ranks_elsewhere


@pytest.fixture
def gap(tmp_path):
    return job.Gap(out=str(tmp_path / "out"), masks=("all", "bias"), rates=(0.1, 0.2, 0.3), jobs=1)


def _tuned(gap, mask, rate, loss):
    """What the evaluation of a rate leaves behind; None is one that diverged."""
    folder = gap.evaluation(job.STALE, "tuning", mask, rate)
    writer = DumpWriter(folder / "dump", {})
    losses = np.full(1 if loss is None else 2, loss or 1.0, np.float32)
    ones = np.ones(len(losses), np.int32)
    writer.add(WordLosses("d", "2017-10-01", ["a", "b"][: len(losses)], losses, ones, 0 * ones))
    writer.flush()
    if loss is None:
        write_json(folder / DIVERGED, {})


def test_the_rate_is_the_best_of_those_that_did_not_diverge(gap, capsys):
    for rate, loss in zip(gap.rates, (3.0, 2.0, None), strict=True):
        _tuned(gap, "all", rate, loss)
    for rate, loss in zip(gap.rates, (1.0, 2.0, 3.0), strict=True):
        _tuned(gap, "bias", rate, loss)
    assert job.choose_rates(gap) == {"all": 0.2, "bias": 0.1}
    told = capsys.readouterr().out
    assert told.count("a better one may lie beyond") == 1  # 0.1, the lowest
    found = json.loads((gap.root / "rates.json").read_text())
    assert found["all"]["0.1"] == pytest.approx(np.exp(3.0), rel=1e-6)
    for rate in gap.rates:
        _tuned(gap, "bias", rate, None)
    with pytest.raises(UserError, match="bias diverged at all --rates .0.1, 0.2, 0.3."):
        job.choose_rates(gap)


def test_documents_of_another_language_are_counted_where_too_few_are_left(tmp_path):
    dated = [(f"{year}-0{month}-01", "en") for year in (2015, 2016) for month in range(1, 10)]
    lines = [
        {"id": str(i), "date": date, "lang": language, "text": f"Dies ist der Satz {i}."}
        for i, (date, language) in enumerate([*dated, ("2016-05-01", "de"), ("2016-06-01", "de")])
    ]
    write_jsonl(tmp_path / "posts.jsonl", lines)
    gap = job.Gap(out=str(tmp_path / "out"), corpus=str(tmp_path / "posts.jsonl"), language="de")
    for _ in range(2):  # the second start finds the corpus
        with pytest.raises(UserError, match="Of the 20 documents read, 18 are not in the language"):
            job.prepare(gap)


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["--size", "huge"], "--size is 'huge'"),
        (["--masks", "all,bais"], "bais"),
        (["--rates", "0.1,x"], "give numbers"),
        (["--rates", "-0.1"], "--rates is -0.1"),
        (["--rates", ""], "No --rates"),
        (["--documents", "nowhere.jsonl", "--no-clean"], "nowhere.jsonl"),
        (["--gin", "BATCH_SIZ=3"], "BATCH_SIZ"),
        (["--gin", "MODEL_DIR='x'"], "the command sets it itself"),
        (["--gin", "EPOCHS"], "give NAME=VALUE"),
        (["--gin", "STATISTICS_TASK='x'"], "--gin.STATISTICS_TASK: the command sets it itself"),
        (["--gin", "NUM_UPDATE=2"], "NUM_UPDATE"),
        (["--gin", "EPOCHS=0"], "--gin.EPOCHS is 0; give 1 or more"),
        (["--gin", "LEARNING_RATE=-1"], "LEARNING_RATE is -1; give"),
        (["--tuning-documents", "0"], "--tuning-documents is 0"),
        (["--tagger", "foo"], "No tagger is called 'foo'"),
        (["--unit", "week"], "--unit is 'week'"),
        (["--gin", "EPOCHS=1", "--documents", "no.jsonl", "--no-clean"], "Cannot read no.jsonl"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, capsys, arguments, sentence):
    assert main(["mind-the-gap", "--out", str(tmp_path / "out"), *arguments]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_whole_at_its_smallest_size(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("XLA_FLAGS")  # it runs longer than it compiles
    out = tmp_path / "out"
    arguments = [
        "mind-the-gap",
        "--size",
        "tiny",
        "--out",
        str(out),
        "--rates",
        "0.03,0.1",
        "--masks",
        "all,bias",
        "--past-documents",
        "5",
        "--jobs",
        "1",
    ]
    assert main(arguments) == 0
    results = json.loads((out / "results.json").read_text())
    names = ["time_stratified", "time_stratified + all", "time_stratified + bias"]
    assert list(results["months"]) == names
    assert len(results["months"]["time_stratified"]["labels"]) == 24
    assert results["reduction"]["time_stratified + all"]["all"]["low"] > 0
    assert set(results["forgetting"]) == set(names[1:])
    assert len(results["forgetting"]["time_stratified + all"]["all"]) == 25  # and the start
    assert results["emerging"]["types"] > 0
    written = {path: os.stat(path).st_mtime_ns for path in out.glob("losses/*/summary.json")}
    assert len(written) == 8
    assert main(arguments) == 0  # goes on: nothing is left but the report
    assert {path: os.stat(path).st_mtime_ns for path in written} == written
    assert 'id="made"' in (out / "report.html").read_text()
    assert main(["claims", str(out), "--samples", "100"]) == 0
    claims = {r["claim"]: r for r in json.loads((out / "claims.json").read_text())["claims"]}
    assert claims["updating all parameters wins back a part"]["low"] > 0
    assert [r["missing"][0] for r in claims.values() if r["verdict"] == "not run"] == [
        ["all/time_stratified + embedding"],
        ["all/time_stratified + embedding"],
    ]
    assert_ranks_elsewhere(out / "time_stratified", tmp_path / "moved", out)
    assert main([*arguments, "--seed", "1"]) == 2
    assert "seed" in capsys.readouterr().err
    arguments[arguments.index("0.03,0.1")] = "0.03,0.1,0.2"  # what was tried stays
    assert main(arguments) == 0
    assert {path: os.stat(path).st_mtime_ns for path in written} == written
    assert set(json.loads((out / "rates.json").read_text())["all"]) == {"0.03", "0.1", "0.2"}


def test_bindings_of_the_evaluations_reach_these_alone(gap, monkeypatch):
    krause = ("NUM_UPDATES=2", "CHUNK_LENGTH=64", "OPTIMIZER=@krause.rms_decay", "RMS_DECAY=0.1")
    gap = dataclasses.replace(gap, bindings=(*krause, "EPOCHS=1", "CLIP_NORM=2.0"))
    tuned = job.evaluation(gap, job.STALE, "tuning", "bias", 0.1).command
    assert set(krause) <= {part.removeprefix("--gin_bindings=") for part in tuned}
    assert not any("EPOCHS" in part or "CLIP_NORM" in part for part in tuned)
    assert any(part.endswith(f"STATISTICS_TASK='{gap.task(job.STALE, 'train')}'") for part in tuned)
    monkeypatch.setattr(job, "Vocabulary", lambda path: type("Of", (), {"vocab_size": 600}))
    trained = [
        part.removeprefix("--gin_bindings=") for part in job.training(gap, job.STALE).command
    ]
    assert {"EPOCHS=1", "CLIP_NORM=2.0"} <= set(trained) and not set(krause) & set(trained)


def test_where_things_are(gap):
    assert gap.task("control", "test").name == "control_test"
    assert gap.tokens == 2000 and dataclasses.replace(gap, vocabulary_size=777).tokens == 777
    tuned = job.evaluation(gap, job.STALE, "tuning", "bias", 0.1)
    final = job.evaluation(gap, job.STALE, "test", "bias", 0.1)
    assert tuned.given_up == DIVERGED and final.given_up is None
    assert not any("PAST_TASKS" in part for part in tuned.command)
    assert any("PAST_TASKS" in part for part in final.command)
