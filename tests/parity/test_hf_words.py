"""Losses of words by masked models and encoder-decoders, against a loop over transformers."""

import json

import numpy as np
import pytest

from ckl_jax.cli.ckl import main
from ckl_jax.data.process_pool import no_progress
from ckl_jax.data.tasks.word_losses import read_dump
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.data.text.masked_vocabulary import train_word_pieces
from ckl_jax.data.text.vocabularies import Vocabulary, train_vocabulary
from ckl_jax.papers.mind_the_gap.settings import Scoring
from ckl_jax.papers.mind_the_gap.word_scores import score

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WINDOW = 12
WORDS = "Rome is the capital of Italy unquestionablyextraordinarily 1984 zoom".split()


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    generator = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "posts.jsonl"
    sizes = [1, 25, 3, 4, 5]
    texts = [" ".join(generator.choice(WORDS, n)) for n in sizes]
    # Three months, and a word that no piece spells.
    write_documents(
        path,
        [Document(str(i), f"2020-0{1 + i % 3}-03", "", t + " ☃") for i, t in enumerate(texts)],
    )
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "bert"
    vocabulary = train_word_pieces(WORDS[:-2] * 3, folder, 45)
    torch.manual_seed(0)
    sizes = dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=24)
    config = transformers.BertConfig(
        vocab_size=vocabulary.vocab_size, max_position_embeddings=32, **sizes
    )
    model = transformers.BertForMaskedLM(config).eval()
    model.save_pretrained(folder)
    return folder, vocabulary, model


def scored(model, documents, out):
    scoring = Scoring(documents=str(documents), window=WINDOW, batch_size=3)
    dump = score(str(model), out, scoring, no_progress)
    return {d.id: d for shard in read_dump(dump) for d in shard.documents()}


def centred(number, total, room):
    """Where a window of `room` tokens begins that has token `number` in its middle."""
    return min(max(number - room // 2, 0), max(total - room, 0))


def test_a_bert_hides_the_rest_of_each_word(bert, documents, tmp_path):
    folder, vocabulary, model = bert
    for document in scored(folder, documents, tmp_path / "out").values():
        words = [vocabulary.encode(w) or [vocabulary.unk_id] for w in document.words]
        assert list(map(len, words)) == document.tokens.tolist()
        tokens = sum(words, [])
        place, expected = 0, []
        for word in words:
            nll = 0.0
            for i in range(place, place + len(word)):
                first = centred(i, len(tokens), WINDOW - 2)
                shown = [*tokens[:i], *[vocabulary.mask_id] * (place + len(word) - i)]
                shown = (shown + tokens[place + len(word) :])[first : first + WINDOW - 2]
                ids = torch.tensor([[vocabulary.bos_id, *shown, vocabulary.eos_id]])
                with torch.no_grad():
                    logits = model(ids).logits[0, i - first + 1].double()
                nll -= torch.log_softmax(logits, -1)[tokens[i]].item()
            expected.append(nll)
            place += len(word)
        np.testing.assert_allclose(document.nll, expected, atol=1e-4)
    about = json.loads((tmp_path / "out" / "dump" / "dump.json").read_text())
    assert about["scheme"] == "within_word_l2r" and about["stride"] is None


def test_a_t5_fills_in_each_word(documents, tmp_path):
    (tmp_path / "t5").mkdir()
    train_vocabulary(WORDS[:-2] * 3, tmp_path / "t5" / "spiece.model", 40)
    vocabulary = Vocabulary(tmp_path / "t5" / "spiece.model")
    torch.manual_seed(0)
    sizes = dict(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)
    config = transformers.T5Config(vocab_size=144, decoder_start_token_id=0, **sizes)
    model = transformers.T5ForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path / "t5")
    first, second = vocabulary.sentinel(0), vocabulary.sentinel(1)
    room, split = WINDOW - 2, 0
    for document in scored(tmp_path / "t5", documents, tmp_path / "out").values():
        words = [vocabulary.encode(w) for w in document.words]
        assert list(map(len, words)) == document.tokens.tolist()
        before, expected = [], []
        for i, word in enumerate(words):
            after, nll = sum(words[i + 1 :], []), 0.0
            for at in range(0, len(word), room):  # of a word longer than the window
                split += at > 0
                left, part = [*before, *word[:at]], word[at : at + room]
                kept = min(len(left), max(room // 2, room - len(after)))
                shown = [*left[len(left) - kept :], first, *after[: room - kept], vocabulary.eos_id]
                labels = torch.tensor([[first, *part, second]])
                with torch.no_grad():
                    logits = model(torch.tensor([shown]), labels=labels).logits[0].double()
                found = torch.log_softmax(logits, -1)
                nll -= sum(found[j, t].item() for j, t in enumerate(labels[0]) if j)
            expected.append(nll)
            before += word
        np.testing.assert_allclose(document.nll, expected, atol=1e-4)
    assert split  # the longest word is filled in by parts


@pytest.mark.parametrize(
    "options, sentence",
    [
        (["--stride=4"], "--stride is of decoder-only models"),
        (["--window=40"], "at most the 32 positions"),
        (["--window=7"], "--window"),
    ],
)
def test_settings_that_do_not_fit_are_refused(bert, documents, tmp_path, capsys, options, sentence):
    command = ["staleness", f"--documents={documents}", f"--model=m={bert[0]}"]
    assert main([*command, f"--out={tmp_path / 'out'}", *options]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
