"""Whole updates of tiny models, by the command."""

import io
import json
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ckl_jax.checkpoints.from_hf import load_hf, open_model
from ckl_jax.checkpoints.to_hf import save_hf
from ckl_jax.cli import ckl
from ckl_jax.convert import hugging_face
from ckl_jax.data.text.documents import write_documents
from ckl_jax.data.text.sentences import normalise
from ckl_jax.data.text.spans import split_sentences
from ckl_jax.data.text.vocabularies import train_vocabulary
from ckl_jax.errors import UserError
from ckl_jax.models import decoder, t5
from ckl_jax.parallel import processes
from ckl_jax.updates import evidence, job, new_text, records
from ckl_jax.updates.new_text import Sentences
from ckl_jax.updates.registry import Registry
from tests.llama_tokenizer import train_tokenizer
from tests.tiny import train_here
from tests.updates import planted

SIZES = {"emb_dim": 16, "num_heads": 2, "head_dim": 8, "mlp_dim": 32, "num_layers": 1}
QUICK = ["--epochs=1", "--learning-rate=1e-3", "--max-items=8"]


def save_llama(folder):
    train_tokenizer(folder)
    config = decoder.DecoderConfig(vocab_size=300, max_positions=256, **SIZES)
    rows = jnp.zeros((1, 4), jnp.int32)
    params = decoder.Transformer(config).init(jax.random.key(0), rows, rows)["params"]
    save_hf(folder, params, config)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("{{ tools }}")
    return folder


def save_t5(folder):
    folder.mkdir()
    lines = [d.text for d in planted.documents(planted.facts(6))]
    # With bytes for what is in no token, as `ckl data vocabulary` makes it.
    train_vocabulary(lines, folder / "spiece.model", 450, byte_fallback=True)
    sizes = {k: v for k, v in SIZES.items() if k != "num_layers"}
    config = t5.T5Config(vocab_size=550, num_encoder_layers=1, num_decoder_layers=1, **sizes)
    rows = jnp.zeros((1, 4), jnp.int32)
    params = t5.Transformer(config).init(jax.random.key(0), rows, rows, rows)["params"]
    save_hf(folder, params, config)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """One file of 2024 and 2025, and one of 2025 alone."""
    folder = tmp_path_factory.mktemp("texts")
    documents = planted.documents(planted.facts(9))
    write_documents(folder / "all.jsonl", documents)
    write_documents(folder / "first.jsonl", [d for d in documents if d.date < "2025"])
    return folder


def update(out, documents, *argv):
    return ckl.main(["update", "--out", str(out), "--documents", str(documents), *QUICK, *argv])


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save_llama(tmp_path_factory.mktemp("model") / "llama")


@pytest.fixture(scope="module")
def done(texts, llama, tmp_path_factory):
    """A registry of two updates, the first of which shipped."""
    out = tmp_path_factory.mktemp("out") / "updates"
    ship = "--ship-if=new <= 1 at n >= 1"
    assert update(out, texts / "first.jsonl", "--model", str(llama), ship) == 0
    with pytest.MonkeyPatch.context() as monkeypatch:
        train_here(monkeypatch)  # the first one had a process of its own
        assert update(out, texts / "all.jsonl", "--method=mix_review", "--ship-if=new >= 1") == 1
    return out


def test_two_updates_leave_their_evidence(done):
    registry = Registry(done)
    assert [p.name for p in registry.updates()] == ["0001", "0002"] and registry.current == "0001"
    second = done / "updates" / "0002"
    rows = [json.loads(line) for line in (second / "ledger.jsonl").read_text().splitlines()]
    assert {row["tag"] for row in rows} == {"new", "changed", "kept"}
    verdict = json.loads((second / "verdict.json").read_text())
    assert verdict["verdict"] == "do not ship" and verdict["scores"]["changed"]["n"] > 0
    overlap = json.loads((second / "overlap.json").read_text())
    before = [document.text for document in new_text.read(registry.updates()[0] / "new.jsonl")]
    read = {normalise(s) for text in before for s in split_sentences(text)}
    earlier = sum(normalise(item.text) in read for item in records.read_items(second))
    assert (overlap["exact"], overlap["earlier"]) == (0, earlier) and earlier > 0
    both = (item for folder in registry.updates() for item in records.read_items(folder))
    asked = {normalise(item.text) for item in both}
    for name in ("new", "replay"):  # mix_review trains on both
        documents = new_text.read(second / f"{name}.jsonl")
        read = {normalise(s) for document in documents for s in split_sentences(document.text)}
        assert len(read) > 50 and not asked & read, name
    page = (second / "report.html").read_text()
    assert "What is asked, for example: “" in page
    assert "should not ship" in page and rows[0]["question"].replace("'", "&#39;") in page
    assert "2 updates, of which 1 may ship." in (done / "history.html").read_text()
    assert not (second / "train").exists()  # the model is exported


