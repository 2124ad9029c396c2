#!/usr/bin/env bash
# Installs Debian's Chromium and fonts for the tests in tests/browser. Does nothing where they are.
set -euo pipefail
command -v chromium >/dev/null && exit 0
"$(dirname "${BASH_SOURCE[0]}")/../debian.sh" Chromium chromium fonts-dejavu-core
