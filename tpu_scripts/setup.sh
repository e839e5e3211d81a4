#!/usr/bin/env bash
# Installs the package on every host of a TPU.
set -euo pipefail
USAGE='usage: setup.sh --name NAME --zone ZONE --project PROJECT [--source WHAT] [options]
Installs the package with its TPU build of JAX on every host, into ~/ckl_env. --source is a folder
with a git repository, whose last commit is sent, or anything that pip installs:
"ckl-jax", "git+https://...". May be run again, to update.'
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The requirement that names the package from WHERE (a path or URL, or a name for a registry).
with_extras() {
  case "${EXTRAS:+extras}:$1" in
    :*) echo "$1" ;;
    *://*) echo "ckl-jax[$EXTRAS] @ $1" ;;
    *) echo "${1%%[<>=~!]*}[$EXTRAS]${1#"${1%%[<>=~!]*}"}" ;;
  esac
}

parse_arguments "$@"
require NAME ZONE PROJECT
if [[ ! -d $SOURCE && $SOURCE == [./]* ]]; then fail "--source $SOURCE is not a folder."; fi
package=$(printf %q "$(with_extras "$SOURCE")")
if [[ -d $SOURCE ]]; then
  [[ -z $(git -C "$SOURCE" status --porcelain 2>&1) ]] ||
    say "$SOURCE has changes that are not committed; they are not sent."
  archive=$(mktemp -d)/ckl_jax.tar.gz
  trap 'rm -rf "${archive%/*}"' EXIT
  git -C "$SOURCE" archive --format=tar.gz --prefix=ckl_jax/ -o "$archive" HEAD ||
    fail "$SOURCE is not a git repository with a commit."
  send_to_all "$archive" ckl_jax.tar.gz
  package="\"ckl-jax${EXTRAS:+[$EXTRAS]} @ file://\$HOME/ckl_jax.tar.gz\""
fi
for path in ${SEND[@]+"${SEND[@]}"}; do
  send_to_all "${path%/}" '' --recurse
done
# The images come with an older Python than JAX needs; uv brings one without root.
on_all "set -e
python3 -m pip install --user --quiet uv
uv=\$HOME/.local/bin/uv
test -x ~/ckl_env/bin/python || \$uv venv --quiet --python 3.12 ~/ckl_env
\$uv pip install --quiet --python ~/ckl_env/bin/python --upgrade 'jax[tpu]' $package
# A libtpu that was there before must give way to the one that this jax pins.
\$uv pip check --quiet --python ~/ckl_env/bin/python
~/ckl_env/bin/t5x --version"
((DRY_RUN)) || say "$NAME is set up; next: run.sh, with the same arguments and -- t5x train ..."
