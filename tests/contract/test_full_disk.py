"""A disk that is full while the writer's thread saves."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def test_a_full_disk_loses_one_save_and_no_checkpoint(
    tmp_path: Path, require: Callable[[str, bool, str], None]
) -> None:
    """C037: save 1 stands while save 2 fails with ENOSPC and leaves nothing; save 3 is good."""
    unshare = [shutil.which("unshare") or "unshare", "--map-root-user", "--mount"]
    is_allowed = (
        shutil.which("unshare") is not None
        and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0
    )
    require("mounts", is_allowed, "unshare --map-root-user --mount is not allowed here")
    done = subprocess.run(
        [*unshare, sys.executable, "-m", "tests.contract.job_full_disk", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    failed = told[1][1]
    assert failed == errno.ENOSPC
    for step, number, newest, _, temporaries in told:
        assert (number, newest) == ((failed, 1) if step == 2 else (None, step))
        assert temporaries == []
    assert told[2][3] <= 1  # the failed save's empty folder, which a sweep removes
