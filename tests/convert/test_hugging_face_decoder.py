"""A Llama-shaped model of Hugging Face in, trained on rows of its own vocabulary, and out again."""

import ast
import dataclasses
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf, open_model
from ckl_jax.checkpoints.hf_names import config_from_hf, config_to_hf
from ckl_jax.checkpoints.peft import save_peft
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import t5x
from ckl_jax.cli.ckl import main
from ckl_jax.convert import hugging_face, peft
from ckl_jax.data.facts.statements import Statement
from ckl_jax.data.tasks.cached import CachedTask
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.data.text.masked_vocabulary import open_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.methods.lora import lora
from ckl_jax.models.decoder import DecoderConfig
from ckl_jax.papers.lm_pub_quiz.opening import open_scorer
from ckl_jax.train.setup import check_vocabulary
from tests.helpers import random_params
from tests.llama_tokenizer import train_tokenizer

tokenizers = pytest.importorskip("tokenizers")
CONFIG = DecoderConfig(
    vocab_size=300,
    emb_dim=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    mlp_dim=32,
    num_layers=2,
    max_positions=32,
)


@pytest.fixture
def hf(tmp_path):
    save_hf(tmp_path / "hf", random_params(CONFIG), CONFIG)
    train_tokenizer(tmp_path / "hf")
    return tmp_path / "hf"


