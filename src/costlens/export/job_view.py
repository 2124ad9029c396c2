"""What rank 0 sees of the whole run: the other ranks' records, read a few at a time.

Records of earlier attempts do not change any more and are read once; those of the live ranks are
read in turn. Never more than a hundredth of the time goes into it, so that a job of a thousand
ranks knows its totals minutes late instead of training slower.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from costlens.account.ledger import parse_records
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.records import RankRecord
from costlens.core.telemetry_records import TelemetryPart
from costlens.core.training_records import IterationTimePart
from costlens.errors import StorageError
from costlens.storage.run_folder import RunFolder

__all__ = ["JobView"]

_FIRST_LOOK_NS = 2 * NS_PER_S
_LOOK_NS = NS_PER_S // 4
_PAUSES_PER_LOOK = 100
_AT_ONCE = 16
_MAX_RECORDS = 16_384
_MAX_TRIES = 3


class JobView:
    """Reads the records of a run for rank 0; pipeline thread.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[tuple[int, int], RankRecord] = {}
        self._earlier: deque[tuple[int, int]] | None = None
        self._others: deque[tuple[int, int]] = deque()
        self._num_tries = 0
        self._num_skipped = 0
        self._next_ns = 0

    @property
    def is_ready(self) -> bool:
        """Return whether every record of an earlier attempt has had its turn."""
        return self._earlier is not None and not self._earlier

    @property
    def is_complete(self) -> bool:
        """Return whether none of them had to be left out."""
        return self.is_ready and not self._num_skipped

    def look(self, folder: RunFolder, own: RankRecord, *, is_last: bool = False) -> bool:
        """Read what time allows, and return whether the totals are to be added up anew.

        Args:
            folder: The run's folder.
            own: This rank's record.
            is_last: Whether the process is about to end: it reads only what no totals can do
                without, and not for long.
        """
        began_ns = self._clock()
        if is_last and self.is_ready:
            return True
        if began_ns < self._next_ns and not is_last:
            return False
        is_short = self.is_ready or is_last
        limit_ns = began_ns + (_LOOK_NS if is_short else _FIRST_LOOK_NS)
        try:
            if self._earlier is None:
                self._plan(folder, own)
            self._read(folder, self._take_earlier, limit_ns)
            if self.is_ready:
                turn = iter([*self._others])
                self._read(folder, lambda: self._take_others(turn), limit_ns)
        except StorageError:
            self._num_tries += 1
            if self._num_tries >= _MAX_TRIES and self._earlier is None:
                self._earlier, self._num_skipped = deque(), 1
        self.note_cost(self._clock() - began_ns)
        return True

    def note_cost(self, spent_ns: int) -> None:
        """Pause a hundred times as long as reading, or adding up, has taken."""
        self._next_ns = max(self._next_ns, self._clock()) + _PAUSES_PER_LOOK * spent_ns

    def records(self, own: RankRecord) -> list[RankRecord]:
        """Return this rank's record and those that have been read."""
        key = (own.attempt.number, own.rank.rank)
        return [own, *(record for known, record in self._known.items() if known != key)]

    def _plan(self, folder: RunFolder, own: RankRecord) -> None:
        number, rank = own.attempt.number, own.rank.rank
        earlier = [pair for pair in folder.record_numbers() if pair[0] < number]
        # The newest first, for what is beyond the limit is left out.
        kept = sorted(earlier, reverse=True)[:_MAX_RECORDS]
        self._num_skipped = len(earlier) - len(kept)
        self._earlier = deque(kept)
        others = range(min(own.rank.world_size, _MAX_RECORDS))
        self._others = deque((number, other) for other in others if other != rank)

    def _take_earlier(self) -> list[tuple[int, int]]:
        queue = self._earlier or deque()
        return [queue.popleft() for _ in range(min(_AT_ONCE, len(queue)))]

    def _take_others(self, turn: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
        taken = [*islice(turn, _AT_ONCE)]
        self._others.rotate(-len(taken))
        return taken

    def _read(
        self, folder: RunFolder, take: Callable[[], list[tuple[int, int]]], limit_ns: int
    ) -> None:
        while self._clock() < limit_ns and (pairs := take()):
            documents, _ = folder.read_some_records(pairs)
            for record in parse_records(documents)[0].values():
                self._known[record.attempt.number, record.rank.rank] = _lighten(record)


def _lighten(record: RankRecord) -> RankRecord:
    # Thousands of them are kept, for their sums only.
    return record.model_copy(
        update={
            "windows": [],
            "findings": [],
            "quality": {},
            "iteration_time": IterationTimePart(),
            "telemetry": TelemetryPart(),
        }
    )
