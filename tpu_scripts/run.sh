#!/usr/bin/env bash
# Runs one command on every host of a TPU at once, again and again if the TPU is preempted.
set -euo pipefail
# shellcheck disable=SC2016  # the backquotes are for the reader
USAGE='usage: run.sh --name NAME --zone ZONE --project PROJECT --type TYPE [options] -- COMMAND ...
Runs the command on all hosts at once and prints what they print; each keeps it in ~/ckl_run.log.
If the TPU is preempted it is made and set up again, and the same command is run: `t5x train`
goes on from the newest checkpoint in MODEL_DIR, which should therefore be a gs:// folder.
Ends with the exit code of the command.
example: run.sh --name pod --zone us-central2-b --project mine --type v4-32 -- \
  t5x train --gin_file=ckl_lora.gin --gin_file=ckl_full.gin --gin.MODEL_DIR="'"'gs://mine/run'"'"'
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parse_arguments "$@"
require NAME ZONE PROJECT TYPE COMMAND

# PYTHONPATH: what setup.sh sent lies in the home folder. CKL_MULTIPROCESS: the hosts find each other by what the TPU tells them. The lock: a second
# command would find the chips taken.
quoted=$(printf '%q ' "${COMMAND[@]}")
inner="set -o pipefail; $quoted 2>&1 | tee -a ~/ckl_run.log"
remote="PATH=\$HOME/ckl_env/bin:\$PATH PYTHONPATH=\$HOME CKL_MULTIPROCESS=1 \
flock --nonblock --conflict-exit-code 75 ~/ckl_run.lock bash -c $(printf %q "$inner")"

same=("--name=$NAME" "--zone=$ZONE" "--project=$PROJECT" "--source=$SOURCE" "--extras=$EXTRAS")
same+=(${SEND[@]+"${SEND[@]/#/--send=}"})
((DRY_RUN)) && same+=(--dry-run)

for ((attempt = 0; ; attempt++)); do
  ensure_tpu
  if ((MADE)); then
    "$(dirname "${BASH_SOURCE[0]}")/setup.sh" "${same[@]}"
  fi
  code=0
  on_workers all "$remote" || code=$?
  ((code == 0)) && exit 0
  ((code == 75)) && fail "a command is running on $NAME already; see logs.sh."
  # Its own failure, or was the TPU taken away? Preemption takes a moment to show.
  pause
  if is_ready; then
    say "the command failed with exit code $code on a TPU that is ready; see logs.sh."
    exit "$code"
  fi
  ((attempt < ATTEMPTS)) || fail "$NAME was preempted $((attempt + 1)) times; giving up."
  say "$NAME was preempted (exit code $code); making it again."
done
