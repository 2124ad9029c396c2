#!/usr/bin/env bash
# Installs packages from Debian or Ubuntu, for the scripts beside the tests that need them.
#   tests/debian.sh WHAT PACKAGE...    WHAT: what to install by hand where there is no apt-get
set -euo pipefail
what="$1"
shift
if ! command -v apt-get >/dev/null; then
  echo "install $what with this system's package manager" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# Root's own sudo is not everywhere.
root=()
if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
"${root[@]}" apt-get update -q
"${root[@]}" apt-get install -y -q --no-install-recommends "$@"
