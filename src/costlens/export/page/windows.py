"""Reads the windows of a run, from its segments and its records, into columns.

Segments are closed and hold all windows but the newest, which stand in the record. One segment is
in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from costlens.account.attempts import group_attempts
from costlens.core.records import RankRecord
from costlens.core.training_records import WindowPart
from costlens.errors import StorageError
from costlens.export.page.columns import Column, Fold
from costlens.export.run_windows import is_sound
from costlens.storage.run_folder import RunFolder

__all__ = ["MAX_WINDOWS", "History", "count_ticks", "read_history"]

MAX_WINDOWS = 120_000
"""Windows that are read at most, as long as one rank of each attempt is: two weeks of one rank."""

_WINDOWS_A_TICK = 600


@dataclass(frozen=True, slots=True)
class History:
    """How a run went over time.

    Args:
        columns: In the order of time.
        num_windows: Windows in them.
        num_expected: Windows that the records of the ranks that were read speak of.
        ranks: The ranks that were read in every attempt they took part in.
        num_ranks: All ranks of the run.
        problems: What could not be read, a line each.
    """

    columns: Sequence[Column]
    num_windows: int = 0
    num_expected: int = 0
    ranks: Sequence[int] = ()
    num_ranks: int = 0
    problems: Sequence[str] = field(default_factory=list)


def count_ticks(records: Iterable[RankRecord]) -> int:
    """Return how often `read_history` will call ``tick`` for these records, as far as they tell."""
    chosen = _choose([*records], MAX_WINDOWS)
    return sum(record.telemetry.num_windows // _WINDOWS_A_TICK for record in chosen)


def read_history(
    folder: RunFolder,
    records: Sequence[RankRecord],
    tick: Callable[[], object] | None = None,
    max_windows: int = MAX_WINDOWS,
) -> History:
    """Return how the run went over time.

    Of each attempt the first rank is read, and as many others as `max_windows` allows; times and
    counts are of the ranks that were read. One listing a rank, and one read a segment.

    Args:
        folder: The run's folder.
        records: The records of its ranks, one per attempt and rank.
        tick: Called each time that so many windows were read.
        max_windows: Windows of other ranks are read only within this.
    """
    chosen = _choose(records, max_windows)
    reader = _Reader(folder, tick or _ignore)
    for record in _first_ranks(chosen):
        for window in reader.read(record):
            reader.fold.append(record.attempt.number, window)
    firsts = {id(record) for record in _first_ranks(chosen)}
    for record in chosen:
        if id(record) not in firsts:
            for window in reader.read(record):
                reader.fold.beside(record.attempt.number, window)
    return History(
        columns=reader.fold.columns,
        num_windows=sum(column.num_windows for column in reader.fold.columns),
        num_expected=sum(map(_expected, chosen)),
        ranks=sorted({record.rank.rank for record in chosen}),
        num_ranks=len({record.rank.rank for record in records}),
        problems=reader.describe_problems(),
    )


def _ignore() -> None:
    """Do nothing: nobody wants to know how far it is."""


def _expected(record: RankRecord) -> int:
    return max(record.telemetry.num_windows, len(record.windows))


def _first_ranks(records: Iterable[RankRecord]) -> list[RankRecord]:
    """Return one record an attempt, in order: the lowest rank that has closed a window."""
    groups = group_attempts([*records])
    return [
        min(groups[number], key=lambda record: (not _expected(record), record.rank.rank))
        for number in sorted(groups)
    ]


def _choose(records: Sequence[RankRecord], max_windows: int) -> list[RankRecord]:
    """Return the records whose windows are read: whole ranks, as many as fit."""
    chosen = _first_ranks(records)
    taken = {id(record) for record in chosen}
    total = sum(map(_expected, chosen))
    by_rank: dict[int, list[RankRecord]] = {}
    for record in records:
        by_rank.setdefault(record.rank.rank, []).append(record)
    for rank in sorted(by_rank):
        missing = [record for record in by_rank[rank] if id(record) not in taken]
        needed = sum(map(_expected, missing))
        if total + needed > max_windows:
            break
        chosen += missing
        total += needed
    return sorted(chosen, key=lambda record: (record.attempt.number, record.rank.rank))


class _Reader:
    """Reads windows and counts what cannot be read."""

    def __init__(self, folder: RunFolder, tick: Callable[[], object]) -> None:
        self.fold = Fold()
        self._folder = folder
        self._tick = tick
        self._num_bad = 0
        self._failures: list[str] = []

    def read(self, record: RankRecord) -> Iterator[WindowPart]:
        """Yield the windows of a rank in order, each once."""
        newest = -1
        for window in self._sound(self._parse(record)):
            newest = max(newest, window.index)
            yield window
        for window in self._sound(record.windows):
            if window.index > newest:
                newest = window.index
                yield window

    def describe_problems(self) -> list[str]:
        """Return what could not be read, a line each."""
        bad = f"{self._num_bad} windows are not readable and left out"
        return [*([bad] if self._num_bad else []), *self._failures]

    def _parse(self, record: RankRecord) -> Iterator[WindowPart]:
        attempt, rank = record.attempt.number, record.rank.rank
        num_read = 0
        try:
            for line in self._folder.read_segments(attempt, rank):
                num_read += 1
                if num_read % _WINDOWS_A_TICK == 0:
                    self._tick()
                try:
                    yield WindowPart.model_validate_json(line)
                except ValidationError:
                    self._num_bad += 1
        except StorageError as error:
            self._failures.append(f"segments of attempt {attempt}, rank {rank}: {error}")

    def _sound(self, windows: Iterable[WindowPart]) -> Iterator[WindowPart]:
        for window in windows:
            if is_sound(window):
                yield window
            else:
                self._num_bad += 1
