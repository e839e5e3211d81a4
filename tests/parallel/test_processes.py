"""A run stops cleanly when its machine is taken away, and asks for no companions it lacks."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from ckl_jax.parallel import mesh, processes

STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_sets_a_flag_and_a_later_one_ends_the_process(number, monkeypatch, heard):
    monkeypatch.setattr(processes, "drop_terminal", lambda: None)  # of pytest

    def ends(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(number, ends)
    try:
        with processes.StopSignal() as stop:
            assert not stop.requested()
            # A terminal and a parent may both send one.
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.requested() and stop.exit_code == 128 + number
            monkeypatch.setattr(processes, "TOGETHER_SECONDS", 0.0)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) == ends
    finally:
        signal.signal(number, before)


def test_sigterm_is_answered_within_a_long_computation():
    answered = []
    stop = processes.StopSignal(lambda: answered.append(time.monotonic()) or "stopping")
    with stop:
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # Python's handlers wait for its end
        computed = time.monotonic()
        timer.join()
        assert stop.received
    assert len(answered) == 1 and answered[0] < computed - 0.05


def test_an_evaluation_stops_before_its_next_batch():
    batch = {"x": np.zeros((1, 2))}
    with processes.StopSignal() as stop:
        partitioner = mesh.Partitioner(before_batch=stop.check)
        partitioner.put_whole(batch)
        os.kill(os.getpid(), signal.SIGTERM)
        for put in (partitioner.put_whole, partitioner.put_batch):
            with pytest.raises(processes.Stopped):
                put(batch)


def test_one_process_initialises_nothing(monkeypatch):
    import jax

    called = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **kw: called.append(kw))
    processes.initialize(environment={})
    processes.initialize(environment={"TPU_WORKER_HOSTNAMES": "localhost"})
    assert called == []
    processes.initialize(environment={"TPU_WORKER_HOSTNAMES": "a,b"})
    processes.initialize(environment={"CKL_MULTIPROCESS": "1"})
    processes.initialize("h:1", 2, 1, 30, environment={})
    assert called[0] == called[1] and called[0]["heartbeat_timeout_seconds"] < 60
    assert called[2] == {
        "coordinator_address": "h:1",
        "num_processes": 2,
        "process_id": 1,
        "initialization_timeout": 30,
        **called[0],
    }


def test_processes_that_do_not_meet_are_one_sentence(monkeypatch):
    import jax

    from ckl_jax.errors import UserError

    def fail(**kwargs):
        raise RuntimeError("DEADLINE_EXCEEDED: waited\nlong")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    with pytest.raises(UserError, match="DEADLINE_EXCEEDED: waited.; start the same command"):
        processes.initialize("h:1", 2, 1, 30, environment={})


@pytest.mark.parametrize("number", STOPS)
def test_a_child_saves_before_its_parent_ends(number, tmp_path):
    """The signal goes to the parent alone; by a terminal both get it, which is one request."""
    child = (
        "import signal, sys, time\n"
        "def save(*_):\n"
        "    time.sleep(0.3)\n"
        f"    open({str(tmp_path / 'saved')!r}, 'w').close()\n"
        "    sys.exit(3)\n"
        "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "    signal.signal(number, save)\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    parent = (
        "import signal, sys\n"
        "from ckl_jax.parallel import processes\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # ignored where tests run under nohup
        f"processes.run_child([sys.executable, '-c', {child!r}])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stderr=subprocess.DEVNULL)
    while not (tmp_path / "ready").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(60) == -number  # not the child's 3, nor 0
    assert (tmp_path / "saved").exists()
