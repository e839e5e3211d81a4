"""`ckl import-hf` and `export-hf`, there and back through the command line."""

import dataclasses
import json
import os
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.checkpoints.restore import find_checkpoint, read_json_item
from ckl_jax.checkpoints.store import CheckpointStore
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import t5x
from ckl_jax.cli.ckl import main
from ckl_jax.convert.hugging_face import copy
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.train.setup import load_params
from ckl_jax.trees.paths import flatten
from tests.helpers import (
    METHODS,
    TINY,
    TINY_V1_1,
    assert_trees_close,
    logits_of,
    random_batch,
    random_params,
)
from tests.llama_tokenizer import train_gemmas
from tests.tiny import read_rows


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
    (tmp_path / "hf").rename(tmp_path / "gone")  # the import has kept its config.json
    argv = ["export-hf", "--model", ours, "--out", str(tmp_path / "alone")]
    assert main(argv) == 0
    for name in ("config.json", "model.safetensors"):
        alone, beside = (tmp_path / folder / name for folder in ("alone", "back"))
        assert alone.read_bytes() == beside.read_bytes()
    (tmp_path / "ours" / "hf_config.json").unlink()
    capsys.readouterr()
    assert main([*argv, "--out", str(tmp_path / "none")]) == 2
    assert "keeps no config.json of a Hugging Face model" in capsys.readouterr().err


def test_a_run_of_a_new_model_is_exported_alone(tiny, tmp_path):
    run, out = str(tiny.root / "initial"), tmp_path / "hf"
    assert main(["export-hf", "--model", run, "--out", str(out)]) == 0
    config, again = load_hf(str(out))
    assert_trees_close(again, load_params(run), rtol=0, atol=0)
    assert (out / "spiece.model").read_bytes() == (tiny.root / "initial/spiece.model").read_bytes()
    assert (config.vocab_size, config.emb_dim) == (1024, 32)


def test_an_mt5_goes_out_as_an_mt5(tmp_path):
    config = dataclasses.replace(TINY_V1_1, dropout_rate=0.0)
    save_hf(tmp_path / "hf", random_params(config), config, settings={"model_type": "mt5"})
    assert main(["import-hf", "--model", f"{tmp_path}/hf", "--out", f"{tmp_path}/run"]) == 0
    like = ["--like", f"{tmp_path}/hf/config.json"]
    argv = ["export-hf", "--model", f"{tmp_path}/run", *like, "--out", f"{tmp_path}/out"]
    assert main(argv) == 0
    assert json.loads((tmp_path / "out/config.json").read_text())["model_type"] == "mt5"
    before, after = (load_file(tmp_path / f / "model.safetensors") for f in ("hf", "out"))
    for name in before.keys() | after.keys():
        np.testing.assert_array_equal(after[name], before[name])


@pytest.fixture
def gemma(tmp_path):
    """A folder as transformers saves a T5Gemma."""
    torch, transformers = (pytest.importorskip(n) for n in ("torch", "transformers"))
    stack = dict(
        vocab_size=200,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        sliding_window=4,
    )
    decoder = dict(stack, hidden_size=12, sliding_window=6)
    torch.manual_seed(0)
    settings = transformers.T5GemmaConfig(encoder=stack, decoder=decoder)
    transformers.T5GemmaForConditionalGeneration(settings).save_pretrained(tmp_path / "gemma")
    train_gemmas(tmp_path / "gemma")
    return tmp_path / "gemma"


def test_a_t5gemma_of_transformers_goes_in_and_out(gemma, tmp_path, capsys):
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert main(["import-hf", "--model", str(gemma), "--out", str(ours)]) == 0
    assert f"`ckl data prepare --vocabulary {ours}`" in capsys.readouterr().out
    argv = ["export-hf", "--model", str(ours), "--like", str(gemma / "config.json")]
    assert main([*argv, "--out", str(back)]) == 0
    before, after = (load_file(f / "model.safetensors") for f in (gemma, back))
    for name in before.keys() | after.keys():
        np.testing.assert_array_equal(after[name], before[name])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (back / name).read_bytes() == (gemma / name).read_bytes()
    theirs, written = (json.loads((f / "config.json").read_text()) for f in (gemma, back))
    for stack in ("encoder", "decoder"):
        mine = written[stack]
        assert {k: x for k, x in theirs[stack].items() if mine.get(k, x) != x} == {}
    assert written["eos_token_id"] == 1 and load_hf(gemma)[0] == load_hf(back)[0]
    grown = ["import-hf", "--model", str(gemma), "--vocab-size", "208"]
    assert main([*grown, "--out", str(tmp_path / "grown")]) == 0
    params = load_params(tmp_path / "grown")
    assert {len(x) for p, x in flatten(params).items() if "token_embedder" in p} == {208}


