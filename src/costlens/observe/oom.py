"""How many processes the kernel has killed for lack of memory in this process's cgroup.

Read when a run opens and at each heartbeat, on the pipeline thread; a reader on the same machine
reads the file again after a process that could not speak.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from costlens.core.trouble_records import OomPart

__all__ = ["find_oom", "recount_oom"]

_MEMBERSHIP = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def find_oom() -> OomPart | None:
    """Return the count as it stands, or None where no cgroup keeps one."""
    for path in _candidates():
        count = _read_count(path)
        if count is not None:
            return OomPart(path=str(path), start_count=count, count=count)
    return None


def recount_oom(oom: OomPart | None) -> OomPart | None:
    """Return the count as it stands now; the old one where it cannot be read any more."""
    if oom is None:
        return None
    path = Path(oom.path)
    # A record from elsewhere may name anything; what is outside may block, or be no count.
    is_counter = ".." not in path.parts and path.is_relative_to(_ROOT)
    count = _read_count(path) if is_counter else None
    return oom if count is None else oom.model_copy(update={"count": count})


def _candidates() -> Iterator[Path]:
    try:
        lines = _MEMBERSHIP.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    groups = {}
    for line in lines:
        _, controllers, group = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), group.lstrip("/")))
    # A container may show the host's path, under which nothing is mounted: its own is the root.
    if "memory" in groups:
        for group in (groups["memory"], ""):
            yield _ROOT / "memory" / group / "memory.oom_control"
    for group in (groups.get("", ""), ""):
        yield _ROOT / group / "memory.events"


def _read_count(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError):  # a path that holds a NUL
        return None
    fields = (line.split() for line in text.splitlines())
    with suppress(ValueError, IndexError):
        return next((int(pair[1]) for pair in fields if pair[0:1] == ["oom_kill"]), None)
    return None
