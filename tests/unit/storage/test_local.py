"""Local folders: failing disks, killed writers, file systems that lack something."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from costlens.errors import StorageError
from costlens.storage import local
from costlens.storage.store import Store


def temporaries(folder: Path) -> list[str]:
    """Return the names of files that a writer left behind."""
    return [path.name for path in folder.rglob("*.tmp")]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "not mounted read-only"),
        (errno.EACCES, "give this user access"),
        (errno.EDQUOT, "raise the quota"),
        (errno.ENOSPC, "free some space"),
    ],
)
def test_a_disk_that_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """The error names the object, the place and the errno, and says what to do."""

    def refuse(path: Path) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(local, "_open_new", refuse)
    with pytest.raises(StorageError, match=remedy) as raised:
        Store(tmp_path).put("run/record-1-0.json", b"{}")
    message = str(raised.value)
    assert raised.value.errno == number
    assert "'run/record-1-0.json'" in message
    assert str(tmp_path) in message
    assert os.strerror(number) in message
    assert errno.errorcode[number] in message


def test_a_full_disk_leaves_the_object_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says ENOSPC while the bytes are written: what was there before stays."""
    store = Store(tmp_path)
    store.put("record", b"before")
    monkeypatch.setattr(local, "_open_new", lambda path: os.open("/dev/full", os.O_WRONLY))
    for write in (store.put, store.create):
        with pytest.raises(StorageError, match="ENOSPC"):
            write("record", b"after")
    assert store.read("record") == b"before"


FILE_SIZE_LIMIT = """
import resource, signal, sys
from costlens.errors import StorageError
from costlens.storage.store import Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
store = Store(sys.argv[1])
for write in (store.put, store.create):
    try:
        write("new", b"x" * 10_000)
    except StorageError as error:
        print(error)
"""


def test_a_write_that_stops_half_way_leaves_nothing(tmp_path: Path) -> None:
    """The system takes 4096 of 10000 bytes: no object, no temporary, EFBIG is named."""
    done = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMIT, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.count("(EFBIG)") == 2
    assert [*tmp_path.iterdir()] == []


HAMMER = """
import sys
from costlens.storage.store import Store
store = Store(sys.argv[1])
print(flush=True)
number = 0
while True:
    store.put("record", b"%d" % (number % 10) * 300_000)
    store.create(f"segment-{number}", b"s" * 100_000)
    number += 1
"""


def test_a_killed_writer_leaves_whole_objects(tmp_path: Path) -> None:
    """C032: ten SIGKILLs amid writing: each object is whole, and temporaries are never listed."""
    store = Store(tmp_path)
    for round_ in range(10):
        writer = subprocess.Popen(
            [sys.executable, "-c", HAMMER, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.003 * (round_ + 1))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        for key in store.list():
            data = store.read(key)
            assert data is not None
            assert (len(data), len({*data})) == (300_000 if key == "record" else 100_000, 1)
            assert key == "record" or key.startswith("segment-")


def test_temporaries_of_killed_writers_are_removed(tmp_path: Path) -> None:
    """Old temporaries go; young ones may be in the making and stay, as do all other files."""
    store = Store(tmp_path)
    store.put("run/record-1-0.json", b"{}")
    old, young = tmp_path / "run/.costlens-0a.tmp", tmp_path / "run/.costlens-0b.tmp"
    for path in (old, young, tmp_path / "run/.costlens-not", tmp_path / "run/user.tmp"):
        path.write_bytes(b"half")
        os.utime(path, (1, 1))
    os.utime(young)
    assert store.remove_temporaries("run") == 1
    assert {*temporaries(tmp_path)} == {young.name, "user.tmp"}
    assert store.list() == ["run/.costlens-not", "run/record-1-0.json", "run/user.tmp"]
    assert store.children("run") == [".costlens-not", "record-1-0.json", "user.tmp"]
    assert store.remove_temporaries("run") == store.remove_temporaries("absent") == 0


def test_a_vanished_folder_is_made_again(tmp_path: Path) -> None:
    """Somebody removes the run folder while training: the next write brings it back."""
    store = Store(tmp_path / "runs")
    store.put("run/record-1-0.json", b"1")
    shutil.rmtree(tmp_path / "runs")
    assert (store.read("run/record-1-0.json"), store.list()) == (None, [])
    store.put("run/record-1-0.json", b"2")
    assert store.create("run/segments/windows-1-0-000000.jsonl", b"3")
    assert store.read("run/record-1-0.json") == b"2"


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    """A place that is a file is refused when written and when listed: it is not an empty folder."""
    (tmp_path / "runs").write_bytes(b"a file")
    store = Store(tmp_path / "runs")
    with pytest.raises(StorageError, match=r"\(ENOTDIR\)"):
        store.put("run/x", b"1")
    for look in (store.list, store.children, store.sizes, store.versions):
        with pytest.raises(StorageError, match=r"a file is in the way"):
            look()
    assert (store.read("run/x"), store.children("run")) == (None, [])
    store.delete("run/x")
    assert (tmp_path / "runs").read_bytes() == b"a file"


def test_others_may_read_what_the_umask_allows(tmp_path: Path) -> None:
    """Files get the permissions of any new file, so a report may be made by another user."""
    before = os.umask(0o022)
    try:
        Store(tmp_path).put("a", b"1")
        Store(tmp_path).create("b", b"1")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o644, 0o644]


