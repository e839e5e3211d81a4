"""Any options and any files: a command does the same twice, or ends with one sentence.

What options are given is drawn by their types in the signatures of the commands, files are damaged
copies of good ones, and macros are those of the bundled gin files.
"""

import bz2
import contextlib
import csv
import dataclasses
import datetime
import gzip
import io
import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import tempfile
import time
import types
import typing
import xml.dom.minidom
import zlib
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import sentencepiece
import tensorstore
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from tyro.conf import Positional

from ckl_jax.checkpoints import peft
from ckl_jax.checkpoints.hf_names import config_to_hf
from ckl_jax.cli import ckl, t5x
from ckl_jax.config import gin_config
from ckl_jax.errors import UserError
from ckl_jax.files import read_jsonl, write_json, write_jsonl
from ckl_jax.papers.ckl import simulated
from ckl_jax.train import studies, train
from ckl_jax.train.prepare import Prepared
from ckl_jax.train.restore import RestoredModel
from ckl_jax.trees import paths
from ckl_jax.updates import training
from tests.analysis.helpers import make_demo, undrawn
from tests.checkpoints import test_peft_fused as adapters
from tests.mutated import parts
from tests.papers.mind_the_gap.analysis.dumps import write_scored
from tests.papers.temporalwiki.analysis import test_text_losses as nouns
from tests.papers.temporalwiki.analysis.temporalwiki_study import INTERVALS, write_study
from tests.parity.ranked import GOLDEN, unpack
from tests.tiny import ROOT

