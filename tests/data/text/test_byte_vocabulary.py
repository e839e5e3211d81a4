"""ByT5's bytes: ids of transformers, places in the text, and what is refused."""

import json
import pickle
import random

import pytest

from ckl_jax.data.text.byte_vocabulary import ByteVocabulary
from ckl_jax.data.text.masked_vocabulary import open_vocabulary
from ckl_jax.data.text.vocabulary_copy import open_copy, save_copy
from ckl_jax.errors import UserError

TEXTS = [
    "Paris is in <extra_id_0>.",
    " <extra_id_124><extra_id_3> a",
    "<extra_id_125> <extra_id_007> <extra_id_> are text",
    "héllo 日本 \U0001f600\n\ttab",
    "",
]


def write(folder, **settings):
    folder.mkdir(exist_ok=True)
    settings = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_ids_equal_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.ByT5Tokenizer()
    theirs.save_pretrained(tmp_path / "v5")
    rng = random.Random(0)
    texts = TEXTS + ["".join(chr(rng.randrange(32, 0x800)) for _ in range(50)) for _ in range(20)]
    for ours in (ByteVocabulary(tmp_path / "v5"), ByteVocabulary(write(tmp_path / "v4"))):
        assert (ours.vocab_size, ours.extra_ids) == (len(theirs), 125)
        for text, ids in zip(texts, ours.encode_many(texts), strict=True):
            assert ids == theirs(text, add_special_tokens=False).input_ids
            assert ours.decode([*ids, 1, 99], skip_special=False) == text.strip()
            assert ours.locate(ids) == (text, ours.offsets(text))
            assert theirs.decode(ids) == text


def test_places_and_what_is_left_out(tmp_path):
    vocabulary = ByteVocabulary(write(tmp_path / "byt5"))
    ids = vocabulary.encode("é<extra_id_7>!")
    assert ids == [198, 172, 259 + 7, 36]
    assert vocabulary.offsets("é<extra_id_7>!") == [(0, 1), (0, 1), (1, 13), (13, 14)]
    assert vocabulary.decode([0, *ids, 2, 5000]) == "é!"
    assert vocabulary.decode(ids[1:]) == "!", "half a character"
    assert vocabulary.pieces(ids[2:]) == ["<extra_id_7>", "!"]


def test_sentinels_of_the_pretraining_are_bytes_that_no_text_holds(tmp_path):
    folder = write(tmp_path / "byt5")
    plain, pretrained = ByteVocabulary(folder), ByteVocabulary(folder, pretrained_sentinels=True)
    assert pretrained.encode("a<extra_id_0><extra_id_1><extra_id_10>") == [100, 258, 257, 248]
    assert pretrained.decode([258, 100], skip_special=False) == "<extra_id_0>a"
    assert plain.digest != pretrained.digest and plain.vocab_size == pretrained.vocab_size == 384
    assert pickle.loads(pickle.dumps(pretrained)).digest == pretrained.digest
    with pytest.raises(UserError, match="has 11 sentinels, .* <extra_id_11> is not among them"):
        pretrained.sentinel(11)


def test_a_folder_says_that_it_is_this_vocabulary(tmp_path):
    vocabulary = open_vocabulary(write(tmp_path / "byt5"))
    save_copy(vocabulary, tmp_path / "run")
    assert open_copy(str(tmp_path / "run")).digest == vocabulary.digest
    with pytest.raises(UserError, match="does not say tokenizer_class 'ByT5Tokenizer'"):
        ByteVocabulary(write(tmp_path / "other", tokenizer_class="T5Tokenizer"))
    with pytest.raises(UserError, match="extra_ids of tokenizer_config.json is 'many'"):
        ByteVocabulary(write(tmp_path / "byt5", extra_ids="many"))
