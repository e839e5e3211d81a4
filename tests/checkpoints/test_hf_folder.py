"""Checkpoint folders: the formats read and written, and a sentence for each thing wrong."""

import dataclasses
import json
import weakref

import jax
import numpy as np
import pytest
from flax import serialization
from safetensors.numpy import save_file

from ckl_jax.checkpoints.from_hf import load_hf, read_config, read_state
from ckl_jax.checkpoints.hf_names import (
    config_from_hf,
    config_to_hf,
    params_from_hf,
    params_to_hf,
)
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.errors import UserError
from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.trees import paths

SIZES = dict(
    vocab_size=20,
    emb_dim=8,
    num_heads=2,
    head_dim=4,
    mlp_dim=12,
    num_encoder_layers=1,
    num_decoder_layers=2,
    relpos_buckets=4,
)
TIED = T5Config(**SIZES, logits_via_embedding=True)
GATED = T5Config(**SIZES, mlp_activations=("gelu", "linear"))


def make(config=TIED):
    ids = np.ones((1, 3), np.int32)
    model = Transformer(config)
    made = jax.eval_shape(
        lambda: model.init(jax.random.key(0), ids, ids, ids, enable_dropout=False)["params"]
    )
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), made)


def write(folder, state, config=TIED, **settings):
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({**config_to_hf(config), **settings}))


def assert_same(found, expected):
    found, expected = paths.flatten(found), paths.flatten(expected)
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("config", [TIED, GATED])
def test_saved_and_loaded_is_the_same(config, scan, tmp_path):
    params = make(config)
    save_hf(tmp_path / "new" / "folder", params, config)
    found, again = load_hf(tmp_path / "new" / "folder", scan_layers=scan)
    assert found.scan_layers == scan
    assert_same(paths.scan_to_loop(again) if scan else again, params)
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]


@pytest.mark.parametrize("config", [TIED, GATED])
def test_configurations_survive_the_trip(config):
    assert config_from_hf(config_to_hf(config)) == config


def test_shards_are_read_by_their_index(tmp_path):
    params = make()
    state = params_to_hf(params, TIED)
    names = sorted(state)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: state[name] for name in part}, tmp_path / file)
    index = {name: file for file, part in parts.items() for name in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(TIED)))
    assert_same(load_hf(tmp_path)[1], params)
    forgets = {name: file for name, file in index.items() if name != names[0]}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": forgets}))
    assert_same(load_hf(tmp_path)[1], params)  # as transformers reads it
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(UserError, match="files that are not there: b.safetensors"):
        load_hf(tmp_path)
    save_file({names[1]: state[names[1]]}, tmp_path / "b.safetensors")
    with pytest.raises(UserError, match="tensors that its files lack"):
        load_hf(tmp_path)


def test_one_array_at_a_time_is_on_the_host(tmp_path):
    held, params = [], make()
    save_hf(tmp_path, params, TIED)

    def place(path, value):
        assert all(array() is None for array in held)
        held.append(weakref.ref(value))
        return path, value.sum()

    found = paths.flatten(params_from_hf(read_state(tmp_path), TIED, place=place))
    assert found == {path: (path, leaf.sum()) for path, leaf in paths.flatten(params).items()}


def test_flax_weights_are_read(tmp_path):
    params = make(GATED)
    flat = {}
    for name, value in params_to_hf(params, GATED).items():
        stem = name.removesuffix(".weight")
        if value.ndim == 1:
            flat[f"{stem}.weight"] = value
        elif stem == "shared" or stem.endswith("bias"):
            flat[f"{stem}.embedding"] = value
        else:
            flat[f"{stem}.kernel"] = value.T
    tree = paths.unflatten({k.replace(".", "/"): v for k, v in flat.items()})
    (tmp_path / "flax_model.msgpack").write_bytes(serialization.msgpack_serialize(tree))
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(GATED)))
    assert_same(load_hf(tmp_path)[1], params)


def test_bfloat16_weights_become_float32(tmp_path):
    import ml_dtypes

    params = make()
    state = {k: v.astype(ml_dtypes.bfloat16) for k, v in params_to_hf(params, TIED).items()}
    write(tmp_path, state)
    found = paths.flatten(load_hf(tmp_path)[1])
    for path, leaf in paths.flatten(params).items():
        assert found[path].dtype == np.float32
        np.testing.assert_allclose(found[path], leaf, rtol=1e-2, atol=1e-6)