SECONDS = 60  # more is a runaway
# A line of each command that ends with 0. In capitals: OUT, and names of PLACES. What trains is
# left once its settings are checked: demo, mind-the-gap and stream at the first step of the study,
# experiment, update and temporalwiki by --dry-run.
BASES = {
    "demo": "--size tiny --out OUT",
    "experiment": "ckl/table3 --size tiny --dry-run --out OUT",
    "update": "--documents DOCUMENTS --model HF --dry-run --out OUT",
    "temporalwiki": "--snapshots DUMPS --size tiny --dry-run --out OUT",
    "mind-the-gap": "--size tiny --out OUT",
    "stream": "--size tiny --out OUT",
    "data prepare": "--dir CKL --vocab-size 400 --out OUT",
    "data rows": "--documents DOCUMENTS --vocabulary VOCABULARY --length 16 --out OUT",
    "data stream": "--size tiny --out OUT/s.jsonl",
    "data clean": "--documents DOCUMENTS --language-id none --workers 1 --out OUT/c.jsonl",
    "data split": "--documents DOCUMENTS --unit month --test-period 3 --validation-months 1 "
    "--out OUT",
    "data vocabulary": "--documents DOCUMENTS --vocab-size 300 --out OUT/v.model",
    "data dated": "--documents DOCUMENTS --vocabulary VOCABULARY --out OUT",
    "data diffsets": "--old OLD --new NEW --workers 1 --out OUT",
    "data nondiffset": "--snapshot SNAPSHOT --diffset DIFFSET --out OUT/n.jsonl",
    "data probes": "--old OLD_ITEMS --new NEW_ITEMS --wikipedia NEW --diffset DIFFSET --workers 1 "
    "--out OUT",
    "data dumps": "--size tiny --months 2 --out OUT",
    "data snapshots": "--documents DOCUMENTS --facts FACTS --dates 2018-06-01,2019-06-01 --out OUT",
    "data offices": "--wikidata OLD_ITEMS --out OUT/o.csv",
    "data quiz": "--size tiny --out OUT",
    "data dated-quiz": "--facts FACTS --as-of 2019-06-01 --out OUT",
    "data overlap": "--documents DOCUMENTS --dataset DATASET",
    "data kilt": "--size tiny --out OUT",
    "data benchmark": "--facts FACTS --dates 2019-06-01 2020-01-01 --templates TEMPLATES --out OUT",
    "data review": "CKL --out OUT/r.html",
    "data trex": "--facts TREX --invariant CSV --out OUT/t.csv",
    "data questions": "--size tiny --out OUT/q.jsonl",
    "world": "--size tiny --out OUT",
    "import-hf": "--model HF --out OUT",
    "import-haiku": "--weights HAIKU --heads 2 --out OUT",
    "export-hf": "--model BASE --like LIKE --out OUT",
    "import-peft": "--adapter PEFT --model BASE --like LIKE --out OUT",
    "export-peft": "--model LORA --like LIKE --out OUT",
    "average": "BASE BASE --out OUT",
    "probe bear": "--model HF --dataset DATASET --out OUT",
    "probe checkpoints": "--model a=HF --model b=HF --dataset DATASET --out OUT",
    "probe fill": "--model BERT --dataset FILLED --out OUT",
    "probe compare": "a=RESULTS b=RESULTS --out OUT",
    "report": "INITIAL TRAINED --out OUT",
    "ledger": "TRAINED --initial INITIAL",
    "proper-nouns": "NOUNS --initial NOUNS --out OUT",
    "promote": "--model UPDATED --relative-to LAST --if 'unchanged <= 9 at n >= 1'",
    "staleness": "--model a=STALE --control CONTROL --bootstrap 20 --out OUT",
    "ask": "--model a=HF --questions QUESTIONS --length 48 --out OUT",
    "claims": "STUDY --samples 100 --out OUT",
    "overlap": "CKL",
}
WIKI = "dumps/simwiki-20200{}01-pages-articles-multistream.xml.bz2"
PLACES = {
    **{"DOCUMENTS": "documents.jsonl", "VOCABULARY": "vocabulary.model", "CKL": "ckl"},
    **{"FACTS": "ckl/facts.jsonl", "TEMPLATES": "templates.jsonl", "TREX": "P19.jsonl"},
    **{"CSV": "il.csv", "QUESTIONS": "questions.jsonl", "HAIKU": "haiku.npz", "HF": "golden/model"},
    **{"DATASET": "golden/dataset", "RESULTS": "golden/results/sum", "BERT": "masked/bert"},
    **{"FILLED": "masked/dataset", "DUMPS": "dumps", "OLD": WIKI.format(5), "NEW": WIKI.format(6)},
    **{
        f"{name}_ITEMS": f"dumps/wikidata-20200{n}01-all.json.gz"
        for name, n in (("OLD", 5), ("NEW", 6))
    },
    **{"DIFFSET": "diffset", "SNAPSHOT": "whole/wikipedia_20200601.jsonl", "LORA": "lora"},
    **{"BASE": "base", "PEFT": "peft", "LIKE": "config.json", "INITIAL": "demo/initial"},
    **{"TRAINED": "demo/lora", "NOUNS": "nouns", "STUDY": "study", "LAST": "study/initial"},
    **{"UPDATED": f"study/{INTERVALS[1]}/vanilla", "STALE": "stale", "CONTROL": "control"},
}
# Fields that must be texts, of the files of which each command reads every line.
TEXTS = {
    **{"DOCUMENTS": ("date", "text"), "QUESTIONS": ("id", "question")},
    **{"FACTS": ("subject_name", "relation", "object_name"), "TREX": ("sub_label", "obj_label")},
}
UNDRAWN = {  # options, and why
    **{"--size": "other sizes take minutes", "--workers": "thousands of processes are legal"},
    **{"--beam": "a pipeline takes seconds to start", "--watch": "it never ends"},
    "--out": "two folders are compared",
}
NONSENSE = (  # no number, date, name, or even word
    *("", "x", "1.5", "nan", "-inf", "1e999", "9" * 30, "9" * 6000, "None", "True", ",", "a,b"),
    *("0,1", "=", "a=b", "%s", "{}", "\udcff", "é" * 300, "2020-13-45", "--", "-", "--nope", "'"),
)
INTS = (0, 1, -1, 2, 7, 99, 4096, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 10**17, 10**30)
JSON = (None, True, 0, -1, 1.5, 1e300, 2**70, "", "x", [], ["x"], {}, {"x": []})
DEEP, DIGITS = "[" * 100_000, '{"a": ' + "9" * 5000 + "}"
OTHERS = (
    *(lambda path: None, Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path)),
    *(lambda path: path.write_text(DEEP), lambda path: path.write_text(DIGITS)),
)
# What differs from run to run.
TIMES = re.compile(rb'\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*|"\w*(seconds|time)\w*": ?[\d.e-]+')
# What gin macros are set to: other types, no numbers, numbers of any size, no values at all.
VALUES = (
    *("'x'", "''", "", "0", "-1", "1", "2.5", "1e30", "-1e-30", "1e999", "nan", "9" * 30),
    *("9" * 6000, "None", "True", "[]", "[1, 'x']", "('x',)", "()", "{}", "{'x': None}", "(" * 200),
    *("@nothing", "@train.train()", "%NOTHING", "x", "'%s{}'", "{'inputs': -1, 'targets': 1e30}"),
    *("'\\0'", "'/proc/x'", "b'x'", "1j", "..."),
)


