"""The vocabularies of T5 and T5Gemma out of the `tokenizer.json` that transformers 5 saves."""

import json
import pickle
import shutil

import pytest

from ckl_jax.data.text.byte_level import SpanVocabulary, TokenizerVocabulary, open_vocabulary
from ckl_jax.data.text.vocabularies import Vocabulary, model_bytes, train_vocabulary
from ckl_jax.data.text.vocabulary_copy import open_copy, save_copy
from ckl_jax.errors import UserError
from tests.llama_tokenizer import train_gemmas, train_tokenizer

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


def test_sentinels_have_the_ids_of_the_file(folders, tmp_path):
    transformers = pytest.importorskip("transformers")
    vocabulary, *_ = folders
    pieces = [(vocabulary.pieces([i])[0], -float(i)) for i in range(vocabulary.vocab_size - 100)]
    made = transformers.T5Tokenizer(vocab=pieces, extra_ids=100)
    made.save_pretrained(tmp_path)
    read = Vocabulary(tmp_path / "tokenizer.json")
    assert read.sentinel(0) == len(pieces) == made.convert_tokens_to_ids("<extra_id_0>")
    assert read.vocab_size == len(made)
    for text in ("Anna Brel was <extra_id_0> born <extra_id_17> in Oslo", "in Oslo"):
        assert read.encode(text) == made.encode(text, add_special_tokens=False)
    save_copy(read, tmp_path / "copy")
    assert open_copy(str(tmp_path / "copy")).digest == read.digest
    beside = tmp_path / "spiece.model"  # with the sentinels in the other order
    shutil.copy(folders[0].path, beside)
    with pytest.raises(UserError, match="json has the token '<extra_id_0>' at id .* where .*_99>"):
        Vocabulary(beside)
    beside.unlink()
    made.add_tokens(["FOO9"])
    made.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=f"has the added token 'FOO9' at id {read.vocab_size}"):
        Vocabulary(tmp_path / "tokenizer.json")


def test_the_files_beside_a_spiece_model_have_its_tokens(folders, tmp_path):
    vocabulary, _, saved = folders
    path = tmp_path / "spiece.model"
    shutil.copy(vocabulary.path, path)
    content = json.loads((saved / "tokenizer.json").read_text())
    piece = content["model"]["vocab"][50][0]
    size = vocabulary.vocab_size
    decoder = {"added_tokens_decoder": {"1": {"content": "</s>"}}}
    for name, right in (
        ("tokenizer.json", content),
        ("added_tokens.json", {"<extra_id_0>": size - 1}),
        ("tokenizer_config.json", decoder),
    ):
        (tmp_path / name).write_text(json.dumps(right))
    assert Vocabulary(path).encode(LINES[0]) == vocabulary.encode(LINES[0])
    content["model"]["vocab"][50][0] = "other"
    decoder["added_tokens_decoder"][size] = {"content": "<date>"}
    for name, wrong, token, place, there in (
        ("tokenizer_config.json", decoder, "<date>", size, ""),
        ("added_tokens.json", {"<extra_id_0>": size - 100}, "<extra_id_0>", size - 100, "_99>"),
        ("tokenizer.json", content, "other", 50, piece),
    ):
        (tmp_path / name).write_text(json.dumps(wrong))
        with pytest.raises(UserError) as e:
            Vocabulary(path)
        assert f"{name} has the token '{token}' at id {place}, where" in str(e.value)
        assert f"{there}'; remove" in str(e.value)
    for name, damaged in (("tokenizer.json", {"model": 3}), ("added_tokens.json", {"<pad>": []})):
        (tmp_path / name).write_text(json.dumps(damaged))
        with pytest.raises(UserError, match=f"{name} is not such a file of transformers"):
            Vocabulary(path)
        (tmp_path / name).unlink()


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


@pytest.mark.parametrize("reserved", [9, 0])
def test_gemmas_reserved_tokens_are_sentinels(reserved, tmp_path):
    """Where there is none, 100 lie behind the others, as behind a SentencePiece model's."""
    train_gemmas(tmp_path, reserved)
    ours, plain = SpanVocabulary(tmp_path), TokenizerVocabulary(tmp_path)
    count = reserved or 100
    ids = [ours.sentinel(i) for i in range(count)]
    if reserved:
        assert ids == [plain.encode(f"<unused{i}>")[0] for i in range(9)]
        assert ours.vocab_size == plain.vocab_size
    else:
        assert ids == list(reversed(range(plain.vocab_size, ours.vocab_size)))
    with pytest.raises(UserError, match=f"has {count} sentinels, .*; <extra_id_{count}> is not"):
        ours.sentinel(count)
    rome, is_, in_, stop = (plain.encode(t)[0] for t in ("Rome", " is", " in", "."))
    text = "Rome is <extra_id_0> in<extra_id_1>."
    assert ours.encode(text) == [rome, is_, ids[0], in_, ids[1], stop]
    assert [text[a:b] for a, b in ours.offsets(text)][2:] == [
        " <extra_id_0>",
        " in",
        "<extra_id_1>",
        ".",
    ]
    assert ours.decode([*ours.encode(text), 1, rome]) == "Rome is in."
    assert (
        ours.decode(ours.encode(text), skip_special=False) == "Rome is<extra_id_0> in<extra_id_1>."
    )
    for line in ("Rome is a city in Italy.", "<unused3> <mask>", " <extra_id_200>"):
        assert reserved and "<unused" in line or ours.encode(line) == plain.encode(line)
    save_copy(ours, tmp_path / "copy")
    for again in (open_copy(tmp_path / "copy"), pickle.loads(pickle.dumps(ours))):
        assert again.digest == ours.digest != plain.digest
        assert again.sentinel(1) == ids[1]


def test_a_tokenizer_with_other_padding_is_refused(tmp_path):
    train_tokenizer(tmp_path)
    with pytest.raises(UserError, match="has padding and end of a text at ids 2 and 2 where"):
        SpanVocabulary(tmp_path)
