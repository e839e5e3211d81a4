"""A run stops cleanly when its machine is taken away, and asks for no companions it lacks."""

import os
import signal

import pytest

from ckl_jax.jobs import processes


def test_sigterm_sets_a_flag_and_is_given_back_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with processes.StopSignal() as stop:
        assert not stop.after(1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.after(2)
        assert signal.getsignal(signal.SIGTERM) == before  # the second ends the process
    assert signal.getsignal(signal.SIGTERM) == before


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
        "coordinator_address": "h:1", "num_processes": 2, "process_id": 1,
        "initialization_timeout": 30, **called[0],
    }  # fmt: skip


def test_processes_that_do_not_meet_are_one_sentence(monkeypatch):
    import jax

    from ckl_jax.errors import UserError

    def fail(**kwargs):
        raise RuntimeError("DEADLINE_EXCEEDED: waited\nlong")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    with pytest.raises(UserError, match="DEADLINE_EXCEEDED: waited.; start the same command"):
        processes.initialize("h:1", 2, 1, 30, environment={})
