"""Workers of data loaders: counted, timed and missed, planted in a /proc of the test's own."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo  # loads with the first watch and sets a variable: here, in no test
from torch.utils.data import DataLoader, Dataset, TensorDataset

from costlens.config import Config
from costlens.core.clock import NS_PER_S
from costlens.observe.loader_workers import LoaderWorkers, WorkerWatch
from costlens.run import Run

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def plant(proc: Path, pid: int, *, cpu_s: float = 0.0, state: str = "S", **more: int) -> None:
    """Write the stat file of a process."""
    fields = ["0"] * 50
    fields[0], fields[1] = state, str(more.get("parent", os.getpid()))
    fields[11], fields[12] = str(round(cpu_s * TICKS)), "0"
    fields[19], fields[21] = str(more.get("start", 7)), str(more.get("pages", 10))
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "stat").write_text(f"{pid} (a) name (R) {' '.join(fields)}\n")


def iterator(*pids: int) -> SimpleNamespace:
    """Return what an iterator of torch looks like from here."""
    return SimpleNamespace(
        _workers=[SimpleNamespace(pid=pid) for pid in pids], _workers_status=[True] * len(pids)
    )


@pytest.fixture
def known() -> LoaderWorkers:
    """No workers yet."""
    return LoaderWorkers()


def test_cpu_and_memory_are_summed_over_workers(known: LoaderWorkers, tmp_path: Path) -> None:
    """Two workers: their CPU since they began, their memory, and the rate between two looks."""
    watch = WorkerWatch(known, tmp_path)
    assert watch.look(0) is None
    known.add(iterator(11, 12))
    known.add(SimpleNamespace())  # an iterator without workers
    plant(tmp_path, 11, cpu_s=1.5, pages=3)
    plant(tmp_path, 12, cpu_s=0.5, pages=4)
    first = watch.look(0)
    assert first is not None
    assert (first.num_alive, first.num_died) == (2, 0)
    assert first.cpu_s == pytest.approx(2.0)
    assert first.memory_bytes == 7 * PAGE
    plant(tmp_path, 11, cpu_s=3.5)
    second = watch.look(2 * NS_PER_S)
    assert second is not None
    assert second.cpu_s == pytest.approx(4.0)
    assert second.cpus_busy == pytest.approx(1.0)


def test_a_worker_that_goes_leaves_its_cpu_behind(known: LoaderWorkers, tmp_path: Path) -> None:
    """Epoch after epoch with new workers the sum only rises, and none of them died."""
    watch = WorkerWatch(known, tmp_path)
    for epoch in range(5):
        loader = iterator(20 + epoch)
        known.add(loader)
        plant(tmp_path, 20 + epoch, cpu_s=2.0)
        watch.look(epoch * NS_PER_S)
        loader._workers_status[0] = False  # told to end
        shutil.rmtree(tmp_path / str(20 + epoch))
    last = watch.look(9 * NS_PER_S)
    assert last is not None
    assert (last.num_alive, last.num_died) == (0, 0)
    assert last.cpu_s == pytest.approx(10.0)
    assert known.groups == {}


@pytest.mark.parametrize("way", ["gone", "zombie", "another"])
def test_a_worker_that_was_wanted_has_died(known, tmp_path: Path, way: str) -> None:
    """Gone, not waited for, or its number given to another process: counted once."""
    watch = WorkerWatch(known, tmp_path)
    known.add(iterator(31, 32))
    for pid in (31, 32):
        plant(tmp_path, pid, cpu_s=1.0)
    watch.look(0)
    if way == "gone":
        shutil.rmtree(tmp_path / "31")
    elif way == "zombie":
        plant(tmp_path, 31, cpu_s=1.5, state="Z")
    else:
        plant(tmp_path, 31, cpu_s=100.0, start=8, parent=1)
    for second in (1, 2):
        seen = watch.look(second * NS_PER_S)
        assert seen is not None
        assert (seen.num_alive, seen.num_died) == (1, 1)
        assert seen.cpu_s == pytest.approx(2.5 if way == "zombie" else 2.0)


def test_a_process_that_is_no_child_of_ours_is_no_worker(known, tmp_path: Path) -> None:
    """A number that was used again before the first look belongs to somebody else."""
    watch = WorkerWatch(known, tmp_path)
    known.add(iterator(41))
    plant(tmp_path, 41, cpu_s=50.0, parent=1)
    assert watch.look(0) is None


def test_memory_is_bounded_whatever_iterators_come(known: LoaderWorkers, tmp_path: Path) -> None:
    """A loop that makes iterators without end does not fill the memory."""
    for pid in range(1000, 1500):
        known.add(iterator(pid))
    assert len(known.groups) <= 64
    WorkerWatch(known, tmp_path).look(0)
    assert known.groups == {}


class Burning(Dataset):
    """Four samples that keep a CPU busy for a moment each."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        end_s = time.process_time() + 0.1
        while time.process_time() < end_s:
            pass
        return torch.tensor(os.getpid())


def _wait_for(condition: Callable[[], bool]) -> bool:
    for _ in range(400):
        if condition():
            return True
        time.sleep(0.05)
    return False


def _open_run() -> Run:
    return Run(Config(summary=False), exporters=[]).open()


@pytest.mark.parametrize("way", ["batches", "watch"])
def test_real_workers_are_seen_in_a_plain_loop(way: str) -> None:
    """Both ways to watch a loader find its workers; their CPU is not the process's."""
    run = _open_run()
    loader = DataLoader(Burning(), num_workers=2, persistent_workers=True)
    if way == "watch":
        run.watch(torch.nn.Linear(1, 1), loader=loader)
    for _ in range(2):
        pids = {int(batch) for batch in (loader if way == "watch" else run.batches(loader))}
    record = run.finish()
    loader._iterator._shutdown_workers()
    assert record is not None
    assert record.host is not None
    seen, process = record.host.loader, record.host.process
    assert seen is not None
    assert process is not None
    assert (seen.num_alive, seen.num_died) == (len(pids), 0) == (2, 0)
    assert seen.cpu_s >= 0.8  # what was burnt, whatever else they did
    assert seen.memory_bytes is not None
    assert seen.memory_bytes > 2**20


def test_a_real_worker_that_is_killed_is_noticed() -> None:
    """The out-of-memory killer took it: it counts as died, and the loader raises as always."""
    run = _open_run()
    loader = DataLoader(TensorDataset(torch.arange(8.0)), num_workers=2, persistent_workers=True)
    batches = iter(run.batches(loader))
    next(batches)
    watch = WorkerWatch(run.parts.host.workers)
    assert watch.look(0) is not None
    # As if the news had not reached the training thread: the handler would raise into this test.
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        os.kill(loader._iterator._workers[0].pid, signal.SIGKILL)
        assert _wait_for(lambda: (s := watch.look(0)) is not None and s.num_died == 1)
        last = watch.look(0)
        loader._iterator._shutdown_workers()
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert last is not None
    assert (last.num_alive, last.num_died) == (1, 1)
    del batches
    run.finish()
