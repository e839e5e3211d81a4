"""Commands that others end: output that nobody reads on, as with `head`, and SIGTERM."""

import fcntl
import importlib
import os
import signal
import subprocess
import sys
import termios
import time
import weakref
from pathlib import Path

import pytest

from ckl_jax.analysis.sections import Section
from ckl_jax.cli import ckl, endings, t5x
from ckl_jax.config.quiet_imports import quiet_imports
from ckl_jax.parallel import processes


def test_a_reader_that_has_seen_enough_is_no_error():
    code = (
        "import sys; from ckl_jax.cli import ckl;"
        "ckl.parse = lambda argv: lambda: print('line\\n' * 100_000);"
        "sys.exit(ckl.main([]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 0


def test_a_table_that_is_not_read_is_a_broken_pipe_and_no_exit(monkeypatch):
    """rich would end the process, silently and with exit code 1."""
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(ckl, "parse", lambda argv: Section(headers=["a"], rows=[["b"]]).show)
    with open(writer, "w", closefd=False) as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert ckl.main(["report"]) == 0


HELP = {
    "ckl": ["-m", "ckl_jax.cli.ckl", "--help"],
    "ckl data split": ["-m", "ckl_jax.cli.ckl", "data", "split", "--help"],
    "ckl experiment": ["-m", "ckl_jax.cli.ckl", "experiment", "list"],
    "t5x": ["-m", "ckl_jax", "--help"],
    "t5x train": ["-m", "ckl_jax", "train", "--help"],
    "t5x precompile": [
        *("-m", "ckl_jax", "precompile", "--gin_file=ckl_lora.gin", "--gin_file=tiny.gin"),
        "--gin.COMPILE=False",
    ],
    "t5x --dry_run": ["-m", "ckl_jax", "train", "--gin_file=ckl_lora.gin", "--dry_run"],
}


@pytest.mark.parametrize(
    "command", ["ckl", "t5x", *(pytest.param(c, marks=pytest.mark.slow) for c in HELP)]
)
def test_outputs_that_are_full_closed_or_not_read(command):
    words = [word for word in HELP[command] if word != "--help"]

    def run(redirection, *more):
        shell = " ".join([sys.executable, *(more and [*words, *more] or HELP[command])])
        done = subprocess.run(
            ["bash", "-c", f"{shell} {redirection}"], capture_output=True, text=True
        )
        return done.returncode, done.stdout, done.stderr

    name = command.split()[0]
    full = f"{name}: Cannot write to standard output: No space left on device.\n"
    assert run(">/dev/full") == (2, "", full)
    assert run(">&-") == run(">&- 2>&-") == (0, "", "")
    assert run("| head -c 0")[2] == ""
    assert run(">/dev/full 2>/dev/full") == (2, "", "")
    assert run("2>/dev/full", "--nope") == run("2>&-", "--nope") == (2, "", "")


@pytest.mark.parametrize("command, module", [("demo", ckl), ("train", t5x)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_command_as_an_interrupt_does(
    number, command, module, capsys, monkeypatch, heard
):
    stopped = []
    monkeypatch.setattr(processes, "drop_terminal", lambda: None)  # of pytest

    def run(*_):
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        finally:
            stopped.append("what it started")

    monkeypatch.setattr(ckl, "parse", lambda argv: run)
    monkeypatch.setattr(t5x, "run_words", run)
    before = signal.getsignal(number)
    assert module.main([command]) == 143
    assert stopped and ": interrupted; the same command" in capsys.readouterr().err
    assert signal.getsignal(number) is before


def test_standard_error_is_given_back_before_a_signal_acts(monkeypatch, capfd):
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    before, dup2, calls = os.fstat(2), os.dup2, []

    def interrupted_dup2(*descriptors):
        calls.append(descriptors)
        if len(calls) == 2:  # the one that gives it back
            os.kill(os.getpid(), signal.SIGTERM)
        return dup2(*descriptors)

    monkeypatch.setattr(os, "dup2", interrupted_dup2)
    with endings.interruptible(signal.SIGTERM), pytest.raises(endings.Terminated):
        with quiet_imports():
            pass
        time.sleep(10)
    assert os.path.samestat(os.fstat(2), before) and len(calls) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_end_of_a_compilation(number):
    """XLA's threads go on compiling: what they use must not be freed, and the process not end."""
    script = (
        "import jax, time\n"
        "from ckl_jax.cli import endings\nfrom ckl_jax.parallel import processes\n"
        "def deep(x):\n"
        "    for i in range(150):\n"
        "        x = jax.numpy.sin(x @ x) + i\n"
        "    return x\n"
        "lowered = jax.jit(deep).lower(jax.numpy.ones((8, 8)))\n"
        "def compile():\n"
        "    try:\n"
        "        with endings.interruptible(*processes.stops()):\n"
        "            print('compiling', flush=True)\n"
        "            lowered.compile()\n"
        "            time.sleep(60)\n"
        "    except KeyboardInterrupt as e:\n"
        "        return endings.interrupted('test', e)\n"
        "raise SystemExit(endings.run_command('test', compile))\n"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout.readline() == "compiling\n"
        time.sleep(0.5)
        process.send_signal(number)
        assert process.wait(120) == 128 + number, process.stderr.read()
        assert process.stderr.read().startswith("test: interrupted; the same command again")


def test_a_terminal_that_closes_leaves_time_to_save(tmp_path):
    """What is printed from then on goes nowhere; writing to the terminal would fail."""
    script = (
        "import signal, time\nfrom pathlib import Path\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # ignored where tests run under nohup
        "from ckl_jax.cli import endings\nfrom ckl_jax.parallel import processes\n"
        "with endings.interruptible(*processes.stops()):\n"
        "    try:\n"
        "        Path('ready').touch()\n"
        "        time.sleep(60)\n"
        "    except endings.Terminated:\n"
        "        print('stopping', flush=True)\n"
        "        Path('saved').touch()\n"
    )
    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(inside)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.close(terminal)
    assert process.wait(60) == 0 and (tmp_path / "saved").exists()


@pytest.mark.parametrize("is_weak", [False, True])
def test_a_signal_in_a_finalizer_is_not_lost(monkeypatch, is_weak):
    def interrupt(*unused):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)

    class Dying:
        def __del__(self):
            if not is_weak:
                interrupt()

    def run():
        if is_weak:  # within the removal of a key
            key, value = Dying(), Dying()
            values, watching = (
                weakref.WeakKeyDictionary({key: value}),
                weakref.ref(value, interrupt),
            )
            del value, key
            assert not values and not watching()
        Dying()
        time.sleep(60)

    monkeypatch.setattr(ckl, "parse", lambda argv: run)
    assert ckl.main(["demo"]) == 130


def test_a_signal_within_an_import_is_not_turned_into_an_import_error(tmp_path, monkeypatch):
    # As C++ extensions do.
    (tmp_path / "extension.py").write_text(
        "import os, signal, time\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(0.001)\n"
        "except BaseException:\n"
        "    raise ImportError\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def run():
        importlib.import_module("extension")
        time.sleep(60)

    monkeypatch.setattr(ckl, "parse", lambda argv: run)
    assert ckl.main(["demo"]) == 130


def test_too_little_memory_is_one_sentence(capsys):
    def job():
        raise MemoryError("Unable to allocate 9 TiB\n  In call to configurable 'train' (<f>)")

    assert endings.run_command("ckl", job) == 2
    told = "ckl: There is not enough memory (Unable to allocate 9 TiB); use less of it.\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("command, module", [("demo", ckl), ("train", t5x)])
def test_the_second_of_two_signals_does_not_hit_the_sentence(monkeypatch, capsys, command, module):
    def run(*_):
        signal.raise_signal(signal.SIGINT)

    def complain(sentence, complain=endings.complain):
        signal.raise_signal(signal.SIGINT)
        complain(sentence)

    monkeypatch.setattr(ckl, "parse", lambda argv: run)
    monkeypatch.setattr(t5x, "run_words", run)
    monkeypatch.setattr(endings, "complain", complain)
    assert module.main([command]) == 130
    assert ": interrupted" in capsys.readouterr().err
