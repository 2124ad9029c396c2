#!/usr/bin/env bash
# Installs Slurm and munge from Debian or Ubuntu, for the tests in tests/slurm. Does nothing where
# they are there already, and leaves no service running: the tests start their own.
set -euo pipefail
if command -v slurmctld slurmd munged sbatch >/dev/null; then
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "install Slurm (slurmctld, slurmd, sbatch) and munge with this system's package manager" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# Root's own sudo is not everywhere.
root=()
if [ "$(id -u)" -ne 0 ]; then root=(sudo); fi
"${root[@]}" apt-get update -q
"${root[@]}" apt-get install -y -q --no-install-recommends slurm-wlm munge
