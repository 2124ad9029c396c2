"""What a run had cost by any moment. Pure.

A price is money per hour of paid time, so within an attempt money grows evenly. Where an attempt
has no price, what had been spent by any moment is not known: such an attempt was not free.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from costlens.core.run_record import AttemptSummary, RunRecord

__all__ = ["SpendingClock"]


class SpendingClock:
    """Tells money, where it is known, and paid wall time at a moment.

    Args:
        record: The merged record.
    """

    def __init__(self, record: RunRecord) -> None:
        by_attempt = record.cost.by_attempt
        self._attempts = sorted(record.attempts, key=lambda attempt: attempt.start_time)
        self._starts = [attempt.start_time for attempt in self._attempts]
        numbers = [str(attempt.number) for attempt in self._attempts]
        is_known = record.cost.total is not None and all(n in by_attempt for n in numbers)
        self.currency = record.cost.currency if is_known else None
        self._money = [float(by_attempt[n]) for n in numbers] if is_known else []

    def money_at(self, unix_s: float) -> float | None:
        """Return the money spent by then; None where a price is missing altogether."""
        return None if self.currency is None else self._sum(self._money, unix_s)

    def hours_at(self, unix_s: float) -> float:
        """Return the hours of the job, not of its ranks, that were paid for by then."""
        return self._sum([_length_s(attempt) / 3600 for attempt in self._attempts], unix_s)

    def _sum(self, amounts: Sequence[float], unix_s: float) -> float:
        index = bisect_right(self._starts, unix_s) - 1
        if index < 0:
            return 0.0
        attempt = self._attempts[index]
        length_s = _length_s(attempt)
        passed = min(1.0, (unix_s - attempt.start_time) / length_s) if length_s > 0 else 1.0
        return sum(amounts[:index]) + passed * amounts[index]


def _length_s(attempt: AttemptSummary) -> float:
    end = attempt.heartbeat_time if attempt.end_time is None else attempt.end_time
    return max(0.0, end - attempt.start_time)
