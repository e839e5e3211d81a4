"""T5's vocabulary out of the `tokenizer.json` that transformers 5 saves."""

import json

import pytest

from ckl_jax.data.text.byte_level import open_vocabulary
from ckl_jax.data.text.vocabularies import Vocabulary, model_bytes, train_vocabulary
from ckl_jax.data.text.vocabulary_copy import open_copy, save_copy
from ckl_jax.errors import UserError

LINES = [
    f"Anna Brel was born in {city} on {day} May 1975, (as was her sister)."
    for city in ("Oslo", "Paris", "Lima", "Łódź", "Zürich")
    for day in range(1, 28)
]
TEXTS = [
    *LINES[::9],
    "Anna  Brel was <extra_id_0> born <extra_id_17> in ﬁne Ｔｏｋｙｏ.",
    "<extra_id_0>, as was her sister",
    "日本 unknown",
    "",
]


@pytest.fixture(scope="module", params=["identity", "nmt_nfkc"])
def folders(request, tmp_path_factory):
    """(Vocabulary of the model, `transformers`' tokenizer, the folder that it saved)."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from sentencepiece import sentencepiece_model_pb2

    root = tmp_path_factory.mktemp("t5")
    train_vocabulary(LINES, root / "spiece.model", 200, normalizer=request.param)
    (root / "tokenizer_config.json").write_text(json.dumps({"extra_ids": 100}))
    saved = root / "saved"
    transformers.T5Tokenizer.from_pretrained(root).save_pretrained(saved)
    proto = sentencepiece_model_pb2.ModelProto.FromString((root / "spiece.model").read_bytes())
    if charsmap := proto.normalizer_spec.precompiled_charsmap:
        # The class forgets it; published files of T5 have it.
        whole = tokenizers.Tokenizer.from_file(str(saved / "tokenizer.json"))
        whole.normalizer = tokenizers.normalizers.Precompiled(charsmap)
        whole.save(str(saved / "tokenizer.json"))
    assert not (saved / "spiece.model").exists()
    whole = tokenizers.Tokenizer.from_file(str(saved / "tokenizer.json"))
    return Vocabulary(root / "spiece.model"), whole, saved


def test_ids_are_those_of_tokenizers_and_of_the_model(folders):
    vocabulary, whole, saved = folders
    read = open_vocabulary(saved / "tokenizer.json")
    assert isinstance(read, Vocabulary) and read.vocab_size == vocabulary.vocab_size
    assert read.sentinel(0) == vocabulary.sentinel(0) == read.vocab_size - 1
    spaced = Vocabulary(saved / "tokenizer.json", legacy_spacing=True)
    for text in TEXTS:
        assert read.encode(text) == vocabulary.encode(text), text
        # Behind a sentinel `tokenizers` begins with a space.
        theirs = whole.encode(text, add_special_tokens=False).ids
        assert spaced.encode(text) == theirs, text
        assert read.decode(read.encode(text)) == vocabulary.decode(vocabulary.encode(text))


def test_the_copy_of_a_model_is_a_sentencepiece(folders, tmp_path):
    _, _, saved = folders
    read = Vocabulary(saved / "tokenizer.json")
    save_copy(read, tmp_path)
    assert (tmp_path / "spiece.model").read_bytes() == model_bytes(str(saved / "tokenizer.json"))
    again = open_copy(str(tmp_path))
    assert again.digest == read.digest and again.encode(LINES[0]) == read.encode(LINES[0])


def test_what_is_none_of_t5_s_is_named(tmp_path):
    path = tmp_path / "tokenizer.json"
    for content, told in (
        ({"model": {"type": "BPE"}}, "has a BPE model, its text normalised by nothing"),
        (
            {"model": {"type": "Unigram"}, "normalizer": {"type": "NFC"}},
            "a Unigram model, its text normalised by NFC",
        ),
        ({}, "is not a tokenizer.json"),
        ({"model": {"type": "Unigram", "unk_id": 9, "vocab": []}}, "is not a tokenizer.json"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(UserError, match=told):
            Vocabulary(path)
