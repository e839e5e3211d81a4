"""Losses of words by models of Hugging Face's, and the command that compares them."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tokenizers

import ckl_jax
from ckl_jax.checkpoints.from_hf import load_hf
from ckl_jax.cli.ckl import main
from ckl_jax.data.process_pool import no_progress
from ckl_jax.data.tasks.word_losses import DumpWriter, WordLosses, read_dump
from ckl_jax.data.text.documents import Document, write_documents
from ckl_jax.errors import UserError
from ckl_jax.models import decoder
from ckl_jax.papers.mind_the_gap.analysis.staleness_study import StalenessStudy, compute
from ckl_jax.papers.mind_the_gap.settings import Scoring
from ckl_jax.papers.mind_the_gap.word_scores import score
from tests.updates.test_job import save_llama

WORDS = "Rome is a city in Italy France Paris zoom".split()
WINDOW, STRIDE = 24, 7


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_llama(tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    generator = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "posts.jsonl"
    sizes = [3, 40, 1, 12] + [8] * 20
    texts = [" ".join(generator.choice(WORDS, size)) for size in sizes]
    dates = [f"2020-{1 + i // 3:02d}-{1 + i % 3:02d}" for i in range(len(texts))]
    write_documents(path, [Document(str(i), dates[i], "", t) for i, t in enumerate(texts)])
    return path


def alone(folder, tokens, start):
    """Losses of `tokens` after `start`, by one pass of the module."""
    config, params = load_hf(folder)
    ids = jnp.array([[start, *tokens]])
    logits = decoder.Transformer(config).apply({"params": params}, ids, ids, enable_dropout=False)
    log_probs = jax.nn.log_softmax(logits[0, :-1].astype(jnp.float32))
    return -np.asarray(log_probs)[np.arange(len(tokens)), np.array(tokens)]


def test_words_are_scored_in_sliding_windows(llama, documents, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["staleness", "--documents", str(documents), "--out", str(out), "--tagger=none"]
    command += [f"--window={WINDOW}", f"--stride={STRIDE}", "--batch-size=3", "--bootstrap=20"]
    assert main([*command, "--model", f"llama={llama}"]) == 0
    assert "a rise of" in capsys.readouterr().out
    rows = [json.loads(line) for line in documents.read_text().splitlines()]
    (shards,) = [list(read_dump(out / "scored" / "llama" / "dump"))]
    scored = {d.id: d for shard in shards for d in shard.documents()}
    assert {k: " ".join(d.words) for k, d in scored.items()} == {r["id"]: r["text"] for r in rows}

    tokenizer = json.loads((llama / "tokenizer.json").read_text())["model"]["vocab"]
    start = tokenizer["<s>"]
    longest = scored["1"]
    vocabulary = tokenizers.Tokenizer.from_file(str(llama / "tokenizer.json"))
    by_word = [vocabulary.encode(f" {w}", add_special_tokens=False).ids for w in longest.words]
    assert list(map(len, by_word)) == longest.tokens.tolist()
    tokens = sum(by_word, [])
    assert len(tokens) > 2 * WINDOW
    # What the first window holds, and what follows it by STRIDE tokens.
    losses = alone(llama, tokens[: WINDOW - 1], start).tolist()
    while len(losses) < len(tokens):
        end = min(len(losses) + STRIDE, len(tokens))
        seen = [start, *tokens][end + 1 - WINDOW : end + 1]
        losses += alone(llama, seen[1:], seen[0])[-(end - len(losses)) :].tolist()
    ends = np.cumsum(longest.tokens)
    expected = [sum(losses[e - n : e]) for e, n in zip(ends, longest.tokens, strict=True)]
    np.testing.assert_allclose(longest.nll, expected, atol=1e-4)
    assert longest.context_start[0] == 0 and longest.context_start[-1] == len(tokens) - WINDOW

    results = json.loads((out / "results.json").read_text())
    assert results["perplexity"]["llama"]["all"] > 1 and "control" not in results["perplexity"]
    assert results["sources"]["llama"]["words"][0]["word"] in WORDS
    page = (out / "report.html").read_text()
    assert "the loss on equally frequent words" in page and "Where llama loses most" in page
    made = {p: p.stat().st_mtime for p in (out / "scored" / "llama" / "dump").glob("*.npz")}
    assert main([*command, "--model", f"llama={llama}"]) == 0  # the dump is complete
    assert made == {p: p.stat().st_mtime for p in made}
    options = {"window": WINDOW, "stride": STRIDE, "tagger": "none", "samples": 20}
    found = ckl_jax.staleness({"llama": llama}, documents, out, **options)
    assert found.months()["llama"].tolist() == results["months"]["llama"]["values"]
    assert main([*command, f"--model=llama={llama}", "--stride=5"]) == 2
    assert "other settings (stride)" in capsys.readouterr().err


def test_a_run_scores_as_the_folder_that_it_was_imported_from(llama, documents, tmp_path):
    run = tmp_path / "run"
    assert main(["import-hf", "--model", str(llama), "--out", str(run)]) == 0
    scoring = Scoring(documents=str(documents), window=WINDOW, stride=STRIDE)
    dumps = [
        score(str(model), tmp_path / model.name, scoring, no_progress) for model in (llama, run)
    ]
    ours, theirs = ([s.nll for s in read_dump(dump)] for dump in dumps)
    np.testing.assert_allclose(np.concatenate(ours), np.concatenate(theirs), atol=1e-5)


def test_losses_of_another_model_in_the_same_folder_are_refused(llama, documents, tmp_path):
    model, out = shutil.copytree(llama, tmp_path / "model"), tmp_path / "out"
    scoring = Scoring(documents=str(documents), window=WINDOW, stride=STRIDE)
    score(str(model), out, scoring, no_progress)
    score(str(model), out, scoring, no_progress)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    with pytest.raises(UserError, match=r"begun with other settings \(configuration\)"):
        score(str(model), out, scoring, no_progress)


def test_a_control_of_another_kind_of_loss_is_refused(tmp_path):
    for name, scheme in (("bert", {"scheme": "within_word_l2r"}), ("ngram", {})):
        DumpWriter(tmp_path / name, {"model": name, **scheme})
    study = StalenessStudy(models={"bert": str(tmp_path / "bert")}, control=str(tmp_path / "ngram"))
    with pytest.raises(ckl_jax.UserError, match="bert has losses of within_word_l2r and control"):
        compute(study)


@pytest.mark.parametrize(
    "summary, sentence",
    [
        ("[1, 2]", "is not a JSON object"),
        ('{"forgetting": [1, 2]}', "the field 'forgetting' has the value"),
        ('{"forgetting": {"a": 3}}', "the field 'forgetting' has the value"),
        ('{"forgetting": {"a": {"p": {"start": "x"}}}}', "the field 'forgetting' has the value"),
    ],
)
def test_a_damaged_summary_beside_a_dump_is_named(tmp_path, summary, sentence):
    model, control = _dump(tmp_path / "run" / "dump"), _dump(tmp_path / "control")
    (tmp_path / "run" / "summary.json").write_text(summary)
    study = StalenessStudy(models={"model": str(model)}, control=str(control), samples=9)
    with pytest.raises(ckl_jax.UserError, match=f"run/summary.json.*{sentence}"):
        compute(study)


def _dump(folder):
    writer = DumpWriter(folder, {"model": "m"})
    for month in range(1, 4):
        words, zeros = ["a", "b"], np.zeros(2, np.int32)
        nll = np.ones(2, np.float32)
        writer.add(WordLosses(str(month), f"2020-{month:02d}-01", words, nll, zeros + 1, zeros))
    writer.flush()
    return folder


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["--model=llama={llama}"], "give --documents"),
        (["--model=llama={llama}", "--documents={text}", "--window=9999"], "256 positions"),
        (["--model=llama={llama}", "--documents={text}", "--window=9", "--stride=9"], "smaller"),
        (["--model=llama={llama}", "--documents=nowhere.jsonl"], "nowhere.jsonl"),
        (["--model=llama={llama}", "--documents={none}"], "none.jsonl holds no documents"),
        # Said before anything is scored: the model is not even looked for.
        (["--model=m=nowhere", "--documents={gap}"], "month 2020-02 has no test document"),
    ],
)
def test_bad_input_is_one_sentence(llama, documents, tmp_path, argv, sentence, capsys):
    none, gap = tmp_path / "none.jsonl", tmp_path / "gap.jsonl"
    write_documents(none, [])
    write_documents(gap, [Document(m, f"2020-{m}-01", "", "a b") for m in ("01", "03", "04")])
    given = [a.format(llama=llama, text=documents, none=none, gap=gap) for a in argv]
    assert main(["staleness", "--out", str(tmp_path / "out"), *given]) == 2
    told = capsys.readouterr().err
    assert sentence in told and told.count("\n") == 1
