"""A Hugging Face GPT-2 in, trained on rows of its own vocabulary, and out again."""

import dataclasses
import json

import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.hf_names import config_from_hf, config_to_hf, params_to_hf
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import t5x
from ckl_jax.cli.ckl import main
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.errors import UserError
from tests.helpers import (
    GPT2_METHODS,
    TINY_GPT2,
    assert_trees_close,
    logits_of,
    random_batch,
    random_params,
)

pytest.importorskip("tokenizers")
CONFIG = dataclasses.replace(TINY_GPT2, vocab_size=300, dropout_rate=0.0)


def train_tokenizer(folder, text):
    from tokenizers import ByteLevelBPETokenizer

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([text], vocab_size=280, special_tokens=["<|endoftext|>"])
    tokenizer.save_model(str(folder))


@pytest.fixture
def hf(tmp_path):
    save_hf(tmp_path / "hf", random_params(CONFIG), CONFIG)
    train_tokenizer(tmp_path / "hf", "Rome is a city in Italy. Paris is a city in France. " * 3)
    (tmp_path / "hf" / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    return tmp_path / "hf"


@pytest.mark.slow
def test_in_trained_and_out_again(hf, tmp_path, capsys):
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
        "TASK_FEATURE_LENGTHS": {"targets": 16},
        "MODEL_DIR": str(tmp_path / "run"),
    }
    files = [f"--gin_file={f}" for f in ("temporalwiki_lora.gin", ours / "model.gin")]
    argv = [*files, *(f"--gin_bindings={n} = {v!r}" for n, v in macros.items())]
    assert t5x.main(["train", *argv]) == 0
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    scores = [json.loads(line) for line in lines if "training_eval/news" in line]
    assert [s["step"] for s in scores] == [0, 3] and scores[1]["loss"] < scores[0]["loss"]
    assert scores[0]["perplexity"] == pytest.approx(np.exp(scores[0]["loss"]))
    flags = ["--like", str(hf / "config.json"), "--out", str(back)]
    assert main(["export-hf", "--model", str(tmp_path / "run"), *flags]) == 0
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        assert (back / name).read_bytes() == (hf / name).read_bytes()
    changed, start = load_hf(back)[1], load_hf(hf)[1]
    layer = [tree["decoder"]["layers_0"]["self_attention"] for tree in (changed, start)]
    assert np.abs(layer[0]["query"]["kernel"] - layer[1]["query"]["kernel"]).max() > 0
    np.testing.assert_array_equal(layer[0]["key"]["kernel"], layer[1]["key"]["kernel"])
    train_tokenizer(hf, "another text of other words")
    flags[-1] = str(tmp_path / "other")
    assert main(["export-hf", "--model", str(ours), *flags]) == 2
    assert "is not the vocabulary that" in capsys.readouterr().err
    longer = json.loads((hf / "config.json").read_text())
    longer["n_positions"] *= 2
    (tmp_path / "longer").mkdir()
    (tmp_path / "longer/config.json").write_text(json.dumps(longer))
    flags[1] = str(tmp_path / "longer")
    assert main(["export-hf", "--model", str(ours), *flags]) == 2
    assert "pos_embedding has the shape [16, 16], but that of" in capsys.readouterr().err


def test_the_embedding_grows_by_the_released_tokens(hf, tmp_path, capsys):
    ours, back = tmp_path / "ours", tmp_path / "back"
    argv = ["import-hf", "--model", str(hf), "--out", str(ours), "--legacy-tokens"]
    assert main(argv) == 0
    assert "'</s>', '<s>', '<unk>', '<pad>', '<mask>'" in (ours / "model.gin").read_text()
    flags = ["--like", str(hf / "config.json"), "--out", str(back)]
    assert main(["export-hf", "--model", str(ours), *flags]) == 0
    config, params = load_hf(back)
    assert config.vocab_size == CONFIG.vocab_size + 5
    grown, start = params["token_embedder"]["embedding"], random_params(CONFIG)
    np.testing.assert_array_equal(grown[:-5], start["token_embedder"]["embedding"])
    assert 0 < np.abs(grown[-5:]).max() < 0.1
    argv = ["import-hf", "--model", str(hf), "--out", str(tmp_path / "x"), "--vocab-size", "299"]
    assert main(argv) == 2
    assert "--vocab-size is 299, but the model has 300 rows" in capsys.readouterr().err


