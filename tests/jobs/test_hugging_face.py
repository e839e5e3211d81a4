"""`ckl import-hf` and `export-hf`, there and back through the command line."""



from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli.ckl import main
from tests.helpers import TINY, assert_trees_close, random_params


def test_import_then_export_gives_the_same_weights(tmp_path, capsys):
    params = random_params(TINY)
    save_hf(tmp_path / "hf", params, TINY)
    ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
    assert main(["import-hf", "--model", str(tmp_path / "hf"), "--out", ours]) == 0
    assert "INITIAL_CHECKPOINT_PATH" in capsys.readouterr().out
    assert f"emb_dim = {TINY.emb_dim}" in (tmp_path / "ours" / "model.gin").read_text()
    like = str(tmp_path / "hf" / "config.json")
    assert main(["export-hf", "--model", ours, "--like", like, "--out", back]) == 0
    config, again = load_hf(back)
    assert config.emb_dim == TINY.emb_dim
    assert_trees_close(again, params, rtol=0, atol=0)


def test_pickled_weights_are_refused_with_the_reason(tmp_path, capsys):
    folder = tmp_path / "hf"
    save_hf(folder, random_params(TINY), TINY)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert main(["import-hf", "--model", str(folder), "--out", str(tmp_path / "x")]) == 2
    assert "pytorch_model.bin" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_missing_folder_is_one_sentence(tmp_path, capsys):
    assert main(["import-hf", "--model", str(tmp_path / "no"), "--out", str(tmp_path / "x")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "config.json" in error
