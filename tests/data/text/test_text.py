"""Vocabularies, documents, entity finders and span masking."""

import gzip
import pickle
import re
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from ckl_jax.data.text.documents import Document, read_documents, write_documents
from ckl_jax.data.text.spans import (
    chunk,
    fill_spans,
    mask_spans,
    salient_rows,
    split_sentences,
    with_names,
)
from ckl_jax.data.text.taggers import HeuristicFinder, find_dates, make_finder
from ckl_jax.data.text.vocabularies import Vocabulary, train_vocabulary
from ckl_jax.data.text.vocabulary_copy import open_copy, open_vocabulary, save_copy
from ckl_jax.errors import UserError
from ckl_jax.files import write_json
from tests.real_data import shared_data

LINES = [
    f"Anna Brel was born in {city} on {day} May 1975, (as was her sister)."
    for city in ("Oslo", "Paris", "Lima")
    for day in range(1, 28)
]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    return train_vocabulary(LINES, tmp_path_factory.mktemp("v") / "v.model", 200)


# --- vocabularies


def test_the_first_sentinel_has_the_last_id(vocabulary):
    assert vocabulary.extra_ids == 100
    assert vocabulary.sentinel(0) == vocabulary.vocab_size - 1
    assert vocabulary.sentinel(99) == vocabulary.vocab_size - 100
    with pytest.raises(UserError, match="<extra_id_100> is not among them"):
        vocabulary.sentinel(100)


def test_text_survives_encoding(vocabulary):
    for line in LINES:
        assert vocabulary.decode(vocabulary.encode(line)) == line
    assert vocabulary.encode_many(LINES) == [vocabulary.encode(line) for line in LINES]


def test_offsets_cover_the_text(vocabulary):
    for text in (*LINES[:2], "Zoé  is in Österreich."):
        offsets = vocabulary.offsets(text)
        assert len(offsets) == len(vocabulary.encode(text))
        assert "".join(text[a:b] for a, b in offsets) == text
        for (start, end), piece in zip(
            offsets, vocabulary.pieces(vocabulary.encode(text)), strict=True
        ):
            assert "\u2047" in piece or piece == "<unk>" or len(piece) <= end - start + 1


def test_sentinels_are_single_ids_wherever_they_stand(vocabulary):
    ids = vocabulary.encode("<extra_id_0> was born (<extra_id_1>) in <extra_id_2>.")
    assert [vocabulary.sentinel(i) in ids for i in range(3)] == [True] * 3
    assert vocabulary.unk_id not in ids
    target = vocabulary.encode("<extra_id_0> Anna Brel <extra_id_1>") + [1, 7, 7]
    assert vocabulary.decode(target) == "Anna Brel"
    assert vocabulary.decode(target, skip_special=False) == "<extra_id_0> Anna Brel <extra_id_1>"
    assert vocabulary.decode([0, 2, vocabulary.vocab_size + 5]) == ""


@pytest.mark.parametrize(
    "text",
    [
        "<extra_id_0>, was born (<extra_id_1>) in <extra_id_2>.",
        "Anna Brel was born in <extra_id_0><extra_id_1>'s city .",
        "no sentinel at all.",
    ],
)
def test_legacy_spacing_encodes_what_is_between_sentinels_alone(vocabulary, text):
    """As transformers 4.12: the text is cut at sentinels, and each part is stripped and encoded."""
    legacy = Vocabulary(vocabulary.path, legacy_spacing=True)
    plain = sentencepiece.SentencePieceProcessor(model_file=vocabulary.path)
    expected = []
    for part in re.split(r"(<extra_id_\d+>)", text):
        if part.startswith("<extra_id_"):
            expected.append(legacy.sentinel(int(part[10:-1])))
        else:
            expected += plain.EncodeAsIds(part.strip())
    assert legacy.encode(text) == legacy.encode_many([text])[0] == expected
    assert (vocabulary.encode(text) == expected) == ("<extra_id_" not in text)
    assert legacy.digest == vocabulary.digest  # its ids mean the same pieces
    assert pickle.loads(pickle.dumps(legacy)).legacy_spacing


def test_training_is_deterministic_and_the_digest_tells(tmp_path, vocabulary):
    again = train_vocabulary(LINES, tmp_path / "again.model", 200)
    assert again.digest == vocabulary.digest == pickle.loads(pickle.dumps(again)).digest
    assert Vocabulary(again.path, extra_ids=10).digest != again.digest