class Runaway(BaseException):
    """A command takes too long. No `Exception`: commands turn these into sentences."""


class Stopped(BaseException):
    """Raised where a command has checked its settings and would train."""


def stop(*given, **more):
    raise Stopped


@pytest.fixture(scope="module")
def world(tiny, tmp_path_factory):
    """{name: path} of what commands read."""
    root = tmp_path_factory.mktemp("files")
    unpack("lm_pub_quiz.zip", root / "golden"), unpack("lm_pub_quiz_masked.zip", root / "masked")
    shutil.copytree(tiny.probes, root / "ckl")
    shutil.copy(tiny.root / "world" / "prepared" / "vocabulary.model", root)
    row = '{{"id": "{0}", "date": "20{1}-{2:02}-15", "title": "", "text": "Text {0} of X{3}."}}\n'
    lines = (row.format(i, 18 + i // 24, 1 + i // 2 % 12, i % 7) for i in range(72))
    (root / "documents.jsonl").write_text("".join(lines))
    relations = sorted({fact["relation"] for fact in read_jsonl(root / "ckl" / "facts.jsonl")})
    clozes = ({"relation": name, "cloze": "[Y] is of [X]."} for name in relations)
    write_jsonl(root / "templates.jsonl", clozes)
    write_jsonl(root / "P19.jsonl", ({"sub_label": f"A {i}", "obj_label": "B"} for i in range(9)))
    (root / "il.csv").write_text("id,input,output,relation\n1,A 3 is of <extra_id_0> .,B,P19\n")
    question = {"id": "1", "question": "a", "answers": ["b"], "date": "2019"}
    write_jsonl(root / "questions.jsonl", [question])
    with np.load(GOLDEN / "haiku_xl.npz") as arrays:
        haiku = {name[7:]: arrays[name] for name in arrays.files if name.startswith("params/")}
    np.savez(root / "haiku.npz", **haiku)
    for line in (
        f"dumps --size tiny --months 2 --out {root}/dumps",
        f"diffsets --new {root}/{WIKI.format(6)} --workers 1 --out {root}/whole",
        f"diffsets --old {root}/{WIKI.format(5)} --new {root}/{WIKI.format(6)} --workers 1 "
        f"--out {root}/diffset",
    ):
        assert ckl.main(["data", *line.split()]) == 0
    params = adapters.make()[1]
    adapters.save(root / "lora", params, {"scale": 0.25})
    adapters.save(root / "base", paths.unflatten(adapters.base_of(params)))
    peft.save_peft(root / "peft", params, adapters.CONFIG, 0.25)
    write_json(root / "config.json", config_to_hf(adapters.CONFIG))
    make_demo(root / "demo", ("initial", "lora"), sizes={"updated_lama": 9, "new_lama": 9})
    nouns.write(root, "nouns"), write_study(root / "study", ("vanilla",), 2)
    days = [(f"2019-{m:02}-{d:02}", f"w{d} zoom".split()) for m in range(1, 4) for d in (1, 8, 15)]
    for name, rise in (("stale", 1), ("control", 0)):
        write_scored(root / name, days, lambda day, word, rise=rise: 20 + rise * int(day[5:7]))
    return {name: root / place for name, place in PLACES.items()}


def run(argv, command=ckl, seconds=SECONDS) -> tuple[int, str]:
    """The exit code of a command, 0 if it stopped before a training, and its standard output."""

    def late(number, frame):
        raise Runaway(f"{argv} runs for {seconds} CPU seconds, or ten times that")

    out, err = io.StringIO(), io.StringIO()
    # Of the processor, for the machine may be busy, and of the clock, for it may wait.
    limits = (signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 10)
    before = [signal.signal(number, late) for number, _, _ in limits]
    for _, timer, factor in limits:
        signal.setitimer(timer, factor * seconds)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command.main(argv)
    except Stopped:
        code = 0
    finally:
        for (number, timer, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
    said = err.getvalue()
    assert code in (0, 2) or argv[0] in ("promote", "update") and code in (1, 3), (argv, said)
    assert "Traceback" not in said, (argv, said)
    if code == 2:
        assert re.match(r"(ckl|t5x): .{10,3000}$", said.rstrip("\n").rsplit("\n", 1)[-1]), argv
    return code, out.getvalue()


def options(function) -> dict[str, typing.Any]:
    """{flag: type} of a command: of its keyword parameters, and the fields of its settings."""
    found = {}
    for name, hint in typing.get_type_hints(function, include_extras=True).items():
        marks, kind = getattr(hint, "__metadata__", ()), getattr(hint, "__origin__", hint)
        if dataclasses.is_dataclass(kind):
            found |= options(kind)
        elif name != "return" and Positional not in marks:
            name = next((mark.name for mark in marks if getattr(mark, "name", None)), name)
            found[f"--{name.replace('_', '-')}"] = hint
    return {flag: kind for flag, kind in found.items() if flag not in UNDRAWN}


def words(kind, places) -> st.SearchStrategy[tuple[list[str], list[str]]]:
    """Words of an option of this type as a user may write them, and the plainest that mean it."""
    marks = getattr(kind, "__metadata__", ())
    kind = kind.__origin__ if marks else kind
    first, *more = typing.get_args(kind) or (None,)
    if isinstance(kind, types.UnionType):
        return words(first, places)
    if kind is bool:
        return st.just(([], []))
    nonsense, ways = st.sampled_from(NONSENSE).map(lambda word: ([word], [word])), ("{}",)
    if typing.get_origin(kind) is tuple:
        each, count = words(first, places), 2 if more == [first] else None
        some = st.lists(each, min_size=count or 1, max_size=count or 3)
        joined = some.map(lambda x: tuple(sum(part, []) for part in zip(*x, strict=True)))
        if any("," in (getattr(mark, "metavar", None) or "") for mark in marks):
            joined = joined.map(lambda both: tuple([",".join(part)] for part in both))
        return nonsense | joined
    if kind is int:
        value = st.sampled_from(INTS) | st.integers(0, 99)
        ways = ("{}", "{:+}", "{:+06}", "{:_}", " {}")
    elif kind is float:
        value, ways = st.floats() | st.floats(0, 1), ("{!r}", "{:+.17e}", "0{!r}", "{:.0f}")
    elif kind in (str, Path):
        text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9)
        days = st.dates(datetime.date(2018, 1, 1), datetime.date(2021, 1, 1)).map(str)
        value = st.sampled_from(places) | days | days.map(lambda day: day[:7]) | text
    else:
        value = st.sampled_from(typing.get_args(kind))

    def spelt(way, value):
        with contextlib.suppress(ValueError, TypeError):
            return [way.format(value)], [str(kind(way.format(value)))]
        return [way.format(value)], [way.format(value)]

    return nonsense | st.builds(spelt, st.sampled_from(ways), value)


def damage(data, path: Path, folder: Path) -> Path:
    """A copy of a file, or of a folder with one file, that is damaged or has become another."""
    copied = folder / path.name
    shutil.copytree(path, copied) if path.is_dir() else shutil.copyfile(path, copied)
    files = [p for p in sorted(copied.rglob("*")) if p.is_file()] if path.is_dir() else [copied]
    file = data.draw(st.sampled_from(files))
    pack = {".gz": gzip, ".bz2": bz2}.get(file.suffix)
    content = pack.decompress(file.read_bytes()) if pack else file.read_bytes()
    at = data.draw(st.integers(0, max(len(content) - 1, 0)))
    match data.draw(st.sampled_from(("value", "value", "value", "cut", "noise", "other"))):
        case "cut":
            content = content[:at]
        case "other":
            file.unlink()
            data.draw(st.sampled_from(OTHERS))(file)
            return copied
        case how:
            noise = content[:at] + random.Random(at).randbytes(9) + content[at + 9 :]
            content = how == "value" and changed(data, content) or noise
    file.write_bytes(pack.compress(content) if pack else content)
    return copied


def changed(data, content: bytes) -> bytes | None:
    """JSON or JSON lines with a value gone or of another type, or CSV without a column."""
    lines = content.splitlines() or [b""]
    at = data.draw(st.integers(0, len(lines) - 1))
    for text, before, after in ((content, [], []), (lines[at], lines[:at], lines[at + 1 :])):
        with contextlib.suppress(ValueError):
            value = json.loads(text)
            if inside := list(parts(value)):
                part, key = inside[data.draw(st.integers(0, len(inside) - 1))]
                new = data.draw(st.sampled_from(("gone", *JSON)))
                part.pop(key) if new == "gone" else part.__setitem__(key, new)
                return b"\n".join([*before, json.dumps(value).encode(), *after])
    if columns := lines[0].count(b","):
        gone = data.draw(st.integers(0, columns))
        rows = (line.split(b",") for line in lines)
        return b"\n".join(b",".join(row[:gone] + row[gone + 1 :]) for row in rows)
    return None


def strict_json(text: str | bytes):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def read(path: Path) -> bytes:
    """The content of a file, once a reader of its kind that is not ours has taken it."""
    content = path.read_bytes()
    match path.suffix:
        case ".gz" | ".bz2":
            return (gzip if path.suffix == ".gz" else bz2).decompress(content)
        case ".json":
            strict_json(content)
        case ".jsonl":
            [strict_json(line) for line in content.splitlines()]
        case ".csv":
            rows = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
            assert len({len(row) for row in rows}) < 2, path
        case ".html" | ".md" | ".gin":
            assert path.suffix != ".html" or "</html>" in content.decode()
        case ".svg":
            xml.dom.minidom.parseString(content)
        case ".safetensors":
            safetensors.numpy.load(content)
        case ".model":
            sentencepiece.SentencePieceProcessor(model_file=str(path))
    return content


def made(out: Path, printed: str) -> dict[str, bytes]:
    """{file: content} of what a command made and printed, without its folder's name and times."""
    states = list(out.rglob("state"))  # of checkpoints, whose files have random names
    files = [p for p in out.rglob("*") if p.is_file() and not set(p.parents) & set(states)]
    found = {str(path.relative_to(out)): read(path) for path in files}
    for state in states:
        store = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{state}"}).result()
        found |= {f"{state.name} {key}": store[key] for key in store.list().result()}
    strict_json(printed or "{}")
    found["printed"] = printed.encode()
    return {name: TIMES.sub(b"", x.replace(str(out).encode(), b"")) for name, x in found.items()}


def argv_of(command: str, places) -> list[str]:
    fill = lambda m: f"{m[1]}{places.get(m[2], m[2])}"  # noqa: E731
    line = [re.sub(r"^(\w=|)([A-Z_]+)\b", fill, word) for word in shlex.split(BASES[command])]
    return [*command.split(), *line, "--json"]


def check(command: str, places, root: Path, changes=(), twice=True) -> int:
    """Runs a command; if it works, also in another folder with the plainest words for the same."""
    found = []
    for i, folder in enumerate("12" if twice else "1"):
        argv = argv_of(command, {**places, "OUT": root / folder / "out"})
        argv += [word for flag, spelt in changes for word in (flag, *spelt[i])]
        code, printed = run(argv)
        left = [p for p in root.rglob("*") if p.name.endswith((".part", ".tmp"))]
        assert not left and not os.listdir(tempfile.gettempdir()), (argv, left)
        if code == 2:
            assert not found, f"{argv} works if it is written otherwise"
            return code
        found.append(made(root / folder / "out", printed))
    assert found[0].keys() == found[-1].keys(), argv
    assert not [name for name in found[0] if found[0][name] != found[-1][name]], argv
    return code


SETTINGS = dict(deadline=None, database=None, phases=[Phase.generate])
SETTINGS["suppress_health_check"] = list(HealthCheck)
# They compile for seconds; tests of their own run them.
COMPILING = ("ask", "probe bear", "probe checkpoints", "probe fill")
COUNTS = [4, pytest.param(43, marks=pytest.mark.slow)]  # 210 and 2,024 with the commands' lines


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[pytest.mark.slow] * (c in COMPILING)) for c in ckl.commands()],
)
def test_a_command_does_the_same_twice_or_says_why_not(
    command, count, world, tmp_path, monkeypatch
):
    """Its line, and then so many with one or two options or files of another kind."""
    monkeypatch.setattr(studies.Study, "step", stop)
    monkeypatch.setattr(training, "speed", lambda: 1e12)  # that of the machine varies
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    function = ckl.commands()[command].load()
    if hasattr(function, "for_words"):
        function = function.for_words(BASES[command].split())
    kinds = options(function)
    files = sorted(set(re.findall("[A-Z_]+", BASES[command])) & world.keys())
    places = ["nowhere", *map(str, world.values())]

    @seed(zlib.crc32(command.encode()))  # the same cases each time
    @settings(max_examples=count, **SETTINGS)
    @given(st.data())
    def fuzz(data):
        root, mine, changes = tmp_path / "case", dict(world), []
        shutil.rmtree(root, ignore_errors=True)
        (root / "damaged").mkdir(parents=True)
        drawn = st.lists(st.sampled_from([*files, *kinds]), min_size=1, max_size=2, unique=True)
        for name in data.draw(drawn):
            if name in world:
                mine[name] = damage(data, world[name], root / "damaged")
            else:
                changes.append((name, data.draw(words(kinds[name], places))))
        respelt = any(given != plain for _, (given, plain) in changes)
        check(command, mine, root, changes, twice=respelt or count > 3)  # it takes a third

    with undrawn():
        assert check(command, world, tmp_path / "line") == 0
        fuzz()