def test_answers_of_the_update_before_are_not_asked_for_again(done, tmp_path):
    first, second = (done / "updates" / name for name in ("0001", "0002"))
    known = {item.text: item for item in records.read_items(first)}
    said = records.read(second, "before.json")["answers"]
    again = [i for i in records.read_items(second) if i.text in known]
    assert again and all(i.candidates == known[i.text].candidates for i in again)
    scorer = evidence.open_model(first / "model")
    asked = evidence.ask(scorer, again, {}, lambda *_: None)["answers"]
    assert asked == {i.id: said[i.id] for i in again}
    run = job._Run.__new__(job._Run)
    run.learned, run.folder = [first], second
    assert run._known_answers() == asked
    last = records.read(first, "documents.json")["last_date"]
    run.settings, run.facts, run.base = job.Update(out="updates"), [], None
    run.learned = [first, late := tmp_path / "0002"]
    late.mkdir()
    counts = json.loads((first / "documents.json").read_text()) | {"last_date": "2001-01-01"}
    (late / "documents.json").write_text(json.dumps(counts))
    assert run._last_day() == last and run._since(counts) > last  # though text came late
    assert {name for names in job._FIXED.values() for name in names} <= run._record().keys()


def test_what_ships_was_trained(done, llama):
    _, before = load_hf(llama)
    _, after = load_hf(done / "updates" / "0001" / "model")
    changed = jax.tree.map(lambda a, b: bool(np.any(a != b)), before, after)
    assert any(jax.tree.leaves(changed))
    model = done / "updates" / "0001" / "model"
    assert (model / "chat_template.jinja").read_text() == "{{ messages }}"
    assert (model / "additional_chat_templates" / "tools.jinja").read_text() == "{{ tools }}"


def test_the_ledger_agrees_with_scores_of_whole_sentences(done):
    folder = done / "updates" / "0002"
    asked = records.read_items(folder)
    model = folder / "model"
    scorer = evidence.open_scorer(model)
    said = json.loads((folder / "after.json").read_text())["answers"]
    for item in asked[:6]:
        alone = [scorer.token_scores([s]).values.sum() for s in item.statements()]
        assert int(np.argmax(alone)) == said[item.id]


def test_nothing_new_is_one_sentence_and_changes_nothing(done, texts, capsys):
    before = sorted(p.name for p in (done / "updates").iterdir())
    copy = done.parent / "copy"
    shutil.copytree(done, copy)
    (copy / "current").rename(copy / "aside")
    assert update(copy, texts / "first.jsonl", "--dry-run") in (0, 3)
    assert "No update is current: this one begins with" in capsys.readouterr().out
    (copy / "aside").rename(copy / "current")
    assert update(copy, texts / "first.jsonl") == 3
    assert "Nothing to learn" in capsys.readouterr().out
    assert sorted(p.name for p in (copy / "updates").iterdir()) == before
    assert Registry(copy).current == "0001"


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_text_of_an_update_that_is_not_in_use_is_taken_in_again(done, texts, tmp_path, capsys):
    out, second = tmp_path / "copy", done / "updates" / "0002"
    shutil.copytree(done, out)
    same = ("--method=mix_review", "--ship-if=new >= 1")
    assert update(out, texts / "all.jsonl", *same) == 3  # it would end as before
    told = capsys.readouterr().out
    assert f"but what {out}/updates/0002 was trained on with these settings" in told
    assert Registry(out).begin().name == "0003" and not Registry(out).begin().exists()
    assert update(out, texts / "all.jsonl", "--ship-if=new <= 1") == 0
    third = out / "updates" / "0003"
    assert (third / "all.jsonl").read_bytes() == (second / "all.jsonl").read_bytes()
    asked = [{(i.id, i.tag) for i in records.read_items(folder)} for folder in (second, third)]
    assert asked[0] == asked[1]  # nothing is to be kept that no model in use has learned
    assert [p.name for p in Registry(out).learned()] == ["0001", "0003"]
    (out / "current").write_text("0002\n")  # promoted by hand
    assert update(out, texts / "all.jsonl") == 3
    assert "0 new words" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_since_holds_until_an_update_is_in_use(texts, llama, tmp_path, capsys):
    out, since = tmp_path / "out", "--since=2025-01-01"
    assert update(out, texts / "all.jsonl", "--model", str(llama), since, "--ship-if=new >= 1") == 1
    capsys.readouterr()
    assert update(out, texts / "all.jsonl", "--dry-run") == 0
    said = capsys.readouterr().out
    assert "are older than 2025-01-01." in said and " 0 kept" not in said


