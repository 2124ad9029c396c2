"""The pipeline thread: drains the ring in small slices every second and closes a window every ten.

It takes the interpreter's lock like any thread, so it never holds it long: 100 rows (under 1 ms),
then it lets the training thread run. What the stages do with a closed window is injected by
``run.py``.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable

from costlens.core.clock import NS_PER_S, Clock
from costlens.core.guard import faults
from costlens.core.recorder import Recorder
from costlens.core.standstill import Standstill
from costlens.core.window import Totals

__all__ = ["Pipeline"]

_SLICE_ROWS = 100
_DRAIN_EVERY_S = 1.0
_BREATH_S = 0.001
# Looks at the training thread lie this far apart; never evenly, for loops have their own periods.
_LOOK_LEAST_S, _LOOK_SPREAD_S = 0.1, 0.2
_GOLDEN = (5**0.5 - 1) / 2


class Pipeline:
    """Runs ``begin``, then ``close`` at the end of every window, all on one daemon thread.

    Args:
        recorder: The ring to drain.
        totals: Takes the rows.
        clock: Monotonic nanoseconds.
        window_ns: Length of a window, > 0.
        begin: Called once, first, on the thread: claims, imports, announcements; may block on
            storage or network.
        poll: Called after every drain, before a window closes: resolves device events, folds
            quality.
        look: Called a few times between two drains, to see where the training thread stands.
        close: Called with the monotonic end of each window and whether it is the last.
        first_window_ns: Length of the first window, if it is another.
        standstill: Takes note of when the thread sleeps.

    Attributes:
        ready: Set once ``begin`` has returned.
        is_done: Whether the last window has closed and everything is flushed.
        cpu_ns: Processor time of the thread so far.
    """

    def __init__(  # noqa: PLR0913 - the stages that assembly.py injects among them
        self,
        recorder: Recorder,
        totals: Totals,
        clock: Clock,
        window_ns: int,
        *,
        begin: Callable[[], None],
        poll: Callable[[], None],
        close: Callable[[int, bool], None],
        first_window_ns: int | None = None,
        look: Callable[[], None] | None = None,
        standstill: Standstill | None = None,
    ) -> None:
        self._standstill = standstill or Standstill()
        self._recorder = recorder
        self._totals = totals
        self._clock = clock
        self._window_ns = window_ns
        self._first_window_ns = window_ns if first_window_ns is None else first_window_ns
        self._begin = begin
        self._poll = poll
        self._look = look
        self._num_looks = 0
        self._close = close
        # A signal handler asks for the end, too, and may interrupt this thread's maker anywhere:
        # unlike an Event, a SimpleQueue may be interrupted by its own `put`.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_stopping = False
        self.is_done = False
        self.cpu_ns = 0
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._main, name="costlens-pipeline", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def ask_to_stop(self) -> None:
        """Ask for the last window without waiting for it; also from inside a signal handler."""
        self._is_stopping = True
        self._wake.put(None)

    def stop(self, timeout_s: float) -> bool:
        """Ask for the last window, wait for it, and return whether the thread ended in time.

        Args:
            timeout_s: Most seconds to wait, >= 0; the thread goes on after that.
        """
        self.ask_to_stop()
        if self.thread.is_alive() and self.thread is not threading.current_thread():
            self.thread.join(timeout_s)
        return not self.thread.is_alive()

    def _main(self) -> None:
        faults.call("pipeline.begin", self._begin)
        self.ready.set()
        next_close_ns = self._clock() + self._first_window_ns
        while not self._is_stopping:
            wait_s = min(_DRAIN_EVERY_S, max(0.0, (next_close_ns - self._clock()) / NS_PER_S))
            self._rest(wait_s)
            self._collect()
            now_ns = self._clock()
            if now_ns >= next_close_ns and not self._is_stopping:
                faults.call("pipeline.close", self._close, now_ns, False)
                # After a stop of the process the missed windows are one long window, not a burst of
                # empty ones.
                next_close_ns = max(next_close_ns + self._window_ns, now_ns + self._window_ns // 2)
            self.cpu_ns = time.thread_time_ns()
        self._collect()
        faults.call("pipeline.close", self._close, self._clock(), True)
        self.cpu_ns = time.thread_time_ns()
        self.is_done = True

    def _rest(self, wait_s: float) -> None:
        """Wait until it is time to drain, or somebody wakes us, with a look now and then."""
        while wait_s > 0 and not self._is_stopping:
            self._num_looks += 1
            turn = self._num_looks * _GOLDEN % 1.0
            pause_s = _LOOK_LEAST_S + _LOOK_SPREAD_S * turn
            self._standstill.sleep()
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=min(wait_s, pause_s))
                return
            self._standstill.wake(min(wait_s, pause_s))
            wait_s -= pause_s
            if self._look is not None:
                faults.call("observe.looks", self._look)

    # Two guards: rows that cannot be totalled must not keep device events from being resolved.
    def _collect(self) -> None:
        faults.call("pipeline.drain", self._drain)
        faults.call("pipeline.poll", self._poll)

    def _drain(self) -> None:
        # No more than the ring holds: a loop that writes rows faster than they can be added up
        # loses some, but windows go on closing.
        for _ in range(self._recorder.capacity // _SLICE_ROWS + 1):
            num_rows = 0
            for row in self._recorder.drain(_SLICE_ROWS):
                self._totals.add(row)
                num_rows += 1
            if num_rows < _SLICE_ROWS:
                break
            time.sleep(_BREATH_S)
