"""An fsspec file system whose reads are counted: bytes, number, time, errors.

What ``Run.filesystem`` returns. It behaves as the file system it stands before, for which it also
passes where types are asked for; only what reads is timed. Counts are of what the caller gets,
after the buffers and caches of fsspec: a line out of a block that is there is a short read.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from costlens.errors import ConfigError
from costlens.storage.read_counts import ReadCounts

__all__ = ["CountedFile", "CountedFilesystem", "count_reads", "open_filesystem"]

_READS_WHOLE = (
    *("cat", "cat_file", "cat_ranges", "read_bytes", "read_text", "read_block", "head", "tail"),
)
_TEXT_OPTIONS = ("encoding", "errors", "newline")


def open_filesystem(target: Any, options: Mapping[str, Any]) -> Any:  # noqa: ANN401 - fsspec's own
    """Return the file system of a path or URL, or the one that was given; uncounted.

    Args:
        target: A path, an fsspec URL or an fsspec file system.
        options: What fsspec needs to open a URL, such as ``anon=True``.

    Raises:
        ConfigError: If it is none of these, or options come with a file system.
    """
    if isinstance(target, (str, os.PathLike)):
        from fsspec.core import url_to_fs

        return url_to_fs(os.fspath(target), **options)[0]
    if not callable(getattr(target, "cat_file", None)) or not hasattr(target, "protocol"):
        raise ConfigError(
            "filesystem() takes a path, an fsspec URL or an fsspec file system, "
            f"not {type(target).__name__}"
        )
    if options:
        raise ConfigError(
            f"filesystem() takes options such as {min(options)} with a URL only: "
            "this file system has been opened already"
        )
    return target


def count_reads(filesystem: Any, counts: ReadCounts | None) -> Any:  # noqa: ANN401 - fsspec's own
    """Return the file system with its reads counted; without counts, itself.

    Args:
        filesystem: An fsspec file system; a counted one is counted anew, not twice.
        counts: Takes the counts.
    """
    if type(filesystem) is CountedFilesystem:
        filesystem = filesystem.uncounted
    return filesystem if counts is None else CountedFilesystem(filesystem, counts)


class CountedFilesystem:
    """An fsspec file system, counted; pickles into loader workers with its counts.

    Args:
        filesystem: Does the work.
        counts: Takes the counts.
    """

    def __init__(self, filesystem: Any, counts: ReadCounts) -> None:  # noqa: ANN401 - fsspec's own
        self.uncounted = filesystem
        self._counts = counts
        for name in _READS_WHOLE:
            if hasattr(filesystem, name):
                setattr(self, name, _Timed(getattr(filesystem, name), counts))

    def open(self, path: str, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - a file
        """Return what the file system opens; a file to read from counts its reads.

        Args:
            path: As the file system takes it.
            mode: As the file system takes it.
            *args: Passed on.
            **kwargs: Passed on.
        """
        if "r" not in mode or "+" in mode:
            return self.uncounted.open(path, mode, *args, **kwargs)
        is_text = "b" not in mode
        text = {k: kwargs.pop(k) for k in _TEXT_OPTIONS if is_text and k in kwargs}
        binary = mode.replace("t", "") + ("b" if is_text else "")
        began_ns = perf_counter_ns()
        try:
            opened = self.uncounted.open(path, binary, *args, **kwargs)
        except Exception:
            self._counts.tally().add_error()
            raise
        self._counts.tally().add_open(perf_counter_ns() - began_ns)
        counted = CountedFile(opened, self._counts)
        return io.TextIOWrapper(counted, **text) if is_text else counted

    def get_file(self, rpath: str, lpath: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - a path or file
        """Copy a file, counted as one read of its size.

        Args:
            rpath: As the file system takes it.
            lpath: Local path; into an open file nothing is counted.
            *args: Passed on.
            **kwargs: Passed on.
        """

        def get() -> int | None:
            self.uncounted.get_file(rpath, lpath, *args, **kwargs)
            path = Path(lpath) if isinstance(lpath, (str, os.PathLike)) else None
            return path.stat().st_size if path is not None and path.is_file() else None

        _Timed(get, self._counts)()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the file system has
        if name == "uncounted":  # not yet there while it is unpickled
            raise AttributeError(name)
        return getattr(self.uncounted, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        seen: type = self.uncounted.__class__
        return seen

    def __eq__(self, other: object) -> bool:
        mine: bool = self.uncounted == getattr(other, "uncounted", other)
        return mine

    def __hash__(self) -> int:
        return hash(self.uncounted)

    def __repr__(self) -> str:
        return f"CountedFilesystem({self.uncounted!r})"

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return (count_reads, (self.uncounted, self._counts))


class CountedFile:
    """A file to read from, counted; everything else is the file's own.

    Args:
        file: Does the work.
        counts: Takes the counts.
    """

    def __init__(self, file: Any, counts: ReadCounts | None) -> None:  # noqa: ANN401 - fsspec's own
        self._file = file
        self._opened = file
        self._counts = counts
        self._bind()

    def _bind(self) -> None:
        # As attributes, so that a read looks nothing up.
        for name in ("read", "read1", "readinto", "readinto1", "readline", "readlines"):
            method = getattr(self._file, name, None)
            if method is not None:
                timed = method if self._counts is None else _Timed(method, self._counts)
                setattr(self, name, timed)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the file has
        if name in {"_file", "_opened"}:  # not yet there while it is unpickled
            raise AttributeError(name)
        return getattr(self._file, name)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")

    def __next__(self) -> bytes:
        line: bytes = self.readline()
        if not line:
            raise StopIteration
        return line

    def __enter__(self) -> CountedFile:
        # What a file returns here may be another one, as the local file system's does.
        self._file = self._opened.__enter__()
        self._bind()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        held: bool | None = self._opened.__exit__(kind, error, trace)
        return held

    def __reduce__(self) -> tuple[Any, ...]:
        return (CountedFile, (self._opened, self._counts))


class _Timed:
    """A method that reads, timed; on the thread that calls it, about 2 µs."""

    __slots__ = ("_counts", "_read")

    def __init__(self, read: Callable[..., Any], counts: ReadCounts) -> None:
        self._read = read
        self._counts = counts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - what is read
        began_ns = perf_counter_ns()
        try:
            got = self._read(*args, **kwargs)
        except Exception:
            self._counts.tally().add_error()
            raise
        took_ns = perf_counter_ns() - began_ns
        num_bytes = len(got) if type(got) is bytes else _size(got)
        if num_bytes is not None:
            self._counts.tally().add_read(num_bytes, took_ns)
        return got


def _size(got: Any) -> int | None:  # noqa: ANN401 - what is read
    """Return the bytes in what a read returned, None where it returned nothing that was read."""
    if isinstance(got, (bytes, bytearray, memoryview)):
        return memoryview(got).nbytes
    if isinstance(got, int):  # readinto tells how much
        return got
    if isinstance(got, str):
        return len(got.encode("utf-8", errors="surrogateescape"))
    members = got.values() if isinstance(got, Mapping) else got
    if isinstance(got, (Mapping, list, tuple)):
        return sum(_size(member) or 0 for member in members)
    return None
