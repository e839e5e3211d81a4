"""The scripts ask the cloud for the right things, against a stand-in of its command line."""

import contextlib
import dataclasses
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.tpu_scripts.stub import SCRIPTS, Cloud

WHERE = ("--name=pod", "--zone=us-central2-b", "--project=mine")
FULL = (*WHERE, "--type=v4-32")
NAMES = ("create.sh", "setup.sh", "run.sh", "logs.sh", "delete.sh")
TRAIN = ("--", "t5x", "train", "--gin.MODEL_DIR='gs://b/it''s'", "--gin.EPOCHS=2")


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path)
    cloud.gcloud()
    return cloud


def test_shellcheck_finds_nothing():
    found = shutil.which("shellcheck") or shutil.which(
        "shellcheck", path=Path(sys.executable).parent
    )
    if found is None:
        pytest.skip("shellcheck is not installed; it is in the extra `dev`")
    scripts = [*SCRIPTS.glob("*.sh"), *SCRIPTS.glob("gpu/*")]
    assert len(scripts) == 8
    done = subprocess.run([found, "-x", *scripts], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("script", NAMES)
def test_help_and_a_missing_setting(cloud, script):
    done = cloud.run(script, "--help")
    assert done.returncode == 0 and f"usage: {script} --name" in done.stdout
    assert script != "run.sh" or "[--slices N] --stop" in done.stdout
    assert "--spot" in done.stdout and cloud.calls() == []
    done = cloud.run(script, "--name=pod", "--type=v4-32", *TRAIN, env={"TPU_ZONE": "z"})
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"{script}: give --project (or the variable TPU_PROJECT).\n"
    assert cloud.calls() == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--nmae=pod",), "there is no option --nmae; see --help."),
        (("--name",), "--name needs a value."),
        (("--name", "--zone=z"), "--name needs a value, and --zone=z is an option."),
        (("pod",), "'pod' is not an option; the command to run comes after --."),
        ((*WHERE, "--attempts=many"), "--attempts is a number, not 'many'."),
        ((*WHERE, f"--attempts={2**64}"), f"--attempts is {2**64}; give at most 9 digits."),
        ((*WHERE, *TRAIN), "give --type (or the variable TPU_TYPE)."),
        (
            (*WHERE, "--type=h100"),
            "--type h100 is not a TPU; take v2-8, v3-32, v4-32, v5litepod-16, v5p-32, v6e-16 "
            "or tpu7x-8, in any size (GPUs: tpu_scripts/gpu).",
        ),
        ((*WHERE, "--type=v5e-16"), "--type v5e-16 is written v5litepod-16 (or v5p-16)."),
        (
            (*WHERE, "--type=v4-30"),
            "--type v4-30: there is none of 30; take a multiple of 8, e.g. v4-32.",
        ),
        (FULL, "give the command to run after -- (e.g. -- t5x train --gin_file=...)."),
    ],
)
def test_a_wrong_call_is_one_sentence(cloud, arguments, message):
    done = cloud.run("run.sh", *arguments)
    assert (done.returncode, done.stderr) == (2, f"run.sh: {message}\n")
    assert cloud.calls() == []


@pytest.mark.parametrize(
    "script, settings",
    [
        ("create.sh", "name zone project type"),
        ("setup.sh", "name zone project"),
        ("run.sh", "name zone project type"),
        ("logs.sh", "name zone project"),
        ("delete.sh", "name zone project"),
    ],
)
def test_all_that_is_missing_is_named_at_once(cloud, script, settings):
    done = cloud.run(script)
    missing = [f"--{s} (or the variable TPU_{s.upper()})" for s in settings.split()]
    if script == "run.sh":
        missing.append("the command to run after -- (e.g. -- t5x train --gin_file=...)")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{script}: give {', '.join(missing)}.\n"
    assert cloud.calls() == []


