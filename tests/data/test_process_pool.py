"""Worker processes and the signals that a terminal sends to all of a group."""

import multiprocessing
import os
import signal

from ckl_jax.data.process_pool import processes


def test_ctrl_c_does_not_reach_a_worker_that_starts(capfd):
    with processes(2) as pool:
        future = pool.submit(os.getpid)
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid, signal.SIGINT)  # before Python can set a handler in it
        assert future.result() == worker.pid
    assert "Traceback" not in capfd.readouterr().err
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this process is not left deaf"
