#!/usr/bin/env bash
# What the tests of GPUs need from the system: a C compiler for the stand-in driver.
set -euo pipefail
command -v gcc >/dev/null && exit 0
"$(dirname "${BASH_SOURCE[0]}")/../debian.sh" "a C compiler" gcc libc6-dev
