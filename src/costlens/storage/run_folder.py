"""One run's folder: numbered attempts, each rank's record, and closed segments of windows.

Written by the pipeline of every rank without waiting for another, read by rank 0 at heartbeats and
by whoever reports. Nothing here is locked: exclusive creates and whole replacements are enough.
"""

from __future__ import annotations

import errno
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from costlens.errors import StorageError
from costlens.storage.json_object import decode_object
from costlens.storage.names import safe_name
from costlens.storage.segments import join_lines, write_closed
from costlens.storage.store import Store
from costlens.storage.telemetry_folder import TelemetryFolder

__all__ = ["MAX_CONTROL_BYTES", "MAX_RECORD_BYTES", "RunFolder", "claim_run_id"]

MAX_RECORD_BYTES = 256 * 1024
# A later costlens may allow more; beyond it somebody has put something else in the place.
_MOST_READ_BYTES = 16 * MAX_RECORD_BYTES
MAX_CONTROL_BYTES = 16 * 1024
_CLAIM = re.compile(r"([0-9]{4,6})\.json")
_RECORD = re.compile(r"record-(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})\.json")
_LIKE_RECORD = re.compile(r"record-.*\.json/?")
# A hundred times what sixty windows take; of what somebody has put there no more is read.
_MAX_SEGMENT_BYTES = 16 * 1024 * 1024
_SEGMENT = re.compile(r"windows-([0-9]+)-([0-9]+)-([0-9]+)\.jsonl")
_RUN_ID_KEY = "run.json"
_CONTROL = "control.json"
# Each try that fails means that another launch has taken a number, or that a claim is being
# written on a file system without hard links; a hundred launches at once is beyond use.
_MAX_TRIES = 100
_MAX_EMPTY_TRIES = 20
_PAUSE_S = 0.05


