"""A local or mounted folder as a store, by plain system calls.

fsspec is not used here: its local file system writes in place and looks before it creates, so a
reader may meet half a file and two ranks may both win. Every object is written to a temporary
beside its place first and published whole.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["LocalBackend", "replace_file"]

_TEMPORARY = ".costlens-"
_TEMPORARY_END = ".tmp"
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
# What file systems without hard links answer: FAT, SMB shares, FUSE mounts of object stores.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_READ_TRIES = 3
_OPEN_TRIES = 5


class LocalBackend:
    """Objects as files under one folder.

    A folder that vanishes while a run goes on is made again by the next write: the run keeps
    what it still knows rather than stopping to write.

    Args:
        root: Absolute path; made on the first write.
    """

    # A disk that waits for one fsync wins little by a second one.
    num_parallel = 1

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, key: str, data: bytes | memoryview, *, durable: bool) -> None:
        """Replace the file by one rename; `durable` also waits for the disk (fsync)."""
        final = self._path(key)
        with _temporary(final, data, durable=durable) as temporary:
            temporary.replace(final)
        if durable:
            _sync_folder(final.parent)

    def put_many(self, objects: Mapping[str, bytes | memoryview], *, durable: bool) -> None:
        """Replace several files, one after the other."""
        for key, data in objects.items():
            self.put(key, data, durable=durable)

    def create(self, key: str, data: bytes, *, durable: bool) -> bool:
        """Return whether this call made the file; exclusive over processes and NFS clients."""
        final = self._path(key)
        with _temporary(final, data, durable=durable) as temporary:
            created = _publish_new(temporary, final)
        if durable and created:
            _sync_folder(final.parent)
        return created

    def read(self, key: str, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes, no more than `max_bytes`, or None; a folder is not an object.

        Only regular files are read: a pipe would block, and a device may never end.
        """
        for last_try in (False,) * (_READ_TRIES - 1) + (True,):
            try:
                return _read_regular(self._path(key), max_bytes)
            except _ABSENT:
                return None
            except OSError as error:
                # NFS: the file was replaced by another host between open and read.
                if last_try or error.errno != errno.ESTALE:
                    raise
        return None

    def read_into(self, key: str, target: memoryview) -> int | None:
        """Fill `target` from the file, without another copy of it in memory."""
        try:
            with _open_regular(self._path(key)) as file:
                left = target
                while len(left) and (num_read := file.readinto(left)):
                    left = left[num_read:]
                return os.fstat(file.fileno()).st_size
        except _ABSENT:
            return None

    def read_many_into(self, targets: Mapping[str, memoryview]) -> dict[str, int]:
        """Fill the targets one after the other; absent files are left out."""
        sizes = {key: self.read_into(key, target) for key, target in targets.items()}
        return {key: size for key, size in sizes.items() if size is not None}

    def read_many(self, keys: list[str]) -> dict[str, bytes | Exception]:
        """Return bytes or the failure by key, read one after the other."""
        found: dict[str, bytes | Exception] = {}
        for key in keys:
            try:
                data = self.read(key)
            except OSError as error:
                found[key] = error
            else:
                if data is not None:
                    found[key] = data
        return found

    def walk(self, prefix: str) -> list[str]:
        """Return the keys of all files at any depth; symbolic links to folders are not followed."""
        found, folders = [], [prefix]
        while folders:
            folder = folders.pop()
            for entry in self._entries(folder):
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(key)
                elif _is_file(entry) and not _is_temporary(entry.name):
                    found.append(key)
        return found

    def children(self, prefix: str) -> list[str]:
        """Return the names directly under the folder, those of folders ending in ``/``."""
        return [
            f"{entry.name}/" if _is_folder(entry) else entry.name
            for entry in self._entries(prefix)
            if not _is_temporary(entry.name)
        ]

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of each file directly under the folder, by its name."""
        found = {}
        for entry in self._entries(prefix):
            if not _is_temporary(entry.name):
                with suppress(FileNotFoundError):  # removed since the folder was read
                    if _is_file(entry):
                        found[entry.name] = entry.stat().st_size
        return found

    def versions(self, prefix: str) -> dict[str, str]:
        """Return time, size and number of each file directly under the folder, by its name."""
        found = {}
        for entry in self._entries(prefix):
            if not _is_temporary(entry.name):
                with suppress(FileNotFoundError):  # removed since the folder was read
                    if _is_file(entry):
                        stat = entry.stat()
                        found[entry.name] = f"{stat.st_mtime_ns}-{stat.st_size}-{stat.st_ino}"
        return found

    def written_s(self, key: str) -> float | None:
        """Return when the file was written; a network file system tells by its server's clock."""
        return self._path(key).stat().st_mtime

    def delete(self, key: str) -> None:
        """Remove the file if there is one; its folder stays."""
        with suppress(*_ABSENT):
            self._path(key).unlink()

    def clear(self, prefix: str) -> None:
        """Remove the folder with all that is in it; links are removed, not followed."""
        with suppress(*_ABSENT):
            shutil.rmtree(self._path(prefix))

    def remove_temporaries(self, prefix: str, older_than_s: float) -> int:
        """Return how many temporaries of killed writers were removed from this one folder."""
        folder, num_removed = self._path(prefix), 0
        left = [entry for entry in self._entries(prefix) if _is_temporary(entry.name)]
        if not left:
            return 0
        # The file system's own clock: a file server's may differ from this host's.
        with _temporary(folder / "now", b"", durable=False) as fresh:
            now_s = fresh.stat().st_mtime
        for entry in left:
            with suppress(FileNotFoundError):  # another rank may be sweeping, too
                if now_s - entry.stat().st_mtime > older_than_s:
                    Path(entry).unlink()
                    num_removed += 1
        return num_removed

    def _path(self, key: str) -> Path:
        return self._root.joinpath(*key.split("/"))

    def _entries(self, prefix: str) -> list[os.DirEntry[str]]:
        """Return what the folder holds; nothing where there is none, unless a file is the root."""
        try:
            with os.scandir(self._path(prefix)) as entries:
                return [*entries]
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            if prefix:
                return []
            raise


