"""Reads of a data set through ``run.filesystem``, in the process and in loader workers."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # loads with the first watch and sets a variable: here, in no test
from torch.utils.data import DataLoader, Dataset

from costlens.config import Config
from costlens.errors import ConfigError
from costlens.run import Run

SIZES = [10, 2_000, 0, 70_000, 333, 5, 4_096, 1_000_000]


class Files(Dataset):
    """Files of known sizes; a sample tells how many bytes and reads it took."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem = filesystem
        self.root = root

    def __len__(self) -> int:
        return len(SIZES)

    def __getitem__(self, index: int) -> torch.Tensor:
        path = f"{self.root}/{index}"
        if not self.filesystem.exists(path):  # memory of a spawned worker's own
            self.filesystem.pipe_file(path, bytes(SIZES[index]))
        num_bytes = num_reads = 0
        with self.filesystem.open(path) as file:
            while piece := file.read(50_000):
                num_bytes += len(piece)
                num_reads += 1
        return torch.tensor([num_bytes, num_reads + 1])  # and the one that found the end


def _run() -> Run:
    return Run(Config(summary=False), exporters=[])


@pytest.mark.parametrize("scheme", ["local", "memory"])
@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_what_is_counted_is_what_was_read(scheme: str, method: str | None, tmp_path: Path) -> None:
    """Epochs with new workers each: bytes and reads equal the data set's own counts."""
    run = _run()
    root = str(tmp_path) if scheme == "local" else "memory://reads"
    # Asked for before the run opens, as a data set is made before training.
    files = Files(run.filesystem(root), root)
    run.open()
    loader = DataLoader(files, num_workers=2 if method else 0, multiprocessing_context=method)
    epochs = 1 if method == "spawn" else 2  # it takes long to spawn
    seen = torch.cat([batch for _ in range(epochs) for batch in run.batches(loader)])
    record = run.finish()
    assert record is not None
    assert record.host is not None
    reads = record.host.reads
    assert reads is not None
    num_bytes, num_reads = seen.sum(dim=0).tolist()
    assert num_bytes == epochs * sum(SIZES)
    assert (reads.num_bytes, reads.num_reads) == (num_bytes, num_reads)
    assert reads.num_opens == epochs * len(SIZES)
    assert (reads.num_errors, reads.num_uncounted) == (0, 0)
    assert sum(reads.buckets) == num_reads
    if scheme == "memory" and method is None:
        files.filesystem.rm("/reads", recursive=True)


def test_a_run_that_nobody_asked_counts_no_reads() -> None:
    """Without a counted file system the record has no part for reads: unknown, not zero."""
    record = _run().open().finish()
    assert record is not None
    assert record.host is not None
    assert record.host.reads is None


def test_reads_are_counted_on_after_a_second_fit(tmp_path: Path) -> None:
    """A run that goes on goes on counting; all its file systems count together."""
    (tmp_path / "a").write_bytes(b"abc")
    run = _run().open()
    run.filesystem(tmp_path).cat_file(str(tmp_path / "a"))
    run.finish()
    run.open()
    run.filesystem("file://").cat_file(str(tmp_path / "a"))
    record = run.finish()
    assert record is not None
    assert record.host is not None
    assert record.host.reads is not None
    assert record.host.reads.num_bytes == 6


def test_where_the_run_is_off_the_file_system_is_plain(tmp_path: Path) -> None:
    """Switched off there is nothing to pay; what cannot be opened is refused all the same."""
    off = Run(Config(enabled=False, summary=False))
    filesystem = off.filesystem(tmp_path)
    assert type(filesystem).__name__ == "LocalFileSystem"
    for run in (off, _run()):
        with pytest.raises(ConfigError, match="takes a path"):
            run.filesystem(None)


def _read_in_child(filesystem: Any, path: str) -> None:
    filesystem.cat_file(path)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_reads_of_a_forked_child_count_though_its_run_is_silent(tmp_path: Path) -> None:
    """A process that only reads for the rank adds to its counts and writes no record of its own."""
    (tmp_path / "a").write_bytes(bytes(1234))
    run = _run().open()
    filesystem = run.filesystem(tmp_path)
    child = multiprocessing.get_context("fork").Process(
        target=_read_in_child, args=(filesystem, str(tmp_path / "a"))
    )
    child.start()
    child.join()
    record = run.finish()
    assert child.exitcode == 0
    assert record is not None
    assert record.host is not None
    assert record.host.reads is not None
    assert record.host.reads.num_bytes == 1234
