"""Files that are broken on purpose: one sentence that names file and line, and no output."""

import contextlib
import functools
import gzip
import io
import json
import os
import re
import shutil
import tracemalloc
import zipfile

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sentencepiece import sentencepiece_model_pb2

from ckl_jax.cli import ckl, t5x
from ckl_jax.data.tasks.word_losses import read_dump
from ckl_jax.errors import UserError
from ckl_jax.files import write_jsonl
from tests.analysis.helpers import make_run

DOCUMENT = {"date": "2020-01-01", "title": "", "text": "A sentence."}
GOOD = json.dumps(DOCUMENT)
DEEP = "[" * 100_000 + "]" * 100_000
# A line of JSON, and what is said of it.
LINES = {
    "deep": (f'{{"text": {DEEP}}}', "too deep"),
    "digits": (f'{{"text": {"1" * 5000}}}', "a number of more than 4,300 digits"),
    "surrogate": (r'{"date": "2020-01-01", "text": "\ud83d"}', r"\ud83d is half of a surrogate"),
    "nan": ('{"date": "2020-01-01", "text": NaN}', "NaN is not a number"),
    "infinite": ('{"date": "2020-01-01", "text": 1e999}', "1e999 is too large"),
    "bytes": (b'{"text": "caf\xe9"}', "not UTF-8 (the byte 0xe9)"),
    "cut": ('{"text": "', "not JSON"),
    "twice": ('{"date": "2020-01-01", "text": "x", "text": "y"}', "'text' occurs 2 times"),
    "null": ('{"date": "2020-01-01", "title": "", "text": null}', "line 2"),
    "no text": ('{"date": "2020-01-01", "title": "", "text": 7}', "line 2"),
    "texts": ('{"date": "2020-01-01", "title": "", "text": ["A sentence."]}', "line 2"),
    "list": ("[1, 2]", "line 2: "),
    "number": ("7", "line 2: "),
    "long": (json.dumps({**DOCUMENT, "text": "x" * 400_000}), "longer than 300,000 bytes"),
}
# Commands that read lines, with the file in place of FILE.
COMMANDS = {
    "rows": "data rows --documents FILE --vocabulary VOCABULARY --out OUT --record-limit 300000",
    "clean": "data clean --documents FILE --out OUT/x.jsonl --record-limit 300000 "
    "--workers WORKERS",
    "split": "data split --documents FILE --out OUT --record-limit 300000",
    "vocabulary": "data vocabulary --documents FILE --out OUT/v.model --record-limit 300000",
    "dated": "data dated --documents FILE --vocabulary VOCABULARY --out OUT --record-limit 300000",
    "benchmark": "data benchmark --facts FILE --documents FILE --dates 2019-12-31 2020-12-31 "
    "--out OUT",
}


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
    words["WORKERS"] = "2" if kind == "cut" else "1"  # processes take seconds to start
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


@pytest.mark.parametrize(
    "head, what", [(b"PK\x03\x04", "a zip archive"), (b"\x28\xb5\x2f\xfd", "compressed by zstd")]
)
def test_an_archive_is_called_what_it_is(head, what, tmp_path, capsys):
    file = tmp_path / "in.jsonl"
    file.write_bytes(head + bytes(60))
    argv = ["data", "clean", "--documents", str(file), "--out", str(tmp_path / "x.jsonl")]
    assert f"in.jsonl is {what}, which is not read; unpack it" in refused(capsys, argv)


def test_a_bomb_of_empty_lines_is_refused_soon(tmp_path, capsys):
    file = tmp_path / "bomb.jsonl.gz"
    file.write_bytes(gzip.compress(b"\n" * (6 << 20)))
    argv = ["data", "vocabulary", "--documents", str(file), "--out", str(tmp_path / "v.model")]
    assert "bomb.jsonl.gz, line 4194305: over 4,194,304 bytes of empty" in refused(capsys, argv)


def test_a_line_of_a_table_without_end_takes_no_memory(tmp_path, capsys):
    corpus = tmp_path / "recent_news_full.csv"
    with gzip.open(corpus, "wb", compresslevel=1) as f:  # by content, not by its name
        f.write(b"input,output\na,b\nc,")
        for _ in range(64):
            f.write(b"x" * 2**20)
    argv = ["data", "prepare", "--dir", str(tmp_path), "--out", str(tmp_path / "out")]
    argv += ["--record-limit", "1000000"]
    with small_memory():
        err = refused(capsys, argv)
    assert "recent_news_full.csv, line 3: it is longer than 1,000,000 bytes" in err
    assert not [path for path in tmp_path.rglob("out/*") if path.is_file()]


