"""Worker processes and the signals that a terminal sends to all of a group."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ckl_jax.data.process_pool import processes


def test_ctrl_c_does_not_reach_a_worker_that_starts(capfd):
    with processes(2) as pool:
        future = pool.submit(os.getpid)
        (worker,) = multiprocessing.active_children()
        os.kill(worker.pid, signal.SIGINT)  # before Python can set a handler in it
        assert future.result() == worker.pid
    assert "Traceback" not in capfd.readouterr().err
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "this process is not left deaf"


def test_workers_do_not_run_a_script_again(tmp_path):
    script = tmp_path / "script.py"  # as a user writes one, without a guard
    script.write_text(
        "from ckl_jax.data.process_pool import processes\n"
        "print('begun', flush=True)\n"
        "with processes(2) as pool:\n"
        "    print(list(pool.map(abs, [-1, 2])))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    assert done.stdout == "begun\n[1, 2]\n", done.stderr


def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import os, pathlib, time\n"
        "from ckl_jax.data import process_pool\n\n"
        "def task(name):\n"
        "    pathlib.Path(name).write_text(str(os.getpid()))\n"
        "    time.sleep(60)\n\n"
        "if __name__ == '__main__':\n"
        "    from slow import task\n"
        "    with process_pool.processes(2) as pool:\n"
        "        process_pool.run_tasks(task, ['a', 'b'], pool, process_pool.no_progress, '')\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    process = subprocess.Popen(
        [sys.executable, "slow.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )
    places, end = [tmp_path / "a", tmp_path / "b"], time.monotonic() + 60
    while not all(p.exists() and p.read_text() for p in places):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.wait()
    while any(Path(f"/proc/{p.read_text()}").exists() for p in places):
        assert time.monotonic() < end, "a worker is left"
        time.sleep(0.1)
