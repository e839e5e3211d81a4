"""Any arguments and any files: a command works, or ends with one sentence and leaves nothing.

The options are those of the commands' own signatures, and the macros those of the bundled gin
files; what they are given is drawn.
"""

import contextlib
import dataclasses
import inspect
import io
import os
import random
import re
import shutil
import signal
import typing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ckl_jax.cli import ckl, t5x
from ckl_jax.config import gin_config
from ckl_jax.errors import UserError
from ckl_jax.papers.ckl import simulated
from ckl_jax.train import train
from tests.parity.ranked import unpack
from tests.tiny import ROOT

SECONDS = 60  # more is a runaway
WORDS = (
    *("", "0", "-1", "1", "2", "7", "1.5", "nan", "-inf", "1e999", "100000000", "9" * 18, "9" * 30),
    *(
        "9" * 6000,
        "x",
        "None",
        "True",
        ",",
        "a,b",
        "0,1",
        "=",
        "a=b",
        "%s",
        "{}",
        "\udcff",
        "é" * 300,
    ),
    *("2020-13-45", "2019-06-01", "--", "-", "EPOCHS=0", "'"),
)
# Runs of small commands, of which one or two words are replaced. In capitals: files of `world`.
RUNS = (
    "data rows --documents DOCUMENTS --vocabulary VOCABULARY --length 16 --out OUT",
    "data clean --documents DOCUMENTS --out OUT/c.jsonl",
    "data split --documents DOCUMENTS --test-period 3 --validation-months 1 --out OUT",
    "data vocabulary --documents DOCUMENTS --size 300 --out OUT/v.model",
    "data dated --documents DOCUMENTS --vocabulary VOCABULARY --out OUT",
    "data prepare --dir CKL --vocab-size 400 --out OUT",
    "data benchmark --facts FACTS --documents DOCUMENTS --dates 2019-06-01 2020-01-01 --out OUT",
    "data questions --source FACTS --out OUT/q.jsonl",
    "data trex --facts FACTS --invariant CSV --out OUT/t.csv",
    "import-hf --model HF --out OUT",
    "export-hf --model RUN --like LIKE --out OUT",
    "average RUN RUN --out OUT",
    "report RUN --out OUT",
    "overlap --questions FACTS --documents DOCUMENTS",
    "ledger RUN",
    "claims OUT",
    "probe compare OUT OUT",
)


# What gin macros are set to: other types, no numbers, numbers of any size, no values at all.
VALUES = (
    *("'x'", "''", "", "0", "-1", "1", "2.5", "1e30", "-1e-30", "1e999", "nan", "9" * 30),
    *("9" * 6000, "None", "True", "[]", "[1, 'x']", "('x',)", "()", "{}", "{'x': None}", "(" * 200),
    *("@nothing", "@train.train()", "%NOTHING", "x", "'%s{}'", "{'inputs': -1, 'targets': 1e30}"),
    *("'\\0'", "'/proc/x'", "b'x'", "1j", "..."),
)