def test_a_vocabulary_begins_and_ends_texts_as_its_settings_say(hf):
    vocabulary = open_vocabulary(hf)
    assert (vocabulary.bos_id, vocabulary.eos_id, vocabulary.pad_id) == (1, 2, 2)
    assert vocabulary.around == ([1], [])
    ids = vocabulary.encode("Rome is é.")
    assert vocabulary.decode(ids) == "Rome is é." and 1 not in ids
    text, spans = vocabulary.locate(ids)
    assert text == " Rome is é." and spans[-1] == (len(text) - 1, len(text))
    tokenizer = tokenizers.Tokenizer.from_file(str(hf / "tokenizer.json"))
    ends = {"single": "$A </s>", "special_tokens": [("</s>", 2)]}
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(**ends)
    tokenizer.save(str(hf / "tokenizer.json"))  # a template comes before the settings
    assert open_vocabulary(hf).around == ([], [2])
    train_tokenizer(hf, add_bos=False)
    assert open_vocabulary(hf).around == ([], [])
    (hf / "tokenizer_config.json").write_text("{}")
    with pytest.raises(UserError, match="does not say which token ends a text"):
        open_vocabulary(hf)
    (hf / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    assert open_vocabulary(hf).eos_id == 2 and open_vocabulary(hf).bos_id is None
    (hf / "generation_config.json").write_text('{"eos_token_id": 2, "bos_token_id": "1"}')
    with pytest.raises(UserError, match="bos_token_id of generation_config.json is '1'"):
        open_vocabulary(hf)


def test_a_vocabulary_of_a_smaller_model_is_named(tmp_path, capsys):
    config = dataclasses.replace(CONFIG, vocab_size=813)
    save_hf(tmp_path, random_params(config), config)
    train_tokenizer(tmp_path)
    assert main(["import-hf", "--model", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "300 ids, but config.json has a vocab_size of 813; give" in capsys.readouterr().err


def test_flags_of_a_run_are_for_a_shell():
    plain = "--gin_file=runs/a/model.gin --gin.INITIAL_CHECKPOINT_PATH=\"'runs/a'\""
    assert hugging_face.restore_flags("runs/a") == plain
    for folder in ("runs/my model", "o'ne"):
        file, path = shlex.split(hugging_face.restore_flags(folder))
        assert file == f"--gin_file={folder}/model.gin"
        assert ast.literal_eval(path.partition("=")[2]) == folder


def test_a_model_has_a_row_for_each_token_of_a_text(tmp_path):
    config = dataclasses.replace(CONFIG, vocab_size=299)
    save_hf(tmp_path, random_params(config), config)
    train_tokenizer(tmp_path)
    told = "has 300 ids, .* but config.json has a vocab_size of 299"
    with pytest.raises(UserError, match=told):
        open_model(tmp_path)
    # A special token behind the others, as Gemma 3's of images, is in no text.
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    added = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    last = next(t for t, i in tokenizer["model"]["vocab"].items() if i == 299)
    tokenizer["added_tokens"].append({"id": 299, "content": last, "special": True, **added})
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    model = open_model(tmp_path)[0]
    assert model.config.vocab_size == 299
    check_vocabulary(model)  # of a training
    assert main(["import-hf", "--model", str(tmp_path), "--out", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize("put", [Path.mkdir, lambda path: path.symlink_to(path)])
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_what_is_no_file_does_not_count_as_absent(name, put, hf, tmp_path, capsys):
    (hf / name).unlink()
    put(hf / name)
    assert main(["import-hf", "--model", str(hf), "--out", str(tmp_path / "out")]) == 2
    assert str(hf / name) in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["lora", pytest.param("vanilla", marks=pytest.mark.slow)])
def test_in_trained_and_out_again(hf, tmp_path, capsys, method):
    ours, rows, back = tmp_path / "ours", tmp_path / "rows", tmp_path / "back"
    assert main(["import-hf", "--model", str(hf), "--out", str(ours)]) == 0
    assert f"`ckl data rows --vocabulary {ours}`" in capsys.readouterr().out
    news = [Document(str(i), "2021-08-01", "", "Rome is a city. " * i) for i in range(1, 20)]
    write_documents(tmp_path / "news.jsonl", news)
    argv = ["--documents", str(tmp_path / "news.jsonl"), "--out", str(rows), "--length", "16"]
    assert main(["data", "rows", "--vocabulary", str(ours), "--pack", *argv]) == 0
    macros = {
        "INITIAL_CHECKPOINT_PATH": str(ours),
        "CACHE_DIRS": (str(rows),),
        "BATCH_SIZE": 8,
        "MIXTURE_OR_TASK_NAME": "news",
        "HELD_OUT_TASKS": ("news",),
        "TRAIN_STEPS": 3,
        "LEARNING_RATE": 1e-2,
        "TASK_FEATURE_LENGTHS": {"targets": 16},
        "MODEL_DIR": str(tmp_path / "run"),
    }
    files = [f"--gin_file={f}" for f in (f"temporalwiki_{method}.gin", ours / "model.gin")]
    argv = [*files, *(f"--gin_bindings={n} = {v!r}" for n, v in macros.items())]
    assert t5x.main(["train", *argv]) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    scores = [json.loads(line) for line in lines if "training_eval/news" in line]
    assert [s["step"] for s in scores] == [0, 3] and scores[1]["loss"] < scores[0]["loss"]
    flags = ["--like", str(hf / "config.json"), "--out", str(back)]
    assert main(["export-hf", "--model", str(tmp_path / "run"), *flags]) == 0
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (back / name).read_bytes() == (hf / name).read_bytes()
    (config, changed), (_, start) = load_hf(back), load_hf(hf)
    assert config == CONFIG
    layer = [tree["decoder"]["layers_0"]["self_attention"] for tree in (changed, start)]
    assert np.abs(layer[0]["query"]["kernel"] - layer[1]["query"]["kernel"]).max() > 0
    same = np.array_equal(layer[0]["key"]["kernel"], layer[1]["key"]["kernel"])
    assert same == (method == "lora")


def test_what_export_is_like_is_a_folder_or_a_name_and_keeps_its_ids(hf, tmp_path, monkeypatch):
    ours, argv = str(tmp_path / "ours"), ["export-hf", "--model", str(tmp_path / "ours"), "--like"]
    settings = json.loads((hf / "config.json").read_text())
    kept = {"pad_token_id": None, "sep_token_id": 0, "use_cache": False, "eos_token_id": [2, 7]}
    typeless = {name: value for name, value in settings.items() if name != "model_type"}
    (hf / "config.json").write_text(json.dumps(typeless))
    with pytest.raises(UserError, match="hf: config.json has no model_type; give one"):
        open_model(hf)
    (hf / "config.json").write_text(json.dumps({**settings, **kept, "dtype": "bfloat16"}))
    assert main(["import-hf", "--model", str(hf), "--out", ours]) == 0
    assert main([*argv, str(hf), "--out", str(tmp_path / "back")]) == 0
    written = json.loads((tmp_path / "back" / "config.json").read_text())
    assert kept.items() <= written.items() and "dtype" not in written
    found = {("some/name", False): str(hf)}
    monkeypatch.setattr(hugging_face, "folder_of", lambda name, weights: found[name, weights])
    assert main([*argv, "some/name", "--out", str(tmp_path / "hub")]) == 0
    assert (tmp_path / "hub" / "tokenizer.json").is_file()


def test_a_config_of_another_model_is_named(hf, tmp_path, capsys):
    ours, qwen = tmp_path / "ours", dataclasses.replace(CONFIG, family="qwen3", qk_norm="head")
    qwen = dataclasses.replace(qwen, logits_via_embedding=True)
    save_hf(tmp_path / "qwen", random_params(qwen), qwen)
    assert main(["import-hf", "--model", str(hf), "--out", str(ours)]) == 0
    argv = ["export-hf", "--model", str(ours), "--like", str(tmp_path / "qwen"), "--out"]
    assert main([*argv, str(tmp_path / "back")]) == 2
    assert f"config.json is of a qwen3, {ours} of a llama" in capsys.readouterr().err
    (ours / "model.gin").unlink()  # then the parameters tell
    assert main([*argv, str(tmp_path / "back")]) == 2
    assert "missing decoder/layers_0/self_attention/" in capsys.readouterr().err


def test_an_adapter_of_peft_comes_in_is_asked_and_goes_out(hf, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    params = random_params(lora(rank=2).extend(CONFIG))
    save_peft(tmp_path / "adapter", params, CONFIG, 0.5)
    assert main(["import-hf", "--model", "hf", "--out", "ours"]) == 0
    argv = ["import-peft", "--adapter", "adapter", "--model", "ours", "--like", "hf"]
    assert main([*argv, "--out", "own"]) == 0
    assert "--gin_file=own/model.gin" in capsys.readouterr().out
    assert main(["export-hf", "--model", "own", "--like", "hf", "--out", "merged"]) == 0
    statements = [Statement("Rome is a city.", (), ((0, 15),))]
    scores = [open_scorer(name).token_scores(statements).values for name in ("own", "merged", "hf")]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-4)
    assert np.abs(scores[0] - scores[2]).max() > 0.01

    def exported(out, *base):
        flags = ["--model", "own", "--like", "hf", "--out", out, *base]
        assert main(["export-peft", *flags]) == 0
        settings = json.loads((tmp_path / out / "adapter_config.json").read_text())
        return settings["base_model_name_or_path"], (tmp_path / out / "base").exists()

    # The base's config.json is kept, so that none need be named.
    assert main(["export-peft", "--model", "own", "--out", "plain"]) == 0
    assert exported("a") == (str(tmp_path / "a" / "base"), True)
    assert exported("b", "--base=hf") == (str(hf), False)
    monkeypatch.setattr(peft, "folder_of", {"some/name": str(hf)}.get)
    assert exported("c", "--base=some/name") == ("some/name", False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'; .* row"),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0}}, "'ntk'; only .* longrope are offered.$"),
        (
            {"rope_scaling": {"type": "llama3", "factor": 2.0}},
            "lack .*which llama3 needs",
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 0.0}},
            "factor of rope_scaling of config.*0.0; ",
        ),
        ({"rope_scaling": {"type": "linear", "factor": 10**400}}, "give no angles"),
        ({"rope_scaling": {"type": "yarn", "factor": 8.0}, "rope_theta": 1.0}, "give no angles"),
        ({"rope_theta": 10**400}, "give no angles"),
        ({"hidden_act": "quick_gelu"}, "hidden_act 'quick_gelu': only silu"),
        ({"quantization_config": {"bits": 4}}, "quantised weights cannot be imported"),
        ({"compression_config": {"quant_method": "x"}}, "has a compression_config: quantised"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3, .* divide num_attention_heads, 2"),
        ({"layer_types": ["linear_attention"]}, "layer_types 'linear_attention'"),
        ({"layer_types": ["full_attention"]}, "has 1 layer_types and num_hidden_layers 2; give"),
        ({"hidden_size": None}, "config.json lacks hidden_size"),
        (
            {
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
                "rope_scaling": {"type": "linear", "factor": 4.0},
            },
            "rope_scaling .* and rope_parameters .* differ in rope_type; leave out the wrong one",
        ),
        (
            {"rope_parameters": {"rope_theta": 1e4}, "rope_theta": 5e5},
            "rope_theta 500000.0 and rope_parameters .* differ in rope_theta",
        ),
        (
            {"model_type": "gemma3_text", "use_bidirectional_attention": True},
            "use_bidirectional_attention True: only False can be imported",
        ),
        (
            {"model_type": "bloom", "slow_but_exact": True, "pretraining_tp": 2},
            "slow_but_exact True and pretraining_tp 2",
        ),
    ],
)
def test_settings_that_are_not_offered_are_named(hf, changed, said):
    settings = json.loads((hf / "config.json").read_text())
    if "layer_types" in changed:
        settings["model_type"], changed = "qwen2", {**changed, "sliding_window": 4}
    settings.pop("rope_parameters", None)
    with pytest.raises(UserError, match=said):
        config_from_hf({**settings, **changed})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", ["silu"]),
        ("layer_types", "full_attention"),
        ("attention_bias", "yes"),
        ("max_position_embeddings", "128"),
        ("sliding_window", 0),
        ("sliding_window_pattern", 0),
        ("global_attn_every_n_layers", 0),
        ("local_attention", "8"),
        ("final_logit_softcapping", "30"),
        ("query_pre_attn_scalar", 0),
        ("query_pre_attn_scalar", -4),
        ("rotary_pct", 1.5),
        ("rope_parameters", "llama3"),
        ("rope_parameters", [1]),
        ("factor of rope_parameters", "2"),
        ("partial_rotary_factor of rope_parameters", 1.5),
        ("a number of short_factor of rope_parameters", 0),
        ("rope_theta of full_attention of rope_parameters", -5),
    ],
)
def test_settings_of_another_kind_or_range_are_named(hf, field, value):
    settings, (name, *inside) = json.loads((hf / "config.json").read_text()), field.split(" of ")
    if name == "a number":
        (name, *inside), given = inside, [1.0, value]
    else:
        given = value
    for outer in inside:
        name, given = outer, {name: given}
    told = f"^{re.escape(field)} of config.json is {re.escape(repr(value))}; give "
    with pytest.raises(UserError, match=told):
        config_from_hf({**settings, name: given})


