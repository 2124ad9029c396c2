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
  "$here/../debian.sh" "Node.js and npm" nodejs npm
fi
mkdir -p "$folder"
cp "$here/package.json" "$here/package-lock.json" "$folder/"
npm ci --prefix "$folder" --no-audit --no-fund --loglevel=error
# Last, so that an installation that was interrupted is made again.
cp "$here/package-lock.json" "$folder/installed.json"
