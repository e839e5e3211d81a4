"""The launchers of GPU machines start the right processes and end them together."""

import os
import signal
import subprocess
import time

import pytest

from tests.tpu_scripts.stub import SCRIPTS, Cloud

NODE = "gpu/single_node.sh"
SLURM = "gpu/slurm.sbatch"
# Prints what it was given; --exit=N ends so, --forever waits for SIGTERM.
_TOOL = r"""#!/usr/bin/env bash
echo "[${CUDA_VISIBLE_DEVICES-none} ${JAX_PLATFORMS-any} $*]"
case "$*" in
  *--exit=*"--process_index=1"*) exit 9 ;;
  *--exit=*) exec sleep 60 ;;
  *--forever*) trap 'exit 143' TERM; touch "$STARTED.$$"; while true; do sleep 0.1; done ;;
esac
"""


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    cloud.put("tool", _TOOL)
    return cloud


def test_one_process_has_all_gpus(cloud):
    done = cloud.run(NODE, "--gpus=0,1,2,3", "--", "tool", "a b", "c")
    assert (done.returncode, done.stdout) == (0, "[0,1,2,3 any a b c]\n")


def test_gpus_are_asked_for_and_shared(cloud):
    cloud.put("nvidia-smi", "#!/bin/sh\nprintf '0\\n1\\n2\\n3\\n'\n")
    logs = cloud.root / "logs"
    env = {"CUDA_VISIBLE_DEVICES": ""}
    done = cloud.run(NODE, "--processes=2", f"--logs={logs}", "--", "tool", env=env)
    assert done.returncode == 0, done.stderr
    meet = "--coordinator_address=localhost:8476 --process_count=2 --process_index"
    texts = [(logs / f"process_{i}.log").read_text() for i in range(2)]
    assert texts == [f"[0,1 any {meet}=0]\n", f"[2,3 any {meet}=1]\n"]


def test_a_dry_run_prints_the_commands(cloud):
    done = cloud.run(
        NODE, "--processes", "2", "--cpu", "--port=9", "--dry-run", "--", "tool", "a b"
    )
    first, second = done.stdout.splitlines()
    assert first == (
        r"env JAX_PLATFORMS=cpu tool a\ b --coordinator_address=localhost:9 --process_count=2 "
        "--process_index=0 "
    )
    assert second.endswith("--process_index=1 ")


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((), "give the command to run after --"),
        (("--processes=0", "--", "t"), "--processes is a number from 1, not '0'"),
        (("--processes=2", "--gpus=0,1,2", "--", "t"), "3 GPUs (0,1,2) cannot be shared equally"),
        (("--gpu=0", "--", "t"), "there is no option --gpu"),
    ],
)
def test_a_wrong_call_is_one_sentence(cloud, arguments, message):
    done = cloud.run(NODE, *arguments)
    assert done.returncode == 2 and done.stderr.startswith(f"single_node.sh: {message}")
    assert done.stderr.count("\n") == 1


def test_one_failure_ends_all(cloud):
    start = time.monotonic()
    done = cloud.run(NODE, "--cpu", "--processes=3", "--grace=08", "--", "tool", "--exit=9")
    assert done.returncode == 9 and time.monotonic() - start < 30
    assert "a process ended with exit code 9; ending the others" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_waits_until_all_have_saved(cloud, number):
    """As a terminal does, and SLURM: the signal goes to the whole process group."""
    saving = (
        "trap 'sleep 1; echo saved; exit 143' TERM; touch up.$$; while true; do sleep 0.1; done"
    )
    command = [SCRIPTS / NODE, "--cpu", "--processes=2", "--", "bash", "-c", saving, "tool"]
    process = subprocess.Popen(
        command, cwd=cloud.root, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 30
    while len(list(cloud.root.glob("up.*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, number)
    process.wait(timeout=30)
    os.set_blocking(process.stdout.fileno(), False)  # what comes after its end is too late
    assert process.stdout.read() == "saved\nsaved\n" and process.returncode == 143


def test_sigterm_goes_to_all(cloud):
    env = {
        **os.environ,
        "PATH": f"{cloud.root}/bin:{os.environ['PATH']}",
        "STARTED": f"{cloud.root}/up",
    }
    command = [SCRIPTS / NODE, "--cpu", "--processes=2", "--", "tool", "--forever"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while len(list(cloud.root.glob("up.*"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143


@pytest.fixture
def slurm(cloud):
    """`srun` that runs every task, one after the other, and `scontrol` that knows two nodes."""
    cloud.put(
        "srun",
        """#!/usr/bin/env bash
[[ $1 == --kill-on-bad-exit=1 ]] && shift
for ((i = 0; i < SLURM_NTASKS; i++)); do SLURM_PROCID=$i "$@" || code=$?; done
exit "${CODE:-${code:-0}}"
""",
    )
    cloud.put(
        "scontrol",
        """#!/usr/bin/env bash
case "$1" in
  show) printf 'node1\\nnode2\\n' ;;
  requeue) echo "requeued $2" ;;
esac
""",
    )
    return cloud


def job(tasks):
    return {"SLURM_JOB_ID": "41", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NTASKS": str(tasks)}


def test_slurm_gives_every_task_its_number(slurm):
    done = slurm.run(SLURM, "tool", "a b", env=job(2))
    assert done.returncode == 0, done.stderr
    meet = "--coordinator_address=node1:10041 --process_count=2 --process_index"
    lines = [line.split("any ")[1] for line in done.stdout.splitlines()]
    assert lines == [f"a b {meet}={i}]" for i in range(2)]
    done = slurm.run(SLURM, "tool", "a b", env=job(1))
    assert done.stdout.endswith("any a b]\n"), "one node needs no companions"


def test_slurm_queues_a_preempted_job_again_and_only_that(slurm):
    done = slurm.run(SLURM, "tool", env={**job(2), "CODE": "143"})
    assert done.returncode == 143 and "requeued 41" in done.stdout
    done = slurm.run(SLURM, "tool", env={**job(2), "CODE": "2"})
    assert done.returncode == 2 and "requeued" not in done.stdout


def test_slurm_outside_a_job_is_one_sentence(slurm):
    done = slurm.run(SLURM, "tool")
    assert (done.returncode, done.stderr) == (
        2,
        "slurm.sbatch: this is not a SLURM job; start it with sbatch.\n",
    )
