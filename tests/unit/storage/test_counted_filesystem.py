"""Counted file systems: what is counted, and that they pass for the file system behind them."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from costlens.errors import ConfigError
from costlens.storage.counted_filesystem import CountedFilesystem, count_reads, open_filesystem
from costlens.storage.read_counts import _NUM_OWN, ReadCounts

TEXT = "first line\nsecond line\nthird\n"


@pytest.fixture
def counts() -> ReadCounts:
    """Fresh counts."""
    return ReadCounts()


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path):
    """A file system and a folder on it that holds ``a.txt`` and ``b.bin``."""
    memory = MemoryFileSystem()
    on_local = request.param == "local"
    filesystem = LocalFileSystem() if on_local else memory
    root = str(tmp_path) if on_local else "/counted"
    filesystem.pipe_file(f"{root}/a.txt", TEXT.encode())
    filesystem.pipe_file(f"{root}/b.bin", bytes(range(256)) * 4)
    yield filesystem, root
    if not on_local:
        memory.rm("/counted", recursive=True)


def test_bytes_reads_and_opens_are_those_of_the_caller(folder, counts: ReadCounts) -> None:
    """Every way to read counts what the caller got, once."""
    filesystem, root = folder
    fs = count_reads(filesystem, counts)
    with fs.open(f"{root}/b.bin") as file:
        assert len(file.read(100)) == 100
        assert file.tell() == 100
        assert file.readinto(bytearray(24)) == 24
        file.seek(1000)
        assert len(file.read()) == 24
        assert file.read() == b""
    seen = counts.read()
    assert (seen.num_opens, seen.num_reads, seen.num_bytes) == (1, 4, 148)
    assert fs.cat_file(f"{root}/b.bin", start=0, end=10) == bytes(range(10))
    assert fs.cat([f"{root}/a.txt", f"{root}/b.bin"])[f"{root}/a.txt"] == TEXT.encode()
    assert fs.read_text(f"{root}/a.txt") == TEXT
    assert fs.read_block(f"{root}/a.txt", 0, 5) == b"first"
    assert fs.head(f"{root}/a.txt", 5) == b"first"
    seen = counts.read()
    assert seen.num_reads == 9
    assert seen.num_bytes == 148 + 10 + len(TEXT) + 1024 + len(TEXT) + 5 + 5
    assert sum(seen.buckets) == seen.num_reads
    assert 0 < seen.max_s <= seen.read_s
    assert seen.num_errors == 0


def test_text_and_lines_are_counted_below_the_decoding(folder, counts: ReadCounts) -> None:
    """A file opened as text yields its lines, and its bytes are counted."""
    filesystem, root = folder
    fs = count_reads(filesystem, counts)
    with fs.open(f"{root}/a.txt", "r", encoding="utf-8") as file:
        assert [*file] == TEXT.splitlines(keepends=True)
    with fs.open(f"{root}/a.txt") as file:
        assert [*file] == TEXT.encode().splitlines(keepends=True)
    assert counts.read().num_bytes == 2 * len(TEXT)


def test_copying_a_file_out_is_a_read_of_its_size(folder, counts, tmp_path: Path) -> None:
    """`get_file` brings data in as well as any read."""
    filesystem, root = folder
    count_reads(filesystem, counts).get_file(f"{root}/b.bin", str(tmp_path / "copy"))
    assert (counts.read().num_reads, counts.read().num_bytes) == (1, 1024)


def test_errors_are_counted_and_raised_as_they_are(folder, counts: ReadCounts) -> None:
    """A file that is missing raises what it always raised."""
    filesystem, root = folder
    fs = count_reads(filesystem, counts)
    with pytest.raises(FileNotFoundError):
        fs.open(f"{root}/missing")
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{root}/missing")
    seen = counts.read()
    assert (seen.num_errors, seen.num_reads, seen.num_opens) == (2, 0, 0)


def test_writing_is_the_file_systems_own(folder, counts: ReadCounts) -> None:
    """Nothing that is written is counted or changed."""
    filesystem, root = folder
    fs = count_reads(filesystem, counts)
    with fs.open(f"{root}/new", "wb") as file:
        file.write(b"abc")
    fs.pipe_file(f"{root}/other", b"defg")
    assert filesystem.cat_file(f"{root}/new") == b"abc"
    assert fs.size(f"{root}/other") == 4
    assert counts.read().num_reads == 0


def test_it_passes_for_the_file_system_behind_it(counts: ReadCounts) -> None:
    """Libraries ask for types, protocols and equality; a pickle of a copy stays counted."""
    plain = LocalFileSystem()
    fs = count_reads(plain, counts)
    assert isinstance(fs, fsspec.AbstractFileSystem)
    assert fs.protocol == plain.protocol
    assert fs == plain
    assert fs == count_reads(plain, ReadCounts())
    assert hash(fs) == hash(plain)
    assert fs.ls is not None
    with pytest.raises(AttributeError):
        _ = fs.no_such_thing
    for twin in (copy.copy(fs), copy.deepcopy(fs), pickle.loads(pickle.dumps(fs))):
        assert type(twin) is CountedFilesystem
        twin.head(__file__, 10)
    assert counts.read().num_reads == 3


def test_a_counted_file_system_is_counted_once(counts: ReadCounts) -> None:
    """Counting it again moves it to the new counts."""
    other = ReadCounts()
    fs = count_reads(count_reads(LocalFileSystem(), other), counts)
    fs.head(__file__, 10)
    assert (counts.read().num_reads, other.read().num_reads) == (1, 0)


def test_urls_paths_and_file_systems_are_taken(tmp_path: Path) -> None:
    """What cannot be read from is refused with what is allowed."""
    assert isinstance(open_filesystem("memory://x", {}), MemoryFileSystem)
    assert isinstance(open_filesystem(tmp_path, {}), LocalFileSystem)
    plain = LocalFileSystem()
    assert open_filesystem(plain, {}) is plain
    with pytest.raises(ConfigError, match=r"takes a path, an fsspec URL or .* not int"):
        open_filesystem(3, {})
    with pytest.raises(ConfigError, match="options such as anon with a URL only"):
        open_filesystem(plain, {"anon": True})


def _read_often(fs, path: str, times: int) -> None:
    for _ in range(times):
        fs.head(path, 7)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_processes_and_threads_count_into_the_same_memory(method: str, counts, tmp_path) -> None:
    """The sum over two processes and three threads is exact, and stays when they have ended."""
    path = str(tmp_path / "file")
    (tmp_path / "file").write_bytes(bytes(100))
    fs = count_reads(LocalFileSystem(), counts)
    context = multiprocessing.get_context(method)
    threads = [threading.Thread(target=_read_often, args=(fs, path, 200)) for _ in range(3)]
    processes = [context.Process(target=_read_often, args=(fs, path, 50)) for _ in range(2)]
    for worker in (*processes, *threads):
        worker.start()
    for worker in (*processes, *threads):
        worker.join()
    assert [process.exitcode for process in processes] == [0, 0]
    seen = counts.read()
    assert (seen.num_reads, seen.num_bytes) == (700, 4900)
    assert sum(seen.buckets) == 700
    assert seen.num_uncounted == 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_slots_of_those_who_ended_are_used_again(counts: ReadCounts) -> None:
    """A thread or a process that comes later goes on where one that ended stopped."""
    fs = count_reads(LocalFileSystem(), counts)
    for _ in range(_NUM_OWN + 10):
        thread = threading.Thread(target=_read_often, args=(fs, __file__, 1))
        thread.start()
        thread.join()
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        process = context.Process(target=_read_often, args=(fs, __file__, 1))
        process.start()
        process.join()
    assert counts.read().num_reads == _NUM_OWN + 13
    assert counts.read().num_uncounted == 0


def test_where_no_slot_is_left_reads_work_and_the_loss_is_told(counts: ReadCounts) -> None:
    """More threads at once than there is room for: reading goes on, uncounted."""
    fs = count_reads(LocalFileSystem(), counts)
    go, read = threading.Event(), threading.Semaphore(0)

    def read_and_stay() -> None:
        fs.head(__file__, 1)
        read.release()
        go.wait(60)

    threads = [threading.Thread(target=read_and_stay) for _ in range(_NUM_OWN + 2)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert read.acquire(timeout=60)
    seen = counts.read()
    go.set()
    for thread in threads:
        thread.join()
    assert (seen.num_reads, seen.num_uncounted) == (_NUM_OWN, 2)


def test_a_copy_that_cannot_reach_the_counts_counts_nothing(counts: ReadCounts, tmp_path) -> None:
    """On another machine, or when the rank has gone, a copy is the plain file system."""
    copied = tmp_path / "copied"
    data = pickle.dumps(count_reads(LocalFileSystem(), counts))
    number, token = counts._file, counts._token
    # The same number of a process without such a file, and of one that has another file there.
    copied.write_bytes(data.replace(token, bytes(16)))
    program = (
        "import pickle, sys, pathlib\n"
        "fs = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "print(type(fs).__name__, len(fs.head(sys.argv[1], 3)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, copied],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "LocalFileSystem 3", done.stderr
    assert number is not None
    assert counts.read().num_reads == 0
