"""Parameter counts of both papers: T5-large, GPT-2 Large; without allocating a parameter."""

import dataclasses

import jax
import pytest

from ckl_jax.methods.k_adapter import k_adapter
from ckl_jax.methods.lora import lora
from ckl_jax.methods.method import vanilla
from ckl_jax.methods.mix_review import mix_review
from ckl_jax.methods.modular import modular
from ckl_jax.methods.recadam import recadam
from ckl_jax.models.gpt2 import GPT2Config
from ckl_jax.models.t5 import T5Config, Transformer
from ckl_jax.trees.partition import split
from tests.helpers import count, param_shapes, random_batch, tokens

T5_LARGE = T5Config(
    vocab_size=32128,
    emb_dim=1024,
    num_heads=16,
    head_dim=64,
    mlp_dim=4096,
    num_encoder_layers=24,
    num_decoder_layers=24,
    logits_via_embedding=True,
    scan_layers=True,  # traced once for all layers
)
K3 = (1, 11, 23)

# (method, trainable, total): the integers behind "403M / 738M" and so on (CKL Tables 2 and 3).
ROWS = {
    "vanilla": (vanilla(), 737_668_096, 737_668_096),
    "recadam": (recadam(), 737_668_096, 737_668_096),
    "mix_review": (mix_review(), 737_668_096, 737_668_096),
    "lora": (lora(), 403_908_096, 738_847_744),
    "k_adapter_k2": (k_adapter(), 427_899_904, 762_839_552),
    "k_adapter_k3": (k_adapter(K3), 440_484_864, 775_424_512),
    "modular": (modular(), 438_586_560, 773_526_208),
    "lora, second phase": (lora(phase=1), 404_694_528, 740_027_392),
    "k_adapter_k2, second phase": (k_adapter(phase=1), 427_899_904, 788_011_008),
    "k_adapter_k3, second phase": (k_adapter(K3, phase=1), 440_484_864, 813_180_928),
    "modular, second phase": (modular(phase=1), 438_586_560, 809_384_320),
}


@pytest.mark.parametrize("name", ROWS)
def test_counts_equal_the_papers(name):
    method, trainable, total = ROWS[name]
    module = Transformer(method.extend(T5_LARGE))
    arrays = tokens(random_batch(T5_LARGE, batch=1))
    shapes = jax.eval_shape(lambda key: module.init(key, *arrays), jax.random.key(0))["params"]
    chosen, _ = split(shapes, method.trainable)
    assert (count(chosen), count(shapes)) == (trainable, total)


GPT2_LARGE = GPT2Config(
    vocab_size=50262, emb_dim=1280, num_heads=20, num_layers=36, mlp_dim=5120, scan_layers=True
)
# TemporalWiki's: its "103M" is what trains beside 39,357,440 adapter parameters when the embedding
# does too.
LEGACY = dict(trunk=(), legacy_train_embedding=True)
GPT2_ROWS = {
    "vanilla": (vanilla(), 774_036_480, 774_036_480),
    "lora": (lora(trunk=()), 737_280, 774_773_760),
    "lora, released": (lora(**LEGACY), 65_072_640, 774_773_760),
    "k_adapter_k2": (k_adapter(trunk=()), 39_357_440, 813_393_920),
    "k_adapter_k2, released": (k_adapter(**LEGACY), 103_692_800, 813_393_920),
    "k_adapter_k3": (k_adapter(K3, trunk=()), 59_034_880, 774_036_480 + 59_034_880),
}


@pytest.mark.parametrize("name", GPT2_ROWS)
def test_counts_on_gpt2_large_equal_the_papers(name):
    method, trainable, total = GPT2_ROWS[name]
    shapes = param_shapes(method.extend(GPT2_LARGE))
    chosen, _ = split(shapes, method.trainable)
    assert (count(chosen), count(shapes)) == (trainable, total)


def test_the_public_gpt2_models_have_their_sizes():
    public = dataclasses.replace(GPT2_LARGE, vocab_size=50257)
    assert count(param_shapes(public)) == 774_030_080
    assert count(param_shapes(GPT2Config())) == 124_439_808
