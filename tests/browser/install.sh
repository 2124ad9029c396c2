#!/usr/bin/env bash
# Installs Debian's Chromium and fonts for the tests in tests/browser. Does nothing where they are.
set -euo pipefail
command -v chromium >/dev/null && exit 0
if ! command -v apt-get >/dev/null; then
  echo "install Chromium with this system's package manager" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# Root's own sudo is not everywhere.
root=()
if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
"${root[@]}" apt-get update -q
"${root[@]}" apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core
