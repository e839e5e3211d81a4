# shellcheck shell=bash
# What the scripts of this folder share: arguments, checks, and the one function that calls gcloud.
# Every script takes every argument, so that one line of them serves all five.

OPTIONS='
options, the same for create, setup, run, logs and delete (or by the variable in brackets):
  --name NAME        of the TPU and of its request in the queue          [TPU_NAME]
  --zone ZONE        us-central2-b, ...                                  [TPU_ZONE]
  --project PROJECT  of Google Cloud                                     [TPU_PROJECT]
  --type TYPE        v4-32, v5litepod-16, v5p-32, v6e-16, tpu7x-8, ...   [TPU_TYPE]
  --slices N         so many TPUs of the type, joined over the network (default 1)
  --runtime VERSION  software image; default: the one of the type        [TPU_RUNTIME]
  --spot             a TPU that may be taken away: the default
  --on-demand        a TPU that stays
  --reserved         a TPU of your reservation, which stays too
  --network NAME     of your cloud; default: the one of the project. --subnetwork NAME: a part of it
  --internal-ips     hosts without addresses outside the network, in which you are too
  --service-account EMAIL  as whom the hosts act; default: the one of the project
  --source WHAT      what setup installs: a git checkout (default: this one) or a pip requirement
  --extras LIST      what else setup installs: gcs for gs:// folders, seqio for SeqIO tasks
                     (default gcs; "gcs,seqio"; "" for neither)
  --send PATH        setup sends this folder or file of yours to the home folder of every host,
                     where run starts commands: gin files, task modules, vocabularies. Repeatable
  --attempts N       how often run goes on after a TPU was preempted or repaired, and asks again
                     for one that the cloud then refuses (default 100)
  --stop             run: stop what runs, which saves, instead of starting a command
  --worker N         logs: which host (default 0), of the slice --slice N (default 0)
  --lines N          logs: how many lines (default 50)
  --follow           logs: go on printing
  --dry-run          print the commands, run none
  --help'

# A message for the user, then the exit code of a wrong call.
fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

# Ctrl-C ends a script, and says what goes on without it.
LEFT=''
trap '[[ -z $LEFT ]] || say "interrupted: $LEFT"; exit 130' INT

say() { echo "${0##*/}: $*" >&2; }

usage() { printf '%s\n%s\n' "$USAGE" "$OPTIONS"; }

# shellcheck disable=SC2034  # the scripts use them
set_option() {
  case "$1" in
    --name) NAME=$2 ;;
    --zone) ZONE=$2 ;;
    --project) PROJECT=$2 ;;
    --type) TYPE=$2 ;;
    --slices)
      SLICES=$(number "$1" "$2")
      ((SLICES)) || fail "--slices is $2; give 1 or more."
      ;;
    --slice) SLICE=$(number "$1" "$2") ;;
    --network) NETWORK=$2 ;;
    --subnetwork) SUBNETWORK=$2 ;;
    --service-account) ACCOUNT=$2 ;;
    --runtime) RUNTIME=$2 ;;
    --source) SOURCE=$2 ;;
    --extras) EXTRAS=$2 ;;
    --send)
      [[ -e $2 ]] || fail "--send: there is no $2."
      SEND+=("$2")
      ;;
    --attempts) ATTEMPTS=$(number "$1" "$2") ;;
    --worker) WORKER=$(number "$1" "$2") ;;
    --lines) LINES_SHOWN=$(number "$1" "$2") ;;
    *) fail "there is no option $1; see --help." ;;
  esac
  [[ -n $2 || $1 == --extras ]] || fail "$1 needs a value."
}

