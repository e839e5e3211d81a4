#!/usr/bin/env bash
# Runs one command on the GPUs of this machine: by one process, or by several that work together.
set -euo pipefail
# shellcheck disable=SC2016  # the backquotes are for the reader
USAGE='usage: single_node.sh [options] -- t5x train --gin_file=...
Runs `t5x` on this machine. One process uses all GPUs, which is the fastest start and the default;
with --processes each gets an equal share of them. If one process fails, the others are ended and
its exit code is returned; SIGTERM goes to all, so that they save together.

options:
  --processes N   how many (default 1)
  --gpus LIST     which GPUs, e.g. 0,1,2,3 (default: CUDA_VISIBLE_DEVICES, or all)
  --cpu           no GPUs: to try several processes on any machine
  --port PORT     for the processes to meet (default 8476)
  --logs FOLDER   process I prints to FOLDER/process_I.log (default: all to this terminal)
  --grace SECONDS to let the others end after one has failed (default 60)
  --dry-run       print the commands, run none
  --help'

fail() {
  echo "${0##*/}: $*" >&2
  exit 2
}

PROCESSES=1 GPUS=${CUDA_VISIBLE_DEVICES:-} CPU=0 PORT=8476 LOGS='' GRACE=60 DRY_RUN=0 COMMAND=()

set_option() {
  case "$1" in
    --processes) PROCESSES=$2 ;;
    --gpus) GPUS=$2 ;;
    --port) PORT=$2 ;;
    --logs) LOGS=$2 ;;
    --grace) GRACE=$2 ;;
    *) fail "there is no option $1; see --help." ;;
  esac
}

while (($#)); do
  case "$1" in
    --) COMMAND=("${@:2}") && break ;;
    --help | -h) echo "$USAGE" && exit 0 ;;
    --cpu) CPU=1 ;;
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
((${#COMMAND[@]})) || fail "give the command to run after --, e.g. -- t5x train --gin_file=..."
[[ $PROCESSES =~ ^[1-9][0-9]*$ ]] || fail "--processes is a number from 1, not '$PROCESSES'."
[[ $PORT =~ ^[0-9]+$ ]] || fail "--port is a number, not '$PORT'."
[[ $GRACE =~ ^[0-9]+$ ]] || fail "--grace is a number, not '$GRACE'."
GRACE=$((10#$GRACE)) # 08 is eight

devices=()
if ((!CPU)); then
  if [[ -z $GPUS ]]; then
    command -v nvidia-smi >/dev/null || fail "there is no nvidia-smi here; give --gpus or --cpu."
    GPUS=$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)
  fi
  IFS=, read -ra devices <<<"$GPUS"
  ((${#devices[@]} % PROCESSES == 0)) ||
    fail "${#devices[@]} GPUs ($GPUS) cannot be shared equally by $PROCESSES processes."
fi

# command_of I: sets LINE to the command of process I, with its share of the GPUs.
command_of() {
  local share=$((${#devices[@]} / PROCESSES))
  LINE=(env)
  if ((CPU)); then
    LINE+=(JAX_PLATFORMS=cpu)
  else
    LINE+=("CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${devices[*]:$1*share:share}")")
  fi
  LINE+=("${COMMAND[@]}")
  if ((PROCESSES > 1)); then
    LINE+=("--coordinator_address=localhost:$PORT" "--process_count=$PROCESSES"
      "--process_index=$1")
  fi
}

if ((DRY_RUN)); then
  for ((i = 0; i < PROCESSES; i++)); do
    command_of "$i"
    printf '%q ' "${LINE[@]}" && echo
  done
  exit 0
fi

[[ -z $LOGS ]] || mkdir -p "$LOGS"
running=()
for ((i = 0; i < PROCESSES; i++)); do
  command_of "$i"
  if [[ -n $LOGS ]]; then
    "${LINE[@]}" >>"$LOGS/process_$i.log" 2>&1 &
  else
    "${LINE[@]}" &
  fi
  running+=($!)
done
trap 'kill -TERM "${running[@]}" 2>/dev/null || true' TERM INT

# The first that fails gives the exit code; the others see it by themselves, or are ended.
result=0 waited=0
while ((${#running[@]})); do
  sleep 0.5 || true # signals are passed on between two of these, which a terminal sends it too
  still=()
  for pid in "${running[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then
      still+=("$pid")
    else
      code=0
      wait "$pid" || code=$?
      ((result)) || result=$code
    fi
  done
  running=("${still[@]}")
  if ((result && ${#running[@]})) && ((++waited == 2 * GRACE)); then
    echo "${0##*/}: a process ended with exit code $result; ending the others." >&2
    kill -KILL "${running[@]}" 2>/dev/null || true
  fi
done
exit "$result"