def npy(array) -> bytes:
    """What `np.save` writes; a header alone may be given as (shape, dtype, content)."""
    f = io.BytesIO()
    if isinstance(array, np.ndarray):
        np.save(f, array)
    else:
        shape, dtype, content = array
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(f, header)
        f.write(content)
    return f.getvalue()


@contextlib.contextmanager
def small_memory():
    """A block in which Python and numpy hold less than 32 MiB more than before."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content, told",
    [
        (npy(((10**15,), "<f4", bytes(64))), "claims float32[1000000000000000] but has 64 bytes"),
        (npy(((2**24,), "<f4", bytes(64))), "claims float32[16777216] but has 64 bytes"),
        (npy(((10**18,), "<U0", b"")), "claims <U0[1000000000000000000] but has 0 bytes"),
        (npy(((1,), "|O", b"\x80\x04N.")), "holds pickled objects"),
        (npy(np.zeros(4)).replace(b"(4,), }", b"((((((("), "EOF in multi-line"),
        (b"no array", "the magic string is not correct"),
        (None, "expands to 300,000,128 bytes, over 100 times its size"),
    ],
)
def test_an_archive_that_claims_too_much_is_not_read(content, told, tmp_path, capsys):
    """As weights and as a dump of word losses."""
    dump = tmp_path / "dump"
    dump.mkdir()
    (dump / "dump.json").write_text('{"format": 2}')
    path = dump / "2020-01-000000000.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("ids.npy", "w") as f:
            f.write(content or npy(((3 * 10**8,), "|u1", b"")))
            for _ in range(0 if content else 300):
                f.write(bytes(10**6))
    argv = ["import-haiku", "--weights", str(path), "--heads", "2", "--out", str(tmp_path / "out")]
    with small_memory():
        assert told in refused(capsys, argv)
        with pytest.raises(UserError, match=f"damaged .*{re.escape(told)}"):
            list(read_dump(dump))
    assert not (tmp_path / "out").exists()


# A command, and the one of its inputs that is a pipe. In capitals: what the command reads.
PIPES = [
    ("data clean --documents DOCUMENTS --out OUT/c.jsonl", "DOCUMENTS"),
    ("data rows --documents DOCUMENTS --vocabulary VOCABULARY --out OUT", "VOCABULARY"),
    (
        "data benchmark --facts CKL/facts.jsonl --dates 2019-06-01 2020-01-01 --out OUT",
        "CKL/facts.jsonl",
    ),
    ("data review CKL --out OUT/r.html", "CKL/invariantLAMA.csv"),
    ("import-hf --model HF --out OUT", "HF/model.safetensors"),
    ("import-hf --model HF --out OUT", "HF/tokenizer.json"),
    ("export-hf --model RUN --like HF/config.json --out OUT", "HF/config.json"),
    ("probe bear --model RUN --dataset QUIZ --out OUT", "RUN/vocabulary.json"),
    ("probe bear --model RUN --dataset QUIZ --out OUT", "RUN/config.gin"),
]


@pytest.mark.parametrize("command, file", PIPES)
def test_a_pipe_is_refused(command, file, tiny, golden, tmp_path, capsys):
    """One that nobody writes to, which would be waited for for ever."""
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    sources = {"HF": golden / "model", "RUN": tiny.root / "initial", "CKL": tiny.probes}
    sources |= {"VOCABULARY": vocabulary, "QUIZ": golden / "dataset"}
    documents, out = tmp_path / "DOCUMENTS", tmp_path / "out"
    documents.write_text(GOOD)
    for name, path in sources.items():
        if name in command:
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, tmp_path / name)
    pipe = tmp_path / file
    pipe.unlink()
    os.mkfifo(pipe)
    names = "|".join((*sources, "DOCUMENTS"))
    argv = re.sub(rf"\b({names})\b", rf"{tmp_path}/\1", command).replace("OUT", str(out))
    err = refused(capsys, argv.split())
    assert f"Cannot read {pipe}: it is a pipe or a device; write it to a file first" in err
    assert not [path for path in out.rglob("*") if path.is_file()]


def of_type(dtype, weights):
    name = next(name for name in weights if name.endswith("ln_f.weight"))
    weights[name] = weights[name].astype(dtype)


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"n_head": 0}, "n_head of config.json is 0; give 1 or more"),
        ({"tie_word_embeddings": -1}, "tie_word_embeddings of config.json is -1; give True or"),
        ({"n_layer": 10**9}, "has 28 arrays, too few for the 1,000,000,000 layers"),
        (
            {"layer_norm_epsilon": "nan"},
            "layer_norm_epsilon of config.json is 'nan'; give a",
        ),
        (
            {"layer_norm_epsilon": 10**30},
            "layer_norm_epsilon 1000000000000000000000000000000; give",
        ),
        ({"layer_norm_epsilon": 10**400}, "config.json"),
        ({"layer_norm_epsilon": None}, "layer_norm_epsilon of config.json is null; give a finite"),
        ({"initializer_range": "nan"}, "initializer_range of config.json is 'nan'; give a finite"),
        ({"attn_pdrop": "x"}, "attn_pdrop of config.json is 'x'; give a number in [0, 1)"),
        ({"bos_token_id": -5}, "bos_token_id of config.json is -5; give -1 or more"),
        (
            {"eos_token_id": [1, 10**9]},
            "eos_token_id of config.json is 1000000000; give 999,999",
        ),
        ({"vocab_size": 10**30}, "is 1000000000000000000000000000000; give 2,147,483,647 or less"),
        ({"n_embd": True}, "n_embd of config.json is True; give a whole number"),
        ({"model_type": ["gpt2"]}, "model_type"),
        *[
            (functools.partial(of_type, t), f"as {t}: only floating-point weights can be imported")
            for t in ("int32", "complex64")
        ],
        ("--vocab-size=99999999999999", "give at most 1,000,000 more"),
        (f"--vocab-size={'9' * 30}", "give a number of at most 18 digits"),
        (f"--vocab-size={'9_' * 30}9", "--vocab-size is 9999999999"),
        ("--vocab-size=" + "\N{FULLWIDTH DIGIT NINE}" * 30, "--vocab-size is 9999999999"),
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
        try:
            save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
        except SafetensorError:
            pytest.skip("this version of safetensors writes no complex numbers")
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


def test_a_sentence_that_quotes_several_lines_has_one():
    """Such as a cell of CSV whose quote is never closed."""
    assert str(UserError("'a,\r\n  b' is no day.")) == "'a, b' is no day."


def test_an_empty_file_of_documents_is_named(tiny, tmp_path, capsys):
    (tmp_path / "empty.jsonl").write_text("")
    vocabulary = tiny.root / "world" / "prepared" / "vocabulary.model"
    argv = ["data", "dated", "--documents", str(tmp_path / "empty.jsonl"), "--out"]
    err = refused(capsys, [*argv, str(tmp_path / "out"), "--vocabulary", str(vocabulary)])
    assert "no document of " in err and "empty.jsonl has a word" in err


@pytest.mark.parametrize(
    "options, told",
    [
        ("data clean --documents DOCUMENTS --width 65", "width is 65; give 64 or less"),
        ("data clean --documents DOCUMENTS --permutations 999999999999 --bands 1", "give 4,096 or"),
        ("data clean --documents DOCUMENTS --workers 999999999999", "give 4,096 or less"),
        ("probe bear --model HF --batch-size 99999999999", "--batch-size is 99999999999; give"),
        ("ask --model a=HF --questions DOCUMENTS --batch-size 99999999999", "give 65,536 or less"),
        ("staleness --model a=HF --documents DOCUMENTS --batch-size 99999999999", "give 65,536"),
        (
            "data probes --old DOCUMENTS --new DOCUMENTS --wikipedia DUMP --diffset x "
            "--subject-cap nan",
            "(0, 1]",
        ),
    ],
)
def test_sizes_that_no_memory_holds(options, told, golden, tmp_path, capsys):
    months = ({**DOCUMENT, "date": f"2020-0{m}-01"} for m in range(1, 5))
    write_jsonl(tmp_path / "d.jsonl", months)
    dump = tmp_path / "simwiki-20200601-pages-articles.xml"
    dump.write_text("<mediawiki>")
    options = options.replace("HF", str(golden / "model")).replace("DUMP", str(dump))
    argv = options.replace("DOCUMENTS", str(tmp_path / "d.jsonl")).split()
    assert told in refused(capsys, [*argv, "--out", str(tmp_path / "out" / "x")])
    assert not (tmp_path / "out").exists()


def _something_else(path, kind):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path.name, "dangling": "nowhere"}[kind])


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop", "dangling"])
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("data review CKL --out OUT", "invariantLAMA.csv"),
        ("data review CKL --out OUT", "evidence.jsonl"),
        ("data prepare --dir CKL --out OUT", "recent_news_full.csv"),
        ("data overlap CKL", "recentlama_val_answers.json"),
    ],
)
def test_what_is_no_file_does_not_count_as_absent(command, name, kind, tiny, tmp_path, capsys):
    folder = shutil.copytree(tiny.probes, tmp_path / "ckl")
    (folder / name).unlink(missing_ok=True)
    _something_else(folder / name, kind)
    command = command.replace("CKL", str(folder)).replace("OUT", str(tmp_path / "out"))
    assert name in refused(capsys, command.split())
    assert not list(tmp_path.glob("out/tasks/*"))


def test_a_text_without_end_takes_no_memory(tiny, tmp_path, capsys):
    """Of many short lines, which are one document."""
    with gzip.open(tmp_path / "bomb.txt.gz", "wb", compresslevel=1) as f:
        for _ in range(64):
            f.write((b"a" * 2**14 + b"\n") * 64)
    facts = str(tiny.probes / "facts.jsonl")
    argv = ["data", "snapshots", "--documents", str(tmp_path), "--facts", facts, "--out"]
    told = "bomb.txt.gz, the whole text: it is longer than 16,777,216 bytes"
    tracemalloc.start()
    assert told in refused(capsys, [*argv, str(tmp_path / "out")])
    assert tracemalloc.get_traced_memory()[1] < 2**27
    tracemalloc.stop()


def change(value, *path, gone=False):
    """A function that sets, or removes, a place in a row."""

    def spoil(row):
        for name in path[:-1]:
            row = row[name]
        if gone:
            del row[path[-1]]
        else:
            row[path[-1]] = value

    return spoil


@pytest.mark.parametrize(
    "file, spoil, told",
    [
        ("P1_results.jsonl", change({"a": 1}, "pll_scores", 0), "'pll_scores' are not numbers"),
        ("P1_results.jsonl", change([1.0], "pll_scores"), "rows have [1, 5] scores"),
        ("P1_results.jsonl", change(99, "answer_idx"), "'pll_scores' are not numbers, one for"),
        ("P1_results.jsonl", change(True, "answer_idx"), "'answer_idx' has the value True; score"),
        ("P1_results.jsonl", change(True, "pll_scores", 0), "'pll_scores' are not numbers"),
        ("P1_results.jsonl", change("0", "template_index"), "'template_index' has the value '0'"),
        ("P1_results.jsonl", change(0, "sub_label", gone=True), "'sub_label' is missing; score"),
        ("P1_results.jsonl", change(0, "sub_id", gone=True), "(KeyError: 'sub_id')"),
        ("P1_results.jsonl", change([[]], "sub_id"), "'sub_id' has the value [[]]; score"),
        ("P1_results.jsonl", change(None, "template_index"), "'template_index' has the value None"),
        ("P1_results.jsonl", change(None, "instance_index"), "'instance_index' has the value None"),
        ("P1_results.jsonl", change(0, "instance_index", gone=True), "only some rows have 'inst"),
        ("P1_results.jsonl", change([[1.0]] * 5, "pll_scores"), "only some rows have scores of t"),
        ("metadata_results.json", change(0, "P1", "answer_space_labels", gone=True), "lacks the"),
        ("metadata_results.json", change(None, "P1", "answer_space_labels"), "lacks the 'answer"),
        ("metadata_results.json", change(7, "P1"), "P1: 7 is not a JSON object"),
        ("metadata_results.json", change([7], "P1", "templates"), "'templates' has the value [7]"),
        ("metadata_results.json", change(["a"], "P1", "answer_space_labels"), "rows have [1, 5]"),
        (
            "metadata_results.json",
            change({"domains": [[]]}, "P1", "relation_info"),
            "'domains' of P1",
        ),
    ],
)
def test_results_of_others_are_checked(file, spoil, told, golden, tmp_path, capsys):
    results = tmp_path / "results"
    shutil.copytree(golden / "results" / "sum", results)
    content = (results / file).read_text()
    lines = content.splitlines() if file.endswith(".jsonl") else [content]
    row = json.loads(lines[0])
    spoil(row)
    (results / file).write_text("\n".join([json.dumps(row), *lines[1:]]))
    argv = ["probe", "compare", f"a={results}", f"b={results}", "--out", str(tmp_path / "out")]
    assert told in refused(capsys, argv)


def test_a_sentence_begins_a_line_of_its_own(tiny, tmp_path, capsys):
    """Also after rows of other files were counted; --json sends that to standard error too."""
    folder = shutil.copytree(tiny.probes, tmp_path / "ckl")
    (small,) = folder.rglob("recent_news_small1.csv")
    small.write_bytes(small.read_bytes()[:200] + b"\xd6\n")
    argv = ["data", "prepare", "--vocab-size", "400", "--dir", str(folder), "--json", "--out"]
    assert ckl.main([*argv, str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.rpartition("\n")[0].split("\n")[-1].startswith("ckl: ")


def test_text_that_is_not_utf8_is_named(tiny, tmp_path, capsys):
    model = sentencepiece_model_pb2.ModelProto.FromString(
        (tiny.root / "world" / "prepared" / "vocabulary.model").read_bytes()
    )
    (token := model.pieces[50]).piece = "%%%%"
    damaged = model.SerializeToString().replace(token.piece.encode(), b"%\xcd%%")
    (tmp_path / "v.model").write_bytes(damaged)
    (tmp_path / "d.jsonl").write_text(GOOD)
    files = ["--documents", str(tmp_path / "d.jsonl"), "--vocabulary", str(tmp_path / "v.model")]
    told = refused(capsys, ["data", "dated", *files, "--out", str(tmp_path / "out")])
    assert "v.model is damaged: a token of it is not UTF-8" in told
    run = make_run(tmp_path, "initial")
    (run / "config.gin").write_bytes(b"A = 1\n\xcd")
    told = refused(capsys, ["report", str(run), "--out", str(tmp_path / "out")])
    assert "config.gin, line 2: not UTF-8" in told


def test_values_of_other_types_and_headers_are_named(golden, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    results = str(golden / "results" / "sum")
    told = refused(capsys, ["probe", "compare", results, "--bias", f"{tmp_path}/x", *out])
    assert f"{tmp_path}/x" in told
    for losses in (-1, {"all": ""}):
        write_jsonl(tmp_path / "run" / "proper_nouns" / "rows_000003.jsonl", [{"losses": losses}])
        told = refused(capsys, ["proper-nouns", f"{tmp_path}/run", "--initial", f"{tmp_path}/run"])
        assert "rows_000003.jsonl: a row has no losses" in told
    texts = (f"The old mayor of town {i} met the {i} farmers of river {i}." for i in range(30))
    write_jsonl(tmp_path / "d.jsonl", ({**DOCUMENT, "text": text} for text in texts))
    model = shutil.copytree(golden / "model", tmp_path / "model")
    (model / "model.safetensors").write_bytes(b"\xff" * 99)
    files = ["--documents", str(tmp_path / "d.jsonl"), "--model", str(model)]
    told = refused(capsys, ["update", "--dry-run", *files, *out])
    assert "model.safetensors cannot be read as safetensors" in told
    run = make_run(tmp_path, "initial")
    (run / "summary.json").write_text('{"steps": null}')
    assert ckl.main(["ledger", str(run), "--initial", str(run)]) == 0


@pytest.mark.parametrize("file", ["metadata/metadata", "state/_METADATA"])
def test_a_checkpoint_with_a_pipe_is_refused(file, tiny, golden, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(tiny.root / "initial", run)
    (pipe := next(run.glob(f"checkpoint_*/{file}"))).unlink()
    os.mkfifo(pipe)
    argv = ["average", str(run), str(run), "--out", str(tmp_path / "out")]
    assert f"Cannot read {pipe}: it is a pipe" in refused(capsys, argv)


@pytest.mark.parametrize("sums", [[], {"target/decoder/decoder_norm/scale": None}])
def test_checksums_that_are_none_are_damage(sums, tiny, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(tiny.root / "initial", run)
    path = next(run.glob("checkpoint_*/metadata/metadata"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "sha256": sums}))
    argv = ["average", str(run), str(run), "--out", str(tmp_path / "out")]
    assert "is damaged: its file metadata/metadata: the field 'sha256'" in refused(capsys, argv)


def test_deep_values_of_a_gin_file_are_named_with_their_line(tmp_path, capsys):
    file = tmp_path / "deep.gin"
    file.write_text("# brackets (\nEPOCHS = 1\nLEARNING_RATE = " + "[" * 3000 + "]" * 3000 + "\n")
    assert t5x.main(["train", "--gin_file=ckl_vanilla.gin", f"--gin_file={file}"]) == 2
    err = capsys.readouterr().err
    assert "deep.gin, line 3: brackets nest too deep" in err and err.count("\n") == 1
