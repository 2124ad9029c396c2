"""Where torch leaves its record of collectives when one of them hangs or fails.

Read once, when a run has ended badly. torch appends the rank to a prefix that an environment
variable may name (``FlightRecorder.cpp``); older versions wrote below ``/tmp``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["find_dump"]

_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def find_dump(rank: int, since: float, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the path of the dump that a rank has written, or None.

    Args:
        rank: Rank in the job, from 0.
        since: Unix time; what is older belongs to an earlier run.
        environ: The environment to read; this process's own by default.
    """
    for prefix in _prefixes(os.environ if environ is None else environ):
        path = Path(f"{prefix}{rank}")
        try:
            if path.stat().st_mtime >= since:
                return str(path)
        except OSError:
            continue
    return None


def _prefixes(environ: Mapping[str, str]) -> Iterator[str]:
    for variable in _VARIABLES:
        if environ.get(variable):
            yield environ[variable]
            return
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME') or '/tmp'}/.cache"  # noqa: S108 - torch's own default
    yield f"{cache}/torch/comm_lib_trace_rank_"
    yield "/tmp/nccl_trace_rank_"  # noqa: S108 - torch's own default