number() {
  [[ $2 =~ ^[0-9]+$ ]] || fail "$1 is a number, not '$2'."
  ((${#2} < 10)) || fail "$1 is $2; give at most 9 digits."
  echo $((10#$2)) # 010 is ten
}

# Sets NAME, ZONE, ... from the environment and the arguments; what follows -- becomes COMMAND.
# What a script cannot do without it asks for by `require`, once, for all of it.
# shellcheck disable=SC2034  # the scripts use them
parse_arguments() {
  NAME=${TPU_NAME:-} ZONE=${TPU_ZONE:-} PROJECT=${TPU_PROJECT:-}
  TYPE=${TPU_TYPE:-} RUNTIME=${TPU_RUNTIME:-}
  TIER=spot DRY_RUN=0 FOLLOW=0 STOP=0 ATTEMPTS=100 WORKER=0 LINES_SHOWN=50 COMMAND=() EXTRAS=gcs SEND=()
  SLICES=1 SLICE=0 NETWORK='' SUBNETWORK='' INTERNAL='' ACCOUNT='' PATIENT=0 PREEMPTIONS=0 REFUSALS=0 WAS_READY=0
  SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  while (($#)); do
    case "$1" in
      --) COMMAND=("${@:2}") && break ;;
      --help | -h) usage && exit 0 ;;
      --spot | --on-demand | --reserved) TIER=${1#--} ;;
      --internal-ips) INTERNAL=1 ;;
      --stop) STOP=1 ;;
      --follow) FOLLOW=1 ;;
      --dry-run) DRY_RUN=1 ;;
      --*=*) set_option "${1%%=*}" "${1#*=}" ;;
      --*)
        set_option "$1" "${2-}"
        [[ ${2---} != --* ]] || fail "$1 needs a value${2:+, and $2 is an option}."
        shift
        ;;
      *) fail "'$1' is not an option; the command to run comes after --." ;;
    esac
    shift
  done
  [[ -z $TYPE ]] || check_type
}

# Stops unless TYPE names a TPU as Google Cloud does: a mistake would be found only by the queue.
check_type() {
  local size=${TYPE##*-}
  case "$TYPE" in
    v5e-* | v5lite-* | v5-*) fail "--type $TYPE is written v5litepod-$size (or v5p-$size)." ;;
  esac
  if [[ $TYPE =~ ^(v2|v3|v4|v5p|v5litepod|v6e|tpu7x)-[1-9][0-9]*$ ]]; then
    ((size % 8 == 0)) && return
    [[ $TYPE =~ ^(v5litepod|v6e)-[14]$|^tpu7x-2$ ]] && return
    fail "--type $TYPE: there is none of $size; take a multiple of 8, e.g. ${TYPE%-*}-$(((size / 8 + 1) * 8))."
  fi
  fail "--type $TYPE is not a TPU; take v2-8, v3-32, v4-32, v5litepod-16, v5p-32, v6e-16 or tpu7x-8, in" \
    "any size (GPUs: tpu_scripts/gpu)."
}

# Stops if a setting or the COMMAND is missing, in one sentence that names all that are.
require() {
  local setting missing=''
  for setting in "$@"; do
    [[ -z ${!setting:-} ]] || continue
    case "$setting" in
      COMMAND) missing+=", the command to run after -- (e.g. -- t5x train --gin_file=...)" ;;
      *) missing+=", --${setting,,} (or the variable TPU_$setting)" ;;
    esac
  done
  [[ -z $missing ]] || fail "give ${missing#, }."
  command -v gcloud >/dev/null || ((DRY_RUN)) ||
    fail "gcloud is not on the PATH; install the Google Cloud command line and log in."
}

# tpus queued-resources create ...: calls gcloud, or prints the call.
tpus() {
  local line=(gcloud compute tpus "$@" "--zone=$ZONE" "--project=$PROJECT")
  [[ -z $INTERNAL || $2 != s* ]] || line+=(--internal-ip) # ssh and scp
  if ((DRY_RUN)); then
    printf '%q ' "${line[@]}" && echo
  else
    "${line[@]}"
  fi
}

# The names of the slices: one has the name of the request itself.
slices() {
  if ((SLICES == 1)); then echo "$NAME"; else printf "$NAME-%s\n" $(seq 0 $((SLICES - 1))); fi
}

