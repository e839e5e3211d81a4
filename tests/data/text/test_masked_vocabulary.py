"""BERT's vocabulary, trained: the same text gives the same pieces."""

import random

from ckl_jax.data.text.masked_vocabulary import open_vocabulary, train_word_pieces


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