@pytest.mark.parametrize("word, told", [("<|endoftext|>", True), ("<other>", False)])
def test_the_end_of_a_small_vocabulary_is_that_of_the_tokenizer(tmp_path, word, told):
    from tokenizers import ByteLevelBPETokenizer

    save_hf(tmp_path / "hf", random_params(CONFIG), CONFIG)
    with CheckpointStore(tmp_path / "run") as store:
        store.save(0, {"params": random_params(CONFIG), "step": np.zeros((), np.int32)})
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["Rome"], vocab_size=280, special_tokens=["<x>", word])
    tokenizer.save_model(str(tmp_path / "hf"))
    flags = ["--like", str(tmp_path / "hf/config.json"), "--out", str(tmp_path / "back")]
    assert main(["export-hf", "--model", str(tmp_path / "run"), *flags]) == 0
    settings = json.loads((tmp_path / "back" / "config.json").read_text())
    end = 1 if told else None
    assert (settings["bos_token_id"], settings["eos_token_id"]) == (end, end)
    assert settings == {**config_to_hf(CONFIG), "bos_token_id": end, "eos_token_id": end}


@pytest.mark.parametrize("shard", [5 * 10**9, 4000])
def test_saved_and_loaded_is_the_same_here_and_at_transformers(shard, tmp_path):
    params, batch = random_params(CONFIG), random_batch(CONFIG)
    save_hf(tmp_path, params, CONFIG, max_shard_bytes=shard)
    config, again = load_hf(tmp_path)
    assert dataclasses.replace(config, dropout_rate=0.0) == CONFIG
    assert_trees_close(again, params, rtol=0, atol=0)
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    model, report = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    with torch.no_grad():
        theirs = model.eval()(torch.tensor(batch["decoder_input_tokens"]).long()).logits.numpy()
    np.testing.assert_allclose(logits_of(CONFIG, params, batch), theirs, atol=2e-5, rtol=1e-5)


def test_adapters_are_merged_or_go_to_peft_and_side_networks_are_refused(hf, tmp_path, capsys):
    def saved(name):
        config = GPT2_METHODS[name].extend(CONFIG)
        params = random_params(config)
        with CheckpointStore(tmp_path / name) as store:
            state = {"params": params, "step": np.zeros((), np.int32)}
            store.save(0, state, {"dense": {"scale": 0.25}})
        argv = ["--model", str(tmp_path / name), "--like", str(hf / "config.json")]
        return config, params, [*argv, "--out", str(tmp_path / f"{name}-hf")]

    config, params, argv = saved("lora")
    assert main(["export-hf", *argv]) == 0
    plain, merged = load_hf(tmp_path / "lora-hf")
    batch = random_batch(config)
    np.testing.assert_allclose(
        logits_of(plain, merged, batch), logits_of(config, params, batch), rtol=1e-4, atol=2e-4
    )
    argv[-1] = str(tmp_path / "peft")
    assert main(["export-peft", *argv]) == 0
    assert "peft.AutoPeftModelForCausalLM.from_pretrained" in capsys.readouterr().out
    assert main(["export-hf", *saved("k_adapter_k2")[2]]) == 2
    assert "holds the side network 'k_adapter_0', for which" in capsys.readouterr().err


def test_older_files_and_the_bare_model_are_read(tmp_path):
    from safetensors.numpy import save_file

    params = random_params(CONFIG)
    state = params_to_hf(params, CONFIG)
    bare = {name.removeprefix("transformer."): x for name, x in state.items()}
    for i in range(CONFIG.num_layers):
        bare[f"h.{i}.attn.bias"] = np.ones((1, 1, 16, 16), np.float32)
        bare[f"h.{i}.attn.masked_bias"] = np.array(-1e4, np.float32)
    save_file(bare, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config_to_hf(CONFIG)))
    assert_trees_close(load_hf(tmp_path)[1], params, rtol=0, atol=0)
    del bare["h.1.attn.c_attn.bias"]
    save_file({**bare, "lm_head.weight": bare["wte.weight"] + 1}, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=r"missing transformer.h.1.attn.c_attn.bias\[0\]"):
        load_hf(tmp_path)


@pytest.mark.parametrize(
    "settings,text",
    [
        (dict(activation_function="relu"), "activation_function 'relu'"),
        (dict(scale_attn_by_inverse_layer_idx=True), "scale_attn_by_inverse_layer_idx True"),
        (dict(tie_word_embeddings=False), "tie_word_embeddings False"),
    ],
)
def test_what_this_model_lacks_is_refused(settings, text):
    with pytest.raises(UserError, match=text):
        config_from_hf({**config_to_hf(CONFIG), **settings})
