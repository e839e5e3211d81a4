"""`ckl experiment lm_pub_quiz/...` on the models of the golden results."""

import dataclasses

import numpy as np
import pytest

from ckl_jax.cli import ckl, studies
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import experiments, knowledge_stream
from ckl_jax.papers.lm_pub_quiz.ranking_results import DatasetResults
from ckl_jax.papers.lm_pub_quiz.settings import Experiment, Stream
from tests.papers.lm_pub_quiz.test_probe import golden  # noqa: F401 (a fixture)


@pytest.mark.parametrize("name", ["figure3", "figure4", "figure6"])
def test_figures_of_models(golden, tmp_path, name):  # noqa: F811
    words = f"experiment lm_pub_quiz/{name} --out {tmp_path} --probe {golden / 'dataset'} "
    words += f"--models a={golden / 'model'} --relation P1 --subjects it,there"
    found = ckl.command(words)
    page = found["report"].read_text()
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
    monkeypatch.setattr(knowledge_stream, "run", seen.append)
    for name in ("figure5", "table2"):
        ckl.command(f"experiment lm_pub_quiz/{name} --out x --epochs 2 --experiences 3")
    assert seen == [Stream(out="x", epochs=2, experiences=3)] * 2
    ckl.command("experiment lm_pub_quiz/table2 --experiences 2 --dry-run")
    assert "Trainings in runs/lm-pub-quiz: experience_1, experience_2." in capsys.readouterr().out
    with pytest.raises(UserError, match="lm_pub_quiz/figure4 needs --models NAME=FOLDER"):
        ckl.command("experiment lm_pub_quiz/figure4")
    assert {
        field.name for field in dataclasses.fields(Stream)
    } < Experiment.__dataclass_fields__.keys()
    assert studies._paper_of(["lm_pub_quiz/table2"]).settings is Experiment
