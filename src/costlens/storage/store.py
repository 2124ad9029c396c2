"""A folder of objects at any path or URL: what records, segments and checkpoints go through.

Sits between the rooms that have bytes to keep and the two backends (`local`, `remote`). Calls block
on disk or network, so they belong on the pipeline's or a helper's thread, never the training one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

from costlens.errors import CostlensError, StorageError
from costlens.storage import Backend
from costlens.storage.location import Location, parse_location

__all__ = ["Store", "Translated"]

_Names: TypeAlias = "list[str]"  # inside the class, `list` is the method

_REMEDIES = {
    errno.EACCES: "give this user access to it, or choose another place",
    errno.EDQUOT: "raise the quota, remove old runs, or choose another place",
    errno.EINVAL: "remove or rename it",
    errno.EISDIR: "name a file, or remove the folder that is in the way",
    errno.ENAMETOOLONG: "choose a shorter name or folder",
    errno.ENOENT: "check the name, and that the folder or bucket exists",
    errno.ENOSPC: "free some space, or choose another place",
    errno.ENOTDIR: "a file is in the way: remove it, or choose another place",
    errno.EPERM: "give this user access to it, or choose another place",
    errno.EPROTONOSUPPORT: "write a path, or a scheme such as s3://, gs:// or az://",
    errno.EROFS: "choose a place that is not mounted read-only",
}
_REMEDY = "check that the place is reachable and that the credentials allow it"
# fsspec's plug-ins often raise these with a text and no number.
_NUMBERS = {
    FileNotFoundError: errno.ENOENT,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    TimeoutError: errno.ETIMEDOUT,
}


class Store:
    """Whole objects under one local folder or URL; keys are relative and use ``/`` everywhere.

    Every write is all or nothing, for readers and for kills. The backend is built on first use and
    again after a fork. Safe to share between threads, to pickle and to deep-copy.

    Args:
        url: A path or an fsspec URL; credentials belong in the environment, not in it.

    Raises:
        ConfigError: If `url` cannot be understood (see `location.parse_location`).
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._location = parse_location(url)
        self._backend: tuple[int, Backend] | None = None

    def __repr__(self) -> str:
        return f"Store({self.shown_url!r})"

    def __getstate__(self) -> Location:
        return self._location

    def __setstate__(self, location: Location) -> None:
        self._location = location
        self._backend = None

    @property
    def shown_url(self) -> str:
        """The place without user, password or query: for messages, records and summaries."""
        return self._location.shown

    @property
    def num_parallel(self) -> int:
        """How many objects of some MiB are best written or read at once: 1 for a local folder.

        Raises:
            StorageError: If the plug-in cannot be loaded.
        """
        with Translated(self._location, "open the place"):
            return self._opened().num_parallel

    def load(self) -> None:
        """Import what the place needs without touching it; takes 0.2 s and more for a remote one.

        For whoever uses the store on another thread: a module that is being imported while the
        process forks stays locked in the child, where nobody is left to finish it, and whatever
        imports it there waits for ever. A missing plug-in shows when the place is used.
        """
        with suppress(ImportError, ValueError):
            _load(self._location)

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        """Write the object, replacing what is there at once.

        A local folder that vanished is made again.

        Args:
            key: Relative path, such as ``run/record-1-0.json``.
            data: The whole object.
            durable: Wait until a power cut cannot lose it (local fsync; elsewhere always so).
                Without it the object survives the death of this process, not that of the host.

        Raises:
            StorageError: If it could not be written; what was there before is still whole.
        """
        with Translated(self._location, f"write {key!r}"):
            self._opened().put(_checked(key), data, durable=durable)

    def put_many(self, objects: Mapping[str, bytes | memoryview], *, durable: bool = False) -> None:
        """Write several objects, side by side on object stores; each is whole or not there.

        Object stores hold a copy of each in memory meanwhile.

        Args:
            objects: The whole objects by their keys.
            durable: As for `put`.

        Raises:
            StorageError: If one could not be written; others may have been.
        """
        with Translated(self._location, f"write {len(objects)} objects"):
            checked = {_checked(key): data for key, data in objects.items()}
            self._opened().put_many(checked, durable=durable)

    def create(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        """Return whether this call made the object; False leaves the existing one alone.

        Of any number of callers, on any hosts, one gets True. On local file systems without hard
        links a reader may meet an empty object for the moment between claim and content.

        Args:
            key: Relative path.
            data: The whole object.
            durable: As for `put`.

        Raises:
            StorageError: If it could not be written, or the store cannot create exclusively.
        """
        with Translated(self._location, f"create {key!r}"):
            return self._opened().create(_checked(key), data, durable=durable)

    def read(self, key: str, max_bytes: int | None = None) -> bytes | None:
        """Return the whole object, or None where there is none.

        Args:
            key: Relative path.
            max_bytes: Only its first so many bytes, for an object that anybody may have made, > 0.

        Raises:
            StorageError: If it may exist but cannot be read.
        """
        with Translated(self._location, f"read {key!r}"):
            return self._opened().read(_checked(key), max_bytes)

    def read_into(self, key: str, target: memoryview) -> int | None:
        """Fill ``target`` from the object; return the bytes the object has, or None without one.

        Where the object is shorter than ``target`` only its bytes are filled in; a longer one is
        cut. Local files are read without another copy in memory.

        Args:
            key: Relative path.
            target: Writable bytes.

        Raises:
            StorageError: If it may exist but cannot be read.
        """
        with Translated(self._location, f"read {key!r}"):
            return self._opened().read_into(_checked(key), target)

    def read_many_into(self, targets: Mapping[str, memoryview]) -> dict[str, int]:
        """Do as `read_into` for several objects, side by side on object stores.

        Args:
            targets: Writable bytes by key.

        Returns:
            The bytes each object has; absent ones are left out.

        Raises:
            StorageError: If one may exist but cannot be read.
        """
        with Translated(self._location, f"read {len(targets)} objects"):
            checked = {_checked(key): target for key, target in targets.items()}
            return self._opened().read_many_into(checked)

    def read_many(self, keys: _Names) -> dict[str, bytes | StorageError]:
        """Return what each key holds, or why it cannot be read; absent ones are left out.

        Object stores are asked side by side.

        Raises:
            StorageError: If the store as a whole cannot be reached.
        """
        with Translated(self._location, f"read {len(keys)} objects"):
            found = self._opened().read_many([_checked(key) for key in keys])
        return {
            key: _storage_error(self._location, f"read {key!r} in", data)
            if isinstance(data, Exception)
            else data
            for key, data in found.items()
        }

    def list(self, prefix: str = "") -> _Names:
        """Return the sorted keys of all objects, at any depth, in the folder `prefix`.

        Asks the store each time; a folder that does not exist is empty.

        Raises:
            StorageError: If the store cannot be listed.
        """
        with Translated(self._location, _list(prefix)):
            return sorted(self._opened().walk(_checked(prefix) if prefix else ""))

    def children(self, prefix: str = "") -> _Names:
        """Return the sorted names directly in the folder `prefix`; those of folders end in ``/``.

        One request on object stores however much lies below.

        Raises:
            StorageError: If the store cannot be listed.
        """
        with Translated(self._location, _list(prefix)):
            return sorted(self._opened().children(_checked(prefix) if prefix else ""))

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Return the bytes of each object directly in the folder `prefix`, by its sorted name.

        One request on object stores, or one a thousand objects.

        Raises:
            StorageError: If the store cannot be listed.
        """
        with Translated(self._location, _list(prefix)):
            found = self._opened().sizes(_checked(prefix) if prefix else "")
        return dict(sorted(found.items()))

    def versions(self, prefix: str = "") -> dict[str, str]:
        """Return what tells each object directly in the folder `prefix` from the one before it.

        One request on object stores, or one a thousand objects. Empty for an object of which the
        place tells neither a tag nor a time; on S3 the same bytes within one second look the same.

        Raises:
            StorageError: If the store cannot be listed.
        """
        with Translated(self._location, _list(prefix)):
            return self._opened().versions(_checked(prefix) if prefix else "")

    def written_s(self, key: str) -> float | None:
        """Return when the object was written: Unix seconds by the place's own clock.

        To the second on some stores. None where the place does not tell.

        Raises:
            StorageError: If there is no such object, or the place cannot be asked.
        """
        with Translated(self._location, f"look at {key!r}"):
            return self._opened().written_s(_checked(key))

    def delete(self, key: str) -> None:
        """Remove the object; an absent one is fine.

        Raises:
            StorageError: If it is still there.
        """
        with Translated(self._location, f"delete {key!r}"):
            self._opened().delete(_checked(key))

    def clear(self, prefix: str) -> None:
        """Remove the folder `prefix`: all objects in it, and what killed writers left there.

        Only where nobody writes any more. An absent folder is fine.

        Raises:
            StorageError: If something of it is still there.
        """
        with Translated(self._location, f"clear {prefix!r}"):
            self._opened().clear(_checked(prefix))

    def remove_temporaries(self, prefix: str, older_than_s: float = 3600.0) -> int:
        """Return how many files that killed writers left directly in `prefix` were removed.

        Args:
            prefix: One folder; the ones below are not looked at.
            older_than_s: Seconds; younger ones may still be in the making.

        Raises:
            StorageError: If the folder cannot be listed or changed.
        """
        with Translated(self._location, f"clean up {prefix!r}"):
            return self._opened().remove_temporaries(_checked(prefix), older_than_s)

    def _opened(self) -> Backend:
        # No lock: one taken here could be held by another thread at a fork. Two threads that race
        # build two backends, and either is right.
        pid, opened = os.getpid(), self._backend
        if opened is None or opened[0] != pid:
            opened = self._backend = (pid, _open(self._location))
        return opened[1]


class Translated:
    """Turns what a backend raises into a StorageError.

    A plug-in's exceptions are not known here (those of botocore, aiohttp and azure are no
    OSErrors), so all of them are translated; nothing is swallowed.

    Args:
        location: The place.
        action: What is done in it, such as ``write 'a/b'``.
        is_whole: Whether it is done with the place itself, such as ``read``.
    """

    def __init__(self, location: Location, action: str, *, is_whole: bool = False) -> None:
        self._location = location
        self._action = action if is_whole else f"{action} in"

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, CostlensError):
            return
        translated = _storage_error(self._location, self._action, error)
        # The plug-in's own text may repeat the URL, and a traceback prints causes unredacted.
        raise translated from (None if self._location.has_secret else error)


def _list(prefix: str) -> str:
    return f"list {prefix!r}" if prefix else "list names"


def _load(location: Location) -> None:
    if location.path is not None:
        import costlens.storage.local  # noqa: F401 - for its effect
    else:
        from costlens.storage.remote import load_plugin

        load_plugin(location.url)


def _open(location: Location) -> Backend:
    if location.path is not None:
        from costlens.storage.local import LocalBackend

        return LocalBackend(location.path)
    from costlens.storage.remote import RemoteBackend

    return RemoteBackend(location.url)


def _checked(key: str) -> str:
    """Return `key` where it stays inside the store on every system."""
    if any(character in key for character in "\\:\0") or {"", ".", ".."} & {*key.split("/")}:
        raise OSError(
            errno.EINVAL,
            "a key is a relative path of names joined by '/', without '..', ':' and '\\'",
        )
    return key


def _storage_error(location: Location, action: str, error: Exception) -> StorageError:
    """Return the error to raise: what failed, where, why (with the errno's name), what to do."""
    number = _errno(error)
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if number == errno.ENOENT and not getattr(error, "errno", None):
        text = os.strerror(number)  # the plug-in says nothing but the path
    if location.path is None:
        text = location.scrub(text)
    name = f" ({errno.errorcode[number]})" if number in errno.errorcode else ""
    is_missing = isinstance(error, ImportError)
    remedy = "install that package" if is_missing else _REMEDIES.get(number, _REMEDY)
    translated = StorageError(f"cannot {action} {location.shown}: {text}{name}; {remedy}")
    translated.errno = number or None
    return translated


def _errno(error: Exception) -> int:
    """Return the error's number, or 0 where it has none and its kind says nothing."""
    if isinstance(error, OSError) and error.errno:
        return error.errno
    return next((number for kind, number in _NUMBERS.items() if isinstance(error, kind)), 0)