def test_a_method_that_reviews_needs_earlier_text(texts, llama, tmp_path, capsys):
    since, method = "--since=1990-01-01", "--method=mix_review"
    argv = (texts / "first.jsonl", "--model", str(llama), since, method, "--max-items=8")
    assert update(tmp_path / "out", *argv) == 2
    assert "--method mix_review reviews text of before the update" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("in_this_process")
def test_an_update_goes_on_where_it_was(done, texts, llama, tmp_path, monkeypatch, capsys):
    out = tmp_path / "updates"

    def killed(*unused):
        raise KeyboardInterrupt

    def killed_while_it_saves(model, folder):
        (Path(folder) / "checkpoint_0.orbax-checkpoint-tmp").mkdir(parents=True)
        raise KeyboardInterrupt

    for place in (
        (hugging_face, "import_checkpoint", killed_while_it_saves),
        (job._Run, "_export", killed),
    ):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(*place)
            job.update(
                job.Update(
                    out=str(out),
                    documents=str(texts / "first.jsonl"),
                    model=str(llama),
                    epochs=1,
                    learning_rate=1e-3,
                    max_items=8,
                    ship_if="new <= 1",
                ),
                lambda *_: None,
            )
    trained = (out / "updates" / "0001" / "train" / "summary.json").read_bytes()
    asked = tmp_path / "facts.csv"
    asked.write_text("question,answer\nA is ____.,B\nC is ____.,D\n")
    for other, begun in (
        ("method=ewc", "with --method lora; give that again"),
        ("text-field=body", "with --text-field text;"),
        (f"facts={asked}", "without --facts; leave that out"),
    ):
        assert update(out, texts / "first.jsonl", f"--{other}") == 2
        assert f"was begun {begun}" in capsys.readouterr().err
    ship = ("--ship-if=new <= 1", "--on-ship=touch")
    for method in ("point_to", "clean"):  # killed again, after the verdict
        with monkeypatch.context() as patch:
            patch.setattr(Registry, method, killed)
            assert update(out, texts / "first.jsonl", *ship) == 130
        assert Registry(out).current == (None if method == "point_to" else "0001")
    assert update(out, texts / "first.jsonl", *ship) == 0
    assert "--on-ship ended with exit code 0" in capsys.readouterr().out
    assert update(out, texts / "first.jsonl", *ship) == 3  # nothing is left to do
    assert b"train_seconds" in trained
    _, ours = load_hf(out / "updates" / "0001" / "model")
    _, whole = load_hf(done / "updates" / "0001" / "model")
    jax.tree.map(np.testing.assert_array_equal, ours, whole)


