"""Single files at any path or URL: a price book, the files of a data set, what a command writes.

Reading takes patterns, too. Calls block on disk or network and belong on an errand's
thread; ``load`` belongs on the calling thread, before.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from glob import has_magic
from pathlib import Path
from typing import Any, NamedTuple

from costlens.errors import StorageError
from costlens.storage.local import replace_file
from costlens.storage.location import Location, parse_location
from costlens.storage.store import Store, Translated

__all__ = [
    "FoundFile",
    "find_files",
    "load",
    "local_path",
    "read_bounded",
    "read_chunks",
    "read_tree",
    "show_place",
    "write_tree",
    "write_whole",
]

CHUNK_BYTES = 1024 * 1024


class FoundFile(NamedTuple):
    """A file, by its name below what was asked for; ``source`` is what `read_chunks` takes."""

    name: str
    num_bytes: int
    source: tuple[Location, str]


def show_place(url: str) -> str:
    """Return the place without user, password or query.

    Raises:
        ConfigError: If `url` cannot be understood (see `location.parse_location`).
    """
    return parse_location(url).shown


def load(url: str) -> None:
    """Import what reading a place needs, without touching it; a missing plug-in shows later."""
    from costlens.storage.remote import load_plugin

    with suppress(ImportError, ValueError):
        load_plugin(parse_location(url).url)


def local_path(url: str) -> Path | None:
    """Return the local path that a path or URL means; None where a store has to be asked.

    Raises:
        ConfigError: If `url` cannot be understood.
    """
    return parse_location(url).path


def read_bounded(url: str, max_bytes: int) -> bytes:
    """Return the whole file.

    Args:
        url: A path or an fsspec URL.
        max_bytes: A larger one is refused; of it no more than this is read.

    Raises:
        ConfigError: If `url` cannot be understood.
        StorageError: If there is no such file, or it cannot be read, or is too large.
    """
    location = parse_location(url)
    with Translated(location, "read", is_whole=True):
        fs, path = _open(location)
        with closing(fs.open(path, "rb")) as file:
            data: bytes = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise StorageError(f"{location.shown} is larger than {max_bytes} bytes; nothing is read")
    return data


def write_whole(url: str, data: bytes) -> None:
    """Write a file; one that is there is replaced.

    It is whole or as it was before, here and on an object store; `/dev/stdout` and pipes are
    written through. A local folder is not made.

    Args:
        url: A path or an fsspec URL.
        data: The whole content.

    Raises:
        ConfigError: If `url` cannot be understood.
        StorageError: If it cannot be written.
    """
    location = parse_location(url)
    if location.path is not None:
        with Translated(location, "write", is_whole=True):
            replace_file(location.path, data)
        return
    place, _, name = url.rstrip("/").rpartition("/")
    try:
        Store(place).put(name, data)
    except StorageError as error:
        # The name ends in the query of a signed URL, which only the whole URL tells to be secret.
        shown = StorageError(location.scrub(str(error)))
        shown.errno = error.errno
        raise shown from None


def read_tree(url: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return what files of a folder hold, by name; absent ones are left out.

    Object stores are asked side by side.

    Args:
        url: The folder, a path or an fsspec URL.
        names: Relative to it, with ``/``.

    Raises:
        ConfigError: If `url` cannot be understood.
        StorageError: If it cannot be reached, or a file that is there cannot be read.
    """
    found: dict[str, bytes] = {}
    for name, data in Store(url).read_many([*names]).items():
        if isinstance(data, StorageError):
            raise data
        found[name] = data
    return found


def write_tree(url: str, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, which a local path is made for; each as `write_whole` does.

    Args:
        url: The folder, a path or an fsspec URL.
        contents: The whole content of each file, by its name relative to the folder.

    Raises:
        ConfigError: If `url` cannot be understood.
        StorageError: If one cannot be written; others may have been.
    """
    location = parse_location(url)
    if location.path is None:
        Store(url).put_many(contents)
        return
    paths = {location.path / name: data for name, data in contents.items()}
    with Translated(location, f"write {len(paths)} files"):
        for path in paths:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{path} is a folder")
        for path, data in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, data)


def find_files(url: str) -> list[FoundFile]:
    """Return the files that a path, a folder or a pattern names, sorted by name.

    Names are relative to the folder, to the part of the pattern before its first wildcard, or to
    where the one file lies: a copy elsewhere has the same names.

    Args:
        url: A path or an fsspec URL; ``*``, ``?``, ``[…]`` and ``**`` are wildcards.

    Raises:
        ConfigError: If `url` cannot be understood.
        StorageError: If it names nothing, or cannot be listed.
    """
    location = parse_location(url)
    with Translated(location, "list", is_whole=True):
        fs, path = _open(location)
        if has_magic(path):
            root, found = _root_of(path), fs.glob(path, detail=True)
        elif fs.isdir(path):
            root, found = path, fs.find(path, detail=True)
        else:
            root, found = path.rpartition("/")[0], {path: fs.info(path)}
        sizes = {n: int(a["size"] or 0) for n, a in found.items() if a["type"] == "file"}
        files = [
            FoundFile(name.removeprefix(root).lstrip("/"), num_bytes, (location, name))
            for name, num_bytes in sizes.items()
        ]
    if not files:
        raise StorageError(f"{location.shown} names no file")
    return sorted(files)


def read_chunks(file: FoundFile) -> Iterator[bytes]:
    """Yield the file in pieces of a MiB.

    Raises:
        StorageError: If it cannot be read.
    """
    location, path = file.source
    with Translated(location, f"read {file.name!r}"):
        fs, _ = _open(location)
        with closing(fs.open(path, "rb")) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                yield chunk


def _open(location: Location) -> tuple[Any, str]:
    import fsspec

    from costlens.storage.remote import check_scheme

    if location.path is None:
        check_scheme(location.url)
    url = location.url if location.path is None else os.fspath(location.path)
    fs, path = fsspec.url_to_fs(url)
    return fs, str(path)


def _root_of(pattern: str) -> str:
    parts = pattern.split("/")
    fixed = next(index for index, part in enumerate(parts) if has_magic(part))
    return "/".join(parts[:fixed])
