"""GPT-2's LoRA in PEFT's format: three projections here are one layer there."""

import dataclasses

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ckl_jax.checkpoints import peft
from ckl_jax.checkpoints.hf_names import config_to_hf
from ckl_jax.checkpoints.restore import restore_params
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl
from ckl_jax.errors import UserError
from ckl_jax.files import write_json
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.methods.method import vanilla
from ckl_jax.trees import paths
from tests.helpers import TINY_GPT2, model_of

CONFIG = dataclasses.replace(TINY_GPT2, dropout_rate=0.0)
TOKENS = np.array([[3, 4, 5, 6, 7], [8, 9, 1, 2, 3]], np.int32)
ALL = ("query", "key", "value", "out", "wi", "wo")


def make(method=None, config=CONFIG):
    model = model_of((method or lora(rank=2, trunk=())).extend(config))
    shapes = jax.eval_shape(model.init, jax.random.key(0))["params"]
    rng = np.random.default_rng(0)
    return model, jax.tree.map(
        lambda x: (0.3 * rng.normal(size=x.shape)).astype(np.float32), shapes
    )


def base_of(params):
    return {p: x for p, x in paths.flatten(params).items() if not peft.is_adapter(p)}


def assert_same_model(params, other, scale):
    ours, theirs = (paths.flatten(merge_lora(p, scale)) for p in (params, other))
    assert ours.keys() == theirs.keys()
    for path, x in ours.items():
        np.testing.assert_allclose(theirs[path], x, rtol=1e-6, atol=1e-6, err_msg=path)


@pytest.mark.parametrize(
    "scan, phase, targets",
    [
        (False, 0, ("query", "value")),
        (True, 1, ("query", "value")),
        (False, 0, ("key",)),
        (False, 1, ("query", "value", "wo")),
        (True, 0, ALL),
    ],
)
def test_there_and_back_is_the_same_adapter(tmp_path, scan, phase, targets):
    config = dataclasses.replace(CONFIG, scan_layers=scan)
    _, params = make(lora(rank=2, targets=targets, trunk=(), phase=phase), config)
    peft.save_peft(tmp_path, params, config, 0.25)
    tree, settings = peft.load_peft(tmp_path, config)
    found = {"rank": 2 * (phase + 1), "scale": 0.25, "targets": tuple(sorted(targets))}
    assert settings == found
    assert_same_model(params, paths.unflatten(base_of(params) | paths.flatten(tree)), 0.25)


def test_query_and_value_are_one_layer_of_twice_the_rank(tmp_path):
    _, params = make()
    settings, arrays = peft.adapter_to_peft(params, CONFIG, 0.25)
    assert (settings["r"], settings["lora_alpha"]) == (4, 1.0)
    assert settings["target_modules"] == ["attn.c_attn"] and settings["fan_in_fan_out"]
    b = arrays["base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"]
    rows = np.split(b, 3)
    assert b.shape == (48, 4)
    assert not rows[1].any() and not rows[0][:, 2:].any() and not rows[2][:, :2].any()
    here = params["decoder"]["layers_1"]["self_attention"]["value"]["lora_0"]["b"]
    np.testing.assert_array_equal(rows[2][:, 2:], here.T)


def their_logits(model):
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return model(input_ids=torch.tensor(TOKENS).long()).logits.numpy()


def our_logits(params, config, settings):
    model = model_of(lora(**settings, trunk=()).extend(config))
    logits = model.module.apply({"params": params}, TOKENS, TOKENS, enable_dropout=False)
    return np.asarray(logits)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")  # peft's
