#!/usr/bin/env bash
# Installs azurite, Azure's own emulator of its blob storage, for the tests in tests/contract, once
# per user and not per checkout. moto (S3) and fake-gcs-server (GCS) come with the extra `test`.
# Does nothing where it is there already, and leaves no service running: the tests start their own.
set -euo pipefail
version=3.35.0 # the newest one that runs on Node 20
folder="${XDG_CACHE_HOME:-$HOME/.cache}/costlens-tests/azurite"
if grep -qs "\"version\": \"$version\"" "$folder/node_modules/azurite/package.json"; then
  exit 0
fi
if ! command -v npm >/dev/null; then
  "$(dirname "${BASH_SOURCE[0]}")/../../debian.sh" "Node.js and npm" nodejs npm
fi
mkdir -p "$folder"
npm install --prefix "$folder" --no-audit --no-fund --no-package-lock --loglevel=error "azurite@$version"
