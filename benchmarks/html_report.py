"""Time and memory of the HTML report of a week: 60,000 windows of 10 s.

`python -m benchmarks.html_report [WINDOWS]` makes such a run and calls `costlens report --html` as
a shell would. Limits: 10 s by wall, 500 MB of memory and 2 MB of page; exit code 1 beyond them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.made_runs import usual_price, write_run

MAX_S = 10.0
MAX_MEMORY_MB = 500.0
MAX_PAGE_MB = 2.0
NUM_WINDOWS = 60_000


def main(num_windows: int) -> int:
    """Measure, print and return the exit code."""
    with tempfile.TemporaryDirectory() as place:
        folder = write_run(Path(place), num_windows=num_windows, price=usual_price())
        target = Path(place) / "page.html"
        command = [sys.executable, "-m", "costlens", "report", folder.run_id, "--html", str(target)]
        began_s = time.perf_counter()
        subprocess.run(command, env={**os.environ, "COSTLENS_DIR": place}, check=True)
        wall_s = time.perf_counter() - began_s
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        page_mb = target.stat().st_size / 1e6
    memory_mb = used.ru_maxrss * 1024 / 1e6
    cpu_s = used.ru_utime + used.ru_stime
    print(
        f"{num_windows:,} windows: {wall_s:.1f} s by wall, {cpu_s:.1f} s of CPU, "
        f"{memory_mb:.0f} MB of memory, {page_mb:.2f} MB of page"
    )
    return int(wall_s > MAX_S or memory_mb > MAX_MEMORY_MB or page_mb > MAX_PAGE_MB)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else NUM_WINDOWS))