def records(place: Path) -> dict[Path, list[str]]:
    """{file: its text, or its lines} of the JSON and JSON lines in a file or folder."""
    files = [place] if place.is_file() else filter(Path.is_file, sorted(place.rglob("*")))
    return {
        file: file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
        for file in files
        if file.suffix in (".json", ".jsonl") or file.name == "metadata"  # orbax's name
    }


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("command", ckl.commands())
def test_a_field_that_is_gone_or_another_is_said(command, world, tmp_path, monkeypatch):
    """Fields of each record that the command's line reads, of JSON lines the first one's."""
    monkeypatch.setattr(studies.Study, "step", stop)
    monkeypatch.setattr(training, "speed", lambda: 1e12)
    monkeypatch.chdir(tmp_path)
    cases = {}  # one of each name of a field in files of one name but for its numbers
    for name in sorted(set(re.findall("[A-Z_]+", BASES[command])) & world.keys()):
        for file, (first, *_) in records(world[name]).items():
            for i, (_, key) in enumerate(parts(json.loads(first))):
                kind = name, re.sub(r"\d+", "", file.name), key if isinstance(key, str) else 0
                for new in ("gone", None, True, 3, "x", []):
                    cases.setdefault((*kind, str(new)), (name, file, i, new))
    cases = list(cases.values())
    with undrawn():
        for name, file, i, new in random.Random(0).sample(cases, min(len(cases), 60)):
            shutil.rmtree(tmp_path / "case", ignore_errors=True)
            place = tmp_path / "case" / world[name].name
            place.parent.mkdir()
            (shutil.copytree if world[name].is_dir() else shutil.copyfile)(world[name], place)
            first, *rest = records(world[name])[file]
            value = json.loads(first)
            part, key = next(itertools.islice(parts(value), i, None))
            part.pop(key) if new == "gone" else part.__setitem__(key, new)
            text = "\n".join([json.dumps(value), *rest])
            (place / file.relative_to(world[name])).write_text(text)
            argv = argv_of(command, {**world, name: place, "OUT": tmp_path / "case" / "out"})
            code, _ = run(argv)
            if key in TEXTS.get(name, ()) and not isinstance(new, str):
                assert code == 2, f"{argv} takes {new!r} for a text"