def test_the_embedding_is_found_under_any_of_its_names(tmp_path):
    params = make()
    state = params_to_hf(params, TIED)
    state["decoder.embed_tokens.weight"] = state.pop("shared.weight")
    state["lm_head.weight"] = state["decoder.embed_tokens.weight"].copy()
    name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    state[name] = np.zeros((4, 2), np.float32)
    write(tmp_path, state)
    assert_same(load_hf(tmp_path)[1], params)


def test_an_output_that_transformers_5_left_out_is_the_embedding(tmp_path):
    params = make(GATED)
    state = params_to_hf(params, GATED)
    del state["lm_head.weight"]
    write(tmp_path, state, GATED, tie_word_embeddings=True, scale_decoder_outputs=False)
    config, found = load_hf(tmp_path)
    assert not config.logits_via_embedding
    np.testing.assert_array_equal(
        found["decoder"]["logits_dense"]["kernel"], params["token_embedder"]["embedding"].T
    )
    write(tmp_path, state, GATED)
    with pytest.raises(UserError, match="missing lm_head.weight"):
        load_hf(tmp_path)


def test_the_scale_of_an_output_of_its_own_goes_into_it(tmp_path):
    params = make(GATED)
    write(tmp_path, params_to_hf(params, GATED), GATED, scale_decoder_outputs=True)
    config, found = load_hf(tmp_path)
    assert config == GATED
    kernels = (of["decoder"].pop("logits_dense")["kernel"] for of in (found, params))
    np.testing.assert_allclose(next(kernels), next(kernels) * GATED.emb_dim**-0.5, rtol=1e-6)
    assert_same(found, params)


def test_a_umt5_that_does_not_say_whether_it_is_scaled_is_refused():
    umt5 = config_to_hf(dataclasses.replace(GATED, relpos_per_layer=True))
    umt5 |= {"tie_word_embeddings": True}
    del umt5["scale_decoder_outputs"]
    with pytest.raises(UserError, match="Add scale_decoder_outputs, true or false"):
        config_from_hf(umt5)
    for scaled in (True, False):
        config = config_from_hf({**umt5, "scale_decoder_outputs": scaled})
        assert (
            config.logits_via_embedding == scaled and config_from_hf(config_to_hf(config)) == config
        )


@pytest.mark.parametrize("held", [True, False])
def test_an_mt5_of_transformers_5_has_an_output_of_its_own(held, tmp_path):
    """Its config.json calls it tied whatever it holds, and says nothing of a scale."""
    params = make(GATED)
    state = params_to_hf(params, GATED)
    output = state["lm_head.weight"] if held else state["shared.weight"]
    if not held:
        del state["lm_head.weight"]
    write(tmp_path, state, GATED, model_type="mt5", tie_word_embeddings=True)
    config, found = load_hf(tmp_path)
    assert not config.logits_via_embedding
    np.testing.assert_array_equal(found["decoder"]["logits_dense"]["kernel"], output.T)


def test_missing_and_unexpected_names_are_both_listed(tmp_path):
    state = params_to_hf(make(), TIED)
    state["encoder.block.0.layer.0.SelfAttention.z.weight"] = state.pop(
        "encoder.block.0.layer.0.SelfAttention.q.weight"
    )
    write(tmp_path, state)
    with pytest.raises(UserError) as error:
        load_hf(tmp_path)
    assert "missing encoder.block.0.layer.0.SelfAttention.q.weight" in str(error.value)
    assert "not part of the model encoder.block.0.layer.0.SelfAttention.z" in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_tree_with_more_or_fewer_leaves_is_not_saved(tmp_path):
    params = make()
    params["encoder"]["lora"] = {"a": np.zeros(2)}
    del params["decoder"]["decoder_norm"]
    with pytest.raises(UserError) as error:
        save_hf(tmp_path, params, TIED)
    assert "missing decoder/decoder_norm/scale" in str(error.value)
    assert "not part of the model encoder/lora/a" in str(error.value)
    del params["encoder"]["lora"]
    with pytest.raises(UserError, match="missing decoder/decoder_norm/scale; check its config"):
        save_hf(tmp_path, params, TIED)
    assert not list(tmp_path.iterdir())


def test_shapes_that_do_not_fit_are_named(tmp_path):
    state = params_to_hf(make(), TIED)
    write(tmp_path, state, vocab_size=21)
    with pytest.raises(UserError, match=r"shared.weight is \(20, 8\), the model has \(21, 8\)"):
        load_hf(tmp_path)


def test_a_separate_output_is_not_silently_tied(tmp_path):
    state = params_to_hf(make(), TIED)
    state["lm_head.weight"] = state["shared.weight"] + 1
    write(tmp_path, state)
    with pytest.raises(UserError, match="lm_head.weight with other values than shared.weight"):
        load_hf(tmp_path)


