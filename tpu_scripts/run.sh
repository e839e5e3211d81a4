#!/usr/bin/env bash
# Runs one command on every host of a TPU at once, again and again if the TPU is preempted.
set -euo pipefail
# shellcheck disable=SC2016  # the backquotes are for the reader
USAGE='usage: run.sh --name NAME --zone ZONE --project PROJECT --type TYPE [options] -- COMMAND ...
       run.sh --name NAME --zone ZONE --project PROJECT [--slices N] --stop
Runs the command on all hosts at once and prints what they print; each keeps it in ~/ckl_run.log.
It runs there on its own: a connection that is lost is made again, and ends nothing, nor does
Ctrl-C here; the same line again attaches to it, and --stop ends it.
If the TPU is preempted it is made and set up again, under repair it is waited for, and the same
command is run: `t5x train` goes on from the newest checkpoint in MODEL_DIR, which should therefore
be a gs:// folder.
Ends with the exit code of the command.
example: run.sh --name pod --zone us-central2-b --project mine --type v4-32 -- \
  t5x train --gin_file=ckl_lora.gin --gin_file=ckl_full.gin --gin.MODEL_DIR="'"'gs://mine/run'"'"'
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parse_arguments "$@"
if ((STOP)); then
  require NAME ZONE PROJECT
  state=$(state_of queued-resources "$NAME")
  ((DRY_RUN)) || [[ $state != NONE ]] || fail "there is no $NAME in $ZONE, and nothing to stop."
  # The group: the command and what it started. `t5x train` saves and ends.
  on_all "cd; if flock --nonblock ckl_run.lock true; then echo 'No command is running on $NAME.'
else kill -TERM -- \"-\$(cat ckl_run.pid)\" && echo 'The command on $NAME was told to stop.'; fi" | sort -u
  exit
fi
require NAME ZONE PROJECT TYPE COMMAND

# Names this run of the command; a run of the same words has the same beginning.
words=$(printf '%q ' "${COMMAND[@]}" | cksum)
words=${words%% *}
new_run() { run=$words-$(date +%s)-$RANDOM; }
new_run

# What a host answers: whether a command runs there, how the last one ended ("lost": the host was
# started anew under it), or that nothing is installed.
status="cd; if ! test -s ckl_run.exit && ! flock --nonblock ckl_run.lock true; then echo \"running \$(cat ckl_run.id)\"
elif ! test -x ckl_env/bin/t5x; then echo bare
else echo \"ended \$(cat ckl_run.id) \$(cat ckl_run.exit || echo lost)\"; fi 2>/dev/null"

# remote LINES: what a host does: it starts the command, or attaches to the one of this name and
# sends its last LINES lines, each behind the process and two numbers that make the line's; when the
# command has ended, a line that says so.
# PYTHONPATH: what setup.sh sent lies in the home folder. CKL_MULTIPROCESS: the hosts find each
# other by what the TPU tells them. The lock: a second command would find the chips taken. The trap
# keeps the shell that waits for the command alive when both are told to stop.
remote() {
  local inner
  inner="exec 9>ckl_run.lock; flock --nonblock 9; echo $run >ckl_run.id; echo \$\$ >ckl_run.pid; trap : TERM
$(printf '%q ' "${COMMAND[@]}") >>ckl_run.log 2>&1; echo \$? >ckl_run.exit"
  echo "cd; touch ckl_run.log; last=\$(wc -l <ckl_run.log)
if [[ \$(cat ckl_run.id 2>/dev/null) != $run ]]; then
  flock --nonblock --conflict-exit-code 75 ckl_run.lock true || exit
  first=\$((last + 1)); echo \$first >ckl_run.first; rm -f ckl_run.exit ckl_run.pid
  PATH=\$HOME/ckl_env/bin:\$PATH PYTHONPATH=\$HOME CKL_MULTIPROCESS=1 \
setsid bash -c $(printf %q "$inner") </dev/null >/dev/null 2>&1 &
  until [[ -s ckl_run.pid ]]; do sleep 0.1; done
else
  first=\$(cat ckl_run.first); ((last - first < $1)) || first=\$((last - $1 + 1))
fi
pid=\$(cat ckl_run.pid)
tail --pid=\$pid --lines=+\$first --follow ckl_run.log | cat -n | sed -u \"s/^ */\$HOSTNAME-\$pid \$first /\"
echo; echo ended $run
exit \$(cat ckl_run.exit 2>/dev/null || echo 137)"
}

