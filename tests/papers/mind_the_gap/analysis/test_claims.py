"""Mind the Gap's claims hold of models that grow stale, and fail of ones that do not."""

import shutil

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.files import read_json
from ckl_jax.papers.mind_the_gap.analysis import claims
from tests.papers.mind_the_gap.analysis.dumps import write_gap


@pytest.fixture(scope="module")
def gaps(tmp_path_factory):
    root = tmp_path_factory.mktemp("gaps")
    return {
        turned: [write_gap(root / f"{turned}-{seed}", seed, turned) for seed in range(5)]
        for turned in (False, True)
    }


def _rows(folders, out):
    assert main(["claims", *map(str, folders), "--out", str(out), "--samples", "200"]) == 0
    return {row["claim"]: row for row in read_json(out / "claims.json")["claims"]}


def test_a_model_that_grows_stale_and_one_that_does_not(gaps, tmp_path):
    rows = _rows(gaps[False], tmp_path / "yes")
    verdicts = {text: row["verdict"] for text, row in rows.items()}
    against = "biases win back more than embeddings"  # turned, biases lose more
    assert set(verdicts.values()) == {"yes"} and len(verdicts) == len(claims.CLAIMS)
    turned = _rows(gaps[True], tmp_path / "no")
    assert {row["verdict"] for row in turned.values()} == {"no"} and against in turned
    few = _rows(gaps[False][:4], tmp_path / "few")
    assert {row["verdict"] for row in few.values()} == {"undecided"}


def test_the_effects_are_those_of_the_report_and_of_the_paper(gaps, tmp_path):
    folder = gaps[False][0]
    numbers = claims.read_numbers(folder, 200, 0)
    results = read_json(folder / "results.json")
    stale = results["months"]["time_stratified"]
    assert numbers["slope", "time_stratified"][0] == pytest.approx(stale["line"]["slope"])
    for (group, model), values in numbers.items():
        if group not in ("slope", "past text"):
            assert np.exp(values[0]) == pytest.approx(results["perplexity"][model][group])
    paper = {claim.text: claim.paper for claim in claims.CLAIMS}
    assert paper["a model that is out of date is worse"] == pytest.approx(6.35, abs=0.01)
    assert paper["updating biases alone wins back a part"] == pytest.approx(1.29, abs=0.01)
    assert paper["emerging new words gain most from updates"] == pytest.approx(38.37, abs=0.01)
    assert paper["the gap grows with the distance in time"] is None
    assert all(effect is None or effect > 0 for effect in paper.values())
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert claims.read_numbers(moved, 200, 0).keys() == numbers.keys()


def test_a_folder_that_is_not_done(gaps, tmp_path, capsys):
    moved = shutil.copytree(gaps[False][0], tmp_path / "moved")
    (moved / "results.json").unlink()
    assert main(["claims", str(moved)]) == 2
    told = capsys.readouterr().err
    assert "has no results yet; run `ckl mind-the-gap" in told and told.count("\n") == 1