@pytest.mark.parametrize(
    "hook, said",
    [("sh -c 'exit 7'", "ended with exit code 7"), ("./none", "cannot be run (No such")],
)
def test_the_model_of_a_hook_that_fails_is_current(hook, said, done, texts, tmp_path, capsys):
    registry = Registry(shutil.copytree(done, tmp_path / "updates"))
    first = registry.root / "updates" / "0001"
    shutil.rmtree(registry.root / "updates" / "0002")
    registry.finish(first, records.read(first, "verdict.json"))
    (registry.root / "current").unlink()
    assert update(registry.root, texts, "--ship-if=new >= 1") == 2
    assert "stopped after its verdict by the condition 'new <= 1" in capsys.readouterr().err
    same = "--ship-if=new <= 1 at n >= 1"
    assert update(registry.root, texts, same, f"--on-ship={hook}") == 2
    assert f"--on-ship {said}" in capsys.readouterr().err
    assert registry.current == "0001" and not registry.is_shipping(first)
    registry.finish(first, records.read(first, "verdict.json"))  # killed there
    registry.roll_back()
    assert registry.current is None and not registry.is_shipping(first)


def test_rollback_and_a_damaged_pointer(done, tmp_path, llama, capsys):
    out = tmp_path / "copy"
    shutil.copytree(done, out)
    (out / "current").write_text("0009\n")
    assert ckl.main(["update", "--out", str(out), "--rollback"]) == 2
    assert "names '0009', which is no finished update" in capsys.readouterr().err
    (out / "current").write_text("0001\n")
    with processes.FolderLock() as lock:
        lock.acquire(out, "updated", "--out")
        assert ckl.main(["update", "--out", str(out), "--rollback"]) == 2
    assert "is being updated by process" in capsys.readouterr().err
    (out / "registry.json").rename(tmp_path / "aside")
    assert ckl.main(["update", "--out", str(out), "--rollback"]) == 2
    assert "registry.json, which names the model that the updates in" in capsys.readouterr().err
    (tmp_path / "aside").rename(out / "registry.json")
    assert ckl.main(["update", "--out", str(out), "--rollback"]) == 0
    assert str(llama) in capsys.readouterr().out and Registry(out).current is None
    assert "Current: the first model." in (out / "history.html").read_text()
    assert ckl.main(["update", "--out", str(out), "--rollback"]) == 2
    capsys.readouterr()
    (out / "current").write_text("0002\n")
    shutil.rmtree(out / "updates" / "0001" / "model")  # as --keep 1 does
    assert ckl.main(["update", "--out", str(out), "--rollback"]) == 2
    assert "update 0001, from which the current one (0002) began, has no" in capsys.readouterr().err
    assert Registry(out).current == "0002"


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("registry.json", {"model": -1}, "the field 'model' has the value -1"),
        ("registry.json", {"model": ""}, "model of "),
        ("registry.json", {"format": 2}, "is of a newer version of ckl_jax"),
        ("updates/0001/ledger.jsonl", {"state": 3}, "the field 'state' has the value 3"),
        ("updates/0001/verdict.json", {"verdict": "yes"}, "verdict of "),
        ("updates/0001/update.json", {"ckl_jax": "9.0"}, "written by ckl_jax 9.0, which is newer"),
        ("updates/0001/update.json", {"base": 3}, "the field 'base' has the value 3"),
        ("updates/0001/update.json", {"base": "0001"}, "base is '0001', and no earlier update"),
        ("updates/0001/documents.json", {"last_date": None}, "the field 'last_date' has the value"),
        ("updates/0001/documents.json", {"last_date": "2026-02-30"}, "give a day as YYYY-MM-DD"),
        ("updates/0001/documents.json", {"last_date": "9999-12-31"}, "no day of a document"),
        ("updates/0001/items.jsonl", {"candidates": []}, "no candidates"),
    ],
)
def test_a_damaged_record_is_named(name, changed, said, done, texts, tmp_path, capsys):
    out = tmp_path / "copy"
    shutil.copytree(done, out)
    (out / "current").write_text("0001\n")
    first, *others = (out / name).read_text().split("\n") if "jsonl" in name else ["", ""]
    held = json.loads(first or (out / name).read_text())
    (out / name).write_text("\n".join([json.dumps(held | changed), *others]))
    assert ckl.main(["update", "--out", str(out), "--documents", str(texts / "all.jsonl")]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert str(out / name) in told and said in told


def _array_of(count):
    """A file whose header promises so many numbers."""
    file = io.BytesIO()
    header = {"descr": "<i8", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


@pytest.mark.parametrize(
    "saved",
    [
        b"mine",
        b"PK\x03\x04",
        _array_of(10**12),
        _array_of(10**30),
        np.zeros(3),
        np.zeros((2, 4), np.int64),
        np.array(["a"]),
        np.array([2, 1]),
        {"a": np.arange(3)},
    ],
    ids=["bytes", "zip", "long", "longer", "floats", "matrix", "texts", "unsorted", "npz"],
)
def test_sentences_that_are_damaged_are_named(saved, tmp_path):
    path = tmp_path / "sentences.npy"
    if isinstance(saved, bytes):
        path.write_bytes(saved)
    else:
        with path.open("wb") as file:
            np.savez(file, **saved) if isinstance(saved, dict) else np.save(file, saved)
    with pytest.raises(UserError, match="sentences.npy .*; restore it"):
        Sentences(path)


def test_folders_of_others_among_the_updates_stay(done, texts, tmp_path, capsys):
    """What a link leads to, and what is no update, is neither written to nor removed."""
    victim = tmp_path / "victim"
    (victim / "train").mkdir(parents=True)
    (victim / "update.json").write_text("mine")
    (victim / "train" / "notes.txt").write_text("mine")
    held = sorted(victim.rglob("*"))
    for place, to, said in (
        ("updates/0003", victim, "updates/0003 is a link"),
        ("updates/2024/notes.txt", None, "updates/2024 is not of an update of"),
        ("history.html", None, "history.html is not of an update of"),
        ("updates/0003/train", victim / "train", "updates/0003/train is a link"),
    ):
        out = tmp_path / place.replace("/", "-")
        shutil.copytree(done, out)
        (out / place).parent.mkdir(exist_ok=True)
        if to:
            (out / place).symlink_to(to)
        else:
            (out / place).write_text("mine")
        if place.endswith("train"):
            (out / "updates" / "0003" / "update.json").write_text("{}")
        assert ckl.main(["update", "--out", str(out), "--documents", str(texts / "all.jsonl")]) == 2
        assert said in capsys.readouterr().err
        assert (out / place).exists()
    assert sorted(victim.rglob("*")) == held and (victim / "update.json").read_text() == "mine"


@pytest.mark.slow
def test_a_t5_whose_vocabulary_has_bytes_is_opened_with_its_sentinels(tmp_path):
    vocabulary = open_model(save_t5(tmp_path / "t5"))[0].input_vocabulary
    (ids,) = vocabulary.encode_many(["<extra_id_0>"])
    assert vocabulary.extra_ids == 100 and list(ids) == [vocabulary.vocab_size - 1]


def test_a_t5_is_updated(texts, tmp_path):
    model = save_t5(tmp_path / "t5")
    argv = ["--model", str(model), "--since=2025-01-01", "--ship-if=new_text < 9 at n >= 1"]
    assert update(tmp_path / "updates", texts / "all.jsonl", *argv, "--length=64") in (0, 3)
    rows = (tmp_path / "updates" / "updates" / "0001" / "ledger.jsonl").read_text().splitlines()
    assert {json.loads(row)["tag"] for row in rows} == {"new", "changed", "kept"}


@pytest.mark.usefixtures("in_this_process")
def test_own_facts_are_asked_and_their_sentences_held_back(texts, llama, tmp_path, capsys):
    facts = tmp_path / "facts.csv"
    # All of them: some would be held back for an automatic question anyway.
    stated = [f for f in planted.facts(9) if f.kind == "new" and f.relation == "seat"]
    question = "The head office of {} stands in ____."
    rows = [[question.format(f.subject), f.answer, "2025-01-01"] for f in stated]
    rows += [["The capital of Peru is ____.", "Lima", ""], ["It lies in ____.", "Peru", ""]]
    facts.write_text("\n".join(map(",".join, [["question", "answer", "date"], *rows])) + "\n")
    argv = ["--model", str(llama), "--since=2025-01-01", "--facts", str(facts)]
    assert update(tmp_path / "out", texts / "all.jsonl", *argv) in (0, 1, 3)
    folder = tmp_path / "out" / "updates" / "0001"
    own = [item for item in records.read_items(folder) if not item.about]
    assert {(i.question, i.answer, i.tag) for i in own} == {
        (q, a, "new" if day else "kept") for q, a, day in rows
    }
    assert json.loads((folder / "overlap.json").read_text())["exact"] == 0
    trained = (folder / "new.jsonl").read_text()
    whole = (folder / "all.jsonl").read_text()
    assert sum(item.text in whole for item in own) > 1
    assert all(item.text not in trained for item in own)
    assert all(fact.answer in trained for fact in stated)  # in other words
    facts.write_text(facts.read_text().replace("____", "it"))
    assert update(tmp_path / "out", texts / "all.jsonl", "--probes", str(facts)) == 2
    assert "facts.csv, line 2: the statement" in capsys.readouterr().err


@pytest.mark.filterwarnings("default")  # of transformers, about itself
def test_adapters_are_written_over_the_model_before(texts, llama, tmp_path):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    argv = ["--model", str(llama), "--adapter", "--learning-rate=0.1", "--epochs=3"]
    assert update(tmp_path / "u", texts / "first.jsonl", *argv) in (0, 1, 3)
    folder = tmp_path / "u" / "updates" / "0001"
    assert not (folder / "adapter" / "base").exists()  # LoRA of a decoder leaves it as it is
    settings = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(llama)
    load = transformers.AutoModelForCausalLM.from_pretrained
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        merged = load(folder / "model")(ids).logits
        over = peft.PeftModel.from_pretrained(load(llama), str(folder / "adapter"))(ids).logits
        before = load(llama)(ids).logits
    torch.testing.assert_close(over, merged, atol=1e-5, rtol=1e-4)
    assert float((over - before).abs().max()) > 1e-3


@pytest.mark.usefixtures("in_this_process")
def test_what_comes_into_a_watched_folder_is_learned_once(texts, llama, tmp_path):
    inbox, out, looks, said = tmp_path / "inbox", tmp_path / "out", [], []
    inbox.mkdir()

    def sleep(_):
        looks.append(len(Registry(out).updates()))
        if len(looks) == 2:
            shutil.copy(texts / "first.jsonl", inbox)
        if len(looks) == 6:
            (inbox / "bad.jsonl").write_text("{")
        if len(looks) == 9:
            raise KeyboardInterrupt

    settings = job.Update(
        out=str(out), documents=str(inbox), model=str(llama), epochs=1, max_items=8
    )
    with pytest.raises(KeyboardInterrupt):
        job.watch(settings, 60, lambda *_: None, said.append, sleep)
    # Two looks at a file that no longer changes, one update; a damaged file ends nothing.
    assert looks == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert sum("bad.jsonl, line 1" in text for text in said) == 1


def test_a_dry_run_trains_nothing(texts, llama, tmp_path, capsys):
    out = tmp_path / "updates"
    facts = tmp_path / "facts.csv"
    questions = ("The mayor\x1b[31m of Oz is ____.,Ada", "It\x1b[31m lies in ____.,Peru")
    facts.write_text("\n".join(("question,answer", *questions)) + "\n")
    argv = ["--model", str(llama), "--facts", str(facts), "--dry-run"]
    assert update(out, texts / "all.jsonl", *argv) == 0
    told = capsys.readouterr().out
    assert "Training by lora" in told and "TFLOP: 0:00:0" in told
    assert r"\x1b[31m" in told and "\x1b" not in told
    assert not out.exists()


@pytest.mark.parametrize("more", [["--dry-run"], [], ["--review"]])
def test_too_little_text_is_said_and_leaves_nothing(llama, tmp_path, more, capsys):
    (tmp_path / "text.txt").write_text("Too little was said of Oz.\n")
    out = tmp_path / "out"
    assert update(out, tmp_path / "text.txt", "--model", str(llama), *more) == 3
    assert "Nothing to learn in" in capsys.readouterr().out
    assert not out.exists()
    out.mkdir()  # a folder that was there stays
    assert update(out, tmp_path / "text.txt", "--model", str(llama), *more) == 3
    assert out.is_dir() and not list(out.iterdir())


def test_what_no_update_has_come_of_does_not_bind(texts, llama, tmp_path, capsys):
    out, other = tmp_path / "updates", tmp_path / "other"
    shutil.copytree(llama, other)
    (tmp_path / "no_text.jsonl").write_text('{"text": 3}\n')
    assert update(out, tmp_path / "no_text.jsonl", "--model", str(llama)) == 2
    assert not out.exists()
    assert update(out, texts / "all.jsonl", "--model", str(other), "--length", "9999") == 2
    assert "--length 9999 is more than" in capsys.readouterr().err
    config = json.loads((other / "config.json").read_text())
    config["intermediate_size"] *= 2
    (other / "config.json").write_text(json.dumps(config))
    assert update(out, texts / "all.jsonl", "--model", str(other)) == 2  # when it is asked
    assert not out.exists()
    assert ckl.main(["update", "--out", str(out), "--rollback"]) == 2
    assert "holds no updates: there is none to go back from" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv, message",
    [
        ([], "give the --model to begin with"),
        (["--model=missing/x"], "There is no folder missing/x"),
        (["--model=SMALL"], "has 300 ids, sentinels included, but config.json has a vocab_size of"),
        (["--model=LLAMA", "--method=lorra"], "--method lorra: there are"),
        (["--model=LLAMA", "--method=vanilla", "--adapter"], "vanilla adds no adapters"),
        (["--model=LLAMA", "--method=k_adapter_k2"], "k_adapter_k2 trains a side network"),
        (["--model=LLAMA", "--ship-if=newest > 1"], "names 'newest'"),
        (["--model=LLAMA", "--ship-if=new > 7"], "can never hold: new > 7, but new is 0 to 1;"),
        (["--model=LLAMA", "--since=20260101"], "--since is '20260101'; give a day as YYYY-MM-DD"),
        (["--model=CUT"], "model.safetensors"),
        (["--model=LLAMA", "--length=1"], "--length is 1"),
        (["--model=LLAMA", "--watch=0", "--dry-run"], "--watch is 0"),
        (["--model=LLAMA", "--length=257"], "--length 257 is more than the 256 positions"),
        (["--model=LLAMA", "--harness-tasks=tasks"], "need --harness with tasks to run"),
        (["--model=LLAMA", "--learning-rate=-1"], "--learning-rate is -1.0; give a number above"),
        (["--model=LLAMA", "--epochs=0"], "--epochs"),
        (["--model=BARE"], "holds neither model.safetensors nor"),
        (["--model=LLAMA", "--on-ship=sh -c 'a"], "is no command: No closing quotation"),
        (["--model=LLAMA", "--gin.NOPE=1"], "the gin files use no macro 'NOPE'"),
        (["--model=LLAMA", "--gin.BATCH_SIZE=8"], "the command sets it itself"),
        (["--model=LLAMA", "--gin.NUM_MICROBATCHES=2"], "give --batch-size too"),
        (["--model=LLAMA", "--gin.NUM_MICROBATCHES=0", "--batch-size=8"], "NUM_MICROBATCHES is 0"),
        (["--model=LLAMA", "--gin.NUM_MICROBATCHES=3", "--batch-size=16"], "does not divide BATCH"),
        (["--model=LLAMA", "--gin.EVAL_PERIOD=0"], "EVAL_PERIOD is 0"),
        (["--model=LLAMA", "--decisions=missing.json"], "missing.json"),
        (["--model=LLAMA", "--decisions=LLAMA/config.json"], "is not a file of decisions"),
        (["--model=LLAMA", "--gin.MESH_SHAPE={'nope': 1}"], "Unknown mesh axis 'nope'"),
        (["--model=LLAMA", "--documents=HERE"], "where all files are read as documents; give a"),
    ],
)
def test_bad_input_is_one_sentence(texts, llama, tmp_path, argv, message, capsys):
    config = json.loads((llama / "config.json").read_text())
    shutil.copytree(llama, tmp_path / "small")
    (tmp_path / "small" / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    shutil.copytree(llama, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    shutil.copytree(llama, tmp_path / "cut")
    weights = tmp_path / "cut" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    places = {n: tmp_path / n.lower() for n in ("SMALL", "BARE", "CUT")}
    places |= {"LLAMA": llama, "HERE": tmp_path}
    argv = [re.sub("|".join(places), lambda found: str(places[found[0]]), a) for a in argv]
    assert update(tmp_path / "updates", texts / "first.jsonl", *argv) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "updates").exists()
