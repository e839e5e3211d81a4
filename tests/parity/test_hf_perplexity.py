"""Losses of facts and their four perplexities, against transformers' GPT-2 on random weights.

The reference is written as TemporalWiki's released evaluation works: a padded batch of strings out
of the tokenizer, labels of -100 on the padding, the model's own loss of each batch of 32.
"""

import csv

import numpy as np
import pytest

from ckl_jax.analysis import perplexity
from ckl_jax.checkpoints.hf_names import config_from_hf, params_from_hf
from ckl_jax.data.text.byte_level import END, TEMPORALWIKI_TOKENS, ByteLevelVocabulary
from ckl_jax.errors import UserError
from ckl_jax.models.decoder_only import DecoderOnlyModel
from ckl_jax.models.gpt2 import Transformer
from ckl_jax.probes.facts import FactEvaluator, FactProbes
from tests.helpers import TINY, model_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = "Lake Tahoe Nevada capital of country Ann Müller 1984 NA chess club mayor".split()
LENGTH, BATCH = 25, 32


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """A published file of 41 facts: one fills a row exactly, some are longer."""
    rng = np.random.default_rng(0)
    rows = [[" ".join(rng.choice(WORDS, n)) for n in rng.integers(1, 4, 3)] for _ in range(38)]
    rows += [["NA", "country", "1984"], ["Ann " * 20 + "Ann", "mayor", "Nevada Tahoe"]]
    path = tmp_path_factory.mktemp("facts") / "0801-0901_unchanged.csv"
    vocabulary = make_vocabulary(path.parent)
    full = ["Ann", "mayor", "club"]
    while len(vocabulary.encode(" ".join(full))) < LENGTH:
        full[0] += " club"
    rows.append(full)
    with open(path, "w", newline="") as f:
        csv.writer(f).writerows([["subject", "relation", "objective"], *rows])
    return path, rows, vocabulary


def make_vocabulary(folder):
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[END, *TEMPORALWIKI_TOKENS],
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    made.save(str(folder / "tokenizer.json"))
    return ByteLevelVocabulary(folder)


@pytest.fixture(scope="module")
def theirs(facts):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=facts[2].vocab_size,
        n_embd=16,
        n_head=2,
        n_layer=2,
        n_positions=32,
        attn_implementation="eager",
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p += 0.2 * torch.randn_like(p)
    return model


def reference(theirs, facts, side):
    """Per-fact losses and counts [N], of all and of the object; the released code's number."""
    path, rows, _ = facts
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(path.parent / "tokenizer.json"), pad_token="<pad>", padding_side=side
    )
    texts = [" ".join(row) for row in rows]
    prompts = [len(tokenizer(" ".join(row[:2]))["input_ids"]) for row in rows]
    columns, batch_means = [], []
    for start in range(0, len(texts), BATCH):
        batch = tokenizer(
            texts[start : start + BATCH],
            max_length=LENGTH,
            padding="max_length",
            truncation=True,
            return_tensors="pt",
        )
        ids, mask = batch["input_ids"], batch["attention_mask"]
        labels = torch.where(mask == 1, ids, -100)
        with torch.no_grad():
            out = theirs(
                ids,
                attention_mask=mask,
                labels=labels,
                position_ids=torch.arange(LENGTH)[None].expand(ids.shape),
            )
        batch_means.append(out.loss.item())
        losses = torch.nn.functional.cross_entropy(
            out.logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none", ignore_index=-100
        )
        counted = labels[:, 1:] != -100
        place = torch.cumsum(mask, 1)[:, 1:] - 1  # which token of the fact is predicted
        is_object = counted & (place >= torch.tensor(prompts[start : start + BATCH])[:, None])
        columns.append(
            [x.sum(1).numpy() for x in (losses * counted, counted, losses * is_object, is_object)]
        )
    return [np.concatenate(c) for c in zip(*columns, strict=True)], np.exp(np.mean(batch_means))


@pytest.mark.parametrize("legacy", [False, True])
def test_losses_and_perplexities_equal_transformers(theirs, facts, legacy):
    path, rows, vocabulary = facts
    (nll, tokens, object_nll, object_tokens), published = reference(
        theirs, facts, "left" if legacy else "right"
    )
    config = config_from_hf(theirs.config.to_dict())
    params = params_from_hf({n: x.numpy() for n, x in theirs.state_dict().items()}, config)
    model = DecoderOnlyModel(Transformer(config), vocabulary=vocabulary, left_pad_legacy=legacy)
    evaluator = FactEvaluator(FactProbes(files=(str(path),), batch_size=16), model)
    found = list(evaluator(params, 3, False))
    assert [row["answers"][0] for row in found] == [row[2] for row in rows]
    assert (
        sum(row["truncated"] for row in found)
        == sum(len(vocabulary.encode(" ".join(row))) > LENGTH for row in rows)
        > 1
    )
    # A full row has no padding to predict its first token from.
    assert (found[-1]["tokens"], found[-2]["object_tokens"]) == (LENGTH - 1, 0)
    losses = perplexity.Losses.of(found)
    for ours, expected in zip(
        (losses.nll, losses.tokens, losses.object_nll, losses.object_tokens),
        (nll, tokens, object_nll, object_tokens),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=2e-5)
    some = object_tokens > 0
    expected = {
        "token_micro": np.exp(nll.sum() / tokens.sum()),
        "batch_mean_legacy": published,
        "per_fact_mean": np.exp(nll / tokens).mean(),
        "object_only": np.exp(object_nll[some].sum() / object_tokens[some].sum()),
    }
    for formula, value in expected.items():
        assert perplexity.perplexity(losses, formula) == pytest.approx(value, rel=2e-5)
    assert len({round(value, 3) for value in expected.values()}) == 4
    assert evaluator._losses._sums._cache_size() == 1  # the last batch compiles nothing


def test_a_model_with_an_encoder_is_refused(facts):
    with pytest.raises(UserError, match="decoder-only model, such as GPT-2, and not of a T5Config"):
        FactEvaluator(
            FactProbes(files=(str(facts[0]),)),
            model_of(TINY, input_vocabulary=facts[2], output_vocabulary=facts[2]),
        )
