"""`python -m t5x.train` runs this project's model, tasks and methods by gin alone.

Needs CKL_UPSTREAM_PYTHON, as `test_upstream.py` does.
"""

import dataclasses
import functools
import os
import subprocess

import jax
import numpy as np
import pytest

from ckl_jax.checkpoints import restore
from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import vanilla
from ckl_jax.methods.modular import modular
from ckl_jax.methods.recadam import recadam
from ckl_jax.models.encoder_decoder import EncoderDecoderModel
from ckl_jax.models.t5 import Transformer
from ckl_jax.trees.partition import split
from ckl_jax.trees.paths import flatten, unflatten
from tests.helpers import METHODS, random_batch, random_params
from tests.helpers import TINY as TINY_T5
from tests.parity.test_upstream import UPSTREAM, pytestmark  # noqa: F401
from tests.tiny import ROOT

TINY = """
from __gin__ import dynamic_registration
from ckl_jax.models import t5
t5.T5Config:
    vocab_size = 1024
    emb_dim = 32
    num_heads = 2
    head_dim = 16
    mlp_dim = 64
    num_encoder_layers = 1
    num_decoder_layers = 1
    logits_via_embedding = True
MIXTURE_OR_TASK_NAME = 'ckl_recent_news_small_span'
TASK_FEATURE_LENGTHS = {'inputs': 16, 'targets': 9}
BATCH_SIZE = 16
TRAIN_STEPS = 4
K2_TAPS = (0, 1)
MODULAR_EMB_DIM = 16
MODULAR_NUM_HEADS = 2
MODULAR_HEAD_DIM = 8
MODULAR_MLP_DIM = 32
MODULAR_NUM_LAYERS = 1
"""
# name: (gin files, the method)
RUNS = {
    "vanilla": (["methods/vanilla.gin"], vanilla()),
    "lora": (["methods/lora.gin"], lora()),
    "lora_adafactor_hf": (["methods/lora.gin", "upstream/adafactor_hf.gin"], lora()),
    "k_adapter": (["methods/k_adapter_k2.gin"], k_adapter(taps=(0, 1))),
    "modular": (["methods/modular.gin"], modular(num_layers=1)),
    "recadam": (["upstream/recadam.gin"], recadam()),
}


def run(tiny, tmp_path, files, **macros):
    (tmp_path / "tiny.gin").write_text(TINY)
    world = tiny.root / "world"
    macros = {
        "MODEL_DIR": str(tmp_path / "run"),
        "INITIAL_CHECKPOINT_PATH": str(restore.find_checkpoint(tiny.root / "initial")),
        "VOCABULARY_MODEL": str(world / "prepared" / "vocabulary.model"),
        **macros,
    }
    names = ["upstream/ckl_train.gin", *files, str(tmp_path / "tiny.gin")]
    command = [UPSTREAM, "-m", "t5x.train", f"--gin_search_paths={ROOT / 'gin_configs'}"]
    command += [f"--gin_file={name}" for name in names]
    command += [f"--gin.{name}={value!r}" for name, value in macros.items()]
    data = {"CKL_DATA_DIR": str(world / "ckl"), "CKL_VOCABULARY": macros["VOCABULARY_MODEL"]}
    environment = {**os.environ, **data, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)


@pytest.mark.parametrize("name", RUNS)
def test_what_a_method_trains_moves_and_the_rest_stays(tiny, tmp_path, name):
    files, method = RUNS[name]
    early = {"RECADAM_T0": 2} if name == "recadam" else {}
    done = run(tiny, tmp_path, files, **early)
    assert done.returncode == 0, done.stderr[-2000:]
    base = flatten(restore.restore_params(tiny.root / "initial"))
    before, after = (
        flatten(restore.restore_params(tmp_path / "run" / f"checkpoint_{step}")) for step in (0, 4)
    )
    assert base.keys() <= after.keys()
    for path, value in base.items():
        np.testing.assert_array_equal(before[path], value, err_msg=path)
    trainable, frozen = split(unflatten(after), method.trainable)
    assert all(np.array_equal(before[p], x) for p, x in flatten(frozen).items())
    still = [p for p, x in flatten(trainable).items() if np.array_equal(before[p], x)]
    assert still == []
    leaves = restore.stored_leaves(restore.absolute(tmp_path / "run" / "checkpoint_4"))
    assert not [name for name in leaves for p in flatten(frozen) if is_state_of(p, name)]


def is_state_of(path, name):
    """Whether a name in a checkpoint is of the optimizer's state of a parameter."""
    by_t5x = name.startswith(f"state/param_states/{path}/")
    return by_t5x or name.endswith(tuple(f"/{m}/{path}" for m in ("m", "v", "v_row", "v_col")))


def test_recadam_pulls_to_the_restored_model(tiny, tmp_path):
    gin = {"RECADAM_T0": 1000}  # never leaves the start
    assert run(tiny, tmp_path, ["upstream/recadam.gin"], **gin).returncode == 0
    base = flatten(restore.restore_params(tiny.root / "initial"))
    after = flatten(restore.restore_params(tmp_path / "run" / "checkpoint_4"))
    for path, value in base.items():
        assert np.abs(after[path] - value).max() < 1e-3, path


def test_mix_review_is_refused_in_a_sentence(tiny, tmp_path):
    done = run(tiny, tmp_path, ["methods/mix_review.gin"])
    assert done.returncode != 0
    assert "Method 'mix_review' cannot run under upstream T5X: it draws its data" in done.stderr


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize("name", ["vanilla", "lora", "k_adapter_k2", "modular"])
def test_t5x_decodes_our_modules_as_we_do(tmp_path, name, scan):
    out = tmp_path / "out.npz"
    subprocess.run(
        [UPSTREAM, "-m", "tests.parity.upstream_decode", name, str(scan), out],
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=True,
    )
    config = METHODS[name].extend(dataclasses.replace(TINY_T5, scan_layers=scan))
    model = EncoderDecoderModel(Transformer(config))
    batch = random_batch(config)
    inputs, length = batch["encoder_input_tokens"], batch["decoder_input_tokens"].shape[1]
    decode = functools.partial(model.predict, beam_size=4, rule="t5x", num_return=4)
    found = jax.jit(decode, static_argnums=2)(random_params(config), inputs, length)
    with np.load(out) as theirs:
        tokens, scores = theirs["tokens"], theirs["scores"]
    real = scores > -1e6  # where fewer than four hypotheses ended, T5X puts another number
    np.testing.assert_array_equal(np.asarray(found.tokens)[real], tokens[real])
    np.testing.assert_allclose(np.asarray(found.scores)[real], scores[real], rtol=1e-5)
