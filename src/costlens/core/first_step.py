"""Finds when the first optimizer step of an attempt was made, from rows and late counts.

``core/window.py`` shows it everything it adds up; ``core/snapshot_builder.py`` reads the answer.
"""

from __future__ import annotations

from costlens.core.recorder import Row

__all__ = ["FirstStep"]

_MAX_ENDS = 1024


class FirstStep:
    """The end of the iteration that made the first optimizer step; pipeline thread.

    Attributes:
        end_ns: Its monotonic time, None until there is such a step.
    """

    def __init__(self) -> None:
        self.end_ns: int | None = None
        # Whether a device skipped a step becomes known after its iteration.
        self._ends_ns: dict[int, int] = {}

    def see_row(self, row: Row) -> None:
        """Look at a row; about 0.2 µs until the step is found."""
        if self.end_ns is not None:
            return
        if row.optimizer_steps > 0:
            self._find(row.end_ns)
        elif len(self._ends_ns) < _MAX_ENDS:
            self._ends_ns[row.number] = row.end_ns

    def see_late(self, number: int, count: int) -> None:
        """Look at optimizer steps that became known now.

        Args:
            number: The iteration that made them.
            count: How many there were, >= 0.
        """
        if self.end_ns is None and count > 0 and number in self._ends_ns:
            self._find(self._ends_ns[number])

    def _find(self, end_ns: int) -> None:
        self.end_ns = end_ns
        self._ends_ns.clear()
