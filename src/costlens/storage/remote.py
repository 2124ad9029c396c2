"""Any other store through fsspec: S3, GCS, Azure, memory.

Built by `Store` on first use, in the process that uses it. Only whole-object calls are made: on
every object store that was measured, an exception inside `open("wb")` publishes half an object.
"""

from __future__ import annotations

import asyncio
import atexit
import errno
import os
import weakref
from collections.abc import Mapping, MutableMapping
from concurrent import futures
from contextlib import suppress
from datetime import datetime, timezone
from glob import has_magic
from typing import Any, Protocol, cast

__all__ = ["RemoteBackend", "check_scheme", "load_plugin"]

# One connection to an object store moves 50 to 100 MB/s; several add up.
NUM_PARALLEL = 8
EXIT_LIMIT_S = 1.0
_ABSENT = (FileNotFoundError, IsADirectoryError)
# What S3, GCS, Azure and fsspec's own stores call the tag and the time of the last write.
_VERSION_KEYS = ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime", "created")


class _FileSystem(Protocol):
    """The part of fsspec's file systems that is used here."""

    store: MutableMapping[str, object]  # of the memory file system only

    def pipe_file(self, path: str, value: bytes, **options: str) -> object: ...
    def pipe(self, path: dict[str, bytes], *, batch_size: int) -> object: ...
    def cat_file(self, path: str, start: int = ..., end: int = ...) -> bytes: ...
    def cat(self, path: list[str], *, on_error: str) -> dict[str, bytes | Exception]: ...
    def find(self, path: str) -> list[str]: ...
    def ls(self, path: str, *, detail: bool) -> list[dict[str, object]]: ...
    def size(self, path: str) -> int | None: ...
    def rm_file(self, path: str) -> object: ...
    def modified(self, path: str) -> datetime: ...