def test_a_model_s_own_sentinels_are_recognised(tmp_path, vocabulary):
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto.FromString(Path(vocabulary.path).read_bytes())
    for i in range(5):  # as in some of Hugging Face's files: counted upwards, control pieces
        proto.pieces.add(piece=f"<extra_id_{i}>", score=0, type=3)
    path = tmp_path / "own.model"
    path.write_bytes(proto.SerializeToString())
    own = Vocabulary(path, extra_ids=0)
    assert own.extra_ids == 5 and own.vocab_size == len(proto.pieces)
    assert own.sentinel(0) == own.vocab_size - 5
    assert own.sentinel(2) in own.encode("born in <extra_id_2>.")
    proto.pieces.add(piece="\u2581<extra_id_0>", score=0, type=4)  # what the first one becomes
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="own.model is no vocabulary that Sentence.*already defin"):
        Vocabulary(path, extra_ids=0)


def test_bad_vocabularies_are_refused(tmp_path, vocabulary):
    with pytest.raises(UserError, match="has no sentinels"):
        Vocabulary(vocabulary.path, extra_ids=0)
    with pytest.raises(UserError, match="There is no vocabulary .*missing.model"):
        Vocabulary(tmp_path / "missing.model")
    (tmp_path / "x.model").write_text("not a model at all")
    with pytest.raises(UserError, match="is not a SentencePiece model"):
        Vocabulary(tmp_path / "x.model")
    with pytest.raises(UserError, match="the corpus is empty"):
        train_vocabulary(["", " "], tmp_path / "v.model", 100)


def test_a_vocabulary_with_other_special_ids_is_refused():
    path = shared_data("tokenizers", "maxtext-32768", "tokenizer.default.model")
    with pytest.raises(UserError, match="where T5 has"):
        Vocabulary(path)


def test_ids_equal_seqio_s_convention():
    path = shared_data("tokenizers", "seqio-test-26", "sentencepiece.model")
    toy = Vocabulary(path, extra_ids=10)
    assert (toy.vocab_size, toy.sentinel(0), toy.sentinel(9)) == (36, 35, 26)


# --- documents


def test_documents_survive_their_files(tmp_path):
    documents = [
        Document("a", "2020-05-01", "T", "One.\nTwo é.", "http://x"),
        Document("b", "2021-01-31", "", "Three."),
    ]
    for name in ("d.jsonl", "d.jsonl.gz"):
        assert write_documents(tmp_path / name, documents) == 2
        assert list(read_documents(tmp_path / name)) == documents
        first = (tmp_path / name).read_bytes()
        write_documents(tmp_path / name, documents)
        assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize(
    "line, message",
    [
        ("{", "line 2: not JSON"),
        ('{"date": "2020-01-01"}', "line 2: the field 'text'"),
        ('{"text": "x"}', "line 2: the field 'date'"),
        ('{"text": "x", "date": "May 2020"}', "'May 2020' is not a day of the form YYYY-MM-DD"),
        ('{"text": "x", "date": "2020-05-01", "text": "y"}', "'text' occurs 2 times in an object"),
    ],
)
def test_bad_documents_are_named(tmp_path, line, message):
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "x", "date": "2020-01-01"}\n' + line + "\n")
    with pytest.raises(UserError, match=message):
        list(read_documents(path))


# --- finders


@pytest.mark.parametrize(
    "text, dates",
    [
        (
            "It began on 12th of May 2020 and ended on January 3, 2021.",
            ["12th of May 2020", "January 3, 2021"],
        ),
        (
            "He left in Dec. 2019; in 2020-05-06 or 5/6/2020.",
            ["Dec. 2019", "2020-05-06", "5/6/2020"],
        ),
        ("In the early 1980s, the 1990s and mid-2018.", ["early 1980s", "1990s", "mid-2018"]),
        ("Q3 2020 and the first quarter of 2021.", ["Q3 2020", "first quarter of 2021"]),
        ("She may march on, since March, by 1999.", ["March", "1999"]),
        ("On Friday, last year.", ["Friday", "last year"]),
        ("Call 2020555 or room 12.", []),
    ],
)
def test_dates_are_found(text, dates):
    assert [text[a:b] for a, b, _ in find_dates(text)] == dates


