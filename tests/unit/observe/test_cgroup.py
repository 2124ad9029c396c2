"""Control groups, planted as files under a root of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from costlens.observe.cgroup import CpuReading, MemoryReading, find_cgroups

GIB = 2**30
V1_MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 {mounted} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {mounted} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
"""
V2_MOUNT = (
    "40 31 0:38 {mounted} /sys/fs/cgroup{under} rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
)


def plant(root: Path, files: dict[str, object]) -> Path:
    """Write files below a root, and return it."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def group_v2(folder: str, **numbers: object) -> dict[str, object]:
    """Return the files of a group of version 2."""
    defaults = {
        "cgroup.type": "domain",
        "cpu.max": "max 100000",
        "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n"
        "nr_periods 0\nnr_throttled 0\nthrottled_usec 0",
        "memory.current": GIB,
        "memory.max": "max",
        "memory.stat": f"anon 1\ninactive_file {GIB // 4}",
    }
    named = {name.replace("_", ".", 1): value for name, value in numbers.items()}
    return {f"{folder}/{name}": value for name, value in {**defaults, **named}.items()}


def proc(group: str, mounts: str) -> dict[str, object]:
    """Return what proc says of this process."""
    return {"proc/self/cgroup": group, "proc/self/mountinfo": mounts}


def test_version_2_gives_limit_use_and_throttling(tmp_path: Path) -> None:
    """Half a CPU too little shows as a limit, and what it stopped as periods and seconds."""
    throttled = "usage_usec 7250000\nnr_periods 40\nnr_throttled 10\nthrottled_usec 1500000"
    files = group_v2(
        "sys/fs/cgroup/pod/main",
        cpu_max="350000 100000",
        cpu_stat=throttled,
        memory_max=4 * GIB,
    ) | group_v2("sys/fs/cgroup/pod")
    plant(tmp_path, files | proc("0::/pod/main", V2_MOUNT.format(mounted="/", under="")))
    found = find_cgroups(tmp_path)
    assert found.read_cpu() == CpuReading(7.25, 3.5, 40, 10, 1.5)
    memory = found.read_memory()
    assert memory == MemoryReading(used_bytes=GIB - GIB // 4, limit_bytes=4 * GIB)
    assert memory.available_bytes == 4 * GIB - GIB + GIB // 4


def test_the_tightest_level_counts(tmp_path: Path) -> None:
    """A limit above the process binds it, too, and is used up by all who are below."""
    above = "usage_usec 9000000\nnr_periods 8\nnr_throttled 4\nthrottled_usec 2000000"
    files = (
        group_v2("sys/fs/cgroup/job/step/task", cpu_max="400000 100000", memory_max=8 * GIB)
        | group_v2("sys/fs/cgroup/job/step")
        | group_v2(
            "sys/fs/cgroup/job",
            cpu_max="200000 100000",
            cpu_stat=above,
            memory_current=7 * GIB,
            memory_max=7 * GIB + 1,
            memory_stat="inactive_file 0",
        )
    )
    plant(tmp_path, files | proc("0::/job/step/task", V2_MOUNT.format(mounted="/", under="")))
    found = find_cgroups(tmp_path)
    assert found.read_cpu() == CpuReading(9.0, 2.0, 8, 4, 2.0)
    memory = found.read_memory()
    assert memory is not None
    assert memory.available_bytes == 1


def test_no_limit_is_absent_and_not_zero(tmp_path: Path) -> None:
    """`max` means that there is no limit: use is told, a distance to it is not."""
    files = group_v2("sys/fs/cgroup/pod")
    plant(tmp_path, files | proc("0::/pod", V2_MOUNT.format(mounted="/", under="")))
    found = find_cgroups(tmp_path)
    cpu, memory = found.read_cpu(), found.read_memory()
    assert cpu is not None
    assert (cpu.usage_s, cpu.limit) == (2.5, None)
    assert memory is not None
    assert memory.limit_bytes is None
    assert memory.available_bytes is None


@pytest.mark.parametrize("group", ["/", "/docker/abc"])
def test_version_1_in_a_container(tmp_path: Path, group: str) -> None:
    """With a namespace of its own a container sees "/", without it the host's path."""
    files = {
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": 150_000,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": 100_000,
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 6\nnr_throttled 3\n"
        "throttled_time 250000000",
        "sys/fs/cgroup/cpu,cpuacct/cpuacct.usage": 4_000_000_000,
        "sys/fs/cgroup/memory/memory.usage_in_bytes": 3 * GIB,
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 4 * GIB,
        "sys/fs/cgroup/memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}",
    }
    text = f"4:memory:{group}\n2:cpu,cpuacct:{group}\n1:name=systemd:/x\n"
    plant(tmp_path, files | proc(text, V1_MOUNTS.format(mounted=group)))
    found = find_cgroups(tmp_path)
    assert found.read_cpu() == CpuReading(4.0, 1.5, 6, 3, 0.25)
    assert found.read_memory() == MemoryReading(2 * GIB, 4 * GIB)


def test_version_1_knows_limits_above_what_is_mounted(tmp_path: Path) -> None:
    """The kernel tells the tightest limit of the whole path; its own 'no limit' is none."""
    files = {
        "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB,
        "sys/fs/cgroup/memory/memory.limit_in_bytes": 9223372036854771712,
        "sys/fs/cgroup/memory/memory.stat": f"hierarchical_memory_limit {2 * GIB}",
    }
    plant(tmp_path, files | proc("4:memory:/", V1_MOUNTS.format(mounted="/")))
    assert find_cgroups(tmp_path).read_memory() == MemoryReading(GIB, 2 * GIB)
    unlimited = f"hierarchical_memory_limit {9223372036854771712}"
    plant(tmp_path, {"sys/fs/cgroup/memory/memory.stat": unlimited})
    assert find_cgroups(tmp_path).read_memory() == MemoryReading(GIB, None)