def test_create_asks_once_and_waits(cloud):
    cloud.gcloud(after_create=["WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE"])
    done = cloud.run("create.sh", *FULL)
    assert done.returncode == 0, done.stderr
    assert "pod: request PROVISIONING" in done.stderr and "pod is ready" in done.stderr
    (create,) = [call for call in cloud.calls() if call[1] == "create"]
    assert create == [
        "queued-resources",
        "create",
        "pod",
        "--node-id=pod",
        "--accelerator-type=v4-32",
        "--runtime-version=tpu-ubuntu2204-base",
        "--spot",
        "--zone=us-central2-b",
        "--project=mine",
    ]
    cloud.run("create.sh", *FULL)
    assert cloud.did() == ["create"], "a TPU that is ready is left as it is"


def test_settings_come_from_variables_and_types_have_their_runtime(cloud):
    env = {"TPU_NAME": "a", "TPU_ZONE": "z", "TPU_PROJECT": "p", "TPU_TYPE": "v5litepod-16"}
    assert cloud.run("create.sh", "--on-demand", "--name", "b", env=env).returncode == 0
    (create,) = [call for call in cloud.calls() if call[1] == "create"]
    assert create[2] == "b" and "--runtime-version=v2-alpha-tpuv5-lite" in create
    assert "--spot" not in create and "--zone=z" in create


@pytest.mark.parametrize(
    "queued, node",
    [
        ("SUSPENDED", "READY"),
        ("FAILED", "READY"),
        ("ACTIVE", "PREEMPTED"),
        ("ACTIVE", "TERMINATED"),
    ],
)
def test_what_was_preempted_is_made_again(cloud, queued, node):
    cloud.gcloud(queued=[queued], node=[node])
    assert cloud.run("create.sh", *FULL).returncode == 0
    assert cloud.did() == ["delete", "create"]
    assert {"--force", "--quiet"} <= set(next(c for c in cloud.calls() if c[1] == "delete"))


def test_what_is_being_taken_away_is_waited_for(cloud):
    cloud.gcloud(queued=["SUSPENDING", "SUSPENDING", "SUSPENDED"])
    assert cloud.run("create.sh", *FULL).returncode == 0
    assert cloud.did() == ["delete", "create"]


def test_a_request_that_fails_at_once_is_not_repeated_for_ever(cloud):
    cloud.gcloud(after_create=["FAILED"])
    done = cloud.run("create.sh", *FULL)
    assert done.returncode == 2 and "the request for pod failed" in done.stderr
    assert cloud.did() == ["create"]


@pytest.mark.parametrize("script", ["create.sh", "run.sh", "delete.sh"])
@pytest.mark.parametrize(
    "error",
    [
        "ERROR: (gcloud) PERMISSION_DENIED: log in\nas somebody.",
        "ERROR: (gcloud) NOT_FOUND: The zone 'us-central9-z' was not found.",
        "ERROR: python3: command not found",
    ],
)
def test_an_error_of_the_cloud_is_passed_on_whole(cloud, script, error):
    cloud.gcloud(queued=[error.replace("\n", "\\n")])
    done = cloud.run(script, *FULL, *TRAIN)
    assert done.returncode == 2
    assert done.stderr == f"{script}: gcloud cannot say the state of pod: {error}\n"
    assert cloud.did() == []


def test_what_is_no_error_in_name_is_shown_too(cloud):
    cloud.put("gcloud", "#!/bin/sh\necho python is missing >&2; exit 1\n")
    assert "the state of pod: python is missing\n" in cloud.run("delete.sh", *WHERE).stderr


def test_setup_sends_the_commit_to_every_host(cloud):
    assert cloud.run("setup.sh", *WHERE).returncode == 0
    scp, ssh = cloud.calls()
    assert scp[:2] == ["tpu-vm", "scp"] and scp[3] == "pod:ckl_jax.tar.gz"
    assert "--worker=all" in scp and "--worker=all" in ssh
    requirement = '"ckl-jax[gcs] @ file://$HOME/ckl_jax.tar.gz"'
    assert f"'jax[tpu]' {requirement}\n" in ssh[4] and "t5x --version" in ssh[4]


