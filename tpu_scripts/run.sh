#!/usr/bin/env bash
# Runs one command on every host of a TPU at once, again and again if the TPU is preempted.
set -euo pipefail
# shellcheck disable=SC2016  # the backquotes are for the reader
USAGE='usage: run.sh --name NAME --zone ZONE --project PROJECT --type TYPE [options] -- COMMAND ...
       run.sh --name NAME --zone ZONE --project PROJECT --stop
Runs the command on all hosts at once and prints what they print; each keeps it in ~/ckl_run.log.
It runs there on its own: a connection that is lost is made again, and ends nothing, nor does
Ctrl-C here; --stop ends it.
If the TPU is preempted it is made and set up again, and the same command is run: `t5x train`
goes on from the newest checkpoint in MODEL_DIR, which should therefore be a gs:// folder.
Ends with the exit code of the command.
example: run.sh --name pod --zone us-central2-b --project mine --type v4-32 -- \
  t5x train --gin_file=ckl_lora.gin --gin_file=ckl_full.gin --gin.MODEL_DIR="'"'gs://mine/run'"'"'
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parse_arguments "$@"
if ((STOP)); then
  require NAME ZONE PROJECT
  # The group: the command and what it started. `t5x train` saves and ends.
  # shellcheck disable=SC2016  # the hosts expand it
  on_all 'kill -TERM -- "-$(cat ~/ckl_run.pid)"'
  exit
fi
require NAME ZONE PROJECT TYPE COMMAND

# What a host does. The same words sent again attach to the command that they have started.
# PYTHONPATH: what setup.sh sent lies in the home folder. CKL_MULTIPROCESS: the hosts find each
# other by what the TPU tells them. The lock: a second command would find the chips taken. The trap
# keeps the shell that waits for the command alive when both are told to stop.
run=$(date +%s)-$$
inner="exec 9>ckl_run.lock; flock --nonblock 9; echo \$\$ >ckl_run.pid; trap : TERM
$(printf '%q ' "${COMMAND[@]}") >>ckl_run.log 2>&1; echo \$? >ckl_run.exit"
remote="cd; lines=10
if [[ \$(cat ckl_run.id 2>/dev/null) != $run ]]; then
  flock --nonblock --conflict-exit-code 75 ckl_run.lock true || exit
  touch ckl_run.log; lines=+\$((\$(wc -l <ckl_run.log) + 1)); rm -f ckl_run.exit ckl_run.pid
  PATH=\$HOME/ckl_env/bin:\$PATH PYTHONPATH=\$HOME CKL_MULTIPROCESS=1 \
setsid bash -c $(printf %q "$inner") </dev/null >/dev/null 2>&1 &
  echo $run >ckl_run.id
  until [[ -s ckl_run.pid ]]; do sleep 0.1; done
fi
tail --pid=\$(cat ckl_run.pid) --lines=\$lines --follow ckl_run.log
exit \$(cat ckl_run.exit || echo 137)"
# shellcheck disable=SC2016
status='cat ~/ckl_run.exit 2>/dev/null || (kill -0 "$(cat ~/ckl_run.pid)" && echo running) || true'

same=("--name=$NAME" "--zone=$ZONE" "--project=$PROJECT" "--slices=$SLICES")
same+=("--source=$SOURCE" "--extras=$EXTRAS" ${SEND[@]+"${SEND[@]/#/--send=}"})
((DRY_RUN)) && same+=(--dry-run)

trap 'say "detached: the command goes on; see logs.sh, or end it by run.sh --stop."; exit 130' INT
attempt=0
while true; do
  ensure_tpu
  if ((MADE)); then
    "$(dirname "${BASH_SOURCE[0]}")/setup.sh" "${same[@]}"
  fi
  code=0
  on_all "$remote" || code=$?
  ((code == 0)) && exit 0
  ((code == 75)) && fail "a command is running on $NAME already; see logs.sh, or run.sh --stop."
  # Its own failure, a lost connection, or was the TPU taken away? Preemption takes a moment to show.
  pause
  if ! is_ready; then
    ((attempt++ < ATTEMPTS)) || fail "$NAME was preempted $attempt times; giving up."
    say "$NAME was preempted (exit code $code); making it again."
  elif answer=$(on_all "$status") && [[ $answer != *running* ]]; then
    say "the command failed with exit code $code on a TPU that is ready; see logs.sh."
    exit "$code"
  else
    say "the connection to $NAME was lost; the command goes on there: attaching again."
  fi
done