@pytest.fixture(scope="module")
def files(tiny, tmp_path_factory):
    """{name: path} of what commands read, and a folder of broken files."""
    root = tmp_path_factory.mktemp("files")
    row = '{{"id": "{0}", "date": "20{1}-{2:02}-15", "title": "", "text": "Text {0} of X{3}."}}\n'
    lines = (row.format(i, 18 + i // 24, 1 + i // 2 % 12, i % 7) for i in range(72))
    (root / "documents.jsonl").write_text("".join(lines))
    broken = root / "broken"
    broken.mkdir()
    (broken / "empty").touch()
    (broken / "folder").mkdir()
    (broken / "noise").write_bytes(random.Random(0).randbytes(5000))
    (broken / "zeros.gz").write_bytes(b"\x1f\x8b" + bytes(100))
    (broken / "deep.json").write_text("[" * 100_000)
    (broken / "digits.json").write_text('{"a": ' + "9" * 5000 + "}")
    (broken / "rows.csv").write_text('a,b\n"1,2\n')
    (broken / "locked").symlink_to(broken / "locked")
    os.mkfifo(broken / "pipe")
    golden = unpack("lm_pub_quiz.zip", root / "golden")
    return {
        "DOCUMENTS": root / "documents.jsonl",
        "VOCABULARY": tiny.root / "world" / "prepared" / "vocabulary.model",
        "CKL": tiny.probes,
        "FACTS": tiny.probes / "facts.jsonl",
        "CSV": tiny.probes / "invariantLAMA.csv",
        "HF": golden / "model",
        "LIKE": golden / "model" / "config.json",
        "RUN": tiny.root / "initial",
        "BROKEN": broken,
    }


def flags(function) -> list[str]:
    """The options of a command: its keyword parameters, and fields of records among them."""
    found = []
    hints = typing.get_type_hints(function, include_extras=False)
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name)
        if dataclasses.is_dataclass(kind):
            found += [field.name for field in dataclasses.fields(kind)]
        elif parameter.kind is parameter.KEYWORD_ONLY:
            found.append(name)
    return [f"--{name.replace('_', '-')}" for name in found if name not in ("beam", "workers")]


@contextlib.contextmanager
def watched():
    def late(number, frame):
        raise TimeoutError(f"it runs for {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(argv, command=ckl) -> tuple[int, str]:
    """The exit code of a command, and what it writes to standard error."""
    out, err = io.StringIO(), io.StringIO()
    with watched(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command.main(argv)
    return code, err.getvalue()


def cases(slow: int, fast: int):
    """`settings` of so many cases, the same each time."""
    common = dict(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    return pytest.mark.parametrize(
        "count",
        [fast, pytest.param(slow, marks=pytest.mark.slow)],
    ), lambda count: settings(max_examples=count, **common)


mark, limits = cases(slow=1000, fast=100)


@mark
def test_any_options_are_taken_or_refused(count):
    """Of every command, as far as its settings; nothing is run."""
    commands = sorted(ckl.commands())

    @limits(count)
    @given(st.data())
    def fuzz(data):
        command = ckl.commands()[data.draw(st.sampled_from(commands))]
        argv = command.name.split()
        for flag in data.draw(st.lists(st.sampled_from(flags(command.load())), max_size=4)):
            argv += [flag, data.draw(st.sampled_from(WORDS))]
        argv += data.draw(st.lists(st.sampled_from((*WORDS, "--nope")), max_size=2))
        try:
            with watched(), contextlib.redirect_stdout(io.StringIO()):
                assert callable(ckl.parse(argv))
        except UserError as e:
            assert "\n" not in str(e) and len(str(e)) < 3000, argv

    fuzz()


@mark
def test_any_file_and_option_give_a_result_or_a_sentence(count, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    broken = [str(path) for path in sorted(files["BROKEN"].iterdir())] + ["nowhere"]

    @limits(count)
    @given(st.data())
    def fuzz(data):
        words = data.draw(st.sampled_from(RUNS)).split()
        argv = [str(files.get(w, w.replace("OUT", str(out)))) for w in words]
        names = [i for i, word in enumerate(words) if word in files]
        if names and data.draw(st.booleans()):
            argv[data.draw(st.sampled_from(names))] = data.draw(st.sampled_from(broken))
        command = next(
            c for c in ckl.commands().values() if argv[: len(c.name.split())] == c.name.split()
        )
        for flag in data.draw(st.lists(st.sampled_from([*flags(command.load()), ""]), max_size=2)):
            if flag and flag != "--out":
                argv += [flag, data.draw(st.sampled_from((*WORDS, *broken)))]
        shutil.rmtree(out, ignore_errors=True)
        before = set(os.listdir(tmp_path))
        code, err = run(argv)
        assert code in (0, 1, 2) and "Traceback" not in err, (argv, err)
        if code == 2:
            last = err.rstrip("\n").rsplit("\n", 1)[-1]
            assert re.match(r"ckl: .{10,3000}$", last), (argv, err)
        left = [p for p in tmp_path.rglob(".*") if p.name.endswith((".part", ".tmp"))]
        assert not left, (argv, left)
        for path in set(os.listdir(tmp_path)) - before - {"out"}:
            path = Path(path)
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    fuzz()


class TrainingBegins(BaseException):
    """Raised where a run has been checked and would allocate its parameters."""


def macros_of(names) -> list[str]:
    """The macros that gin files set; none if they need one that they do not set."""
    try:
        bindings = gin_config.read(names, []).scan.bindings
    except UserError:
        return []
    return sorted({binding.name for binding in bindings if binding.name.isupper()})


@pytest.mark.parametrize("count", [100, pytest.param(None, marks=pytest.mark.slow)])
def test_any_value_of_a_macro_is_taken_or_refused_before_a_training(
    count, tiny, tmp_path, monkeypatch
):
    """Every macro of the run files of CKL and TemporalWiki with every value, or `count` of them."""
    methods = [path.stem for path in sorted(ROOT.glob("gin_configs/*_*.gin"))]
    kinds = {"ckl": "tiny.gin", "temporalwiki": "temporalwiki_tiny.gin"}
    runs = [(f"{m}.gin", kinds[m.split("_")[0]]) for m in methods if m.split("_")[0] in kinds]
    files = {}  # that set a macro
    for names in runs:
        if len(macros := macros_of(names)) > 20:
            for macro in macros:
                files.setdefault(macro, []).append(names)
    assert len(files) > 50 and len({names for some in files.values() for names in some}) > 20
    rng = random.Random(0)
    drawn = [(macro, value) for macro in sorted(files) for value in VALUES]

    def begins(*given, **more):
        raise TrainingBegins

    monkeypatch.setattr(train, "begin", begins)
    monkeypatch.setattr(simulated, "_train_initial", begins)
    monkeypatch.chdir(tmp_path)
    world = {"DATA_DIR": str(tiny.root / "world"), "INITIAL_DIR": str(tiny.root / "initial")}
    world = [f"--gin.{name}={value!r}" for name, value in world.items()]
    begun = 0
    for macro, value in rng.sample(drawn, count or len(drawn)):
        argv = ["train", *(f"--gin_file={name}" for name in rng.choice(files[macro])), *world]
        argv += ["--gin.MODEL_DIR='run'", f"--gin.{macro}={value}"]
        try:
            code, err = run(argv, t5x)
        except TrainingBegins:
            begun += 1
            continue
        assert code == 2 and "Traceback" not in err, (argv, err)
        assert re.match(r"t5x: .{10,3000}$", err.rstrip("\n").rsplit("\n", 1)[-1]), (argv, err)
    assert not list(tmp_path.rglob("checkpoint_*"))
    assert 0 < begun < len(drawn) / 2
