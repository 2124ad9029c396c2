"""The record on disk: the exporter that keeps a rank's current, and the reader that merges all.

The record is replaced at every heartbeat and never grows; windows that leave it stay in closed
segments beside it. Nothing here raises: what could not be written is counted and tried again.
"""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from costlens.account.ledger import merge_readable, parse_records, settle
from costlens.account.use import measure_use
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.log import Logger, log
from costlens.core.phases import NAMES
from costlens.core.records import Outcome, RankRecord
from costlens.core.run_record import RunRecord
from costlens.core.snapshot import Snapshot
from costlens.core.training_records import WindowPart
from costlens.core.trouble_records import LastWordsPart
from costlens.errors import RecordError, StorageError
from costlens.export.practice_parts import list_checks
from costlens.export.run_findings import find_causes
from costlens.storage.run_folder import MAX_RECORD_BYTES, RunFolder

__all__ = [
    "RecordExporter",
    "Witness",
    "explain_none",
    "make_window_part",
    "read_ranks",
    "read_run",
]

Witness = Callable[[RankRecord], LastWordsPart | None]
"""Says what is known of a process that is gone; None if it may live."""

WINDOWS_PER_SEGMENT = 60
_MAX_TOLD = 3
_MAX_PENDING = 10 * WINDOWS_PER_SEGMENT


def make_window_part(snapshot: Snapshot, before: RankRecord | None = None) -> WindowPart:
    """Return the window of a snapshot as it stands in records and segments.

    Args:
        snapshot: The close of the window.
        before: The record at the close of the one before; None for the first.
    """
    window, anchor = snapshot.window, snapshot.anchor
    mean_ns = window.iteration_sum_ns / window.num_iterations if window.num_iterations else None
    return WindowPart(
        index=window.index,
        start_time=anchor.to_wall_ns(window.start_ns) / NS_PER_S,
        end_time=anchor.to_wall_ns(window.end_ns) / NS_PER_S,
        phase_ns={name: ns for name, ns in zip(NAMES, window.phase_ns, strict=True) if ns},
        counts=window.counts,
        num_iterations=window.num_iterations,
        iteration_mean_s=None if mean_ns is None else mean_ns / NS_PER_S,
        iteration_max_s=window.iteration_max_ns / NS_PER_S if window.num_iterations else None,
        rates=window.rates,
        quality={
            name: seen.last
            for name, seen in snapshot.quality.window.items()
            if seen.last is not None
        },
        use=measure_use(snapshot.record, before),
    )