@pytest.mark.parametrize(
    "text, names",
    [
        (
            "The mayor of Oslo met Anna B. Brel and Dr. Jo Moe.",
            ["Oslo", "Anna B. Brel", "Dr. Jo Moe"],
        ),
        ("Anna Brel's dog saw the Bank of Lima.", ["Anna Brel", "Bank of Lima"]),
        ("Today I think so. Then Kelora Group's shares fell.", ["Kelora Group"]),
        ("In Lima on 3 June 2020, it rained.", ["Lima", "3 June 2020"]),
        ("", []),
    ],
)
def test_names_are_found(text, names):
    finder = HeuristicFinder.fit(["then in the today " * 3, "x in Lima then said today and in"])
    assert [text[a:b] for a, b, _ in finder.find(text)] == names


_PIECES = (
    "Wadhawan",
    "Corp",
    "UN",
    "the",
    "May",
    "1998",
    "12",
    "Q1",
    "of",
    "first",
    "quarter",
    "mid",
    ".",
    "-",
    "'s",
    "&",
    ",",
    " ",
    " ",
    "\n",
)


@given(st.lists(st.sampled_from(_PIECES), max_size=14))
def test_no_span_lies_over_another(pieces):
    """Also where a blank is missing, as in "Wadhawan.1998"."""
    text = "".join(pieces)
    spans = HeuristicFinder().find(text)
    assert fill_spans(*mask_spans(text, spans)) == text  # which refuses spans that overlap
    assert all(text[start:end] == text[start:end].strip() for start, end, _ in spans)


def test_a_name_ends_where_a_date_begins_in_its_word():
    text = "It is by Jagdish Wadhawan.1998, in London."
    found = [(text[a:b], label) for a, b, label in HeuristicFinder().find(text)]
    assert found == [("Jagdish Wadhawan", "ENTITY"), ("1998", "DATE"), ("London", "ENTITY")]


def test_the_finder_s_name_tells_what_it_was_fitted_on():
    assert HeuristicFinder.fit(["a b"]).backend == HeuristicFinder.fit(["a b"]).backend
    assert HeuristicFinder.fit(["a b"]).backend != HeuristicFinder.fit(["a c"]).backend


def test_unknown_and_missing_finders_are_refused():
    with pytest.raises(UserError, match="Did you mean 'heuristic'"):
        make_finder("heuristics")
    with pytest.raises(UserError, match="install ckl-jax.spacy. and the pipeline"):
        make_finder("spacy:no_such_pipeline")


def test_spans_overlap_most_gold_entities(capsys):
    """Survey figure on the English Web Treebank: .84 with counts from its training part."""
    path = shared_data("tagging", "en_ewt-uner-dev.iob2.gz")
    sentences = list(_gold_sentences(path))
    finder = HeuristicFinder.fit(text for text, _ in sentences)
    found = total = 0
    for text, gold in sentences:
        spans = finder.find(text)
        total += len(gold)
        found += sum(any(a < end and b > start for a, b, _ in spans) for start, end in gold)
    with capsys.disabled():
        print(f"\n[entity finder: overlap recall {found / total:.3f} of {total} gold entities]")
    assert total == 966
    assert found / total > 0.82


def _gold_sentences(path):
    """Yields (text, [(start, end)]) of an IOB2 file."""
    words, spans = [], []
    with gzip.open(path, "rt", encoding="utf-8") as f:
        for line in [*f, "\n"]:
            cells = line.rstrip("\n").split("\t")
            if len(cells) > 2 and not line.startswith("#"):
                start = sum(len(w) + 1 for w in words)
                words.append(cells[1])
                if cells[2].startswith("B"):
                    spans.append([start, start + len(cells[1])])
                elif cells[2].startswith("I"):
                    spans[-1][1] = start + len(cells[1])
            elif words and not cells[0]:
                yield " ".join(words), spans
                words, spans = [], []


# --- span masking


def test_spans_become_sentinels():
    masked, target = mask_spans("Anna was born in Oslo.", [(0, 4), (17, 21)])
    assert masked == "<extra_id_0> was born in <extra_id_1>."
    assert target == "<extra_id_0> Anna <extra_id_1> Oslo <extra_id_2>"
    assert mask_spans("None here.", []) == ("None here.", "")


