"""Stand-ins for command lines of clouds and clusters: they record calls and play back answers."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tpu_scripts"
WHERE = ("--name=pod", "--zone=us-central2-b", "--project=mine")
FULL = (*WHERE, "--type=v4-32")
TRAIN = ("--", "t5x", "train", "--gin.MODEL_DIR='gs://b/it''s'", "--gin.EPOCHS=2")
_OWN = ("TPU_", "SLURM_", "JAX_", "CUDA_")  # what the scripts read, or their children

# One line a call, arguments apart by \x1f. `describe` and `ssh` answer with the next line of a
# file, and with the last one for ever. What is asked for or deleted changes the answer at once.
# A `create` or `delete` other than 0 is why the cloud refuses it.
# An exit code 255 is a connection that is lost. Where there are folders in `hosts/`, what is sent
# by ssh is run in each; with `drop` the connection to them is lost so many seconds after they
# have printed, once.
_GCLOUD = r"""#!/usr/bin/env bash
here=$(dirname "$0")/..
line=$(printf '%s\x1f' "$@")
printf '%s\n' "${line//$'\n'/$'\x1e'}" >>"$here/calls"  # in one write: calls come together
next() {
  head -n 1 "$here/$1"
  if (($(wc -l <"$here/$1") > 1)); then sed -i 1d "$here/$1"; fi
}
describe() {
  echo "WARNING: noise" >&2
  case "$1" in
    NONE)
      place="projects/p/locations/z/$3/$2"
      echo "ERROR: (gcloud.compute.tpus) NOT_FOUND: Resource '$place' was not found." >&2
      exit 1 ;;
    ERROR*) printf '%b\n' "$1" >&2; exit 1 ;;
    *) echo "$1" ;;
  esac
}
refuse() {
  if [[ $1 != 0 ]]; then echo "ERROR: (gcloud.compute.tpus) $1" >&2; exit 1; fi
}
ends() {  # exit code 255 with a state: the machine goes away under the command
  if [[ $1 == 255:* ]]; then echo "${1#*:}" >"$here/queued"; exit 255; fi
  exit "$1"
}
on_hosts() {
  local pids=() host
  for host in "$here"/hosts/*; do
    HOME=$host PATH=/usr/bin:/bin setsid bash -c "$1" &
    pids+=($!)
  done
  if [[ $1 == *setsid* && -e $here/drop ]]; then
    for host in "$here"/hosts/*; do until [[ -s $host/ckl_run.log ]]; do sleep 0.1; done; done
    sleep "$(cat "$here/drop")"
    rm "$here/drop"
    for pid in "${pids[@]}"; do kill -KILL -- "-$pid"; done
    exit 255
  fi
  trap 'for pid in "${pids[@]}"; do kill -KILL -- "-$pid"; done 2>/dev/null' EXIT
  local code=0
  for pid in "${pids[@]}"; do wait "$pid" || code=${code/#0/$?}; done
  exit "$code"
}
case "$*" in
  *"queued-resources describe"*) describe "$(next queued)" "$5" queuedResources ;;
  *"tpu-vm describe"*) describe "$(next node)" "$5" nodes ;;
  *"queued-resources create"*)
    refuse "$(next create)"
    if [[ -s $here/after_create ]]; then cp "$here/after_create" "$here/queued"; fi
    rm -f "$here/run"
    touch "$here/bare"
    echo READY >"$here/node" ;;
  *"queued-resources delete"*)
    refuse "$(next delete)"
    echo NONE >"$here/queued" ;;
  *"tpu-vm ssh"*"--command="*)
    for command in "$@"; do [[ $command != --command=* ]] || break; done
    command=${command#--command=}
    if [[ -d $here/hosts && $command != *"pip install"* ]]; then on_hosts "$command"; fi
    case "$command" in
      *"echo bare"*)  # what a host has and does
        if [[ -s $here/run ]]; then answer=$(next status); else answer=$(next before); fi
        touch "$here/run"
        case "$answer" in
          lost) exit 255 ;;
          other) echo "running 1-2-3" ;;
          running) echo "running $(cat "$here/run")" ;;
          *) if [[ -e $here/bare ]]; then echo bare; exit; fi
             echo "ended $(cat "$here/run") $answer"
        esac ;;
      *setsid*)
        code=$(next exits)
        if [[ $code == unheard:* ]]; then exit "${code#*:}"; fi
        run=$(grep -oE '[0-9]+-[0-9]+-[0-9]+' <<<"$command" | head -n 1)
        echo "$run" >"$here/run"
        echo "output of the run"
        if [[ $code == lost:* ]]; then exit "${code#*:}"; fi
        if [[ $code != 255* && $code != 75 ]]; then printf '\nended %s\n' "$run"; fi
        ends "$code" ;;
      *"pip install"*)
        code=$(next setup)
        if [[ $code == 0 ]]; then rm -f "$here/bare"; fi
        ends "$code" ;;
    esac ;;
esac
"""
_ANSWERS = {
    "queued": ["NONE"],
    "create": ["0"],
    "delete": ["0"],
    "after_create": ["ACTIVE"],
    "node": ["READY"],
    "before": ["0"],
    "setup": ["0"],
    "exits": ["0"],
    "status": ["1"],
}


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A folder whose `bin/` comes first on the PATH."""

    root: Path

    def put(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def gcloud(self, **answers):
        """Puts `gcloud` there; each argument, of `_ANSWERS`, lists what it answers in turn.

        `before` and `status` are of the hosts, before the command and after it was started: the
        exit code of the last one, "running", "other" for another command, or "lost". Of `exits`,
        "unheard:CODE" is of a connection that ends so before the hosts hear of the command, and
        "lost:CODE" of one that does under it.
        """
        self.put("gcloud", _GCLOUD)
        assert answers.keys() <= _ANSWERS.keys()
        for name, lines in {**_ANSWERS, **answers}.items():
            (self.root / name).write_text("".join(f"{line}\n" for line in lines))

    def start(self, script, *arguments, env=None):
        """Starts a script of `tpu_scripts/`, as a terminal does: in a process group."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(_OWN)}
        return subprocess.Popen(
            [SCRIPTS / script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**clean, "PATH": path, "TPU_POLL_SECONDS": "0", **(env or {})},
        )

    def run(self, script, *arguments, env=None, timeout=60):
        """Runs a script of `tpu_scripts/`; returns the completed process."""
        process = self.start(script, *arguments, env=env)
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def calls(self):
        """The recorded calls, each a list of arguments without "compute tpus"."""
        path = self.root / "calls"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [line.replace("\x1e", "\n").split("\x1f")[2:-1] for line in lines]

    def did(self):
        """The calls that change something: "create", "delete", "scp", "ssh"."""
        return [call[1] for call in self.calls() if call[1] != "describe"]


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