# Prints what hosts send, without the lines that an earlier connection has brought. ended=1: one
# said that the command has ended.
declare -A seen
new_lines() {
  local line number
  while IFS= read -r line || [[ -n $line ]]; do
    if [[ $line =~ ^([^ ]+-[0-9]+)\ ([0-9]+)\ ([0-9]+)$'\t'(.*) ]]; then
      line=${BASH_REMATCH[4]} number=$((BASH_REMATCH[2] + BASH_REMATCH[3]))
      ((number > ${seen[${BASH_REMATCH[1]}]:-0})) || continue
      seen[${BASH_REMATCH[1]}]=$number
    elif [[ -z $line || $line == "ended $run" ]]; then # with what ends a last line without end
      [[ -z $line ]] || ended=1
      continue
    fi
    printf '%s\n' "$line"
  done
}

set_up() { "$(dirname "${BASH_SOURCE[0]}")/setup.sh" "$@"; }

# went_away WHY: says so, --attempts times at most.
went_away() {
  ((PREEMPTIONS++ < ATTEMPTS)) || fail "$NAME went away $PREEMPTIONS times; giving up."
  say "$1"
}

# Says what failed, and waits for the next try; there are three, if nothing has run yet and the TPU
# is there: one that went away is made again, or waited for.
try_again() {
  if ! is_ready; then
    went_away "$1, and it is no longer ready: waiting for it, or making it again."
    tries=0 away=1
    return
  fi
  ((begun || ++tries < 3)) || fail "$1, $tries times; see above. This line again goes on from here."
  say "$1; trying again."
  pause
}

if ((DRY_RUN)); then
  ensure_tpu
  set_up "$@"
  on_all "$(remote 10)"
  exit
fi
shopt -s lastpipe # new_lines remembers
begun=0 tries=0 code='' away=0
while true; do
  # Its own failure, a lost connection, or was the TPU taken away, for good or to be repaired?
  if [[ -n $code ]] && ! is_ready; then
    went_away "$NAME is no longer ready (exit code $code): waiting for it, or making it again."
    tries=0 code='' away=1
  fi
  ensure_tpu
  ((!MADE)) || begun=0
  if ! answer=$(on_all "$status"); then
    try_again "$NAME cannot be reached by ssh"
    continue
  fi
  lines=10
  if [[ $answer =~ "running $words-"[0-9]*-[0-9]+ ]]; then
    run=${BASH_REMATCH[0]#running }
    if ((begun)); then
      say "the connection to $NAME was lost; the command goes on there: attaching again."
      lines=1000
    else
      say "this command is running on $NAME already: attaching to it."
    fi
  elif [[ $answer == *running* ]]; then
    fail "another command is running on $NAME; see logs.sh, or run.sh --stop."
  elif [[ $answer == *bare* ]]; then
    begun=0
    set_up "$@" || try_again "setting up $NAME failed"
    continue
  elif [[ $answer == *"ended $run "* ]]; then
    # What it printed while nobody listened. The codes count that the hosts have kept.
    on_all "$(remote 1000)" | new_lines || true
    if [[ $answer == *"ended $run lost"* ]]; then
      ((away)) || went_away "a host of $NAME was started anew under the command."
      say "running the command again."
      new_run
      begun=0
      continue
    fi
    code=$(sed -n "/^ended $run [1-9]/{s/.* //p;q;}" <<<"$answer")
    case "${code:=0}" in
      0) ;;
      143) say "the command was stopped, as by run.sh --stop; the same line goes on with it." ;;
      *) say "the command failed with exit code $code on a TPU that is ready; see logs.sh." ;;
    esac
    exit "$code"
  elif ((begun)); then # no host has heard of it
    begun=0
    try_again "the command could not be started on $NAME"
    continue
  fi
  begun=1 code=0 away=0 ended=0
  LEFT='the command goes on; the same line again attaches to it, run.sh --stop ends it.'
  on_all "$(remote "$lines")" | new_lines || code=$?
  ((code || !ended)) || exit 0 # a connection that was lost may end with 0 too
  pause # preemption takes a moment to show; 75 is the command's own, or that another was faster
done
