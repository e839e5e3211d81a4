"""The scripts ask the cloud for the right things, against a stand-in of its command line."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tpu_scripts.stub import FULL, SCRIPTS, TRAIN, WHERE, interrupt, rest, wait_for

NAMES = ("create.sh", "setup.sh", "run.sh", "logs.sh", "delete.sh")


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
        ((*WHERE, "--network="), "--network needs a value."),
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