def test_a_t5gemma_without_windows_goes_out_as_transformers_reads_it(gemma, tmp_path):
    """It makes the mask of windows even where no layer has one."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    settings = json.loads((gemma / "config.json").read_text())
    settings["encoder"]["layer_types"] = ["full_attention"]
    (gemma / "config.json").write_text(json.dumps(settings))
    config, params = load_hf(gemma)
    save_hf(tmp_path / "back", params, config)
    assert load_hf(tmp_path / "back")[0] == config
    ids, logits = torch.tensor([[3, 4, 5, 6, 7, 8]]), []
    for folder in (gemma, tmp_path / "back"):
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        with torch.no_grad():
            logits.append(model(input_ids=ids, decoder_input_ids=ids).logits.numpy())
    np.testing.assert_array_equal(*logits)


@pytest.mark.parametrize(
    ("stack", "changed", "said"),
    [
        (
            "decoder",
            {"hidden_activation": "quick_gelu"},
            "In decoder: .* .quick_gelu.: only .gelu_py",
        ),
        ("encoder", {"rope_parameters": {"rope_type": "dynamic"}}, "In encoder: rope_type is 'dyn"),
        ("encoder", {"layer_types": ["chunked_attention"]}, "layer_types 'chunked_attention'"),
        ("decoder", {"pad_token_id": 3}, "In decoder: .*pad_token_id 3: only 0"),
        ("encoder", {"vocab_size": 300}, "vocab_size of 300 in encoder and of 200 in decoder"),
        ("decoder", {"bos_token_id": 0}, "start_id is 0; give 1 or more"),
        (
            "decoder",
            {"num_hidden_layers": 10**9, "layer_types": None},
            "too few for the 1,000,000,000 layers",
        ),
        (
            "encoder",
            {"num_hidden_layers": 10**9, "layer_types": None},
            "too few for the 1,000,000,000 layers",
        ),
        ("encoder", None, "config.json lacks encoder"),
        (None, {"quantization_config": {"bits": 4}}, "quantised weights cannot be imported"),
    ],
)
def test_settings_of_a_t5gemma_that_are_not_offered_are_named(
    gemma, tmp_path, capsys, stack, changed, said
):
    settings = json.loads((gemma / "config.json").read_text())
    if changed is None:
        del settings[stack]
    else:
        (settings[stack] if stack else settings).update(changed)
    (gemma / "config.json").write_text(json.dumps(settings))
    assert main(["import-hf", "--model", str(gemma), "--out", str(tmp_path / "ours")]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error) and error.count("\n") == 1, error
    assert not (tmp_path / "ours").exists()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["vanilla", "lora", "k_adapter_k2", "modular"])
def test_a_t5gemma_is_trained_on_spans_and_answers(tiny, gemma, tmp_path, method):
    ours, prepared, run = (tmp_path / n for n in ("ours", "prepared", "run"))
    assert main(["import-hf", "--model", str(gemma), "--out", str(ours)]) == 0
    flags = ["--vocabulary", str(ours), "--out", str(prepared)]
    assert main(["data", "prepare", "--dir", str(tiny.probes), *flags]) == 0
    sizes = {"K2_TAPS": (0, 1)} if method.startswith("k") else {}
    argv = tiny.argv(
        method,
        run,
        str(ours / "model.gin"),
        INITIAL_CHECKPOINT_PATH=str(ours),
        TRAIN_STEPS=2,
        **sizes,
    )
    argv += [f"--gin.CACHE_DIRS=('{prepared}/tasks',)", "--gin.BATCH_SIZE=8"]
    assert t5x.main(["train", *argv]) == 0
    rows = read_rows(run / "probes/rows_000002.jsonl")
    assert {row["probe"] for row in rows} == {"invariant_lama", "updated_lama"}
    exported = main(["export-hf", "--model", str(run), "--out", str(tmp_path / "back")])
    assert exported == (0 if method in ("vanilla", "lora") else 2)
    if method == "lora":
        out = str(tmp_path / "adapter")
        assert main(["export-peft", "--model", str(run), "--out", out]) == 0
        argv = ["import-peft", "--adapter", out, "--model", str(ours)]
        assert main([*argv, "--out", str(tmp_path / "again")]) == 0
        assert any("/lora_0/" in path for path in flatten(load_params(tmp_path / "again")))


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


@pytest.fixture
def hf(tmp_path):
    """A Hugging Face folder with a vocabulary of its own."""
    config = dataclasses.replace(TINY, vocab_size=128)
    save_hf(tmp_path / "hf", random_params(config), config)
    train_vocabulary(["another model saw other text"], tmp_path / "hf" / "spiece.model", 20)
    return tmp_path / "hf"


@pytest.mark.slow
def test_an_imported_model_keeps_its_vocabulary(tiny, hf, tmp_path, capsys):
    ours = tmp_path / "ours"
    assert main(["import-hf", "--model", str(hf), "--out", str(ours)]) == 0
    assert f"ckl data prepare --vocabulary {ours}/spiece.model" in capsys.readouterr().out
    assert (ours / "spiece.model").read_bytes() == (hf / "spiece.model").read_bytes()
    argv = tiny.argv("vanilla", tmp_path / "run", PROBES=None, INITIAL_CHECKPOINT_PATH=str(ours))
    assert t5x.main(["train", *argv]) == 2
    err = capsys.readouterr().err
    assert f"Checkpoint {ours} was trained with another vocabulary" in err and err.count("\n") == 1
    assert t5x.main(["train", *argv, f"--gin_file={ours}/model.gin"]) == 2
    assert "Task 'd1' was tokenised with another vocabulary" in capsys.readouterr().err
    prepared = tmp_path / "prepared"
    flags = ["--vocabulary", str(ours / "spiece.model"), "--out", str(prepared)]
    assert main(["data", "prepare", "--dir", str(tiny.probes), *flags]) == 0
    tasks = f"--gin.CACHE_DIRS=('{prepared}/tasks',)"
    argv = ["train", *argv, f"--gin_file={ours}/model.gin", tasks, "--gin.TRAIN_STEPS=1"]
    assert t5x.main(argv) == 0
    digest = read_json_item(find_checkpoint(ours), "metadata")["vocabulary_digest"]
    trained = read_json_item(find_checkpoint(tmp_path / "run"), "metadata")
    assert trained["vocabulary_digest"] == digest


@pytest.mark.slow
def test_a_byt5_is_trained_and_answers_in_bytes(tiny, tmp_path):
    """The vocabulary of its folder is imported, trained and evaluated with, and exported."""
    config = dataclasses.replace(TINY_V1_1, vocab_size=384, num_decoder_layers=1)
    there, ours, prepared, run = (tmp_path / n for n in ("hf", "ours", "prepared", "run"))
    save_hf(there, random_params(config), config)
    settings = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}
    (there / "tokenizer_config.json").write_text(json.dumps(settings))
    assert main(["import-hf", "--model", str(there), "--out", str(ours)]) == 0
    flags = ["--vocabulary", str(ours), "--out", str(prepared), "--overwrite"]
    assert main(["data", "prepare", "--dir", str(tiny.probes), *flags]) == 0
    argv = tiny.argv(
        "vanilla", run, str(ours / "model.gin"), INITIAL_CHECKPOINT_PATH=str(ours), TRAIN_STEPS=2
    )
    argv += [f"--gin.CACHE_DIRS=('{prepared}/tasks',)", "--gin.BATCH_SIZE=8"]
    assert t5x.main(["train", *argv]) == 0
    rows = read_rows(run / "probes/rows_000002.jsonl")
    assert {row["probe"] for row in rows} == {"invariant_lama", "updated_lama"}
    assert all(isinstance(answer, str) for row in rows for answer in row["predictions"])
    assert (run / "tokenizer_config.json").is_file()
    shutil.rmtree(there)
    shutil.rmtree(ours)  # the run alone is enough
    assert main(["export-hf", "--model", str(run), "--out", str(tmp_path / "back")]) == 0
    assert json.loads((tmp_path / "back/tokenizer_config.json").read_text()) == settings


def test_an_import_without_a_vocabulary_is_warned_of(tiny, hf, tmp_path, capsys):
    (hf / "spiece.model").unlink()
    ours = tmp_path / "ours"
    assert main(["import-hf", "--model", str(hf), "--out", str(ours)]) == 0
    said = capsys.readouterr().out
    assert "There is no spiece.model or tokenizer.json beside the weights" in said
    argv = tiny.argv("vanilla", tmp_path / "run", PROBES=None, INITIAL_CHECKPOINT_PATH=str(ours))
    assert t5x.main(["train", *argv]) == 2  # it is a model of another size, too
    assert f"Warning: {ours} does not record its vocabulary; unless" in capsys.readouterr().err


def test_a_vocabulary_that_is_too_large_is_refused_first(hf, tmp_path, capsys):
    train_vocabulary(["letters: " + "abcdefghijklmnopqrstuvwxyz"], hf / "spiece.model", 60)
    assert main(["import-hf", "--model", str(hf), "--out", str(tmp_path / "ours")]) == 2
    assert "but config.json has a vocab_size of 128" in capsys.readouterr().err
    assert not (tmp_path / "ours").exists()


def test_adapters_are_merged_and_side_networks_refused(hf, tmp_path, capsys):
    def saved(name):
        config = METHODS[name].extend(dataclasses.replace(TINY, vocab_size=128))
        params = random_params(config)
        with CheckpointStore(tmp_path / name) as store:
            state = {"params": params, "step": np.zeros((), np.int32)}
            store.save(0, state, {"dense": {"scale": 0.25}})
        argv = ["export-hf", "--model", str(tmp_path / name), "--like", str(hf / "config.json")]
        return config, params, [*argv, "--out", str(tmp_path / f"{name}-hf")]

    config, params, argv = saved("lora")
    assert main(argv) == 0
    plain, merged = load_hf(tmp_path / "lora-hf")
    batch = random_batch(config)
    np.testing.assert_allclose(
        logits_of(plain, merged, batch), logits_of(config, params, batch), rtol=1e-4, atol=1e-4
    )
    assert main(saved("modular")[2]) == 2
    assert "holds the side network 'modular_0', for which" in capsys.readouterr().err
    assert not (tmp_path / "modular-hf").exists()


def test_the_tokenizer_goes_out_with_the_weights(hf, tmp_path, capsys):
    ours, back = str(tmp_path / "ours"), tmp_path / "back"
    assert main(["import-hf", "--model", str(hf), "--out", ours]) == 0
    (hf / "tokenizer_config.json").write_text('{"tokenizer_class": "T5Tokenizer"}')
    argv = ["export-hf", "--model", ours, "--out", str(back), "--like"]
    assert main([*argv, str(hf / "config.json")]) == 0
    for name in ("spiece.model", "tokenizer_config.json"):
        assert (back / name).read_bytes() == (hf / name).read_bytes()
    train_vocabulary(["a third text that nobody has trained on"], hf / "spiece.model", 24)
    assert main([*argv, str(hf / "config.json")]) == 2
    assert "is there already; choose another --out" in capsys.readouterr().err
    other = [*argv[:4], str(tmp_path / "other"), "--like", str(hf / "config.json")]
    assert main(other) == 2
    assert "is not the vocabulary that" in capsys.readouterr().err
    for name in ("spiece.model", "tokenizer_config.json"):
        (hf / name).unlink()
    alone = tmp_path / "alone"
    assert main([*argv[:4], str(alone), "--like", str(hf / "config.json")]) == 0
    assert (alone / "spiece.model").read_bytes() == (back / "spiece.model").read_bytes()


def test_a_pipe_among_the_tokenizer_files_is_refused(tmp_path):
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="tokenizer.json: it is a pipe"):
        copy([tmp_path / "tokenizer.json"], tmp_path / "out")
