"""Dynamic evaluation on every architecture, against loops written by hand; and by gin."""

import gin
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.cli import t5x
from ckl_jax.config import gin_config
from ckl_jax.errors import UserError
from tests.helpers import TINY, TINY_GPT2, TINY_XL, model_of
from tests.papers.mind_the_gap.dated_world import Letters, World, by_hand, losses

CONFIGS = {"gpt2": TINY_GPT2, "t5": TINY, "transformer_xl": TINY_XL}


def make_model(config, letters):
    names = ("vocabulary",)
    if config is TINY:
        names = ("input_vocabulary", "output_vocabulary")
    return model_of(config, **dict.fromkeys(names, letters))


@pytest.fixture(scope="module", params=CONFIGS)
def world(request, tmp_path_factory):
    config = CONFIGS[request.param]
    return World.make(tmp_path_factory.mktemp("world"), lambda v: make_model(config, v), count=8)


@pytest.mark.slow
def test_each_architecture_learns_as_by_hand(world):
    memory = None if world.model.config is TINY_GPT2 else 8
    found = losses(world.run("all", memory_length=memory))
    np.testing.assert_allclose(found, by_hand(world, memory=memory), rtol=1e-4)


@pytest.mark.slow
def test_a_rate_of_0_is_static_evaluation(world):
    static = losses(world.run("none", mask="none"))
    np.testing.assert_allclose(losses(world.run("zero", rate=0.0)), static, rtol=1e-5)
    batched = losses(world.run("batched", mask="none", batch_size=3))
    np.testing.assert_allclose(batched, static, rtol=1e-5)


@pytest.mark.slow
def test_lengths_of_chunks_change_nothing(world):
    """Documents of up to 80 letters in chunks of 64, and of 128, 64 for the short ones."""
    if world.model.config is TINY_GPT2:
        pytest.skip("has 16 positions")
    settings = {"mask": "none", "chunk_len": 128, "memory_length": 16}
    one = losses(world.run("one_length", lengths=1, **settings))
    two = losses(world.run("two_lengths", lengths=2, **settings))
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.slow
def test_biases_alone(world):
    if world.model.config is TINY:
        with pytest.raises(UserError, match="T5Config: it has no bias"):
            world.run("bias", mask="bias")
        return
    assert np.isfinite(losses(world.run("bias", mask="bias"))).all()


@pytest.mark.slow
def test_the_encoder_reads_the_previous_chunk():
    """Of an encoder-decoder; at the start of a document it reads EOS alone."""
    model = make_model(TINY, Letters())
    params = model.init(jax.random.key(0))["params"]
    chunk = jnp.array([[5, 6, 7, 0]])
    batch = {"decoder_target_tokens": chunk, "decoder_loss_weights": jnp.float32(chunk > 0)}
    memory = model.initial_memory(1, 4)
    assert memory["tokens"].tolist() == [[1, 0, 0, 0]]
    losses, after = model.stream_losses(params, batch, memory)
    assert after["tokens"].tolist() == [[1, 5, 6, 7]]
    again, after = model.stream_losses(params, batch, after)
    assert after["tokens"].tolist() == [[7, 5, 6, 7]]
    assert (jnp.abs(losses - again)[0, :3] > 1e-6).all()
    whole = {
        "encoder_input_tokens": jnp.array([[1, 5, 6, 7]]),
        "decoder_target_tokens": chunk,
        "decoder_input_tokens": jnp.array([[0, 5, 6, 7]]),
        "decoder_loss_weights": jnp.float32(chunk > 0),
    }
    np.testing.assert_allclose(again[:, :3].sum(), -model.score_batch(params, whole)[0], rtol=1e-5)


_GIN = """
from __gin__ import dynamic_registration
from ckl_jax.methods import method
from ckl_jax.models import gpt2
from tests.papers.mind_the_gap import dated_world
include 'models/gpt2.gin'
METHOD = @method.vanilla()
VOCABULARY = @dated_world.Letters()
DROPOUT_RATE = 0.1
gpt2.GPT2Config:
    vocab_size = 64
    emb_dim = 16
    num_heads = 2
    head_dim = 8
    mlp_dim = 32
    num_layers = 2
    max_positions = 16
include 'mind_the_gap_dynamic_eval.gin'
"""


@pytest.mark.parametrize("optimizer", ["optax.sgd", "optax.adam", "krause.rms_decay"])
def test_every_optimizer_has_a_name_on_the_command_line(optimizer):
    macros = ["MODEL_DIR", "VOCABULARY_PATH", "MIXTURE_OR_TASK_NAME"]
    files = ["mind_the_gap_train.gin", "mind_the_gap_dynamic_eval.gin"]
    bindings = [*(f"{name} = 'x'" for name in macros), f"OPTIMIZER = @{optimizer}"]
    gin_config.load(files, bindings)
    assert str(gin.query_parameter("OPTIMIZER/macro.value")) == f"@{optimizer}"
    gin.clear_config()


@pytest.mark.slow
def test_by_gin(tmp_path, capsys):
    world = World.make(tmp_path, lambda v: make_model(TINY_GPT2, v), count=8)
    (tmp_path / "run.gin").write_text(_GIN)
    macros = {
        "MODEL_DIR": str(tmp_path / "base"),
        "MIXTURE_OR_TASK_NAME": str(tmp_path / "test"),
        "CHUNK_LENGTH": 8,
        "BLOCK_ROWS": 4,
        "STATISTICS_TASK": str(tmp_path / "past"),
        "STATISTICS_BATCHES": 5,
        "RMS_DECAY": 0.01,
        "PAST_TASKS": (str(tmp_path / "past"),),
        "MASK": "bias",
        "LEARNING_RATE": 1e-4,
    }
    argv = ["dynamic_eval", f"--gin_file={tmp_path / 'run.gin'}"]
    argv += [f"--gin.{name}={value!r}" for name, value in macros.items()]
    assert t5x.main([*argv, "--gin.OPTIMIZER=@krause.rms_decay"]) == 0
    folder = tmp_path / "base" / "dynamic_eval" / "bias"
    expected = losses(world.run("static", mask="none"))
    found = losses(folder)
    assert len(found) == len(expected) and (found != expected).any()
    assert t5x.main([*argv, "--gin.OPTIMIZER=@krause.rms_decay", "--gin.LEARNING_RATE=2e-4"]) == 2
    assert "with LEARNING_RATE = 0.0001, not 0.0002" in capsys.readouterr().err
    assert t5x.main([*argv, "--gin.MASK='biases'", "--gin.EVAL_OUTPUT_DIR='x'"]) == 2
