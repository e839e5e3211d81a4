"""Transformer-XL against the public Haiku one: logits and memory of three segments."""

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints.from_haiku import load_haiku
from ckl_jax.convert.haiku import import_haiku
from ckl_jax.convert.hugging_face import export_checkpoint
from ckl_jax.errors import UserError
from ckl_jax.models.recurrent import RecurrentModel
from ckl_jax.models.transformer_xl import Transformer
from ckl_jax.train.setup import load_params
from ckl_jax.trees.paths import flatten
from tests.tiny import ROOT

GOLDEN = np.load(ROOT / "tests" / "parity" / "golden" / "haiku_xl.npz")
PREFIX = "params/"
ROWS, SLOTS, SEGMENTS = 2, 7, 3


def haiku_params():
    return {n.removeprefix(PREFIX): GOLDEN[n] for n in GOLDEN.files if n.startswith(PREFIX)}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("haiku") / "weights.npz"
    np.savez(path, **haiku_params())
    return path


def test_logits_and_memory_are_those_of_the_public_model(weights):
    config, params = load_haiku(weights, 2)
    model = RecurrentModel(Transformer(config))
    memory, run = model.initial_memory(ROWS, SLOTS), jax.jit(model.remember)
    for i, tokens in enumerate(GOLDEN["tokens"]):
        real = (tokens > 0).astype(np.int32)
        batch = {"decoder_input_tokens": tokens, "decoder_segment_ids": real}
        logits, memory = run(params, batch, memory)
        np.testing.assert_allclose(
            logits[real > 0], GOLDEN[f"logits_{i}"][real > 0], rtol=1e-5, atol=1e-5
        )
        if i < SEGMENTS - 1:  # ours leaves out the padding of the last one
            filled = memory["segment_ids"][0] > 0
            expected = np.swapaxes(GOLDEN[f"memory_{i}"], 0, 1)
            np.testing.assert_allclose(
                memory["states"][:, :, filled], expected[:, :, filled], rtol=1e-5, atol=1e-5
            )


def test_a_file_becomes_a_checkpoint(weights, tmp_path):
    said = import_haiku(str(weights), 2, str(tmp_path / "out"))
    assert "parameters in" in said and "num_heads = 2" in (tmp_path / "out/model.gin").read_text()
    found = flatten(load_params(str(tmp_path / "out")))
    expected = flatten(load_haiku(weights, 2)[1])
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[n], expected[n]) for n in found)
    with pytest.raises(UserError, match="already holds a checkpoint"):
        import_haiku(str(weights), 2, str(tmp_path / "out"))


def test_safetensors_will_do_too(weights, tmp_path):
    from safetensors.numpy import save_file

    save_file(haiku_params(), tmp_path / "w.safetensors")
    config, params = load_haiku(tmp_path / "w.safetensors", 2)
    expected_config, expected = load_haiku(weights, 2)
    assert config == expected_config
    jax.tree.map(np.testing.assert_array_equal, params, expected)


@pytest.mark.parametrize("like", [None, "gpt2"])
def test_it_has_no_form_of_hugging_faces(weights, tmp_path, like):
    import_haiku(str(weights), 2, str(tmp_path / "xl"))
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    like = like and str(tmp_path / "config.json")
    with pytest.raises(UserError, match="A Transformer-XL cannot be .* written to it"):
        export_checkpoint(str(tmp_path / "xl"), like, str(tmp_path / "out"))


def test_what_does_not_fit_is_refused(weights, tmp_path):
    def load(state, heads=2):
        np.savez(tmp_path / "w.npz", **state)
        return load_haiku(tmp_path / "w.npz", heads)

    whole = haiku_params()
    lost = {n: x for n, x in whole.items() if not n.endswith("h1_mlp/linear_1/w")}
    scale = "lm/~/core/h2_ln1/scale"
    wrong = {**whole, scale: np.zeros(9)}
    for state, heads, words in (
        (lost, 2, "missing: h1_mlp/linear_1/w"),
        (wrong, 2, r"h2_ln1/scale \[9\] instead of \[16\]"),
        (whole, 3, "h0_attn/query/w is 16 x 16, which does not divide into 3 heads"),
        ({**whole, "lm/~/core/h0_attn/query/b": np.zeros(16)}, 2, "has lm/~/core/h0_attn/query/b"),
        ({"a/w": np.zeros(2)}, 2, "has a/w, which"),
        ({**whole, scale: np.full(16, np.nan)}, 2, "h2_ln1/scale has values that are not finite"),
        ({**whole, scale: np.ones(16, np.int32)}, 2, "h2_ln1/scale holds int32"),
        ({}, 2, "it is not a Transformer-XL of Haiku"),
    ):
        with pytest.raises(UserError, match=words):
            load(state, heads)
    bias = next(name for name in whole if name.endswith("embedding_layer/bias"))
    with pytest.warns(UserWarning, match="no embedding_layer/bias; the output's bias is 0"):
        load({name: x for name, x in whole.items() if name != bias})
    (tmp_path / "ckpt.pkl").write_bytes(b"x")
    with pytest.raises(UserError, match="are pickles, which could run any code"):
        load_haiku(tmp_path / "ckpt.pkl", 2)
    (tmp_path / "bad.npz").write_bytes(b"x")
    with pytest.raises(UserError, match="is not an archive of numpy arrays"):
        load_haiku(tmp_path / "bad.npz", 2)
    np.savez(tmp_path / "objects.npz", a=np.array([{}], object))
    with pytest.raises(UserError, match="is not an archive of numpy arrays"):
        load_haiku(tmp_path / "objects.npz", 2)
    with pytest.raises(UserError, match="No such file|does not exist|cannot"):
        load_haiku(tmp_path / "none.npz", 2)
