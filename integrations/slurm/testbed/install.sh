#!/usr/bin/env bash
# Installs Slurm and munge from Debian or Ubuntu, for the tests in tests/slurm. Does nothing where
# they are there already, and leaves no service running: the tests start their own.
set -euo pipefail
if command -v slurmctld slurmd munged sbatch >/dev/null; then
  exit 0
fi
"$(dirname "${BASH_SOURCE[0]}")/../../../tests/debian.sh" \
  "Slurm (slurmctld, slurmd, sbatch) and munge" slurm-wlm munge
