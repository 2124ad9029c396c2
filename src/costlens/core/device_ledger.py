"""The device level: books iterations by what the device did, not by the host.

Device work surfaces wherever the host happens to block, so the host's phases inside an iteration
are shown but not priced. ``core/window.py`` hands over each iteration, ``observe/`` the gap in
front of it once the device's events have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from costlens.core.phases import ITERATION_PHASES, NUM_PHASES, Phase

__all__ = ["DeviceLedger"]

_ITERATION = tuple(int(phase) for phase in ITERATION_PHASES)
_MAX_HELD = 4096


def _ignore(_number: int, _exposed_ns: int) -> None:
    """Keep nothing."""


class DeviceLedger:
    """Moves the time of iterations between phases; sums never change.

    Of an iteration, *exposed wait* = ``min(device gap, host wait in the fetch)`` is booked as
    ``data_wait`` and the rest as ``compute``.

    Args:
        on_exposed: Called with the number of each iteration whose gap is known, and what of its
            wait was exposed.

    Attributes:
        num_given_up: Iterations whose gap never came; all of their time is ``compute``.
    """

    def __init__(self, on_exposed: Callable[[int, int], None] = _ignore) -> None:
        self._on_exposed = on_exposed
        # number -> (host wait, duration), oldest first.
        self._held: dict[int, tuple[int, int]] = {}
        # Time that stays as the host saw it: start-up, and what follows the last iteration.
        self._kept_ns = [0] * NUM_PHASES
        self._resolved_ns = 0
        self._exposed_ns = 0
        self.num_given_up = 0

    @property
    def num_unresolved(self) -> int:
        """Return how many iterations wait for their gap; at most 4096."""
        return len(self._held)

    def keep(self, own_ns: Iterable[int]) -> None:
        """Leave time as the host saw it.

        Args:
            own_ns: Nanoseconds per phase.
        """
        for phase, value in enumerate(own_ns):
            self._kept_ns[phase] += value

    def hold(self, number: int, wait_ns: int, iteration_ns: int) -> None:
        """Take an iteration whose gap is not known yet; the oldest beyond 4096 is given up.

        Args:
            number: Its number in the attempt.
            wait_ns: The host's wait for its batch.
            iteration_ns: Its duration over all iteration phases, >= ``wait_ns``.
        """
        self._held[number] = (wait_ns, iteration_ns)
        if len(self._held) > _MAX_HELD:
            self.give_up(_MAX_HELD)

    def resolve(self, gaps: Iterable[tuple[int, int]]) -> None:
        """Book iterations whose gap is known; unknown numbers are ignored.

        Args:
            gaps: Pairs of iteration number and device gap before it, in nanoseconds.
        """
        for number, gap_ns in gaps:
            held = self._held.pop(number, None)
            if held is not None:
                wait_ns, iteration_ns = held
                exposed_ns = min(max(0, gap_ns), wait_ns)
                self._exposed_ns += exposed_ns
                self._on_exposed(number, exposed_ns)
                self._resolved_ns += iteration_ns

    def give_up(self, num_kept: int = 0) -> None:
        """Book all but the newest ``num_kept`` unresolved iterations as ``compute``."""
        while len(self._held) > num_kept:
            _, iteration_ns = self._held.pop(next(iter(self._held)))
            self._resolved_ns += iteration_ns
            self.num_given_up += 1

    def book(self, host_ns: tuple[int, ...]) -> tuple[int, ...]:
        """Return nanoseconds per phase as they are priced.

        Iterations whose gap is not known, and the one under way, are ``compute``: a host phase that
        is shown first and moved later would make a window's time negative.

        Args:
            host_ns: The host's nanoseconds per phase, up to now.
        """
        booked = list(self.settle(host_ns))
        unsettled_ns = sum(host_ns) - sum(booked)
        booked[Phase.COMPUTE] += unsettled_ns
        return tuple(booked)

    def settle(self, host_ns: tuple[int, ...]) -> tuple[int, ...]:
        """Return the part of :meth:`book` that no later gap can move, so it never goes back."""
        settled = list(host_ns)
        for phase in _ITERATION:
            settled[phase] = self._kept_ns[phase]
        settled[Phase.DATA_WAIT] += self._exposed_ns
        settled[Phase.COMPUTE] += self._resolved_ns - self._exposed_ns
        return tuple(settled)
