"""A BERT and a RoBERTa from Hugging Face's folders, back to them, and ranking by what came in."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

import ckl_jax as ckl
from ckl_jax.convert.hugging_face import export_checkpoint, import_checkpoint
from ckl_jax.data.facts.relational import Dataset
from ckl_jax.errors import UserError
from ckl_jax.papers.lm_pub_quiz import probe
from tests.parity.ranked import unpack


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return unpack("lm_pub_quiz_masked.zip", tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_in_and_out_again(golden, tmp_path, kind):
    run, back = tmp_path / "run", tmp_path / "back"
    told = import_checkpoint(str(golden / kind), str(run))
    assert f"`ckl probe bear --model {run}`" in told
    assert (run / "tokenizer.json").read_bytes() == (golden / kind / "tokenizer.json").read_bytes()
    export_checkpoint(str(run), str(golden / kind / "config.json"), str(back))
    before, after = (load_file(f / "model.safetensors") for f in (golden / kind, back))
    for name, value in after.items():
        np.testing.assert_array_equal(value, before[name])
    missing = set(before) - set(after)
    assert all(".decoder." in name or name.endswith("position_ids") for name in missing)
    settings = json.loads((back / "config.json").read_text())
    assert settings["model_type"] == kind
    with pytest.raises(UserError, match="--vocab-size is for models whose output is the embedding"):
        import_checkpoint(str(golden / kind), str(tmp_path / "grown"), vocab_size=500)


def test_an_import_is_opened_in_a_copy_of_the_project(golden, tmp_path, monkeypatch):
    for project in ("here", "there"):
        (tmp_path / project).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    import_checkpoint(str(golden / "bert"), "run")
    (tmp_path / "here" / "run").rename(tmp_path / "there" / "run")
    monkeypatch.chdir(tmp_path / "there")
    # That a masked model writes no text is said of its opened model.
    with pytest.raises(UserError, match="^ask.. needs a model that writes.*; give rank"):
        ckl.Model("run").ask("Rome is in ____.")


@pytest.mark.slow
def test_an_imported_model_ranks_as_the_folder_it_came_from(golden, tmp_path):
    import_checkpoint(str(golden / "bert"), str(tmp_path / "run"))
    dataset = Dataset.from_path(golden / "dataset")
    settings = probe.Settings(pll_metric="original", templates=(0,))
    one, other = (
        probe.probe(str(folder), dataset, settings)
        for folder in (golden / "bert", tmp_path / "run")
    )
    for code in ("P1", "P2"):
        np.testing.assert_allclose(one[code].scores, other[code].scores, atol=1e-5)
