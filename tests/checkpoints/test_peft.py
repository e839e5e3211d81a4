"""LoRA adapters in PEFT's format: there and back, and what PEFT itself makes of them."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ckl_jax.checkpoints import architectures, peft
from ckl_jax.checkpoints.restore import restore_params
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl, t5x
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import lora, merge_lora
from ckl_jax.models.t5 import T5Config
from ckl_jax.trees import paths
from tests.helpers import TINY_T5GEMMA

SIZES = dict(
    vocab_size=20,
    emb_dim=8,
    num_heads=2,
    head_dim=4,
    mlp_dim=12,
    num_encoder_layers=1,
    num_decoder_layers=2,
    relpos_buckets=4,
    dropout_rate=0.0,
    logits_via_embedding=True,
)
CONFIG = T5Config(**SIZES)
GEMMA = dataclasses.replace(TINY_T5GEMMA, dropout_rate=0.0)
IDS = np.array([[3, 4, 5, 1, 0], [6, 7, 1, 0, 0]], np.int32)
TARGETS = np.array([[8, 9, 1], [2, 1, 0]], np.int32)


def make(method=None, config=CONFIG):
    config = (method or lora(rank=2)).extend(config)
    model = architectures.of_config(config).module(config)
    made = jax.eval_shape(lambda: model.init(jax.random.key(0), IDS, TARGETS, TARGETS))
    rng = np.random.default_rng(0)
    draw = lambda x: (0.3 * rng.normal(size=x.shape)).astype(np.float32)  # noqa: E731
    return model, jax.tree.map(draw, made["params"])


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("phase", [0, 1])
def test_there_and_back_is_the_same_model(tmp_path, scan, phase):
    config = T5Config(**SIZES, scan_layers=scan)
    model, params = make(lora(rank=2, scale=0.25, phase=phase), config)
    count = peft.save_peft(tmp_path, params, config, 0.25)
    tree, settings = peft.load_peft(tmp_path, config)
    rank = 2 * (phase + 1)
    assert settings == {"rank": rank, "scale": 0.25, "targets": ("query", "value")}
    assert count == sum(x.size for x in jax.tree.leaves(tree))
    base = {p: x for p, x in paths.flatten(params).items() if not peft.is_adapter(p)}
    again = paths.unflatten(base | paths.flatten(tree))
    for path, x in paths.flatten(merge_lora(again, 0.25)).items():
        np.testing.assert_allclose(
            x, paths.flatten(merge_lora(params, 0.25))[path], rtol=1e-6, atol=1e-7
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")  # peft's
@pytest.mark.parametrize("config", [CONFIG, GEMMA], ids=["T5", "T5Gemma"])
def test_peft_computes_the_same_logits(tmp_path, config):
    torch = pytest.importorskip("torch")
    loaded = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    model, params = make(lora(rank=2, scale=0.25), config)
    peft.save_peft(tmp_path, params, config, 0.25)
    base = {p: x for p, x in paths.flatten(params).items() if not peft.is_adapter(p)}
    save_hf(tmp_path / "base", paths.unflatten(base), config)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        tmp_path / "base", attn_implementation="eager"
    ).eval()
    theirs = loaded.PeftModel.from_pretrained(theirs, tmp_path).eval()
    starts, first = np.array([[0, 8, 9], [0, 2, 1]], np.int32), getattr(config, "start_id", 0)
    with torch.no_grad():
        logits = theirs(
            input_ids=torch.tensor(IDS).long(),
            attention_mask=torch.tensor(IDS > 0).long(),
            decoder_input_ids=torch.tensor(np.where(starts, starts, first)).long(),
        ).logits.numpy()
    ours = np.asarray(model.apply({"params": params}, IDS, starts, TARGETS, enable_dropout=False))
    kept = TARGETS > 0
    np.testing.assert_allclose(logits[kept], ours[kept], rtol=1e-5, atol=1e-5)
    # And what PEFT writes is read.
    theirs.save_pretrained(tmp_path / "written")
    tree, settings = peft.load_peft(tmp_path / "written", config)
    assert settings["scale"] == 0.25
    for path, x in paths.flatten(tree).items():
        np.testing.assert_array_equal(x, paths.flatten(params)[path])


def change(folder, **settings):
    file = folder / peft.CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


@pytest.mark.parametrize(
    "settings, text",
    [
        ({"peft_type": "IA3"}, "only LORA"),
        ({"use_dora": True}, "use_dora"),
        ({"rank_pattern": {"q": 3}}, "rank_pattern"),
        ({"r": 3}, "the model needs"),
        ({"fan_in_fan_out": True}, "for GPT-2 alone"),
        ({"r": None}, "the field 'r' has the value None; let PEFT"),
        ({"r": 0}, "adapter_config.json: 'r' is 0; give 1 or more"),
        ({"r": True}, "the field 'r' has the value True; let PEFT"),
        ({"r": 10**30}, "'r' is 10+; give 2,147,483,647 or less"),
        ({"r": [2]}, r"the field 'r' has the value \[2\]"),
        ({"lora_alpha": "x"}, "'lora_alpha' has the value 'x'"),
        ({"lora_alpha": 10**400}, "'lora_alpha' is 10+.*; give a finite number"),
        ({"use_rslora": "no"}, "'use_rslora' has the value 'no'"),
        ({"use_dora": 1}, "'use_dora' has the value 1"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights = 'pissa_niter_4', so the ad"),
        (
            {"init_lora_weights": "OLoRA"},
            "init_lora_weights = 'OLoRA', so the adapter is of a base",
        ),
        ({"kasa_config": {"a": 1}}, "kasa_config = .*; only plain LoRA"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path, settings, text):
    peft.save_peft(tmp_path, make()[1], CONFIG, 0.25)
    change(tmp_path, **settings)
    with pytest.raises(UserError, match=text):
        peft.load_peft(tmp_path, CONFIG)


def test_a_missing_rank_is_named(tmp_path):
    peft.save_peft(tmp_path, make()[1], CONFIG, 0.25)
    settings = json.loads((tmp_path / peft.CONFIG).read_text())
    settings.pop("r")
    (tmp_path / peft.CONFIG).write_text(json.dumps(settings))
    with pytest.raises(UserError, match="the field 'r' is missing; let PEFT save the adapter ag"):
        peft.load_peft(tmp_path, CONFIG)


def test_an_adapter_says_which_model_it_is_of(tmp_path):
    peft.save_peft(tmp_path, make()[1], CONFIG, 0.25, tmp_path / "base")
    settings = json.loads((tmp_path / peft.CONFIG).read_text())
    assert settings["base_model_name_or_path"] == str(tmp_path / "base")
    (tmp_path / peft.CONFIG).write_text("[]")
    with pytest.raises(UserError, match="which is not a JSON object"):
        peft.load_peft(tmp_path, CONFIG)


def test_an_adapter_of_some_layers_or_none_is_refused(tmp_path):
    peft.save_peft(tmp_path, make()[1], CONFIG, 0.25)
    arrays = load_file(tmp_path / peft.WEIGHTS)
    first = sorted(arrays)[0]
    arrays.pop(first)
    save_file(arrays, tmp_path / peft.WEIGHTS)
    with pytest.raises(UserError, match="has only one of lora_A and lora_B"):
        peft.load_peft(tmp_path, CONFIG)
    arrays.pop(first.replace("lora_A", "lora_B"))
    save_file(arrays, tmp_path / peft.WEIGHTS)
    with pytest.raises(UserError, match="only adapters of all layers"):
        peft.load_peft(tmp_path, CONFIG)
    save_file({"base_model.model.x.lora_A.weight": np.ones((2, 2))}, tmp_path / peft.WEIGHTS)
    with pytest.raises(UserError, match="adapts nothing of the model"):
        peft.load_peft(tmp_path, CONFIG)
    # Layers of the output and the embedding, with the base that PEFT saves beside them.
    untied = dataclasses.replace(CONFIG, logits_via_embedding=False)
    for name in ("lm_head.base_layer.weight", "lm_head.lora_A.weight", "shared.lora_embedding_A"):
        save_file({f"base_model.model.{name}": np.ones((2, 8))}, tmp_path / peft.WEIGHTS)
        told = f"{name} is of the embedding or the output, .* without {name.split('.')[0]} in"
        with pytest.raises(UserError, match=told):
            peft.load_peft(tmp_path, untied)
    (tmp_path / peft.WEIGHTS).rename(tmp_path / "adapter_model.bin")
    with pytest.raises(UserError, match="is a pickle"):
        peft.load_peft(tmp_path, CONFIG)
    with pytest.raises(UserError, match="no LoRA adapters"):
        peft.save_peft(tmp_path, {"encoder": {"x": np.ones(1)}}, CONFIG, 0.25)


@pytest.mark.parametrize("command", ["export-hf", "export-peft"])
def test_what_others_have_made_is_not_written_over(command, tmp_path, capsys):
    theirs = tmp_path / "out" / "base" / "config.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    argv = [command, "--model=unread", "--like=unread", "--out", str(tmp_path / "out")]
    assert ckl.main(argv) == 2
    assert "out is there already; choose another --out" in capsys.readouterr().err
    assert theirs.read_text() == "theirs"


@pytest.mark.slow
def test_a_run_goes_out_and_comes_in(tiny, tmp_path, capsys):
    run = tmp_path / "run"
    assert t5x.main(["train", *tiny.argv("lora", run, PROBES=None, EPOCHS=1)]) == 0
    like = tmp_path / "config.json"
    config = T5Config(
        vocab_size=1024,
        emb_dim=32,
        num_heads=2,
        head_dim=16,
        mlp_dim=64,
        num_encoder_layers=1,
        num_decoder_layers=1,
        logits_via_embedding=True,
    )
    from ckl_jax.checkpoints.hf_names import config_to_hf

    like.write_text(json.dumps(config_to_hf(config)))
    out, back = tmp_path / "adapter", tmp_path / "back"
    flags = ["--like", str(like)]
    assert ckl.main(["export-peft", "--model", str(run), *flags, "--out", str(out)]) == 0
    assert json.loads((out / peft.CONFIG).read_text())["lora_alpha"] == 1.0  # 0.25 of rank 4
    adapter = ["--adapter", str(out), "--model", str(tiny.root / "initial")]
    assert ckl.main(["import-peft", *adapter, *flags, "--out", str(back)]) == 0
    trained = paths.flatten(restore_params(run))
    for path, x in paths.flatten(restore_params(back)).items():
        if peft.is_adapter(path):
            np.testing.assert_array_equal(x, trained[path])
    argv = tiny.argv("lora", tmp_path / "on", str(back / "model.gin"), PROBES=None, EPOCHS=1)
    start = f"--gin_bindings=INITIAL_CHECKPOINT_PATH = {str(back)!r}"
    assert t5x.main(["train", *argv, start]) == 0
    info = (tmp_path / "on" / "model-info.txt").read_text()
    assert "Number of trainable parameters: 1536" in info  # 2 of 3 attentions' 2 x (32 + 32) x 4