# on_all COMMAND: runs a shell command at once on all hosts of all slices. Its exit code is the
# first one that is not 0.
on_all() {
  local slice pid code=0 pids=()
  for slice in $(slices); do
    if ((DRY_RUN)); then
      tpus tpu-vm ssh "$slice" --worker=all "--command=$1"
    else
      tpus tpu-vm ssh "$slice" --worker=all "--command=$1" &
      pids+=($!)
    fi
  done
  for pid in ${pids[@]+"${pids[@]}"}; do
    wait "$pid" || code=${code/#0/$?}
  done
  return "$code"
}

# send_to_all FILE PLACE [OPTION]: copies a file or folder to all hosts.
send_to_all() {
  local slice
  for slice in $(slices); do
    tpus tpu-vm scp "${@:3}" "$1" "$slice:$2" --worker=all
  done
}

# The state of the TPU: that of the first of its slices that is not READY.
state_of_tpu() {
  local slice state=READY
  for slice in $(slices); do
    state=$(state_of tpu-vm "$slice") || exit
    [[ $state == READY ]] || break
  done
  echo "$state"
}

# The state of a request (queued-resources) or of a TPU itself (tpu-vm); NONE: there is none. With
# PATIENT=1 a cloud that does not answer, as of a laptop that sleeps, is asked until it does.
state_of() {
  local errors text reason last='' key=state
  [[ $1 == queued-resources ]] && key=state.state
  ((DRY_RUN)) && echo NONE && return
  errors=$(mktemp)
  while ! text=$(tpus "$1" describe "$2" "--format=value($key)" 2>"$errors"); do
    reason=$(sed -n '/ERROR/,$p' "$errors") # after warnings
    reason=${reason:-$(cat "$errors")}
    reason="gcloud cannot say the state of $2: ${reason:-it ended without a message}"
    text=NONE
    # No other words will do: a zone or a program can be "not found" too.
    [[ ! $reason =~ NOT_FOUND:\ Resource\ \'[^\']*/$2\' ]] || break
    ((PATIENT)) || { rm -f "$errors" && fail "$reason"; }
    [[ $reason == "$last" ]] || say "$reason"$'\n'"Asking again until it can."
    last=$reason
    pause
  done
  rm -f "$errors"
  echo "${text:-UNKNOWN}"
}

pause() { sleep "${TPU_POLL_SECONDS:-30}"; }

runtime_of_type() {
  case "$1" in
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    tpu7x-*) echo v2-alpha-tpu7-ubuntu2404 ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

give_back() { delete_tpu || refused "$NAME could not be deleted; see above"; }

delete_tpu() { tpus queued-resources delete "$NAME" --force --quiet; }

request_tpu() {
  local how=("--node-id=$NAME")
  ((SLICES == 1)) || how=("--node-prefix=$NAME" "--node-count=$SLICES")
  how+=("--accelerator-type=$TYPE" "--runtime-version=${RUNTIME:-$(runtime_of_type "$TYPE")}")
  [[ $TIER == on-demand ]] || how+=("--$TIER")
  [[ -z $NETWORK ]] || how+=("--network=$NETWORK")
  [[ -z $SUBNETWORK ]] || how+=("--subnetwork=$SUBNETWORK")
  [[ -z $INTERNAL ]] || how+=(--internal-ips)
  [[ -z $ACCOUNT ]] || how+=("--service-account=$ACCOUNT")
  tpus queued-resources create "$NAME" "${how[@]}" && MADE=1
}

# What the cloud refuses ends the script; once a TPU was there it is asked again, --attempts times at
# most, since nobody may be watching any more.
refused() {
  ((WAS_READY && REFUSALS++ < ATTEMPTS)) || fail "$1."
  say "$1; asking again."
}

# Whether the TPU can run a command now.
is_ready() {
  local queued node
  queued=$(state_of queued-resources "$NAME") || exit
  [[ $queued == ACTIVE ]] || return 1
  node=$(state_of_tpu) || exit
  [[ $node == READY ]]
}

# A TPU that was made with another --slices has other names, and must not be taken for one that is gone.
refuse_other_slices() {
  local name state
  for name in "$NAME" "$NAME-0"; do
    state=$(state_of tpu-vm "$name") || exit
    [[ $state == NONE ]] || fail "$NAME has a TPU $name, which is $state, and not the $SLICES of" \
      "--slices; give the --slices that it was made with, or delete it by delete.sh."
  done
}

# Returns when the TPU is ready, asking for it if need be. MADE=1: it was asked for here.
# What was preempted stays in the queue as a corpse under the same name: it is deleted first.
ensure_tpu() {
  local queued node last=''
  MADE=0
  while true; do
    queued=$(state_of queued-resources "$NAME")
    PATIENT=1
    LEFT="what was asked for stays; this line again waits on, delete.sh gives it back."
    node=''
    [[ $queued == ACTIVE ]] && node=$(state_of_tpu)
    [[ $queued$node == "$last" ]] || say "$NAME: request $queued${node:+, TPU $node}"
    last=$queued$node
    case "$queued/$node" in
      ACTIVE/READY)
        REFUSALS=0 WAS_READY=1
        return
        ;;
      NONE/) request_tpu || refused "$NAME could not be asked for; see above" ;;
      FAILED/)
        ((!MADE)) || refused "the request for $NAME failed; see gcloud compute tpus queued-resources describe $NAME, then delete.sh"
        give_back
        ;;
      ACTIVE/NONE)
        refuse_other_slices
        give_back
        ;;
      SUSPENDED/ | ACTIVE/PREEMPTED | ACTIVE/TERMINATED | ACTIVE/STOPPED) give_back ;;
      *) ;; # it waits, is being made, or is being taken away
    esac
    ((DRY_RUN)) && return
    pause
  done
}
