#!/usr/bin/env bash
# Asks for a TPU and waits until it is there.
set -euo pipefail
USAGE='usage: create.sh --name NAME --zone ZONE --project PROJECT --type TYPE [options]
Asks for a TPU through the queue and waits until it is ready. One of that name that is ready is
left as it is; one that was preempted is deleted and asked for again.'
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parse_arguments "$@"
require NAME ZONE PROJECT TYPE
ensure_tpu
((DRY_RUN)) || say "$NAME is ready; next: setup.sh, with the same arguments."
