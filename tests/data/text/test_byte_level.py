"""GPT-2's vocabulary: the real files, against transformers, and what is wrong with others."""

import json
import pickle
from pathlib import Path

import pytest

from ckl_jax.data.text.byte_level import (
    TEMPORALWIKI_TOKENS,
    ByteLevelVocabulary,
    TokenizerVocabulary,
    is_byte_level,
    open_vocabulary,
)
from ckl_jax.data.text.vocabularies import digest_of
from ckl_jax.data.text.vocabulary_copy import open_copy, save_copy
from ckl_jax.errors import UserError
from tests.llama_tokenizer import train_tokenizer

REAL = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "gpt2"
TEXTS = ["Hello world", " It's 1984,\n\nnaïve — 東京 <|endoftext|>!", "", "  two  spaces "]

pytest.importorskip("tokenizers")
from tokenizers import (  # noqa: E402
    ByteLevelBPETokenizer,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
)


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


def test_a_text_ends_as_the_settings_say_in_a_copy_too(tmp_path):
    """Where a tokenizer holds GPT-2's end and another that it could be."""
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert ByteLevelVocabulary(tmp_path).eos_id == 2
    settings = {"eos_token": {"content": "<|endoftext|>"}, "bos_token": "<|endoftext|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "generation_config.json").write_text("{}")
    stated = open_vocabulary(tmp_path)
    assert type(stated) is ByteLevelVocabulary and (stated.eos_id, stated.pad_id) == (0, 0)
    save_copy(stated, tmp_path / "run")
    copied = open_copy(str(tmp_path / "run"))
    assert (copied.eos_id, copied.digest) == (0, stated.digest)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"tokenizer_config.json", "generation_config.json"} < names
    assert ByteLevelVocabulary(tmp_path, ["</s>"]).eos_id == 2  # as TemporalWiki's is


def test_a_whole_tokenizer_is_the_same_as_its_two_files(real, tmp_path):
    real.tokenizer.save(str(tmp_path / "tokenizer.json"))
    again = open_vocabulary(tmp_path)
    assert again.digest == real.digest and again.encode_many(TEXTS) == real.encode_many(TEXTS)
    assert is_byte_level(tmp_path) and is_byte_level(REAL) and not is_byte_level(tmp_path.parent)


def test_two_files_that_begin_a_text_with_its_end_are_transformers(tmp_path):
    """OPT's, which has no tokenizer.json on the hub."""
    transformers = pytest.importorskip("transformers")
    bpe = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    bpe.train_from_iterator(["A dog ran to Rome."], 270, special_tokens=special)
    bpe.save_model(str(tmp_path))
    tokens = {"bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>"}
    settings = {"add_bos_token": True, "tokenizer_class": "GPT2Tokenizer", **tokens}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    read = open_vocabulary(tmp_path)
    save_copy(read, tmp_path / "run")
    for ours in (read, open_copy(str(tmp_path / "run"))):
        assert (ours.bos_id, ours.eos_id, ours.pad_id, ours.around) == (2, 2, 1, ([2], []))
        for text in ("A dog ran to Oslo", "Rome </s> é"):
            assert [2, *ours.encode(text)] == theirs(text).input_ids
    # The same in one file, with a template.
    read.tokenizer.post_processor = processors.TemplateProcessing(
        single="</s> $A", special_tokens=[("</s>", 2)]
    )
    read.tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert open_vocabulary(tmp_path).around == ([2], [])


def test_what_is_no_vocabulary_is_named(tmp_path):
    with pytest.raises(UserError, match=r"no vocabulary in .*merges.txt\.$"):
        ByteLevelVocabulary(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"")  # a T5's
    with pytest.raises(UserError, match="or .*spiece.model itself"):
        ByteLevelVocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match="tokenizer.json cannot be read as a vocabulary"):
        ByteLevelVocabulary(tmp_path)


@pytest.mark.parametrize(
    ("model", "config", "said"),
    [
        ({}, {"eos_token": 3}, "eos_token of tokenizer_config.json is 3; give the token"),
        ({}, {"eos_token": ["</s>"]}, "eos_token of tokenizer_config.json is .*; give the token"),
        ({}, {"bos_token": {"content": []}}, "bos_token of tokenizer_config.json is"),
        ({}, {"bos_token": {"x": 1}}, "bos_token of tokenizer_config.json is {'x': 1}; give"),
        ({}, {"add_bos_token": "false"}, "add_bos_token of tokenizer_config.json is 'false'; give"),
        ({}, {"eos_token": None}, "name it as eos_token of tokenizer_config.json"),
        ({}, {"bos_token": "nope"}, "bos_token of tokenizer_config.json is 'nope', which is none"),
        ({}, {"eos_token": "nope"}, "which is none of the tokens; give one of them.$"),
        ({"continuing_subword_prefix": "##x"}, {}, "The tokenizer of .* fails|cannot be read"),
    ],
)
def test_a_tokenizer_that_cannot_be_is_named(model, config, said, tmp_path):
    train_tokenizer(tmp_path)
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole | {"model": whole["model"] | model}))
    names = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names | config))
    with pytest.raises(UserError, match=said):
        TokenizerVocabulary(tmp_path)


def test_a_text_that_a_tokenizer_fails_on_is_told(tmp_path):
    train_tokenizer(tmp_path)
    whole = json.loads((tmp_path / "tokenizer.json").read_text())
    pattern = {"type": "Split", "behavior": "Isolated", "invert": False}
    whole["pre_tokenizer"] = {**pattern, "pattern": {"Regex": "(a|aa)+$"}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    vocabulary = TokenizerVocabulary(tmp_path)
    with pytest.raises(UserError, match="The tokenizer of .* fails .*; check its files"):
        vocabulary.encode("a" * 60 + "b")
