"""Files that are broken on purpose: one sentence that names file and line, and no output."""

import gzip
import json
import os
import shutil
import threading

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from ckl_jax.cli import ckl
from tests.parity.ranked import unpack

DOCUMENT = {"date": "2020-01-01", "title": "", "text": "A sentence."}
GOOD = json.dumps(DOCUMENT)
DEEP = "[" * 100_000 + "]" * 100_000
# A line of JSON, and what is said of it.
LINES = {
    "deep": (f'{{"text": {DEEP}}}', "too deep"),
    "digits": (f'{{"text": {"1" * 5000}}}', "a number of more than 4,300 digits"),
    "surrogate": (r'{"date": "2020-01-01", "text": "\ud83d"}', r"\ud83d is half of a surrogate"),
    "nan": ('{"date": "2020-01-01", "text": NaN}', "NaN is not a number"),
    "bytes": (b'{"text": "caf\xe9"}', "not UTF-8 (the byte 0xe9)"),
    "cut": ('{"text": "', "not JSON"),
    "list": ("[1, 2]", "line 2: "),
    "number": ("7", "line 2: "),
    "long": (json.dumps({**DOCUMENT, "text": "x" * 400_000}), "longer than 300,000 bytes"),
}
# Commands that read lines, with the file in place of FILE.
COMMANDS = {
    "rows": "data rows --documents FILE --vocabulary VOCABULARY --out OUT --record-limit 300000",
    "clean": "data clean --documents FILE --out OUT/x.jsonl --record-limit 300000",
    "split": "data split --documents FILE --out OUT --record-limit 300000",
    "vocabulary": "data vocabulary --documents FILE --out OUT/v.model --record-limit 300000",
    "dated": "data dated --documents FILE --vocabulary VOCABULARY --out OUT --record-limit 300000",
    "benchmark": "data benchmark --facts FILE --documents FILE --dates 2019-12-31 2020-12-31 "
    "--out OUT",
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return unpack("lm_pub_quiz.zip", tmp_path_factory.mktemp("golden"))


def refused(capsys, argv):
    """The one line that a command ends with."""
    assert ckl.main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "Traceback" not in err and len(err) < 2000, err
    return err


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_broken_line_is_named(command, kind, tiny, tmp_path, capsys):
    line, told = LINES[kind]
    if (command, kind) in (("benchmark", "long"), ("clean", "surrogate")):
        return  # it takes longer lines; it cleans such text
    file, out = tmp_path / "in.jsonl", tmp_path / "out"
    file.write_bytes(b"\n".join([GOOD.encode(), line.encode() if isinstance(line, str) else line]))
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    words = {"FILE": str(file), "OUT": str(out), "VOCABULARY": str(vocabulary)}
    argv = [words.get(w, w.replace("OUT/", f"{out}/")) for w in COMMANDS[command].split()]
    err = refused(capsys, argv)
    assert "in.jsonl, line " in err
    if command != "benchmark":  # which wants other fields than the first line has
        assert told in err and "line 2" in err
    assert not [path for path in out.rglob("*") if path.is_file()]


def test_a_compressed_line_without_end_takes_no_memory(tmp_path, capsys):
    file = tmp_path / "bomb.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=9) as f:
        for _ in range(40):
            f.write(b"x" * 2**20)
    argv = ["data", "split", "--documents", str(file), "--out", str(tmp_path / "out")]
    assert "bomb.jsonl.gz, line 1: it is longer than 16,777,216 bytes" in refused(capsys, argv)


def test_a_pipe_is_refused(tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(GOOD,))
    writer.start()
    argv = ["data", "clean", "--documents", str(pipe), "--out", str(tmp_path / "out.jsonl")]
    assert "pipe: it is a pipe, which is read once only" in refused(capsys, argv)
    writer.join()


def integers(weights):
    name = next(name for name in weights if name.endswith("ln_f.weight"))
    weights[name] = weights[name].astype(np.int32)


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"n_head": 0}, "n_head of config.json is 0; give 1 or more"),
        ({"n_layer": 10**9}, "has 28 arrays, too few for the 1,000,000,000 layers"),
        ({"layer_norm_epsilon": "nan"}, "layer_norm_epsilon is 'nan'; give a finite number"),
        ({"vocab_size": 10**30}, "is 1000000000000000000000000000000; give 2,147,483,647 or less"),
        ({"n_embd": True}, "n_embd of config.json is True; give a whole number"),
        ({"model_type": ["gpt2"]}, "model_type"),
        (integers, "as int32: only floating-point weights can be imported"),
        ("--vocab-size=99999999999999", "give at most 1,000,000 more"),
        (f"--vocab-size={'9' * 30}", "give a number of at most 18 digits"),
        (f"--vocab-size={'9' * 6000}", "--vocab-size is '99999"),
    ],
)
def test_a_model_that_cannot_be(changed, told, golden, tmp_path, capsys):
    model, more = tmp_path / "model", []
    shutil.copytree(golden / "model", model)
    if isinstance(changed, str):
        more = [changed]
    elif isinstance(changed, dict):
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | changed))
    else:
        weights = load_file(model / "model.safetensors")
        changed(weights)
        save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    argv = ["import-hf", "--model", str(model), "--out", str(tmp_path / "out"), *more]
    assert told in refused(capsys, argv)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--test-period", "--validation-months", "--per-month"])