@settings(max_examples=150, deadline=None)
@given(st.text("ab .(\n", max_size=200), st.data())
def test_filling_undoes_masking(text, data):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=100)))
    spans = [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    spans = [(a, b) for a, b in spans if text[a:b].strip() == text[a:b]]  # as a finder's are
    masked, target = mask_spans(text, spans)
    assert fill_spans(masked, target) == text


def test_a_hundred_spans_leave_no_sentinel_to_close_with():
    text = "x " * 101
    masked, target = mask_spans(text, [(2 * i, 2 * i + 1) for i in range(100)])
    assert "<extra_id_99>" in masked and "<extra_id_100>" not in target
    assert fill_spans(masked, target) == text
    with pytest.raises(ValueError, match="only 100 sentinels"):
        mask_spans(text, [(2 * i, 2 * i + 1) for i in range(101)])
    with pytest.raises(ValueError, match="must not overlap"):
        mask_spans(text, [(0, 3), (2, 5)])


TEXT = "The mayor of Oslo met Anna Brel in Lima on 3 June 2020."


def test_names_that_no_span_holds_are_added():
    text = "In Bolivia, people sing Hail to Bolivia in May."
    spans = [(3, 10), (24, 28), (32, 39), (43, 46)]
    assert [text[a:b] for a, b in with_names(text, ["Hail to Bolivia", "Bol"], spans)] == [
        *("Bolivia", "Hail to Bolivia", "May")
    ]
    assert with_names(text, ["Bolivia"], spans) == spans
    assert with_names(text, [], spans) == spans
    assert with_names("It ends in .bo.", [".bo"], []) == [(11, 14)]


def test_rows_mask_all_spans_one_or_each():
    finder = HeuristicFinder()
    (every,) = salient_rows(TEXT, finder)
    assert every["output"].count("<extra_id_") == 5
    (one,) = salient_rows(TEXT, finder, max_spans=1, seed=1)
    assert one["output"].count("<extra_id_") == 2
    assert [one] == list(salient_rows(TEXT, finder, max_spans=1, seed=1))
    draws = {next(salient_rows(TEXT, finder, max_spans=1, seed=s))["input"] for s in range(40)}
    each = list(salient_rows(TEXT, finder, max_spans=1, rows_per_chunk="all_spans"))
    assert {row["input"] for row in each} == draws and len(each) == 4
    pairs = list(salient_rows(TEXT, finder, max_spans=3, rows_per_chunk="all_spans"))
    assert [row["output"].count("<extra_id_") for row in pairs] == [3, 3]
    assert "<extra_id_0> met Anna Brel in <extra_id_1>" in pairs[0]["input"]
    halves = list(salient_rows(TEXT, finder, rows_per_chunk="all_spans", parts=2))
    assert halves == pairs
    assert list(salient_rows(TEXT, finder, rows_per_chunk="all_spans", parts=9)) == each
    for row in [every, one, *each, *pairs]:
        assert fill_spans(row["input"], row["output"]) == row["original"] == TEXT


def test_chunks_without_spans_are_kept_only_on_request():
    assert list(salient_rows("nothing here.", HeuristicFinder())) == []
    (row,) = salient_rows("nothing here.", HeuristicFinder(), keep_spanless=True)
    assert row == {"input": "nothing here.", "output": "", "original": "nothing here."}
    with pytest.raises(UserError, match="give 'one' or 'all_spans'"):
        list(salient_rows(TEXT, HeuristicFinder(), rows_per_chunk="all"))


def test_chunks_end_at_sentences_and_fit():
    text = "Mr. Brel came. He sat (on J. Moe's chair). Then he left!\nA new line 3. "
    text += "Then " + "w " * 30
    sentences = ["Mr. Brel came.", "He sat (on J. Moe's chair).", "Then he left!", "A new line 3."]
    assert split_sentences(text)[:4] == sentences
    for length in (1, 5, 11, 200):
        pieces = list(chunk(text, length))
        assert " ".join(pieces).split() == text.split()
        assert all(len(p.split()) <= length for p in pieces)
    assert list(chunk(text, 0)) == split_sentences(text)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"reader": [], "arguments": []}, "names no vocabulary of this version"),
        ({"reader": "Vocabulary", "arguments": [10**11]}, "extra_ids is 100000000000; give 10,000"),
        ({"reader": "Vocabulary", "arguments": [1, 2, 3]}, "which Vocabulary does not take"),
        ({"reader": "Vocabulary", "arguments": ["x"]}, "extra_ids is 'x'; give a whole number"),
    ],
)
def test_a_record_of_a_stranger_s_copy_is_checked(record, said, vocabulary, tmp_path):
    save_copy(vocabulary, tmp_path)
    assert open_vocabulary(tmp_path).digest == vocabulary.digest
    write_json(tmp_path / "vocabulary.json", record)
    with pytest.raises(UserError, match=said):
        open_copy(str(tmp_path))