def test_pickles_are_refused_with_a_reason(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(UserError, match="pickle that could run any code"):
        read_state(tmp_path)


@pytest.mark.parametrize(
    "settings,text",
    [
        (dict(model_type="bart"), "'bart': only T5"),
        (dict(feed_forward_proj="gated-tanh"), "feed_forward_proj 'gated-tanh'"),
        (dict(decoder_start_token_id=7), "decoder_start_token_id 7: only 0 can be imported"),
        (dict(eos_token_id=5), "eos_token_id 5: only 1 can be imported"),
        (dict(layer_norm_epsilon=1e-5), "layer_norm_epsilon 1e-05"),
        (dict(is_encoder_decoder=False), "is_encoder_decoder False: only True"),
        (dict(dense_act_fn="gelu_new"), "dense_act_fn 'gelu_new' and feed_forward_proj 'relu'"),
        (dict(is_gated_act=True), "is_gated_act True and feed_forward_proj 'relu'"),
        (dict(relative_attention_max_distance=2), "relative_attention_max_distance of config.json"),
        (dict(relative_attention_num_buckets=2), "relative_attention_num_buckets of config.json"),
        (dict(quantization_config={"bits": 4}), "quantised weights cannot be imported"),
    ],
)
def test_what_this_model_lacks_is_refused(settings, text):
    with pytest.raises(UserError, match=text):
        config_from_hf({**config_to_hf(TIED), **settings})


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(UserError, match="config.json"):
        load_hf(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match="config.json, line 1: not JSON"):
        load_hf(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(TIED)))
    with pytest.raises(UserError, match="holds neither model.safetensors nor"):
        load_hf(tmp_path)
    (tmp_path / "flax_model.msgpack").write_bytes(b"\xc1broken")
    with pytest.raises(UserError, match="as Flax weights"):
        load_hf(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(UserError, match="as safetensors"):
        load_hf(tmp_path)


def test_json_of_another_form_is_refused(tmp_path, monkeypatch):
    settings = config_to_hf(TIED)
    for text in ("[]", '"T5"'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match="config.json holds .* which is not a JSON object"):
            load_hf(tmp_path)
    del settings["d_model"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "mine.json").write_text((tmp_path / "config.json").read_text())
    with pytest.raises(UserError, match=f"{tmp_path}: mine.json lacks d_model"):
        read_config(tmp_path / "mine.json")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="^mine.json lacks d_model"):
        read_config("mine.json")
    (tmp_path / "mine.json").write_text(
        json.dumps({**settings, "d_model": 64, "relative_attention_num_buckets": -1})
    )
    with pytest.raises(
        UserError, match=f"{tmp_path}: relative_attention_num_buckets of mine.json is -1"
    ):
        read_config(tmp_path / "mine.json")
    with pytest.raises(UserError, match=f"{tmp_path}: config.json lacks d_model: it is not a T5's"):
        load_hf(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    for value, told in (
        ([], "holds .* which is not a JSON object"),
        ({"weight_map": ["a"]}, "has no 'weight_map'"),
        ({"weight_map": {"a": 1}}, "has no 'weight_map'"),
        ({"weight_map": {"a": "../model.safetensors"}}, "lie in its own folder"),
    ):
        index.write_text(json.dumps(value))
        with pytest.raises(UserError, match=told):
            read_state(tmp_path)


def test_values_that_are_no_numbers_are_refused(tmp_path):
    state = params_to_hf(make(), TIED)
    state["shared.weight"][3, 1] = np.nan
    write(tmp_path, state)
    with pytest.raises(UserError, match=r"not numbers \(NaN or infinite\): shared.weight;"):
        load_hf(tmp_path)


def test_large_weights_are_written_in_parts(tmp_path):
    params = make()
    save_hf(tmp_path, params, TIED)
    save_hf(tmp_path, params, TIED, max_shard_bytes=1500)
    files = sorted(p.name for p in tmp_path.glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05}.safetensors"
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in jax.tree.leaves(params))
    assert_same(load_hf(tmp_path)[1], params)
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("torch")
    theirs = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path).state_dict()
    for name, x in params_to_hf(params, TIED).items():
        np.testing.assert_array_equal(theirs[name].numpy(), x)
    save_hf(tmp_path, params, TIED)  # and back to one file, with no other left
    assert [p.name for p in tmp_path.glob("*.safetensors*")] == ["model.safetensors"]