@pytest.mark.parametrize(
    "source, extras, requirement",
    [
        ("ckl-jax==1", "gcs,seqio", "ckl-jax[gcs,seqio]==1"),
        ("ckl-jax", "", "ckl-jax"),
        ("git+https://h/r@1", "seqio", "ckl-jax[seqio] @ git+https://h/r@1"),
    ],
)
def test_setup_installs_what_it_is_told(cloud, source, extras, requirement):
    assert cloud.run("setup.sh", *WHERE, "--source", source, "--extras", extras).returncode == 0
    (ssh,) = cloud.calls()
    words = shlex.split(ssh[4])
    assert words[words.index("jax[tpu]") + 1] == requirement


def test_own_files_go_to_every_host_again_after_a_preemption(cloud, tmp_path):
    (tmp_path / "my tasks").mkdir()
    (tmp_path / "run.gin").touch()
    send = (f"--send={tmp_path}/my tasks/", "--send", f"{tmp_path}/run.gin")
    cloud.gcloud(exits=["255:SUSPENDED", "0"])
    assert cloud.run("run.sh", *FULL, *send, "--extras=seqio", *TRAIN).returncode == 0
    sent = [call[3] for call in cloud.calls() if call[1] == "scp" and call[2] == "--recurse"]
    assert sent == [f"{tmp_path}/my tasks", f"{tmp_path}/run.gin"] * 2
    done = cloud.run("setup.sh", *WHERE, "--source=/no/where")
    assert done.returncode == 2 and "--source /no/where is not a folder" in done.stderr
    done = cloud.run("setup.sh", *WHERE, "--send=/no/such")
    assert done.returncode == 2 and "--send: there is no /no/such" in done.stderr