def test_a_machine_that_mounts_both_versions(tmp_path: Path) -> None:
    """Each controller is read where it is: memory in version 1, CPU in version 2."""
    files = {
        "sys/fs/cgroup/memory/slice/memory.usage_in_bytes": GIB,
        "sys/fs/cgroup/memory/slice/memory.limit_in_bytes": 2 * GIB,
        **group_v2("sys/fs/cgroup/unified/slice", cpu_max="100000 100000", memory_max=5),
    }
    mounts = V1_MOUNTS.format(mounted="/") + V2_MOUNT.format(mounted="/", under="/unified")
    plant(tmp_path, files | proc("4:memory:/slice\n0::/slice", mounts))
    found = find_cgroups(tmp_path)
    assert found.hierarchies["memory"].version == 1
    assert found.read_memory() == MemoryReading(GIB, 2 * GIB)
    cpu = found.read_cpu()
    assert cpu is not None
    assert cpu.limit == 1.0


def test_the_root_of_the_machine_is_no_container(tmp_path: Path) -> None:
    """On a bare machine there is nothing to tell, in either version."""
    bare = {
        "sys/fs/cgroup/cpu.stat": "usage_usec 5",  # but no cgroup.type, no limits
        "sys/fs/cgroup/memory/release_agent": "",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": GIB,
    }
    mounts = V1_MOUNTS.format(mounted="/") + V2_MOUNT.format(mounted="/", under="")
    plant(tmp_path, bare | proc("4:memory:/\n0::/", mounts))
    found = find_cgroups(tmp_path)
    assert found.hierarchies == {}
    assert found.read_cpu() is None
    assert found.read_memory() is None


def test_groups_that_vanish_or_cannot_be_read_are_unknown(tmp_path: Path) -> None:
    """A group that was removed while it is watched gives no number, and no error."""
    files = group_v2("sys/fs/cgroup/pod", cpu_max="100000 100000", memory_max=GIB)
    plant(tmp_path, files | proc("0::/pod", V2_MOUNT.format(mounted="/", under="")))
    found = find_cgroups(tmp_path)
    for name in list(files):
        (tmp_path / name).unlink()
    assert found.read_cpu() == CpuReading()
    assert found.read_memory() == MemoryReading()
    plant(tmp_path, {"sys/fs/cgroup/pod/memory.current": "garbage"})
    assert found.read_memory() == MemoryReading()


@pytest.mark.parametrize(
    "text", ["", "nonsense", "0::/../../elsewhere", "4:memory", "0::relative", "\x00\xff"]
)
def test_odd_texts_of_the_kernel_break_nothing(tmp_path: Path, text: str) -> None:
    """What cannot be understood is no container; nothing outside of the mount is read."""
    plant(tmp_path, {"elsewhere/cpu.stat": "usage_usec 1"})
    plant(tmp_path, proc(text, V2_MOUNT.format(mounted="/", under="") + "odd line\n1 2 - x"))
    found = find_cgroups(tmp_path)
    assert found.read_cpu() is None
    assert find_cgroups(tmp_path / "nowhere").read_memory() is None


def test_this_machine_reads_without_an_error() -> None:
    """Whatever this machine is, limits are positive and use is not negative."""
    found = find_cgroups()
    cpu, memory = found.read_cpu(), found.read_memory()
    assert cpu is None or cpu.limit is None or 0 < cpu.limit <= 64 * (os.cpu_count() or 1)
    assert memory is None or memory.used_bytes is None or memory.used_bytes >= 0


BURN = """
import sys, time
from pathlib import Path
from costlens.observe.cgroup import find_cgroups
for group in sys.argv[1:]:
    (Path(group) / "cgroup.procs").write_text("0")
groups = find_cgroups()
before, began_s = groups.read_cpu(), time.process_time()
end_s = time.monotonic() + 20  # a busy machine may give less than the limit
while time.monotonic() < end_s and groups.read_cpu().num_throttled < 10:
    pass
after, used_s = groups.read_cpu(), time.process_time() - began_s
print(after.limit, after.usage_s - before.usage_s, used_s, after.num_throttled)
"""


@pytest.fixture
def limited_groups() -> Iterator[list[Path]]:
    """Return groups of a real kernel that may use a fifth of a CPU, below one with the limit."""
    root, made = Path("/sys/fs/cgroup"), []
    try:
        for controller in ("cpu", "cpuacct") if (root / "cpuacct").is_dir() else ("",):
            outer = root / controller / f"costlens-test-{os.getpid()}"
            for group in (outer, outer / "inner"):
                group.mkdir()
                made.append(group)
            if controller == "cpu":
                (outer / "cpu.cfs_quota_us").write_text("20000")
            elif not controller:
                (outer / "cpu.max").write_text("20000 100000")
    except OSError as error:
        _remove(made)
        pytest.skip(f"no control group can be made here: {error.strerror}")
    yield made
    _remove(made)


def _remove(groups: list[Path]) -> None:
    for group in reversed(groups):
        group.rmdir()


def test_a_real_limit_and_its_throttling_are_measured(limited_groups: list[Path]) -> None:
    """The kernel stops a process that wants more; what we read is what the process itself used."""
    inner = [str(group) for group in limited_groups if group.name == "inner"]
    done = subprocess.run(
        [sys.executable, "-c", BURN, *inner],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    limit, group_s, used_s, num_throttled = map(float, done.stdout.split())
    assert limit == pytest.approx(0.2)
    assert group_s == pytest.approx(used_s, rel=0.1, abs=0.03)
    assert num_throttled >= 1
