"""Commands that others end: output that nobody reads on, as with `head`, and SIGTERM."""

import os
import signal
import subprocess
import sys
import time

from ckl_jax.cli import ckl


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


def test_sigterm_ends_a_command_as_an_interrupt_does(capsys, monkeypatch):
    stopped = []

    def run():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        finally:
            stopped.append("what it started")

    monkeypatch.setattr(ckl, "parse", lambda argv: run)
    before = signal.getsignal(signal.SIGTERM)
    assert ckl.main(["demo"]) == 143
    assert stopped and "start it again" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_in_a_finalizer_is_not_lost(monkeypatch):
    class Dying:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.001)

    def run():
        Dying()
        time.sleep(60)

    monkeypatch.setattr(ckl, "parse", lambda argv: run)
    assert ckl.main(["demo"]) == 130
