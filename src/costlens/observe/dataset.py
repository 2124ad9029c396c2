"""The probe that says which data a run trains on: a fingerprint of the files that were named.

Rank 0 reads them once, on a thread of its own beside the training. The same bytes under the same
names have the same fingerprint wherever they lie; one changed byte has another. A run that goes on
with other data than an earlier attempt says so in the log, and in the merged record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.errand import Errand
from costlens.errors import StorageError
from costlens.storage import files
from costlens.storage.run_folder import RunFolder

__all__ = ["DatasetProbe", "fingerprint_files"]

MAX_FILES = 10_000
MAX_BYTES = 64 * 1024**3
_DIGEST_BYTES = 16
_PATIENCE_S = 0.5
_STOP_S = 1.0
# A run may have been restarted for weeks; the newest attempt that knows its data speaks for all.
_MAX_ATTEMPTS_READ = 20

FindFolder = Callable[[], RunFolder | None]


class DatasetProbe:
    """Fills ``dataset_version`` of the run where files are named and no version is given.

    Args:
        config: The settings of the run.
        state: The attempt; its rank decides who reads.
        find_folder: Returns the run's folder, None while it is not settled.
    """

    name = "dataset"

    def __init__(self, config: Config, state: AttemptState, find_folder: FindFolder) -> None:
        self._urls = () if config.dataset_version else config.dataset_files
        self._given = config.dataset_version
        self._state = state
        self._find_folder = find_folder
        self._errand: Errand[str | None] | None = None
        self._is_stopping = False
        self._is_told = self._is_compared = state.rank.rank != 0

    def load(self) -> None:
        """Import what the places of the files need."""
        for url in self._urls:
            files.load(url)

    def start(self) -> None:
        """Begin to read; waits half a second, in which a small data set is done."""
        if not self._urls or self._state.rank.rank != 0 or self._errand is not None:
            return
        self._state.run_facts["dataset_unknown"] = "the files have not all been read yet"
        self._errand = Errand("dataset", self._read)
        self._errand.start()
        self._errand.wait(_PATIENCE_S)

    def sample(self, now_ns: int) -> None:
        """Take the fingerprint once it is there, and compare it with earlier attempts."""
        if not self._is_told and self._errand is not None and self._errand.is_done:
            self._is_told = True
            self._take(self._errand)
        if not self._is_compared:
            self._compare()

    def contribute(self) -> Mapping[str, object]:
        """Return nothing: the fingerprint is a fact of the run."""
        return {}

    def stop(self) -> None:
        """Give up reading, and wait up to a second for the thread to notice."""
        self._is_stopping = True
        if self._errand is not None:
            self._errand.thread.join(_STOP_S)

    def _read(self) -> str | None:
        return fingerprint_files(self._urls, lambda: self._is_stopping)

    def _take(self, errand: Errand[str | None]) -> None:
        if errand.result is not None:
            self._state.run_facts = {"dataset_version": errand.result}
            return
        self._state.run_facts["dataset_unknown"] = "the files could not be read; the log says why"
        self._state.log.warning(
            "costlens.dataset.unreadable",
            message=f"the dataset version stays unknown: {errand.error}; COSTLENS_DATASET_VERSION"
            " names it instead",
        )

    def _compare(self) -> None:
        version = self._given or self._state.run_facts.get("dataset_version")
        folder = self._find_folder() if version else None
        if folder is None:
            return
        self._is_compared = True
        # What cannot be read now is compared by whoever merges the records.
        with suppress(StorageError):
            before = _find_before(folder, self._state.number)
            if before is not None and before != version:
                self._state.log.warning(
                    "costlens.dataset.changed",
                    message=f"this attempt trains on dataset version {version!r}, an earlier one "
                    f"of the run did on {before!r}",
                )


def fingerprint_files(
    urls: Sequence[str], is_stopping: Callable[[], bool] = lambda: False
) -> str | None:
    """Return the fingerprint of all files that the URLs name, or None where it was given up.

    It is made of the names below what was asked for, the lengths and the bytes, in the order of
    the URLs: a copy elsewhere has the same one. Blocks for as long as reading takes.

    Args:
        urls: Files, folders or patterns.
        is_stopping: Asked after every MiB.

    Raises:
        ConfigError: If a URL cannot be understood.
        StorageError: If one names nothing or cannot be read, or there are more than 10,000 files or
            64 GiB.
    """
    found = [file for url in urls for file in files.find_files(url)]
    num_bytes = sum(file.num_bytes for file in found)
    if len(found) > MAX_FILES or num_bytes > MAX_BYTES:
        raise StorageError(
            f"{len(found):,} files with {num_bytes:,} bytes are more than a fingerprint is made of "
            f"({MAX_FILES:,} files, {MAX_BYTES:,} bytes)"
        )
    whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for file in found:
        content = _hash(files.read_chunks(file), is_stopping)
        if content is None:
            return None
        name = file.name.encode("utf-8", "surrogateescape")
        whole.update(len(name).to_bytes(8, "big") + name + content)
    return f"blake2b:{whole.hexdigest()}"


def _hash(chunks: Iterable[bytes], is_stopping: Callable[[], bool]) -> bytes | None:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for chunk in chunks:
        digest.update(chunk)
        if is_stopping():
            return None
    return digest.digest()


def _find_before(folder: RunFolder, number: int) -> str | None:
    """Return the dataset version of the newest earlier attempt whose rank 0 knew it."""
    for earlier in range(number - 1, max(0, number - 1 - _MAX_ATTEMPTS_READ), -1):
        data = folder.read_record(earlier, 0)
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            version = json.loads(data or b"{}")["run"]["dataset_version"]
            if isinstance(version, str) and version:
                return version
    return None
