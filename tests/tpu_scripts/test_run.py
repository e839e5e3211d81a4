"""run.sh on pods: it attaches to commands, and goes on after preemptions and lost connections."""

import os
import signal

import pytest

from tests.tpu_scripts.stub import FULL, TRAIN, WHERE, Host, interrupt, rest, runs, wait_for


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
    assert code == 3 and f" 1 1\t{expected}\nended " in text
    assert (host.home / "ckl_run.log").read_text() == expected


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


def test_what_a_connection_ends_with_is_not_the_commands(cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=["lost:0"], status=["running", "7"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 7 and "output of the run" in done.stdout
    assert "the connection to pod was lost; the command goes on there" in done.stderr


@pytest.mark.parametrize("code", [0, 1])
def test_a_command_that_no_host_has_heard_of_is_started_again(code, cloud):
    cloud.gcloud(queued=["ACTIVE"], exits=[f"unheard:{code}", "0"])
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 0 and "output of the run" in done.stdout
    assert done.stderr.count("the command could not be started on pod; trying again") == 1
    cloud.gcloud(queued=["ACTIVE"], exits=[f"unheard:{code}"])
    (cloud.root / "run").unlink()
    done = cloud.run("run.sh", *FULL, *TRAIN)
    assert done.returncode == 2 and "could not be started on pod, 3 times; see" in done.stderr


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
