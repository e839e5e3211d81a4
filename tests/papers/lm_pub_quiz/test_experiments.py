"""`ckl experiment lm_pub_quiz/...` on the models of the golden results."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from ckl_jax.cli import ckl, studies
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import experiments, knowledge_stream
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.papers.lm_pub_quiz.settings import Experiment, Stream
from tests.papers.lm_pub_quiz.test_probe import golden  # noqa: F401 (a fixture)


@pytest.mark.parametrize("name", ["figure3", "figure4", "figure6"])
def test_figures_of_models(golden, tmp_path, name, capsys):  # noqa: F811
    words = f"experiment lm_pub_quiz/{name} --out {tmp_path} --probe {golden / 'dataset'} "
    words += f"--models a={golden / 'model'} --relation P1 --subjects it,there"
    found = ckl.command(words)
    page = found["report"].read_text()
    assert f"{name}.html\n" in capsys.readouterr().out
    assert found["report"] == tmp_path / f"{name}.html" and "In the paper" in page
    assert (tmp_path / f"{name}.png").is_file()
    results = DatasetResults.from_path(tmp_path / name / "a")
    theirs = DatasetResults.from_path(golden / "results" / "sum")
    assert list(results.relations) == (["P1", "P2"] if name == "figure3" else ["P1"])
    if name == "figure6":
        assert {row["sub_label"] for row in results["P1"].table} == {"it", "there"}
        assert "a: accuracy" not in page
    else:
        np.testing.assert_allclose(results["P1"].scores, theirs["P1"].scores, atol=2e-4)
        assert "a: accuracy" in page
    assert experiments.describe(f"lm_pub_quiz/{name}", Experiment(models=("a=b",))) == [
        "Ranks BEAR by a=b."
    ]


def test_the_stream_has_two_names(monkeypatch, capsys):
    seen = []
    page = Path("x/trajectories.png")
    monkeypatch.setattr(knowledge_stream, "run_stream", lambda stream: seen.append(stream) or page)
    for name in ("figure5", "table2"):
        ckl.command(f"experiment lm_pub_quiz/{name} --out x --epochs 2 --experiences 3")
    assert seen == [Stream(out="x", epochs=2, experiences=3)] * 2
    ckl.command("experiment lm_pub_quiz/table2 --experiences 2 --dry-run")
    assert "Trainings in runs/lm-pub-quiz: experience_1, experience_2." in capsys.readouterr().out
    with pytest.raises(UserError, match="lm_pub_quiz/figure4 needs --models NAME=FOLDER"):
        ckl.command("experiment lm_pub_quiz/figure4 --dry-run")
    assert {
        field.name for field in dataclasses.fields(Stream)
    } < Experiment.__dataclass_fields__.keys()
    assert studies._paper_of(["lm_pub_quiz/table2"]).settings is Experiment


@pytest.fixture
def adapted(golden, tmp_path):  # noqa: F811
    """The command that adapts the golden model to the text of a domain."""
    documents = [{"date": "2020-01-01", "title": f"{i}", "text": f"Page {i}."} for i in range(8)]
    (tmp_path / "news.jsonl").write_text("\n".join(map(json.dumps, documents)))
    ckl.command(f"import-hf --model {golden / 'model'} --out {tmp_path / 'gpt2'}")
    words = f"experiment lm_pub_quiz/figure3 --out {tmp_path / 'out'} "
    words += f"--probe {golden / 'dataset'} --models gpt2={tmp_path / 'gpt2'} "
    return words + f"--domains news={tmp_path / 'news.jsonl'} --gin.BATCH_SIZE=8"


@pytest.mark.slow
def test_models_are_adapted_to_domains(adapted, tmp_path, capfd):
    page = ckl.command(adapted)["report"].read_text()
    assert "gpt2: accuracy" in page and "gpt2 on news: accuracy" in page
    config = (tmp_path / "out" / "domains" / "gpt2 on news" / "config.gin").read_text()
    assert "schedules.warmup_cosine_to_fraction" in config  # the paper's settings
    first = DatasetResults.from_path(tmp_path / "out" / "figure3" / "gpt2")["P1"].scores
    later = DatasetResults.from_path(tmp_path / "out" / "figure3" / "gpt2 on news")["P1"].scores
    assert np.abs(np.asarray(first) - np.asarray(later)).max() > 1e-4
    capfd.readouterr()
    ckl.command(adapted)  # what is trained is not trained again
    assert "started" not in capfd.readouterr().out
    with pytest.raises(UserError, match="holds a domain adaptation with other domains"):
        ckl.command(adapted.replace("news.jsonl", "other.jsonl"))


def test_what_cannot_be_adapted_to_a_domain(adapted, golden, tmp_path):  # noqa: F811
    with pytest.raises(UserError, match="has no model.gin; make the folder by `ckl import-hf`"):
        ckl.command(adapted.replace(str(tmp_path / "gpt2"), str(golden / "model")))
    with pytest.raises(UserError, match="BATCH_SIZ"):
        ckl.command(adapted.replace("BATCH_SIZE", "BATCH_SIZ"))
    with pytest.raises(UserError, match="CACHE_DIRS: the command sets it itself"):
        ckl.command(adapted + " --gin.CACHE_DIRS=1")
    assert not (tmp_path / "out").exists()
