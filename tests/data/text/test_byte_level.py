"""GPT-2's vocabulary: the real files, against transformers, and what is wrong with others."""

import pickle
from pathlib import Path

import pytest

from ckl_jax.data.text.byte_level import (
    TEMPORALWIKI_TOKENS,
    ByteLevelVocabulary,
    is_byte_level,
    open_vocabulary,
)
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.errors import UserError

REAL = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "gpt2"
TEXTS = ["Hello world", " It's 1984,\n\nnaïve — 東京 <|endoftext|>!", "", "  two  spaces "]

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def real():
    if not REAL.is_dir():
        pytest.skip(f"GPT-2's own files are not in {REAL}")
    return ByteLevelVocabulary(REAL)


def test_the_real_vocabulary_is_transformers(real):
    assert (real.vocab_size, real.eos_id, real.pad_id) == (50257, 50256, 50256)
    assert real.encode("Hello world") == [15496, 995]
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2TokenizerFast(
        vocab=str(REAL / "encoder.json"), merges=str(REAL / "vocab.bpe")
    )
    assert real.encode_many(TEXTS) == [theirs(text)["input_ids"] for text in TEXTS]


def test_what_is_encoded_is_decoded_up_to_the_end(real):
    for text in TEXTS:
        if "<|" not in text:
            assert real.decode(real.encode(text)) == text
    assert real.decode([*real.encode("a b"), 50256, 0, 0]) == "a b"
    assert real.decode([15496, 60000]) == "Hello"
    assert real.pieces([15496, 995]) == ["Hello", "Ġworld"]


def test_temporalwiki_s_tokens_come_behind(real):
    more = ByteLevelVocabulary(REAL, TEMPORALWIKI_TOKENS)
    assert (more.vocab_size, more.eos_id, more.pad_id) == (50262, 50257, 50260)
    assert more.digest != real.digest == digest_of(real)
    assert pickle.loads(pickle.dumps(more)).digest == more.digest


def test_a_whole_tokenizer_is_the_same_as_its_two_files(real, tmp_path):
    real.tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = open_vocabulary(tmp_path)
    assert again.digest == real.digest and again.encode_many(TEXTS) == real.encode_many(TEXTS)
    assert is_byte_level(tmp_path) and is_byte_level(REAL) and not is_byte_level(tmp_path.parent)


def test_what_is_no_vocabulary_is_named(tmp_path):
    with pytest.raises(UserError, match="no vocabulary in"):
        ByteLevelVocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="tokenizer.json is not a byte-level vocabulary"):
        ByteLevelVocabulary(tmp_path)