def test_run_sends_the_same_words_to_every_host(cloud, tmp_path):
    cloud.gcloud(queued=["ACTIVE"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0 and "output of the run" in done.stdout
    assert cloud.did() == ["ssh", "ssh"], "a TPU that is there is not set up again"
    _, call = [call for call in cloud.calls() if call[1] == "ssh"]  # after the question
    assert "--worker=all" in call
    command = next(a for a in call if a.startswith("--command=")).removeprefix("--command=")
    # What a host does with it: the command sees its words as they were given.
    host = Host(tmp_path / "home", 'printf "<%s>" "$@" "$CKL_MULTIPROCESS"; exit 3')
    expected = "".join(f"<{word}>" for word in (*TRAIN[2:], "1"))
    code, text = host.run(command)
    assert code == 3 and text.endswith(f" 1 1\t{expected}")
    assert (host.home / "ckl_run.log").read_text() == expected


@dataclasses.dataclass
class Host:
    """A host of a pod: a home folder with a `t5x` that is this script."""

    home: Path
    script: str

    def __post_init__(self):
        (self.home / "ckl_env" / "bin").mkdir(parents=True)
        t5x = self.home / "ckl_env" / "bin" / "t5x"
        t5x.write_text(f"#!/bin/bash\n{self.script}\n")
        t5x.chmod(0o755)

    def start(self, command):
        env = {"HOME": str(self.home), "PATH": "/usr/bin:/bin"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        # A connection that is lost takes its whole group with it.
        return subprocess.Popen(
            ["bash", "-c", command], env=env, text=True, start_new_session=True, **pipes
        )

    def run(self, command):
        process = self.start(command)
        out, _ = process.communicate(timeout=30)
        return process.returncode, out


@pytest.fixture
def pod(cloud):
    """A pod whose hosts run what they are told; `pod(script)` makes two with this `t5x`."""

    def make(script, count=2):
        cloud.gcloud(queued=["ACTIVE"])
        return [Host(cloud.root / "hosts" / str(i), script) for i in range(count)]

    yield make
    cloud.run("run.sh", *FULL, "--stop")


def runs(cloud):
    """What the hosts were told that starts a command or attaches to it."""
    return [call[4] for call in cloud.calls() if call[1] == "ssh" and "setsid" in call[4]]


def interrupt(process):
    """Presses Ctrl-C until it ends: bash loses 1 in 300 that come while it starts a program."""
    for _ in range(6):
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def rest(process):
    """What it still prints, on both streams; `communicate` would lose what `readline` has read."""
    killer = threading.Timer(30, os.killpg, (process.pid, signal.SIGKILL))
    killer.start()
    out, err = process.stdout.read(), process.stderr.read()
    process.wait()
    killer.cancel()
    return out, err


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_command_outlives_its_connection_and_is_attached_to_again(cloud, pod):
    # One host is slower than the other, as under load.
    pod("trap 'echo saved; exit 143' TERM; sleep ${HOME##*/}; echo begun; sleep 30 & wait")
    (cloud.root / "drop").write_text("0.5")  # then the connection is lost
    first = cloud.start("run.sh", *FULL, *TRAIN)
    assert [first.stdout.readline() for _ in "ab"] == ["begun\n", "begun\n"]
    wait_for(lambda: len(runs(cloud)) == 2)
    other = cloud.run("run.sh", *FULL, "--", "t5x", "eval")  # one command at a time
    assert other.returncode == 2 and "another command is running on pod; see" in other.stderr
    stop = cloud.run("run.sh", *WHERE, "--stop")
    assert (stop.returncode, stop.stdout) == (0, "The command on pod was told to stop.\n")
    out, err = rest(first)
    assert out == "saved\nsaved\n", "what was printed before comes again"
    assert first.returncode == 143 and "the command was stopped" in err and "failed" not in err
    assert err.count("the connection to pod was lost; the command goes on there") == 1
    stop = cloud.run("run.sh", *WHERE, "--stop")
    assert (stop.returncode, stop.stderr) == (0, "")
    assert stop.stdout == "No command is running on pod.\n"
    second = cloud.start("run.sh", *FULL, *TRAIN)  # prints its own lines alone
    assert [second.stdout.readline() for _ in "ab"] == ["begun\n", "begun\n"]
    assert cloud.run("run.sh", *WHERE, "--stop").returncode == 0
    assert rest(second)[0] == "saved\nsaved\n"


def test_the_same_line_attaches_again_after_ctrl_c(cloud, pod):
    hosts = pod("seq 20; while [[ ! -e go ]]; do sleep 0.1; done; echo end; exit 5", count=1)
    first = cloud.start("run.sh", *FULL, *TRAIN)
    for i in range(1, 21):
        assert first.stdout.readline() == f"{i}\n"
    interrupt(first)
    said = rest(first)[1]
    assert first.returncode == 130
    assert "interrupted: the command goes on; the same line again attaches to it" in said
    second = cloud.start("run.sh", *FULL, *TRAIN)
    assert second.stdout.readline() == "11\n"
    (hosts[0].home / "go").touch()
    out, err = rest(second)
    assert out == "".join(f"{i}\n" for i in range(12, 21)) + "end\n" and second.returncode == 5
    assert "this command is running on pod already: attaching to it" in err
    third = cloud.run("run.sh", *FULL, *TRAIN)  # it has ended: the same line runs it anew
    assert third.returncode == 5 and third.stdout.startswith("1\n2\n")


@pytest.mark.parametrize("code", [0, 7])
def test_a_command_may_end_while_nobody_is_connected(cloud, pod, code):
    pod(f"echo one; sleep 2; echo two; exit {code}")
    (cloud.root / "drop").write_text("0.5")
    done = cloud.run("run.sh", *FULL, *TRAIN, env={"TPU_POLL_SECONDS": "3"})
    assert (done.returncode, sorted(done.stdout.split())) == (code, ["one", "one", "two", "two"])
    assert ("failed with exit code 7" in done.stderr) == bool(code)


@pytest.mark.parametrize("survives", [True, False])
def test_a_repair_is_waited_for_and_what_it_ended_is_run_again(cloud, pod, survives):
    (host,) = pod(
        "[[ ! -e begun ]] || exec echo again; touch begun; seq 30; "
        "until [[ -e go ]]; do sleep 0.1; done; seq 31 60",
        count=1,
    )
    (cloud.root / "drop").write_text("0.5")
    (cloud.root / "node").write_text("READY\nREPAIRING\nREPAIRING\nREADY\n")
    process = cloud.start("run.sh", *FULL, *TRAIN, env={"TPU_POLL_SECONDS": "1"})
    wait_for(lambda: (host.home / "begun").exists() and not (cloud.root / "drop").exists())
    if survives:
        (host.home / "go").touch()
    else:  # with the shell that keeps its exit code, as a host that is started anew
        os.killpg(int((host.home / "ckl_run.pid").read_text()), signal.SIGKILL)
    out, err = rest(process)
    assert process.returncode == 0, err
    printed = [*range(1, 61)] if survives else [*range(1, 31), "again"]
    assert out.split() == [str(line) for line in printed]
    assert err.count("pod is no longer ready (exit code 255): waiting for it") == 1
    assert err.count("running the command again") == (not survives)


def test_what_a_command_leaves_running_is_not_taken_for_it(cloud, pod):
    pod("sleep 20 & exit 6", count=1)
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 6 and "attaching" not in done.stderr


def test_a_lost_connection_is_made_again(cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=["255", "255", "0"], status=["running"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the connection to pod was lost; the command goes on there") == 2
    assert len(runs(cloud)) == 3 and cloud.did().count("create") == 0


def test_a_cloud_out_of_reach_is_waited_for_once_it_has_answered(cloud):
    offline = r"ERROR: gcloud crashed (ServerNotFoundError)"
    queued = ["ACTIVE", offline, offline, "ACTIVE"]
    cloud.gcloud(queued=queued, exits=["255", "0"], status=["lost"] * 4 + ["running"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"the state of pod: {offline}\nAsking again until it can.") == 1
    assert done.stderr.count("cannot be reached by ssh; trying again") == 4


def test_ssh_that_never_worked_ends_the_tries(cloud):
    cloud.gcloud(queued=["ACTIVE"], before=["lost"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 2 and "cannot be reached by ssh, 3 times; see above" in done.stderr
    assert "goes on there" not in done.stderr and cloud.did() == ["ssh"] * 3


def test_preemptions_during_setup_count_as_such(cloud):
    cloud.gcloud(setup=[*["255:SUSPENDED"] * 4, "0"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("setting up pod failed, and it is no longer ready: waiting") == 4
    assert cloud.did().count("create") == 5
    cloud.gcloud(setup=["255:SUSPENDED"])
    done = cloud.run("run.sh", *FULL, "--attempts=1", *TRAIN)
    assert done.returncode == 2 and "pod went away 2 times; giving up" in done.stderr


def test_stop_says_that_there_is_no_tpu(cloud):
    done = cloud.run("run.sh", *WHERE, "--stop")
    assert (done.returncode, cloud.did()) == (2, [])
    assert done.stderr == "run.sh: there is no pod in us-central2-b, and nothing to stop.\n"


def test_a_setup_that_fails_is_tried_again_and_said(cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=["255:SUSPENDED", "0"], setup=["1", "0"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("setting up pod failed; trying again") == 1
    cloud.gcloud(setup=["1"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 2 and "setting up pod failed, 3 times; see above" in done.stderr
    cloud.gcloud(queued=["ACTIVE"])  # the next finds nothing installed
    (cloud.root / "calls").unlink()
    assert cloud.run("run.sh", *FULL, *TRAIN).returncode == 0
    assert cloud.did() == ["ssh", "scp", "ssh", "ssh", "ssh"]


@pytest.mark.parametrize("script", ["create.sh", "run.sh"])
def test_ctrl_c_in_the_queue_says_what_stays(cloud, script):
    cloud.gcloud(after_create=["WAITING_FOR_RESOURCES"])
    command = TRAIN * (script == "run.sh")
    process = cloud.start(script, *FULL, *command, env={"TPU_POLL_SECONDS": "0.1"})
    wait_for(lambda: len(cloud.calls()) > 4)
    interrupt(process)
    said = rest(process)[1].splitlines()[-1]
    assert process.returncode == 130
    assert said == (
        f"{script}: interrupted: what was asked for stays; this line again waits on, delete.sh "
        "gives it back."
    )


@pytest.mark.parametrize("script", ["run.sh", "create.sh"])
def test_a_tpu_of_other_slices_is_not_deleted(cloud, script):
    cloud.gcloud(queued=("ACTIVE",), node=("NONE", "NONE", "READY"))
    command = ("--", "t5x", "train") * (script == "run.sh")
    found = cloud.run(script, *WHERE, "--type=v4-32", *command)
    assert found.returncode == 2 and "give the --slices that it was made with" in found.stderr
    assert cloud.did() == []


def test_slices_reservations_networks_and_accounts(cloud):
    more = ("--slices=2", "--reserved", "--network=n", "--service-account=a@b", "--type=tpu7x-8")
    more += ("--subnetwork=s", "--internal-ips")
    assert cloud.run("create.sh", *WHERE, *more).returncode == 0
    (create,) = [call for call in cloud.calls() if call[1] == "create"]
    assert create[3:5] == ["--node-prefix=pod", "--node-count=2"] and "--reserved" in create
    assert {"--subnetwork=s", "--internal-ips"} <= set(create)
    assert {"--network=n", "--service-account=a@b", "--accelerator-type=tpu7x-8"} <= set(create)
    assert "--runtime-version=v2-alpha-tpu7-ubuntu2404" in create and "--spot" not in create
    cloud.gcloud(queued=["ACTIVE"], node=["READY"])
    (cloud.root / "calls").unlink()
    assert cloud.run("run.sh", *WHERE, *more, *TRAIN).returncode == 0
    calls = [call for call in cloud.calls() if call[1] == "ssh"]
    assert sorted(call[2] for call in calls) == ["pod-0"] * 4 + ["pod-1"] * 4
    assert all("--internal-ip" in call for call in calls)
    assert cloud.run("logs.sh", *WHERE, *more, "--slice=1").returncode == 0
    assert cloud.calls()[-1][2] == "pod-1"
    done = cloud.run("logs.sh", *WHERE, *more, "--slice=2")
    assert done.returncode == 2 and "--slice 2: there are 2, from 0" in done.stderr
    for zero in ("0", "00"):
        told = cloud.run("run.sh", *WHERE, f"--slices={zero}").stderr
        assert f"--slices is {zero}; give 1 or more" in told


def test_numbers_with_leading_zeros_are_decimal(cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=["255:SUSPENDED", "0"])
    done = cloud.run("run.sh", *FULL, "--attempts=08", *TRAIN)
    assert done.returncode == 0 and "value too great" not in done.stderr, done.stderr
    made = cloud.run("create.sh", *FULL, "--slices=010", "--dry-run").stdout
    assert "--node-count=10 " in made


@pytest.mark.parametrize("state", ["SUSPENDED", "SUSPENDING"])
def test_run_makes_a_preempted_tpu_again_and_repeats_the_command(cloud, state):
    cloud.gcloud(queued=["ACTIVE"], exits=[f"255:{state}", f"255:{state}", "0"])
    if state == "SUSPENDING":  # takes a while to become SUSPENDED: the stand-in needs a script
        gcloud = (cloud.root / "bin" / "gcloud").read_text()
        cloud.put(
            "gcloud",
            gcloud.replace(
                '"$here/queued"; exit', '"$here/queued"; echo SUSPENDED >>"$here/queued"; exit'
            ),
        )
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("pod is no longer ready (exit code 255): waiting for it, or") == 2
    # It is asked what it has, set up, asked again, and runs the command.
    again = ["delete", "create", "ssh", "scp", "ssh", "ssh", "ssh"]
    assert cloud.did() == ["ssh", "ssh", *again, *again]
    assert len(runs(cloud)) == 3 and len(set(runs(cloud))) == 1


@pytest.mark.parametrize("code", [7, 75])
def test_run_ends_with_the_failure_of_the_command(cloud, code):
    cloud.gcloud(queued=["ACTIVE"], exits=[str(code)], status=[str(code)])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == code and f"exit code {code} on a TPU that is ready" in done.stderr
    # What does it do, start, what does it do now, print what came meanwhile.
    assert cloud.did() == ["ssh"] * 4


@pytest.mark.parametrize("what, told", [("create", "asked for"), ("delete", "deleted")])
def test_what_the_cloud_refuses_after_a_preemption_is_asked_again(cloud, what, told):
    """Nobody may be watching by then; whoever asks for the first time is."""
    refusals = ["UNAVAILABLE: try later", "RESOURCE_EXHAUSTED: none left"]
    cloud.gcloud(queued=["ACTIVE"], exits=["255:SUSPENDED", "0"], **{what: [*refusals, "0"]})
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"pod could not be {told}; see above; asking again.") == 2
    cloud.gcloud(queued=["ACTIVE"], exits=["255:SUSPENDED", "0"], **{what: refusals})
    done = cloud.run("run.sh", *FULL, "--attempts=3", *TRAIN)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith(f"{refusals[1]}\nrun.sh: pod could not be {told}; see above.\n")
    assert done.stderr.count("asking again") == 3
    cloud.gcloud(queued=["SUSPENDED"], **{what: refusals})
    done = cloud.run("create.sh", *FULL)
    assert (done.returncode, done.stderr.count("asking again")) == (2, 0)


def test_what_goes_away_before_the_command_has_run_is_asked_for_again(cloud):
    cloud.gcloud(queued=["ACTIVE"], before=["lost"], create=["UNAVAILABLE: try later", "0"])
    gone = f"{cloud.root}/gone"  # while it waits, once
    cloud.put(
        "sleep", f"#!/bin/sh\n[ -e {gone} ] || echo SUSPENDED >{cloud.root}/queued; touch {gone}"
    )
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.stderr.count("pod could not be asked for; see above; asking again.") == 1
    assert cloud.did()[:4] == ["ssh", "delete", "create", "create"]


def test_a_request_that_fails_after_a_preemption_is_made_again(cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=["255:SUSPENDED"], after_create=["FAILED"])
    done = cloud.run("run.sh", *FULL, "--attempts=3", *TRAIN)
    assert done.returncode == 2 and done.stderr.count("asking again") == 3
    # That of the preempted TPU, then those that failed.
    assert cloud.did().count("delete") == 4 and cloud.did().count("create") == 4


def test_run_gives_up_after_so_many_preemptions(cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=["255:SUSPENDED"])
    done = cloud.run("run.sh", *FULL, "--attempts=1", *TRAIN)
    assert done.returncode == 2 and "pod went away 2 times; giving up" in done.stderr
    assert cloud.did().count("create") == 1


def test_a_second_command_is_refused(cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=["75"], status=["other"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 2 and "another command is running on pod" in done.stderr


def test_logs_and_delete(cloud):
    assert cloud.run("logs.sh", *FULL, "--worker=3", "--lines=7", "--follow").returncode == 0
    assert cloud.calls()[0][3:5] == [
        "--worker=3",
        "--command=tail --lines=7 --follow ~/ckl_run.log",
    ]
    done = cloud.run("delete.sh", *FULL)
    assert done.returncode == 0 and "there is no pod" in done.stderr and "delete" not in cloud.did()
    cloud.gcloud(queued=["SUSPENDED"])
    assert cloud.run("delete.sh", *FULL).returncode == 0 and cloud.did()[-1] == "delete"


@pytest.mark.parametrize("script", NAMES)
def test_a_dry_run_prints_and_calls_nothing(cloud, script):
    done = cloud.run(script, *FULL, "--dry-run", *TRAIN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gcloud compute tpus ") and "--project=mine" in done.stdout
    assert cloud.calls() == []
    if script == "run.sh":
        assert [line.split()[3:5] for line in done.stdout.splitlines()] == [
            ["queued-resources", "create"],
            ["tpu-vm", "scp"],
            ["tpu-vm", "ssh"],
            ["tpu-vm", "ssh"],
        ]


def test_without_gcloud_the_message_says_so(cloud):
    tools = cloud.root / "tools"
    tools.mkdir()
    for name in ("bash", "dirname", "env"):
        (tools / name).symlink_to(shutil.which(name))
    done = cloud.run("create.sh", *FULL, env={"PATH": str(tools)})
    assert done.returncode == 2 and "gcloud is not on the PATH" in done.stderr