def test_a_runaway_in_a_reader_is_seen(world, monkeypatch):
    monkeypatch.setattr(Path, "read_bytes", lambda path: time.sleep(9))
    with pytest.raises(Runaway):
        run(argv_of("ledger", world), seconds=0.2)


def macros_of(names, given=()) -> list[str]:
    """The macros that gin files set; none if they need one that is not set."""
    try:
        bindings = gin_config.read(names, given).scan.bindings
    except UserError:
        return []
    return sorted({binding.name for binding in bindings if binding.name.isupper()})


# Jobs of `t5x`: the files that go over a training's, what they need, where settings were checked,
# and how many cases are tried.
INFER = "INFER_INPUTS='invariant_lama'"
JOBS = {
    "train": ((), (), (train, "begin"), 40),
    "eval": (("ckl_eval.gin",), (), (RestoredModel, "load"), 15),
    "infer": (("ckl_infer.gin",), (INFER,), (RestoredModel, "load"), 15),
    "precompile": ((), (), (Prepared, "trace"), 15),
}


@pytest.mark.parametrize("all_cases", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("job", JOBS)
def test_any_value_of_a_macro_is_taken_or_refused_before_the_work(
    job, all_cases, tiny, tmp_path, monkeypatch
):
    """Every macro of the run files of CKL and TemporalWiki with every value, or some of them."""
    over, needed, (place, name), count = JOBS[job]
    methods = [path.stem for path in sorted(ROOT.glob("gin_configs/*_*.gin"))]
    kinds = {"ckl": "tiny.gin", "temporalwiki": "temporalwiki_tiny.gin"}
    runs = [(f"{m}.gin", kinds[m.split("_")[0]]) for m in methods if m.split("_")[0] in kinds]
    if over:  # the model there is, which is CKL's Initial
        runs = [("ckl_initial.gin", "tiny.gin", *over)]
    files = {}  # that set a macro
    for names in runs:
        if len(macros := macros_of(names, needed)) > 20:
            for macro in macros:
                files.setdefault(macro, []).append(names)
    assert len(files) > 50
    assert over or len({names for some in files.values() for names in some}) > 20
    rng = random.Random(0)
    drawn = [(macro, value) for macro in sorted(files) for value in VALUES]

    monkeypatch.setattr(place, name, stop)
    monkeypatch.setattr(train, "begin", stop)  # a value may be a training
    monkeypatch.setattr(simulated, "_train_initial", stop)
    monkeypatch.chdir(tmp_path)
    world = {"DATA_DIR": str(tiny.root / "world"), "INITIAL_DIR": str(tiny.root / "initial")}
    world |= {"CHECKPOINT_PATH": world["INITIAL_DIR"]} if over else {}
    world = [f"--gin.{name}={value!r}" for name, value in world.items()]
    world += [f"--gin.{binding}" for binding in needed]
    begun = 0
    for macro, value in rng.sample(drawn, len(drawn) if all_cases else count):
        argv = [job, *(f"--gin_file={name}" for name in rng.choice(files[macro])), *world]
        argv += ["--gin.MODEL_DIR='run'", f"--gin.{macro}={value}"]
        begun += run(argv, t5x)[0] == 0
    assert not list(tmp_path.rglob("checkpoint_*"))
    assert 0 < begun < len(drawn) / 2