@pytest.mark.parametrize("digits", [30, 6000])
def test_numbers_of_many_digits(option, digits, tmp_path, capsys):
    file = tmp_path / "in.jsonl"
    file.write_text(GOOD)
    argv = ["data", "split", "--documents", str(file), "--out", str(tmp_path / "out")]
    assert option in refused(capsys, [*argv, option, "9" * digits])


@pytest.mark.parametrize("put", [os.mkdir, lambda path: os.symlink(path, path)])
def test_what_lies_in_place_of_a_probe_is_named(put, tiny, tmp_path, capsys):
    shutil.copytree(tiny.probes, tmp_path / "ckl")
    (tmp_path / "ckl" / "invariantLAMA.csv").unlink()
    put(tmp_path / "ckl" / "invariantLAMA.csv")
    argv = ["data", "review", str(tmp_path / "ckl")]
    assert "invariantLAMA.csv" in refused(capsys, argv)


def test_an_empty_file_of_documents_is_named(tiny, tmp_path, capsys):
    (tmp_path / "empty.jsonl").write_text("")
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    argv = ["data", "dated", "--documents", str(tmp_path / "empty.jsonl"), "--out"]
    err = refused(capsys, [*argv, str(tmp_path / "out"), "--vocabulary", str(vocabulary)])
    assert "no document of " in err and "empty.jsonl has a word" in err


# What writes to --out, in a few words that are enough to get there, and the name of a file that it
# would write. In capitals: files.
WRITERS = {
    "world --size tiny --out OUT": "notes.txt",
    "data kilt --size tiny --out OUT": "nq-dev-kilt.jsonl",
    "data dumps --size tiny --months 2 --out OUT": "notes.txt",
    "data dumps --size tiny --months 2 --out OUT --dry-run": "notes.txt",
    "data quiz --size tiny --out OUT": "P19.jsonl",
    "data stream --size tiny --out OUT/s.jsonl": "s.jsonl",
    "data questions --size tiny --out OUT/q.jsonl": "q.jsonl",
    "data clean --documents DOCUMENTS --out OUT/c.jsonl": "c.jsonl",
    "data vocabulary --documents DOCUMENTS --out OUT/v.model": "v.model",
    "data trex --facts DOCUMENTS --invariant CKL/invariantLAMA.csv --out OUT/t.csv": "t.csv",
    "data benchmark --facts CKL/facts.jsonl --dates 2019-06-01 2020-01-01 --out OUT": "notes.txt",
    "import-hf --model HF --out OUT": "model.gin",
    "export-hf --model RUN --like HF/config.json --out OUT": "config.json",
    "average RUN RUN --out OUT": "checkpoint_0/notes.txt",
    "report RUN --out OUT": "report.html",
    "report RUN/.. --out OUT": "table.json",
    "report RUN RUN --seeds --out OUT": "seeds.md",
    "drift --model a=RUN --control RUN --out OUT": "results.json",
    "data review CKL --out OUT/r.html": "r.html",
}


@pytest.mark.parametrize("command", WRITERS)
def test_what_others_have_made_stays(command, tiny, golden, tmp_path, capsys):
    """Every command leaves a file that is not its own as it is, byte for byte."""
    out, documents = tmp_path / "out", tmp_path / "documents.jsonl"
    foreign = out / WRITERS[command]
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    documents.write_text(GOOD)
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    places = {"OUT": out, "DOCUMENTS": documents, "VOCABULARY": vocabulary, "CKL": tiny.probes}
    places |= {"HF": golden / "model", "RUN": tiny.root / "initial"}
    for name, path in places.items():
        command = command.replace(name, str(path))
    assert "out" in refused(capsys, command.split())
    held = [path for path in out.rglob("*") if path.is_file()]
    assert held == [foreign] and foreign.read_text() == "mine"