@pytest.mark.parametrize("targets", [("query", "value"), ALL])
def test_peft_computes_the_same_logits(tmp_path, targets):
    loaded = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    _, params = make(lora(rank=2, targets=targets, trunk=()))
    peft.save_peft(tmp_path, params, CONFIG, 0.25)
    save_hf(tmp_path / "base", paths.unflatten(base_of(params)), CONFIG)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "base").eval()
    plain = their_logits(theirs)
    theirs = loaded.PeftModel.from_pretrained(theirs, tmp_path).eval()
    ours = our_logits(params, CONFIG, {"rank": 2, "scale": 0.25, "targets": targets})
    np.testing.assert_allclose(their_logits(theirs), ours, rtol=1e-5, atol=1e-5)
    assert np.abs(plain - ours).max() > 1e-2
    theirs.save_pretrained(tmp_path / "written")
    tree, settings = peft.load_peft(tmp_path / "written", CONFIG)
    assert settings["rank"] == 2
    for path, x in paths.flatten(tree).items():
        np.testing.assert_array_equal(x, paths.flatten(params)[path])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")  # peft's
def test_an_adapter_that_peft_trains_is_imported(tmp_path):
    """Its B is of no form: each of the three projections gets all of its ranks."""
    torch = pytest.importorskip("torch")
    loaded = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    _, params = make(vanilla())
    save_hf(tmp_path / "base", params, CONFIG)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "base")
    config = loaded.LoraConfig(r=3, lora_alpha=6, target_modules=["c_attn"], fan_in_fan_out=True)
    theirs = loaded.get_peft_model(theirs, config).eval()
    with torch.no_grad():
        for name, x in theirs.named_parameters():
            if "lora_" in name:
                x.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path / "written")
    tree, settings = peft.load_peft(tmp_path / "written", CONFIG)
    assert settings == {"rank": 3, "scale": 2.0, "targets": ("key", "query", "value")}
    whole = paths.unflatten(paths.flatten(params) | paths.flatten(tree))
    np.testing.assert_allclose(
        our_logits(whole, CONFIG, settings), their_logits(theirs), rtol=1e-5, atol=1e-5
    )


def test_an_adapter_of_some_layers_or_the_embedding_is_refused(tmp_path):
    peft.save_peft(tmp_path, make()[1], CONFIG, 0.25)
    arrays = load_file(tmp_path / peft.WEIGHTS)
    some = {n: x for n, x in arrays.items() if ".h.0." in n}
    save_file(some, tmp_path / peft.WEIGHTS)
    with pytest.raises(UserError, match="but not decoder/layers_1/self_attention/query"):
        peft.load_peft(tmp_path, CONFIG)
    wte = {"base_model.model.transformer.wte.lora_A.weight": np.ones((4, 64), np.float32)}
    save_file(arrays | wte, tmp_path / peft.WEIGHTS)
    with pytest.raises(
        UserError, match="transformer.wte.lora_A.weight is of the embedding or the output"
    ):
        peft.load_peft(tmp_path, CONFIG)


def save(folder, params, dense=None):
    state = {"params": params, "step": np.zeros((), np.int32)}
    with CheckpointStore(folder) as store:
        store.save(0, state, {"dense": dense or {}})
    return str(folder)


def test_a_run_goes_out_and_comes_in(tmp_path, capsys):
    _, params = make()
    run = save(tmp_path / "run", params, {"scale": 0.25})
    base = save(tmp_path / "base", paths.unflatten(base_of(params)))
    write_json(tmp_path / "config.json", config_to_hf(CONFIG))
    out, back = str(tmp_path / "adapter"), str(tmp_path / "back")
    like = ["--like", str(tmp_path / "config.json")]
    assert ckl.main(["export-peft", "--model", run, *like, "--out", out]) == 0
    assert f"peft.AutoPeftModelForCausalLM.from_pretrained('{out}')" in capsys.readouterr().out
    adapter = ["--adapter", out, "--model", base]
    assert ckl.main(["import-peft", *adapter, *like, "--out", back]) == 0
    assert "--gin_file=temporalwiki_lora.gin" in capsys.readouterr().out
    again = paths.flatten(restore_params(back))
    for path, x in paths.flatten(params).items():
        np.testing.assert_array_equal(again[path], x)
    gin = (tmp_path / "back" / "model.gin").read_text()
    assert "rank = 2" in gin and "targets = ('query', 'value')" in gin
