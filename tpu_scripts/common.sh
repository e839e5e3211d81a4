# shellcheck shell=bash
# What the scripts of this folder share: arguments, checks, and the one function that calls gcloud.
# Every script takes every argument, so that one line of them serves all five.

OPTIONS='
options, the same for create, setup, run, logs and delete (or by the variable in brackets):
  --name NAME        of the TPU and of its request in the queue          [TPU_NAME]
  --zone ZONE        us-central2-b, ...                                  [TPU_ZONE]
  --project PROJECT  of Google Cloud                                     [TPU_PROJECT]
  --type TYPE        v4-32, v5litepod-16, v5p-32, v6e-16, ...            [TPU_TYPE]
  --runtime VERSION  software image; default: the one of the type        [TPU_RUNTIME]
  --spot             a TPU that may be taken away: the default
  --on-demand        a TPU that stays
  --source WHAT      what setup installs: a git checkout (default: this one) or a pip requirement
  --extras LIST      what else setup installs: gcs for gs:// folders, seqio for SeqIO tasks
                     (default gcs; "gcs,seqio"; "" for neither)
  --send PATH        setup sends this folder or file of yours to the home folder of every host,
                     where run starts commands: gin files, task modules, vocabularies. Repeatable
  --attempts N       how often run makes a preempted TPU again (default 100)
  --worker N         logs: which host (default 0)
  --lines N          logs: how many lines (default 50)
  --follow           logs: go on printing
  --dry-run          print the commands, run none
  --help'

# A message for the user, then the exit code of a wrong call.
fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

say() { echo "${0##*/}: $*" >&2; }

usage() { printf '%s\n%s\n' "$USAGE" "$OPTIONS"; }

# shellcheck disable=SC2034  # the scripts use them
set_option() {
  case "$1" in
    --name) NAME=$2 ;;
    --zone) ZONE=$2 ;;
    --project) PROJECT=$2 ;;
    --type) TYPE=$2 ;;
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
}

number() {
  [[ $2 =~ ^[0-9]+$ ]] || fail "$1 is a number, not '$2'."
  echo "$2"
}

# Sets NAME, ZONE, ... from the environment and the arguments; what follows -- becomes COMMAND.
# What a script cannot do without it asks for by `require`, once, for all of it.
# shellcheck disable=SC2034  # the scripts use them
parse_arguments() {
  NAME=${TPU_NAME:-} ZONE=${TPU_ZONE:-} PROJECT=${TPU_PROJECT:-}
  TYPE=${TPU_TYPE:-} RUNTIME=${TPU_RUNTIME:-}
  SPOT=1 DRY_RUN=0 FOLLOW=0 ATTEMPTS=100 WORKER=0 LINES_SHOWN=50 COMMAND=() EXTRAS=gcs SEND=()
  SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  while (($#)); do
    case "$1" in
      --) COMMAND=("${@:2}") && break ;;
      --help | -h) usage && exit 0 ;;
      --spot) SPOT=1 ;;
      --on-demand) SPOT=0 ;;
      --follow) FOLLOW=1 ;;
      --dry-run) DRY_RUN=1 ;;
      --*=*) set_option "${1%%=*}" "${1#*=}" ;;
      --*)
        set_option "$1" "${2-}"
        (($# > 1)) || fail "$1 needs a value."
        shift
        ;;
      *) fail "'$1' is no option; the command to run comes after --." ;;
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
  if [[ $TYPE =~ ^(v2|v3|v4|v5p|v5litepod|v6e)-[1-9][0-9]*$ ]]; then
    ((size % 8 == 0)) && return
    [[ $TYPE =~ ^(v5litepod|v6e)-[14]$ ]] && return
    fail "--type $TYPE: there is none of $size; take a multiple of 8, e.g. ${TYPE%-*}-$(((size / 8 + 1) * 8))."
  fi
  fail "--type $TYPE is no TPU; take v2-8, v3-32, v4-32, v5litepod-16, v5p-32 or v6e-16, in any" \
    "size (GPUs: tpu_scripts/gpu)."
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
  if ((DRY_RUN)); then
    printf '%q ' "${line[@]}" && echo
  else
    "${line[@]}"
  fi
}

# on_workers WHICH COMMAND: runs a shell command on one host, or at once on all of them.
on_workers() {
  tpus tpu-vm ssh "$NAME" "--worker=$1" "--command=$2"
}

# The state of the request (queued-resources) or of the TPU itself (tpu-vm); NONE: there is none.
state_of() {
  local errors text key=state
  [[ $1 == queued-resources ]] && key=state.state
  ((DRY_RUN)) && echo NONE && return
  errors=$(mktemp)
  if text=$(tpus "$1" describe "$NAME" "--format=value($key)" 2>"$errors"); then
    echo "${text:-UNKNOWN}"
  elif grep -qi 'not[ _]found' "$errors"; then
    echo NONE
  else
    text=$(head -n 1 "$errors")
    rm -f "$errors"
    fail "gcloud cannot say the state of $NAME: $text"
  fi
  rm -f "$errors"
}

pause() { sleep "${TPU_POLL_SECONDS:-30}"; }

runtime_of_type() {
  case "$1" in
    v5litepod-*) echo v2-alpha-tpuv5-lite ;;
    v5p-*) echo v2-alpha-tpuv5 ;;
    v6e-*) echo v2-alpha-tpuv6e ;;
    *) echo tpu-ubuntu2204-base ;;
  esac
}

delete_tpu() { tpus queued-resources delete "$NAME" --force --quiet; }

request_tpu() {
  local spot=()
  ((SPOT)) && spot=(--spot)
  tpus queued-resources create "$NAME" "--node-id=$NAME" "--accelerator-type=$TYPE" \
    "--runtime-version=${RUNTIME:-$(runtime_of_type "$TYPE")}" ${spot[@]+"${spot[@]}"}
  MADE=1
}

# Whether the TPU can run a command now.
is_ready() {
  local queued node
  queued=$(state_of queued-resources) || exit
  [[ $queued == ACTIVE ]] || return 1
  node=$(state_of tpu-vm) || exit
  [[ $node == READY ]]
}

# Returns when the TPU is ready, asking for it if need be. MADE=1: it is a new one, to be set up.
# What was preempted stays in the queue as a corpse under the same name: it is deleted first.
ensure_tpu() {
  local queued node last=''
  MADE=0
  while true; do
    queued=$(state_of queued-resources)
    node=''
    [[ $queued == ACTIVE ]] && node=$(state_of tpu-vm)
    [[ $queued$node == "$last" ]] || say "$NAME: request $queued${node:+, TPU $node}"
    last=$queued$node
    case "$queued/$node" in
      ACTIVE/READY) return ;;
      NONE/) request_tpu ;;
      FAILED/)
        ((MADE)) && fail "the request for $NAME failed; see gcloud compute tpus queued-resources" \
          "describe $NAME, then delete.sh."
        delete_tpu
        ;;
      SUSPENDED/ | ACTIVE/PREEMPTED | ACTIVE/TERMINATED | ACTIVE/STOPPED | ACTIVE/NONE) delete_tpu ;;
      *) ;; # it waits, is being made, or is being taken away
    esac
    ((DRY_RUN)) && return
    pause
  done
}