class RemoteBackend:
    """Objects under one URL.

    Raises whatever the plug-in raises; imports fsspec and the plug-in when built.

    Args:
        url: An fsspec URL without chaining.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        check_scheme(url)
        # A private instance without a listing cache: the shared ones of s3fs and gcsfs do not see
        # what another process wrote since they last looked.
        fs, root = fsspec.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True)
        _bound_exit(fs)
        self._fs = cast("_FileSystem", fs)
        self._root = str(root).rstrip("/")
        self._publishes_whole = _publishes_whole(fs)
        self._refuses_second: bool | None = None
        self.num_parallel = NUM_PARALLEL if fs.async_impl else 1

    def put(self, key: str, data: bytes | memoryview, *, durable: bool) -> None:
        """Replace the object in one request; object stores are always durable."""
        self._check_publishes_whole()
        self._fs.pipe_file(
            self._path(key), bytes(data)
        )  # plug-ins want bytes; bytes are not copied

    def put_many(self, objects: Mapping[str, bytes | memoryview], *, durable: bool) -> None:
        """Replace several objects, up to `num_parallel` requests side by side."""
        if self.num_parallel == 1:
            for key, data in objects.items():
                self.put(key, data, durable=durable)
            return
        self._check_publishes_whole()
        values = {self._path(key): bytes(data) for key, data in objects.items()}
        self._fs.pipe(values, batch_size=self.num_parallel)

    def create(self, key: str, data: bytes, *, durable: bool) -> bool:
        """Return whether this call made the object; the store itself refuses the second one."""
        self._check_publishes_whole()
        path = self._path(key)
        if _is_memory(self._fs):
            return _create_in_memory(self._fs, path, data)
        try:
            self._fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except OSError:
            # Some S3-compatible servers answer with a bare 412 or 409, which s3fs cannot name.
            if self.read(key) is None:
                raise
            return False
        if self._refuses_second is None:
            self._refuses_second = self._refuses(path, data)
        if not self._refuses_second:
            raise OSError(
                errno.ENOTSUP,
                "this store overwrote an object that it was asked to create only if absent, so two "
                "launches could take the same number; it needs conditional writes (If-None-Match)",
            )
        return True

    def read(self, key: str, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes, no more than `max_bytes`, or None."""
        try:
            if max_bytes is None:
                return self._fs.cat_file(self._path(key))
            return self._fs.cat_file(self._path(key), start=0, end=max_bytes)
        except _ABSENT:
            return None

    def read_into(self, key: str, target: memoryview) -> int | None:
        """Fill `target` from the object; the plug-in's own copy of it is short-lived."""
        data = self.read(key)
        return None if data is None else _fill(target, data)

    def read_many_into(self, targets: Mapping[str, memoryview]) -> dict[str, int]:
        """Fill the targets from objects that are read side by side; absent ones are left out."""
        sizes = {}
        for key, data in self.read_many([*targets]).items():
            if isinstance(data, Exception):
                raise data
            sizes[key] = _fill(targets[key], data)
        return sizes

    def read_many(self, keys: list[str]) -> dict[str, bytes | Exception]:
        """Return bytes or the failure by key; requests run side by side where the plug-in can."""
        if not keys:
            return {}
        if has_magic(self._root):  # `cat` would take the root for a pattern
            each = {key: self.read(key) for key in keys}
            return {key: data for key, data in each.items() if data is not None}
        by_path = self._fs.cat([self._path(key) for key in keys], on_error="return")
        answers = {key: by_path[self._path(key)] for key in keys if self._path(key) in by_path}
        return {key: data for key, data in answers.items() if not isinstance(data, _ABSENT)}

    def walk(self, prefix: str) -> list[str]:
        """Return the keys of all objects at any depth; one request a thousand objects on S3."""
        try:
            paths = self._fs.find(self._path(prefix))
        except FileNotFoundError:
            return []
        keys = (path.removeprefix(self._root).lstrip("/") for path in paths)
        return [key for key in keys if key not in {"", prefix} and not key.endswith("/")]

    def children(self, prefix: str) -> list[str]:
        """Return the names directly under the folder, those of folders ending in ``/``."""
        entries = self._entries(prefix)
        return [f"{name}/" if e["type"] == "directory" else name for name, e in entries]

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of each object directly under the folder, by its name."""
        found = {}
        for name, entry in self._entries(prefix):
            if entry["type"] != "directory":
                size = entry.get("size")
                if size is None:  # a web server's listing tells none
                    size = self._ask_size(f"{prefix}/{name}" if prefix else name)
                if size is not None:
                    found[name] = int(str(size))
        return found

    def _ask_size(self, key: str) -> int | None:
        try:
            return self._fs.size(self._path(key))
        except _ABSENT:
            return None

    def versions(self, prefix: str) -> dict[str, str]:
        """Return tag or time of each object directly under the folder, by its name."""
        return {
            name: "/".join(str(entry[key]) for key in _VERSION_KEYS if entry.get(key))
            for name, entry in self._entries(prefix)
            if entry["type"] != "directory"
        }

    def written_s(self, key: str) -> float | None:
        """Return when the object was written, where the plug-in tells."""
        try:
            at = self._fs.modified(self._path(key))
        except NotImplementedError:
            return None
        return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()

    def delete(self, key: str) -> None:
        """Remove the object if there is one."""
        try:
            self._fs.rm_file(self._path(key))
        except _ABSENT:
            return

    def clear(self, prefix: str) -> None:
        """Remove every object in the folder; object stores know no folders."""
        for key in self.walk(prefix):
            self.delete(key)

    def remove_temporaries(self, prefix: str, older_than_s: float) -> int:
        """Return 0: whole-object writes leave nothing behind."""
        return 0

    def _entries(self, prefix: str) -> list[tuple[str, dict[str, object]]]:
        folder = self._path(prefix)
        try:
            entries = self._fs.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = ((str(entry["name"]).rstrip("/"), entry) for entry in entries)
        # S3 lists the marker object of an empty folder, or the file itself.
        return [(path.rsplit("/", 1)[-1], entry) for path, entry in found if path != folder]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _check_publishes_whole(self) -> None:
        if not self._publishes_whole:
            raise OSError(
                errno.ENOTSUP,
                "this file system writes in place, so readers could meet half an object; "
                "use a local folder, S3, GCS or Azure",
            )

    def _refuses(self, path: str, data: bytes) -> bool:
        """Return whether the store refuses to create the same object again (asked once)."""
        try:
            self._fs.pipe_file(path, data, mode="create")
        except OSError:
            return True
        return False


def _bound_exit(fs: Any) -> None:  # noqa: ANN401 - fsspec's own
    """Let the end of the process not wait for a store that hangs.

    At exit adlfs closes its client without a limit, and the client waits until the store has taken
    what is on its way; in a forked child it waits for a thread that is not there. s3fs and gcsfs
    have limits of their own.
    """
    client = getattr(fs, "service_client", None)
    if client is None:
        return
    for finalizer in [*getattr(weakref.finalize, "_registry", ())]:
        alive = finalizer.peek()
        if alive is not None and alive[0] is fs:
            finalizer.atexit = False
    loop, pid = fs.loop, os.getpid()

    def close() -> None:
        if os.getpid() == pid:
            futures.wait([asyncio.run_coroutine_threadsafe(client.close(), loop)], EXIT_LIMIT_S)

    atexit.register(close)


def _fill(target: memoryview, data: bytes) -> int:
    num_bytes = min(len(data), len(target))
    target[:num_bytes] = data[:num_bytes] if num_bytes < len(data) else data
    return len(data)


def load_plugin(url: str) -> None:
    """Import fsspec and the plug-in for a URL; no disk, no network.

    Raises:
        ImportError: If the plug-in, or what it needs, is not installed.
        ValueError: If fsspec knows no plug-in for the URL.
    """
    import fsspec
    import fsspec.asyn
    import fsspec.implementations.memory
    from fsspec.core import split_protocol

    with suppress(ImportError):  # of newer versions, which import it with the first URL
        import fsspec.implementations.chained
    fsspec.get_filesystem_class(split_protocol(url)[0])


def check_scheme(url: str) -> None:
    """Do nothing where fsspec knows the scheme of a URL; imports its plug-in.

    Raises:
        ImportError: If the plug-in, or what it needs, is not installed.
        OSError: If there is no such scheme (EPROTONOSUPPORT).
    """
    import fsspec
    from fsspec.core import split_protocol

    scheme = split_protocol(url)[0]
    try:
        fsspec.get_filesystem_class(scheme)
    except ValueError:
        raise OSError(
            errno.EPROTONOSUPPORT, f"fsspec knows no store of the scheme {scheme}://"
        ) from None


def _publishes_whole(fs: object) -> bool:
    """Return whether the plug-in has a whole-object write of its own.

    fsspec's inherited one (SFTP, FTP, SMB, HDFS) opens the file for writing in place, and only
    looks whether it exists before it creates.
    """
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    # An asynchronous plug-in overrides the underscored one; the public one is made from it.
    name, base = (
        ("_pipe_file", AsyncFileSystem)
        if isinstance(fs, AsyncFileSystem)
        else ("pipe_file", AbstractFileSystem)
    )
    return getattr(type(fs), name) is not getattr(base, name)


def _is_memory(fs: object) -> bool:
    from fsspec.implementations.memory import MemoryFileSystem

    return isinstance(fs, MemoryFileSystem)


def _create_in_memory(fs: _FileSystem, path: str, data: bytes) -> bool:
    """Return whether the object is now this one; fsspec's own way lets two threads both win."""
    from fsspec.implementations.memory import MemoryFile

    file = MemoryFile(fs, path, data)
    return fs.store.setdefault(path, file) is file
