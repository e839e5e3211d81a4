"""BERT's vocabulary, trained and copied: the same text gives the same pieces."""

import json
import random

import pytest

from ckl_jax.data.text.masked_vocabulary import (
    MaskedVocabulary,
    open_vocabulary,
    train_word_pieces,
)
from ckl_jax.data.text.vocabulary_copy import open_copy, save_copy


def _lines():
    """Names of syllables, so that many pairs of characters are equally frequent."""
    rng = random.Random(0)
    syllables = ["bru", "vas", "zou", "shos", "ki", "hosk", "uv", "oski", "lan", "dor"]
    return [" ".join("".join(rng.choices(syllables, k=3)) for _ in range(6)) for _ in range(60)]


def test_the_same_lines_give_the_same_bytes(tmp_path):
    made = []
    for number in range(6):  # the trainer's hashes differ from call to call
        folder = tmp_path / str(number)
        vocabulary = train_word_pieces(_lines(), folder, 300)
        made.append((folder / "tokenizer.json").read_bytes())
    assert len(set(made)) == 1
    assert vocabulary.vocab_size <= 300
    assert (vocabulary.pad_id, vocabulary.bos_id, vocabulary.mask_id) == (0, 2, 4)
    (word,) = open_vocabulary(folder).encode_words(["bruvas"])
    assert len(word.ids) <= 6 and vocabulary.pad_id not in word.ids


@pytest.mark.parametrize("lower", [True, False])
def test_a_copy_keeps_what_case_is(lower, tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Oslo", "oslo"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    vocabulary = MaskedVocabulary(tmp_path)
    save_copy(vocabulary, tmp_path / "run")
    copied = open_copy(str(tmp_path / "run"))
    assert vocabulary.encode("Oslo") == copied.encode("Oslo") == [6 if lower else 5]
