#!/usr/bin/env bash
# Gives a TPU back.
set -euo pipefail
USAGE='usage: delete.sh --name NAME --zone ZONE --project PROJECT [options]
Deletes the TPU and its request in the queue. Not an error if there is none.'
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

parse_arguments "$@"
require NAME ZONE PROJECT
queued=$(state_of queued-resources "$NAME")
if ((DRY_RUN)) || [[ $queued != NONE ]]; then
  delete_tpu
else
  say "there is no $NAME in $ZONE."
fi
