"""Files of the user that are only read: one of them, a folder, a pattern; here and elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from costlens.errors import StorageError
from costlens.storage.files import find_files, read_bounded, read_chunks

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
    with pytest.raises(StorageError, match="cannot read the file"):
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
    with pytest.raises(StorageError, match="cannot list the files"):
        find_files(f"{root}/none.bin")
