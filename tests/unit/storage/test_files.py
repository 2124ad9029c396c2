"""Single files of the user, read and written: one, a folder, a pattern; here and elsewhere."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from costlens.errors import StorageError
from costlens.storage.files import find_files, read_bounded, read_chunks, write_whole

Put = Callable[[str, bytes], None]


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Put]:
    """Return a place and a way to put files there."""
    root = str(tmp_path) if request.param == "local" else f"memory://files-{tmp_path.name}"

    def put(name: str, data: bytes) -> None:
        fs, path = fsspec.url_to_fs(f"{root}/{name}")
        fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        fs.pipe_file(path, data)

    return root, put


def test_a_file_is_read_up_to_its_bound(place: tuple[str, Put]) -> None:
    """One that is larger is refused, not cut."""
    root, put = place
    put("a.toml", b"12345")
    assert read_bounded(f"{root}/a.toml", 5) == b"12345"
    with pytest.raises(StorageError, match="larger than 4 bytes"):
        read_bounded(f"{root}/a.toml", 4)
    with pytest.raises(StorageError, match=r"cannot read .*No such file or directory"):
        read_bounded(f"{root}/none.toml", 4)


def test_names_are_those_of_a_copy_elsewhere(place: tuple[str, Put]) -> None:
    """A folder, a pattern and a file give names that do not depend on where they lie."""
    root, put = place
    for name in ("data/b.bin", "data/a.bin", "data/deep/c.bin", "data/notes.txt"):
        put(name, name.encode())
    names = [file.name for file in find_files(f"{root}/data")]
    assert names == ["a.bin", "b.bin", "deep/c.bin", "notes.txt"]
    assert [file.name for file in find_files(f"{root}/data/*.bin")] == ["a.bin", "b.bin"]
    assert [file.name for file in find_files(f"{root}/*/*.bin")] == ["data/a.bin", "data/b.bin"]
    deep = find_files(f"{root}/data/**/*.bin")
    assert [file.name for file in deep][-1] == "deep/c.bin"
    (one,) = find_files(f"{root}/data/a.bin")
    assert (one.name, one.num_bytes) == ("a.bin", 10)
    assert b"".join(read_chunks(one)) == b"data/a.bin"


def test_nothing_is_an_error(place: tuple[str, Put]) -> None:
    """A pattern that names nothing is a mistake, not an empty data set."""
    root, _ = place
    with pytest.raises(StorageError, match="names no file"):
        find_files(f"{root}/*.bin")
    with pytest.raises(StorageError, match=r"cannot list .*No such file or directory"):
        find_files(f"{root}/none.bin")


def test_a_writer_that_is_killed_leaves_what_was_there(tmp_path: Path) -> None:
    """Whoever opens the file meets all of the old content or all of the new one."""
    target = tmp_path / "page.html"
    target.write_bytes(b"old")
    script = (
        "import os, signal, sys\n"
        "from costlens.storage.files import write_whole\n"
        "real = os.open\n"
        "def opened(path, flags, *rest, **options):\n"
        "    if flags & os.O_TRUNC:\n"
        "        real(path, flags, *rest, **options)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "os.open = opened\n"
        "import io, pathlib\n"
        "pathlib.Path.open = lambda self, *a, **k: io.open(self, *a, opener=opened, **k)\n"
        "write_whole(sys.argv[1], b'new' * 1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, target], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert target.read_bytes() == b"old"


def test_a_disk_that_fills_up_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is told, and neither half a file nor a temporary stays."""
    target = tmp_path / "page.html"
    write_whole(str(target), b"old")

    def fail(self: Path, other: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(StorageError, match="ENOSPC"):
        write_whole(str(target), b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert target.read_bytes() == b"old"


def test_links_and_permissions_of_a_file_stay(tmp_path: Path) -> None:
    """A file that is replaced is the same to its owner, with other content."""
    target, link = tmp_path / "page.html", tmp_path / "latest.html"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    write_whole(str(link), b"new")
    assert link.is_symlink()
    assert (target.read_bytes(), target.stat().st_mode & 0o777) == (b"new", 0o640)


def test_a_folder_is_neither_made_nor_replaced(tmp_path: Path) -> None:
    """A misspelt folder is an error, as it is for the shell."""
    with pytest.raises(StorageError, match="ENOENT"):
        write_whole(str(tmp_path / "none" / "page.html"), b"new")
    with pytest.raises(StorageError, match="EISDIR"):
        write_whole(str(tmp_path), b"new")
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="the system has no /dev/stdout")
def test_what_the_shell_has_opened_is_written_through(tmp_path: Path) -> None:
    """/dev/stdout is a pipe, or the very file that the shell goes on writing to."""
    script = "import sys; from costlens.storage.files import write_whole as w; w(sys.argv[1], b'a')"
    command = [sys.executable, "-c", script, "/dev/stdout"]
    assert subprocess.run(command, check=True, capture_output=True, timeout=60).stdout == b"a"
    out = tmp_path / "out"
    with out.open("wb") as file:
        inode = out.stat().st_ino
        subprocess.run(command, check=True, stdout=file, timeout=60)
    assert (out.read_bytes(), out.stat().st_ino) == (b"a", inode)


def test_a_signed_url_is_not_shown() -> None:
    """What comes after the question mark opens the store to whoever reads the log."""
    url = "https://user:hunter2@127.0.0.1:9/runs/b.json?sig=c0ffee%2Fbeef"
    with pytest.raises(StorageError) as failed:
        write_whole(url, b"new")
    told = f"{failed.value!r} {failed.value.__cause__!r}"
    assert "127.0.0.1:9" in told
    assert not [secret for secret in ("hunter2", "c0ffee", "beef") if secret in told]