def test_a_model_that_names_code_of_its_own_is_read_with_a_warning(hf):
    """As Phi-3 Mini does, whose code transformers has."""
    settings = json.loads((hf / "config.json").read_text())
    settings["auto_map"] = {"AutoModelForCausalLM": "modeling_x.Foo"}
    (hf / "config.json").write_text(json.dumps(settings))
    with pytest.warns(UserWarning, match="auto_map.*is not run; .* transformers' own llama"):
        config, _ = load_hf(hf)
    assert config == CONFIG


def test_a_phi_3_without_a_padding_token_goes_out_without_one(tmp_path):
    """transformers takes 32000 where config.json says nothing, and refuses a smaller vocabulary."""
    phi = dataclasses.replace(CONFIG, family="phi3")
    assert config_to_hf(phi)["pad_token_id"] is None
    save_hf(tmp_path / "phi", random_params(phi), phi, settings={"pad_token_id": None})
    ours, back = str(tmp_path / "ours"), str(tmp_path / "back")
    assert main(["import-hf", "--model", str(tmp_path / "phi"), "--out", ours]) == 0
    assert main(["export-hf", "--model", ours, "--out", back]) == 0
    assert json.loads((tmp_path / "back" / "config.json").read_text())["pad_token_id"] is None


def test_rows_are_as_long_as_the_model_has_positions(hf, tmp_path, capsys):
    assert main(["import-hf", "--model", str(hf), "--out", str(tmp_path / "ours")]) == 0
    write_documents(tmp_path / "news.jsonl", [Document("1", "2021-08-01", "", "Rome. " * 40)])
    argv = ["data", "rows", "--documents", str(tmp_path / "news.jsonl"), "--vocabulary"]
    for name in ("hf", "ours"):
        assert main([*argv, str(tmp_path / name), "--out", str(tmp_path / f"rows-{name}")]) == 0
        task = CachedTask.open(tmp_path / f"rows-{name}" / "news")
        assert max(len(task.row(i)["targets"]) for i in range(len(task))) == 32
    capsys.readouterr()
    out = ["--out", str(tmp_path / "long"), "--length=33"]
    assert main([*argv, str(tmp_path / "ours"), *out]) == 0
    assert "--length 33 is more than the 32 positions of" in capsys.readouterr().out
    lacking, out = str(tmp_path / "lacking.jsonl"), tmp_path / "none"
    assert main([*argv[:4], lacking, argv[4], str(tmp_path / "ours"), "--out", str(out)]) == 2
    assert f"Cannot read {lacking}" in capsys.readouterr().err and not out.exists()
    model, params = open_model(hf)
    batch = {"decoder_input_tokens": np.ones((1, 33), np.int32)}
    with pytest.raises(UserError, match="32 positions; give smaller TASK_FEATURE_LENGTHS, or"):
        model.logits(params, batch)


def test_models_beyond_their_positions_are_refused(hf):
    config = dataclasses.replace(CONFIG, window=None)
    assert config == load_hf(hf)[0]
    with pytest.raises(UserError, match="layers of the type 'sliding' need it"):
        dataclasses.replace(CONFIG, layer_types=("sliding", "full"))


def test_weights_of_eight_bits_are_named(hf, tmp_path, capsys):
    path = hf / "model.safetensors"
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")  # of the values, behind the header
    header = json.loads(raw[8:start])
    name = next(n for n in header if header[n].get("data_offsets", [1])[0] == 0)
    header[name] |= {"dtype": "F8_E4M3", "shape": [header[name]["data_offsets"][1]]}
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + raw[start:])
    assert main(["import-hf", "--model", str(hf), "--out", str(tmp_path / "out")]) == 2
    assert f"holds {name} as F8_E4M3: only floating-point weights of 16" in capsys.readouterr().err