def test_a_folder_linked_into_itself_is_listed_once(tmp_path: Path) -> None:
    """Symbolic links to folders are not followed, so that a listing ends."""
    store = Store(tmp_path)
    store.put("run/x", b"1")
    (tmp_path / "run" / "self").symlink_to(tmp_path, target_is_directory=True)
    assert store.list() == ["run/x"]


@pytest.fixture
def _no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refuse)


@pytest.mark.usefixtures("_no_links")
def test_creation_is_exclusive_without_hard_links(tmp_path: Path) -> None:
    """On FAT or a mounted object store one of eight threads wins; the object is its bytes."""
    store, won, start = Store(tmp_path), dict[str, list[bytes]](), threading.Barrier(8)

    def create(data: bytes) -> None:
        start.wait()
        for number in range(50):
            if store.create(f"{number}", data):
                won.setdefault(f"{number}", []).append(data)

    threads = [threading.Thread(target=create, args=(b"%d" % index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 50
    assert all([store.read(key)] == winners for key, winners in won.items())
    assert temporaries(tmp_path) == []


@pytest.mark.usefixtures("_no_links")
def test_a_failed_creation_without_hard_links_frees_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the content cannot follow the claim, the empty claim is taken back."""
    store = Store(tmp_path)

    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as failing:
        failing.setattr(Path, "replace", refuse)
        with pytest.raises(StorageError, match="EIO"):
            store.create("a", b"1")
    assert [*tmp_path.iterdir()] == []
    assert store.create("a", b"1")


def test_a_link_whose_answer_was_lost_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS repeats a link that worked and is told that the file exists: it is still ours."""
    link, store = Path.hardlink_to, Store(tmp_path)

    def link_twice(self: Path, target: Path) -> None:
        link(self, target)
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", link_twice)
    assert store.create("a", b"1")
    assert not store.create("a", b"2")
    assert store.read("a") == b"1"


def test_a_file_replaced_on_another_host_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS answers ESTALE when a file goes while it is read: twice is repeated, always is told."""
    store, read, num_stale = Store(tmp_path), local._read_regular, [2]
    store.put("a", b"1")

    def stale(path: Path, max_bytes: int | None) -> bytes:
        if num_stale[0]:
            num_stale[0] -= 1
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(path, max_bytes)

    monkeypatch.setattr(local, "_read_regular", stale)
    assert store.read("a") == b"1"
    num_stale[0] = 99
    with pytest.raises(StorageError, match="ESTALE"):
        store.read("a")
