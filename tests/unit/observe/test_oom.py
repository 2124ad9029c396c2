"""The count of out-of-memory kills, wherever the system keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlens.core.trouble_records import OomPart
from costlens.observe import oom
from costlens.observe.oom import find_oom, recount_oom

V2 = "low 0\nhigh 3\nmax 9\noom 4\noom_kill {}\noom_group_kill 0\n"
V1 = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty root of cgroups; `membership` beside it says where the process is."""
    root = tmp_path / "cgroup"
    root.mkdir()
    monkeypatch.setattr(oom, "_ROOT", root)
    monkeypatch.setattr(oom, "_MEMBERSHIP", tmp_path / "membership")
    return root


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("membership", "file", "text"),
    [
        ("0::/job/step\n", "job/step/memory.events", V2),
        ("0::/\n", "memory.events", V2),
        ("0::/hidden/by/the/container\n", "memory.events", V2),
        ("5:cpu,memory:/job\n0::/\n", "memory/job/memory.oom_control", V1),
        ("5:memory:/docker/4f3c\n", "memory/memory.oom_control", V1),
    ],
)
def test_the_count_is_found_in_either_version(
    cgroups: Path, membership: str, file: str, text: str
) -> None:
    """Version 2, version 1, and containers that show the host's path."""
    _write(cgroups.parent / "membership", membership)
    path = _write(cgroups / file, text.format(2))
    found = find_oom()
    assert found is not None
    assert (found.start_count, found.count) == (2, 2)
    path.write_text(text.format(5))
    again = recount_oom(found)
    assert again is not None
    assert (again.start_count, again.count) == (2, 5)


def test_a_record_cannot_send_the_reader_elsewhere(cgroups: Path) -> None:
    """Only counters below the root of cgroups are read again, and only numbers count."""
    outside = _write(cgroups.parent / "elsewhere", V2.format(9))
    odd = _write(cgroups / "odd", "oom_kill\n")
    for path in (str(outside), f"{cgroups}/../elsewhere", str(odd), f"{cgroups}/a\0b"):
        found = OomPart(path=path, start_count=1, count=1)
        assert recount_oom(found) == found


def test_no_count_is_unknown_and_not_zero(cgroups: Path) -> None:
    """Without cgroups, without the field, without the file: nothing is claimed."""
    assert find_oom() is None
    _write(cgroups.parent / "membership", "0::/\n")
    assert find_oom() is None
    _write(cgroups / "memory.events", "low 0\n")
    assert find_oom() is None
    assert recount_oom(None) is None


def test_a_cgroup_that_is_gone_keeps_its_last_count(cgroups: Path) -> None:
    """The scheduler removes it with the job."""
    _write(cgroups.parent / "membership", "0::/\n")
    path = _write(cgroups / "memory.events", V2.format(1))
    found = find_oom()
    path.unlink()
    assert recount_oom(found) == found