def replace_file(path: Path, data: bytes) -> None:
    """Write a file of a user's: whoever looks sees all of it or what was there before.

    Links are followed and permissions kept; pipes, devices, and files in folders that take no
    second one are written through. Its folder is not made.

    Raises:
        OSError: If it cannot be written.
    """
    final = path if _is_of_system(path) else path.resolve()
    if not final.parent.is_dir() or (final.exists() and not _may_replace(final)):
        path.write_bytes(data)
        return
    try:
        with _temporary(final, data, durable=False) as temporary:
            if final.exists():
                shutil.copymode(final, temporary)
            temporary.replace(final)
    except PermissionError:
        path.write_bytes(data)  # the folder is closed, and the file in it may be open


def _may_replace(path: Path) -> bool:
    return path.is_file() and os.access(path, os.W_OK) and not _is_of_system(path)


def _is_of_system(path: Path) -> bool:
    # /dev/stdout may be a file, which the shell holds open and goes on writing to.
    return path.absolute().as_posix().startswith(("/dev/", "/proc/"))


@contextmanager
def _temporary(final: Path, data: bytes | memoryview, *, durable: bool) -> Iterator[Path]:
    """Yield the path of a complete file beside `final`; whatever is left of it goes away."""
    path = final.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}{_TEMPORARY_END}")
    try:
        with os.fdopen(_open_new(path), "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield path
    finally:
        with suppress(OSError):  # renamed away, or the disk that fails is already being reported
            path.unlink()


def _open_new(path: Path) -> int:
    # 0o666 lets the umask decide, so that others may read a run where the user's files allow it;
    # tempfile would make every record private to the account that trained.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    for _ in range(_OPEN_TRIES):
        try:
            return os.open(path, flags, 0o666)
        except FileNotFoundError:  # again where somebody has just removed the empty folder
            path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags, 0o666)


def _publish_new(temporary: Path, final: Path) -> bool:
    """Return whether `final` was made from `temporary`: a hard link never overwrites."""
    try:
        final.hardlink_to(temporary)
    except FileExistsError:
        # NFS may lose the answer to a link that worked and meet it again on its own retry.
        return temporary.stat().st_nlink > 1
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return _publish_over_placeholder(temporary, final)
    return True


def _publish_over_placeholder(temporary: Path, final: Path) -> bool:
    """Return whether an empty `final` could be made and was then replaced by `temporary`.

    Readers see nothing, an empty file or the whole one; a kill in between leaves it empty.
    """
    try:
        os.close(os.open(final, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    try:
        temporary.replace(final)
    except OSError:
        final.unlink()
        raise
    return True


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system lets folders be synced (not Windows)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_regular(path: Path, max_bytes: int | None) -> bytes:
    with _open_regular(path) as file:
        return file.readall() if max_bytes is None else file.read(max_bytes)


def _open_regular(path: Path) -> io.FileIO:
    file = io.FileIO(path, "rb", opener=_open_at_once)  # refuses folders itself
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file")
    return file


def _open_at_once(path: str, flags: int) -> int:
    # Otherwise opening a pipe waits for somebody to write into it.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # A link that leads to itself or into a place that is closed is no reason to list nothing.
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _is_temporary(name: str) -> bool:
    return name.startswith(_TEMPORARY) and name.endswith(_TEMPORARY_END)
