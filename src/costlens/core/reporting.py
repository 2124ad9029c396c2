"""Judges which ranks still report: pure arithmetic over looks at their records' versions.

``gang.py`` looks on rank 0's pipeline thread. A rank reports as long as its record changes, so no
clock of another host is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from costlens.core.clock import NS_PER_S

__all__ = ["Reporting", "ReportingWatch"]


@dataclass(frozen=True, slots=True)
class Reporting:
    """Which ranks of a job report.

    Args:
        num_reporting: Those that do, or ended by their own word.
        missing: Those that fell silent, or did not come in time; in order.
        silent: Those of them whose record is there: it may hold a last word.
    """

    num_reporting: int
    missing: tuple[int, ...]
    silent: tuple[int, ...]


class ReportingWatch:
    """Compares the versions of all ranks' records with those of the look before.

    Args:
        world_size: Ranks of the job.
        now_ns: Monotonic time at which watching begins.
        patience_s: How long a rank may leave its record as it is, or not have one, in seconds.
    """

    def __init__(self, world_size: int, now_ns: int, patience_s: float) -> None:
        self._world_size = world_size
        self._began_ns = now_ns
        self._patience_ns = int(patience_s * NS_PER_S)
        self._seen: dict[int, tuple[str, int]] = {}
        self._ended: dict[int, str] = {}

    def begin_again(self, now_ns: int) -> None:
        """Give every rank its patience anew: for a time nobody could look.

        Args:
            now_ns: Monotonic time from which on it counts.
        """
        self._began_ns = now_ns
        self._seen = {rank: (version, now_ns) for rank, (version, _) in self._seen.items()}

    def judge(self, versions: Mapping[int, str], now_ns: int) -> Reporting:
        """Return which ranks report.

        Args:
            versions: What tells a rank's record from the one before, by rank; absent without one.
            now_ns: Monotonic time of the look.
        """
        num_reporting, missing, silent = 0, [], []
        for rank in range(self._world_size):
            version = versions.get(rank)
            if version is None:
                if now_ns - self._began_ns > self._patience_ns:
                    missing.append(rank)
                continue
            if self._seen.get(rank, ("", 0))[0] != version:
                self._seen[rank] = (version, now_ns)
            is_fresh = now_ns - self._seen[rank][1] <= self._patience_ns
            if is_fresh or self._ended.get(rank) == version:
                num_reporting += 1
            else:
                missing.append(rank)
                silent.append(rank)
        return Reporting(num_reporting, tuple(missing), tuple(silent))

    def note_ended(self, ranks: Collection[int]) -> None:
        """Take ranks for ended by their own word, as long as their records stay as they are."""
        self._ended.update((rank, self._seen[rank][0]) for rank in ranks)
