#!/usr/bin/env bash
# What the tests of GPUs need from the system: a C compiler for the stand-in driver.
set -euo pipefail
command -v gcc >/dev/null && exit 0
sudo="$([ "$(id -u)" = 0 ] || echo sudo)"
$sudo apt-get update -q
$sudo apt-get install -qy --no-install-recommends gcc libc6-dev