class RecordExporter:
    """Writes a rank's record at every heartbeat and its windows in closed segments.

    Pipeline thread; one small write a window and one more every 60 windows. In memory are the
    newest 60 windows and those that no segment holds yet, at most 600: older ones are dropped and
    counted as failures.

    Args:
        find_folder: Returns the run's folder, or None while its identity is not settled.
        clock: Monotonic nanoseconds, the clock of the deadline in ``finish``.
        logger: The log of the run.
    """

    name = "record"

    def __init__(
        self,
        find_folder: Callable[[], RunFolder | None],
        clock: Clock = time.perf_counter_ns,
        logger: Logger = log,
    ) -> None:
        self.num_failures = 0
        self.num_segments = 0
        self._find_folder = find_folder
        self._clock = clock
        self._logger = logger
        self._newest: deque[WindowPart] = deque(maxlen=WINDOWS_PER_SEGMENT)
        self._pending: deque[bytes] = deque()
        self._next_segment = 0
        self._unwritten: Snapshot | None = None
        self._before: RankRecord | None = None
        self._is_failing = False

    def prepare(self, snapshot: Snapshot) -> None:
        """Encode once, on the calling thread and before the first heartbeat; about 0.2 ms.

        The encoder sets itself up with its first use. A fork while another thread does so would
        leave the child's first encoding waiting for ever.
        """
        self._encode(snapshot.record)
        make_window_part(snapshot).model_dump_json(exclude_defaults=True)

    def start(self, snapshot: Snapshot) -> None:
        """Write the record before the first window, so that the run is visible at once."""
        self._write(snapshot)

    def export(self, snapshot: Snapshot) -> None:
        """Keep the closed window and replace the record; the last one leaves nothing behind."""
        part = make_window_part(snapshot, self._before)
        self._before = snapshot.record
        self._newest.append(part)
        self._pending.append(part.model_dump_json(exclude_defaults=True).encode())
        if len(self._pending) > _MAX_PENDING:
            self._pending.popleft()
            self.num_failures += 1
        self._write(snapshot)

    def finish(self, deadline_ns: int) -> None:
        """Try once more what the last heartbeat could not write, unless time is up."""
        if self._unwritten is not None and self._clock() < deadline_ns:
            self._write(self._unwritten)

    def amend(self, snapshot: Snapshot) -> None:
        """Write the last record again, with what the flush of the other exporters came to."""
        self._write(snapshot)

    def _write(self, snapshot: Snapshot) -> None:
        record = snapshot.record
        attempt, rank = record.attempt.number, record.rank.rank
        is_closed = self._try(lambda folder: self._close_segments(folder, attempt, rank, snapshot))
        is_written = self._try(
            lambda folder: folder.write_record(attempt, rank, self._encode(record))
        )
        self._unwritten = None if is_closed and is_written else snapshot
        if self._is_failing and self._unwritten is None:
            self._logger.info("costlens.record.recovered", message="the record is written again")
            self._is_failing = False

    def _try(self, write: Callable[[RunFolder], None]) -> bool:
        try:
            folder = self._find_folder()
            if folder is None:
                raise StorageError("the run has no folder: its identity could not be settled")
            write(folder)
        except OSError as error:
            self._note_failure(error)
            return False
        return True

    def _close_segments(
        self, folder: RunFolder, attempt: int, rank: int, snapshot: Snapshot
    ) -> None:
        while len(self._pending) >= WINDOWS_PER_SEGMENT or (snapshot.is_last and self._pending):
            lines = list(self._pending)[:WINDOWS_PER_SEGMENT]
            try:
                folder.append_segment(attempt, rank, self._next_segment, lines)
            except StorageError as error:
                if error.errno == errno.EEXIST:
                    self._next_segment += 1  # taken by an earlier life of this rank
                raise
            self._next_segment += 1
            self.num_segments += 1
            for _ in lines:
                self._pending.popleft()

    def _encode(self, record: RankRecord) -> bytes:
        telemetry = record.telemetry.model_copy(
            update={"num_segments": self.num_segments, "record_failures": self.num_failures}
        )
        windows = list(self._newest)
        while True:
            update = {"windows": windows, "telemetry": telemetry}
            data = record.model_copy(update=update).model_dump_json(exclude_none=True).encode()
            if len(data) <= MAX_RECORD_BYTES or not windows:
                return data
            windows = windows[len(windows) // 2 + 1 :]  # they are in segments, too

    def _note_failure(self, error: OSError) -> None:
        self.num_failures += 1
        if not self._is_failing:
            self._logger.warning(
                "costlens.record.failed",
                error_type=type(error).__name__,
                message=f"{error}; training goes on, the next heartbeat tries again",
            )
        self._is_failing = True


def read_run(folder: RunFolder, now: float, witness: Witness | None = None) -> RunRecord:
    """Return the merged record of the run in a folder.

    Args:
        folder: The run's folder.
        now: Unix time of the reader, against which a silent rank counts as lost.
        witness: Tells of the process of a live record that it is gone, so that its rank is closed
            without waiting for its heartbeat to grow old.

    Raises:
        StorageError: If the folder cannot be listed.
        RecordError: If no record in it can be read.
    """
    records, problems, ends = _read_ends(folder, witness)
    known = {record.attempt.number for record in records.values()}
    silent = _find_silent(folder, known)
    if not records:
        raise RecordError(explain_none(folder.run_id, [*problems, *silent]))
    run = merge_readable(records, [*problems, *silent], now=now, ends=ends)
    settled = faults.call("diagnose.settle", settle, [*records.values()], now, ends)
    causes = settled and faults.call("diagnose.run", find_causes, settled[0])
    checks = faults.call("diagnose.practice", list_checks, run) or []
    return run.model_copy(update={**(causes or {}), "practice": checks})


def explain_none(run_id: str, problems: Sequence[str]) -> str:
    """Return why a run has no record that could be shown, and what to do.

    Args:
        run_id: The run.
        problems: What could not be read.
    """
    more = f", and {len(problems) - _MAX_TOLD} more" if len(problems) > _MAX_TOLD else ""
    why = f": {'; '.join(problems[:_MAX_TOLD])}{more}" if problems else ""
    return (
        f"run {run_id!r} has no readable record yet{why}; while it runs it writes one at every "
        "heartbeat, else the log of its job tells why it ended"
    )


def read_ranks(
    folder: RunFolder, now: float, witness: Witness | None = None
) -> tuple[list[RankRecord], list[str]]:
    """Return the records of a run's ranks as the ledger takes them, and what could not be read.

    Args:
        folder: The run's folder.
        now: Unix time of the reader, against which a silent rank counts as lost.
        witness: As for :func:`read_run`.

    Raises:
        StorageError: If the folder cannot be listed.
    """
    records, problems, ends = _read_ends(folder, witness)
    settled, notes = settle([*records.values()], now, ends)
    return settled, [*problems, *notes]


def _read_ends(
    folder: RunFolder, witness: Witness | None
) -> tuple[dict[str, RankRecord], list[str], dict[tuple[int, int], LastWordsPart]]:
    records, problems = _read_records(folder)
    ends = {} if witness is None else _ask(witness, records.values())
    if ends:
        # They may have said their last words between the reading and the asking.
        records, problems = _read_records(folder)
    return records, problems, ends


def _find_silent(folder: RunFolder, seen: Collection[int]) -> list[str]:
    try:
        silent = [number for number in folder.attempts() if number not in seen]
        # A record that cannot be read is none that was never written.
        written = {attempt for attempt, _ in folder.record_numbers()} if silent else set()
    except StorageError as error:
        return [f"attempts: {error}"]
    return [
        f"attempt {number} was launched and left no record"
        for number in silent
        if number not in written
    ]


def _read_records(folder: RunFolder) -> tuple[dict[str, RankRecord], list[str]]:
    documents, problems = folder.read_records()
    records, more = parse_records(documents)
    return records, [*problems, *more]


def _ask(witness: Witness, records: Iterable[RankRecord]) -> dict[tuple[int, int], LastWordsPart]:
    living = [record for record in records if record.attempt.outcome is Outcome.RUNNING]
    said = {(record.attempt.number, record.rank.rank): witness(record) for record in living}
    return {key: words for key, words in said.items() if words is not None}
