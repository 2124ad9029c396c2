#!/usr/bin/env bash
# Installs the grammars of PromQL, LogQL and TraceQL for the tests in this folder, once per user and
# not per checkout, at the versions in package-lock.json. Does nothing where they are there already.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="${XDG_CACHE_HOME:-$HOME/.cache}/costlens-tests/grammars"
if cmp -s "$here/package-lock.json" "$folder/installed.json"; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  if ! command -v apt-get >/dev/null; then
    echo "install Node.js and npm with this system's package manager" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  # Root's own sudo is not everywhere.
  root=()
  if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
  "${root[@]}" apt-get update -q
  "${root[@]}" apt-get install -y -q --no-install-recommends nodejs npm
fi
mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$folder/"
npm ci --prefix "$folder" --no-audit --no-fund --loglevel=error
# Last, so that an installation that was interrupted is made again.
cp "$here/package-lock.json" "$folder/installed.json"
