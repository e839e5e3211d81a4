"""The settings of an update's training."""

import types

import jax
import pytest

from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.models import decoder
from ckl_jax.updates import training
from tests.tiny import ROOT


@pytest.mark.slow
def test_every_method_has_its_plan():
    """What it trains decides its rate, not its name."""
    config = decoder.DecoderConfig(vocab_size=300, emb_dim=32, num_heads=2, head_dim=16, mlp_dim=64)
    rates = {}
    for path in (ROOT / "ckl_jax" / "gin_configs" / "methods").glob("*.gin"):
        if not (name := path.stem).startswith(("gpt2_", "initial")) and name != "modular":
            made = training.plan(name, config, 10**9, 10**6, {})
            rates[name] = made.learning_rate
            if name == "lora_mix_review":
                method = training._made(name, masked=False)
                assert method.trainable == training._made("lora", masked=False).trainable
    few = {name for name, rate in rates.items() if rate > rates["vanilla"]}
    assert few == {"lora", "lora_mix_review", "k_adapter_k2", "k_adapter_k3"} and "replay" in rates


def test_tokens_are_counted_as_the_model_splits_the_text(tmp_path):
    words = {
        "en": "The head office of Norvel stands in Oslo. ",
        "ru": "Главная контора Норвел в Осло. ",
    }
    texts = [words["en"] * (1 + i % 5) if i % 3 else words["ru"] * (1 + i % 7) for i in range(1000)]
    documents = [Document(str(i), "2025-01-01", "", text) for i, text in enumerate(texts)]
    write_documents(tmp_path / "new.jsonl", documents)
    count = sum(len(text.split()) for text in texts)
    tokens = sum(len(text.encode()) for text in texts)
    assert 6 * count < tokens  # a letter of Russian is two bytes
    by_bytes = types.SimpleNamespace(encode_many=lambda texts: [text.encode() for text in texts])
    found = training.count_tokens(tmp_path / "new.jsonl", count, by_bytes)
    assert found == pytest.approx(tokens, rel=0.05)


def test_a_batch_is_no_larger_than_the_text():
    plan = training.Plan(("a", "b"), 512, 32, 1, 1e-3, 10**6)
    devices = jax.device_count()
    assert [plan.with_rows(rows).batch_size for rows in (99, 3 * devices + 1, 1)] == [
        32,
        3 * devices,
        devices,
    ]
