"""Stand-ins for command lines of clouds and clusters: they record calls and play back answers."""

import dataclasses
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tpu_scripts"
_OWN = ("TPU_", "SLURM_", "JAX_", "CUDA_")  # what the scripts read, or their children

# One line a call, arguments apart by \x1f. `describe` and `ssh` answer with the next line of a
# file, and with the last one for ever. What is asked for or deleted changes the answer at once.
# An exit code 255 is a connection that is lost.
_GCLOUD = r"""#!/usr/bin/env bash
here=$(dirname "$0")/..
line=$(printf '%s\x1f' "$@")
printf '%s\n' "${line//$'\n'/$'\x1e'}" >>"$here/calls"  # in one write: calls come together
next() {
  head -n 1 "$here/$1"
  if (($(wc -l <"$here/$1") > 1)); then sed -i 1d "$here/$1"; fi
}
case "$*" in
  *"queued-resources describe"*)
    answer=$(next queued)
    if [[ $answer == NONE ]]; then echo "ERROR: NOT_FOUND: no such resource" >&2; exit 1; fi
    if [[ $answer == DENIED ]]; then echo "ERROR: PERMISSION_DENIED: log in" >&2; exit 1; fi
    echo "WARNING: noise" >&2
    echo "$answer" ;;
  *"tpu-vm describe"*) next node ;;
  *"queued-resources create"*)
    if [[ -s $here/after_create ]]; then cp "$here/after_create" "$here/queued"; fi
    echo READY >"$here/node" ;;
  *"queued-resources delete"*) echo NONE >"$here/queued" ;;
  *"tpu-vm ssh"*"ckl_run.lock"*)
    echo "output of the run"
    code=$(next exits)
    # exit code 255 with a state: the machine goes away under the command
    if [[ $code == 255:* ]]; then echo "${code#*:}" >"$here/queued"; exit 255; fi
    exit "$code" ;;
  *"tpu-vm ssh"*"ckl_run.exit"*) next status ;;
esac
"""
_ANSWERS = {
    "queued": ["NONE"],
    "after_create": ["ACTIVE"],
    "node": ["READY"],
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

    def gcloud(
        self,
        queued=("NONE",),
        after_create=("ACTIVE",),
        node=("READY",),
        exits=("0",),
        status=("1",),
    ):
        """Puts `gcloud` there; each argument lists what it answers in turn."""
        self.put("gcloud", _GCLOUD)
        answers = dict(
            queued=queued, after_create=after_create, node=node, exits=exits, status=status
        )
        for name, lines in answers.items():
            (self.root / name).write_text("".join(f"{line}\n" for line in lines))

    def run(self, script, *arguments, env=None, timeout=60):
        """Runs a script of `tpu_scripts/`; returns the completed process."""
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(_OWN)}
        return subprocess.run(
            [SCRIPTS / script, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**clean, "PATH": path, "TPU_POLL_SECONDS": "0", **(env or {})},
        )

    def calls(self):
        """The recorded calls, each a list of arguments without "compute tpus"."""
        path = self.root / "calls"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [line.replace("\x1e", "\n").split("\x1f")[2:-1] for line in lines]

    def did(self):
        """The calls that change something: "create", "delete", "scp", "ssh"."""
        return [call[1] for call in self.calls() if call[1] != "describe"]
