#!/usr/bin/env bash
# Prints what a host of a TPU has printed.
set -euo pipefail
USAGE='usage: logs.sh --name NAME --zone ZONE --project PROJECT [--worker N] [--follow] [options]
Prints the last lines of what run.sh ran on one host.'
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parse_arguments "$@"
require NAME ZONE PROJECT
follow=''
((FOLLOW)) && follow=' --follow'
slice=$(slices | sed -n "$((SLICE + 1))p")
[[ -n $slice ]] || fail "--slice $SLICE: there are $SLICES, from 0."
tpus tpu-vm ssh "$slice" "--worker=$WORKER" "--command=tail --lines=$LINES_SHOWN$follow ~/ckl_run.log"