class RunFolder:
    """The files of one run in a store.

    Args:
        store: What holds the folders of all runs.
        run_id: The run; made safe as a path.
        pause: Waits the given seconds, for a claim that another process is about to fill.
    """

    def __init__(
        self, store: Store, run_id: str, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.run_id = safe_name(run_id)
        self._store = store
        self._pause = pause

    def claim_attempt(self, launch_key: str, details: Mapping[str, object]) -> int:
        """Return the number of this launch's attempt, from 1; the first rank to come claims it.

        All ranks of a launch get the same number, whoever comes first; a launch with another key
        gets the next one. A few requests; more only while other launches claim at the same time.

        Args:
            launch_key: What all ranks of this launch, and no other launch, share.
            details: What the claim says besides, as JSON values. ``wall_ns``, the Unix time of the
                launch in nanoseconds, is what `latest` runs are found by.

        Raises:
            StorageError: If the store refuses, or too many launches claim at once.
        """
        claim = _to_json({**details, "launch_key": launch_key})
        num_empty = newest = 0
        for _ in range(_MAX_TRIES):
            newest = max([newest, *self.attempts()])
            claimed, has_empty = self._find_claim(launch_key, newest)
            if claimed is not None:
                return claimed
            if has_empty and num_empty < _MAX_EMPTY_TRIES:
                num_empty += 1
                self._pause(_PAUSE_S)
            else:
                newest += 1  # taken from here on, even if a cached listing does not show it yet
                if self._store.create(self._attempt_key(newest), claim):
                    self._remove_temporaries()
                    return newest
        raise StorageError(
            f"cannot claim an attempt of run {self.run_id!r} in {self._store.shown_url}: after "
            f"{_MAX_TRIES} tries other launches still take each number; start fewer at once"
        )

    def release_attempt(self, number: int) -> None:
        """Take back a claim that this process has made, before anything was written under it.

        Raises:
            StorageError: If the store refuses.
        """
        self._store.delete(self._attempt_key(number))

    def attempts(self) -> list[int]:
        """Return the numbers that are claimed, in order; none where there is no such run.

        Raises:
            StorageError: If the store cannot be listed.
        """
        names = self._store.children(f"{self.run_id}/attempts")
        return sorted(number for (number,) in _numbers(_CLAIM, names))

    def read_claim(self, number: int) -> dict[str, object]:
        """Return what the claim of an attempt says; empty where it cannot be understood.

        Raises:
            StorageError: If it cannot be read.
        """
        with suppress(ValueError):
            return _from_json(self._store.read(self._attempt_key(number)) or b"")
        return {}

    def read_claims(self) -> tuple[dict[int, dict[str, object]], list[str]]:
        """Return the claims by attempt number, and what is wrong with those left out.

        Raises:
            StorageError: If the store cannot be listed.
        """
        numbers = {self._attempt_key(number): number for number in self.attempts()}
        names = {key: key.removeprefix(f"{self.run_id}/") for key in numbers}
        claims, problems = self._read_json(names)
        return {numbers[key]: claim for key, claim in claims.items()}, problems

    def write_record(self, attempt: int, rank: int, data: bytes) -> None:
        """Replace this rank's record of this attempt as a whole.

        Args:
            attempt: Number of the attempt, from 1.
            rank: The rank, from 0.
            data: JSON, at most 256 KiB.

        Raises:
            StorageError: If the store refuses, or the record is too large.
        """
        if len(data) > MAX_RECORD_BYTES:
            error = StorageError(
                f"the record of attempt {attempt}, rank {rank} has {len(data)} bytes; at most "
                f"{MAX_RECORD_BYTES} are allowed, whatever the run's length"
            )
            error.errno = errno.EFBIG
            raise error
        self._store.put(self._record_key(attempt, rank), data)

    def read_record(self, attempt: int, rank: int) -> bytes | None:
        """Return this rank's record of this attempt as written, or None.

        Raises:
            StorageError: If it cannot be read.
        """
        return self._store.read(self._record_key(attempt, rank))

    def read_records(self) -> tuple[dict[str, dict[str, object]], list[str]]:
        """Return all records by the name of their file, and what is wrong with those left out.

        In the order of attempts and ranks. What looks like a record and is none is told, too. Two
        listings and one read a record; object stores are asked side by side.

        Raises:
            StorageError: If the store cannot be listed.
        """
        names = self._store.children(self.run_id)
        sizes = self._store.sizes(self.run_id)
        huge = {name for name, num_bytes in sizes.items() if num_bytes > _MOST_READ_BYTES}
        numbers = sorted(_numbers(_RECORD, (name for name in names if name not in huge)))
        keys = {self._record_key(*pair): f"record-{pair[0]}-{pair[1]}.json" for pair in numbers}
        records, problems = self._read_json(keys)
        odd = [
            f"{name}: it looks like a record and is none; it is left out"
            for name in names
            if _LIKE_RECORD.fullmatch(name) and not _RECORD.fullmatch(name)
        ]
        odd += [
            f"{name}: it has {sizes[name]} bytes and a record {MAX_RECORD_BYTES} at most; it is "
            "left out"
            for name in sorted(huge)
            if _RECORD.fullmatch(name)
        ]
        return {keys[key]: records[key] for key in keys if key in records}, [*problems, *odd]

    def read_control(self) -> bytes | None:
        """Return what somebody asks of the running run, or None; one byte too many at most.

        One request, however large the file is: every rank asks once a window.

        Raises:
            StorageError: If it cannot be read.
        """
        return self._store.read(f"{self.run_id}/{_CONTROL}", MAX_CONTROL_BYTES + 1)

    def write_control(self, data: bytes) -> None:
        """Ask something of the running run; replaces what was asked before as a whole.

        Raises:
            StorageError: If the store refuses.
        """
        self._store.put(f"{self.run_id}/{_CONTROL}", data)

    def read_some_records(
        self, pairs: Iterable[tuple[int, int]]
    ) -> tuple[dict[str, dict[str, object]], list[str]]:
        """Return the records of some attempts and ranks as `read_records` does.

        Args:
            pairs: Attempt and rank of each.

        Raises:
            StorageError: If the store as a whole cannot be reached.
        """
        keys = {self._record_key(*pair): f"record-{pair[0]}-{pair[1]}.json" for pair in pairs}
        records, problems = self._read_json(keys)
        return {keys[key]: records[key] for key in keys if key in records}, problems

    def record_numbers(self) -> list[tuple[int, int]]:
        """Return attempt and rank of every record, in order; one listing.

        Raises:
            StorageError: If the store cannot be listed.
        """
        found = _numbers(_RECORD, self._store.children(self.run_id))
        return sorted((attempt, rank) for attempt, rank in found)

    def record_versions(self, attempt: int) -> dict[int, str]:
        """Return what tells the record of each rank of an attempt from the one before it.

        Empty where the store does not tell.

        Raises:
            StorageError: If the store cannot be listed.
        """
        found = {}
        for name, version in self._store.versions(self.run_id).items():
            match = _RECORD.fullmatch(name)
            if match and int(match[1]) == attempt:
                found[int(match[2])] = version
        return found

    def append_segment(self, attempt: int, rank: int, n: int, lines: list[bytes]) -> None:
        """Write one closed segment, which is never changed again; no lines, no segment.

        Writing the same segment twice is fine, so a write whose answer was lost may be repeated.

        Args:
            attempt: Number of the attempt, from 1.
            rank: The rank, from 0.
            n: Number of the segment, from 0, in the order of time.
            lines: One JSON text each, without line breaks.

        Raises:
            ValueError: If a line holds a line break.
            StorageError: If the store refuses, or has another segment under this number.
        """
        if lines:
            key = f"{self.run_id}/segments/windows-{attempt}-{rank}-{n:06d}.jsonl"
            write_closed(self._store, key, join_lines(lines))

    def read_segments(self, attempt: int, rank: int) -> Iterator[bytes]:
        """Yield the lines of a rank's segments in order, holding one segment at a time.

        Of a file that is larger than a segment can be, the lines after 16 MiB are left out.

        Raises:
            StorageError: While iterating, if the store cannot be listed or a segment not read.
        """
        folder = f"{self.run_id}/segments"
        names = {
            int(match[3]): name
            for name in self._store.children(folder)
            if (match := _SEGMENT.fullmatch(name))
            and (int(match[1]), int(match[2])) == (attempt, rank)
        }
        for _, name in sorted(names.items()):
            data = self._store.read(f"{folder}/{name}", _MAX_SEGMENT_BYTES)
            yield from (data or b"").split(b"\n")[:-1]

    @property
    def telemetry(self) -> TelemetryFolder:
        """Return the part of the folder that holds the files of telemetry."""
        return TelemetryFolder(self._store, self.run_id)

    def _find_claim(self, launch_key: str, newest: int) -> tuple[int | None, bool]:
        """Return the number that carries the key, and whether a claim was still empty.

        The newest is read alone, for it is what all but the first rank look for. The rest is read
        by number and not by the listing: one that runs while claims are made may miss some.
        """
        has_empty = False
        for numbers in ([newest] if newest else [], range(newest - 1, 0, -1)):
            keys = {self._attempt_key(number): number for number in numbers}
            for key, data in self._store.read_many([*keys]).items():
                if isinstance(data, StorageError):
                    raise data
                has_empty = has_empty or not data
                with suppress(ValueError):
                    if _from_json(data).get("launch_key") == launch_key:
                        return keys[key], False
        return None, has_empty

    def _attempt_key(self, number: int) -> str:
        return f"{self.run_id}/attempts/{number:04d}.json"

    def _record_key(self, attempt: int, rank: int) -> str:
        return f"{self.run_id}/record-{attempt}-{rank}.json"

    def _read_json(
        self, names: Mapping[str, str]
    ) -> tuple[dict[str, dict[str, object]], list[str]]:
        """Return what the keys hold, and a line that begins with its name for each of the rest."""
        read = self._store.read_many([*names])
        found, problems = {}, []
        for key, name in names.items():
            try:
                found[key] = _from_json(read[key])
            except KeyError:
                problems.append(f"{name}: there is no such file, or its link leads nowhere")
            except (StorageError, ValueError) as error:
                problems.append(f"{name}: {error}")
        return found, problems

    def _remove_temporaries(self) -> None:
        # Left by writers that were killed. Only tidiness, so a refusal is nobody's concern.
        with suppress(StorageError):
            for folder in ("", "/attempts", "/segments", "/telemetry"):
                self._store.remove_temporaries(self.run_id + folder)


def claim_run_id(
    store: Store, proposed: str, *, pause: Callable[[float], None] = time.sleep
) -> str:
    """Return the id of the run that the checkpoints in `store` belong to.

    The first to come makes ``run.json`` with the proposed id; everyone else gets that one.

    Args:
        store: The checkpoint URL.
        proposed: The id of a run that starts here; made safe as a path.
        pause: Waits the given seconds, for a file that another process is about to fill.

    Raises:
        StorageError: If the store refuses, or ``run.json`` is not readable as one.
    """
    proposed = safe_name(proposed)
    data = _to_json({"run_id": proposed})
    for _ in range(_MAX_EMPTY_TRIES):
        if store.create(_RUN_ID_KEY, data):
            return proposed
        found = store.read(_RUN_ID_KEY)
        if found:
            return _parse_run_id(found, store)
        pause(_PAUSE_S)
    raise StorageError(_broken_run_id(store, "it stays empty"))


def _parse_run_id(data: bytes, store: Store) -> str:
    try:
        run_id = _from_json(data)["run_id"]
    except (ValueError, KeyError) as error:
        raise StorageError(_broken_run_id(store, str(error))) from error
    if not isinstance(run_id, str):
        raise StorageError(_broken_run_id(store, f"run_id is {run_id!r}"))
    return safe_name(run_id)


def _broken_run_id(store: Store, reason: str) -> str:
    return (
        f"{_RUN_ID_KEY!r} in {store.shown_url} does not name a run ({reason}); remove it to start "
        'a new run here, or write {"run_id": "<the run\'s id>"} into it to go on with that run'
    )


def _numbers(pattern: re.Pattern[str], names: Iterable[str]) -> Iterator[tuple[int, ...]]:
    matches = (pattern.fullmatch(name) for name in names)
    return (tuple(int(digits) for digits in match.groups()) for match in matches if match)


def _to_json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()


def _from_json(data: bytes | StorageError) -> dict[str, object]:
    """Return the object in `data`; raises ValueError where it is none, or `data` itself."""
    if isinstance(data, StorageError):
        raise data
    return decode_object(data)
