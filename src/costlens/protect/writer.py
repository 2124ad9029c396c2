"""The one thread that makes snapshots durable: hash, write, commit, retention.

At most one save is in flight: a save that comes while another is being written is refused, never
queued, so memory and lag are bounded however slow the store. What fails here is told by its result;
training goes on.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from costlens.core.clock import Clock
from costlens.core.guard import faults, pid_guard
from costlens.errors import CheckpointError, CostlensError
from costlens.protect.manifest import CheckpointName, Kind

__all__ = ["Published", "SaveJob", "SaveResult", "Writer"]


_FAULT = "a fault inside costlens ended the save"


@dataclass(frozen=True, slots=True)
class Published:
    """A checkpoint that exists.

    Args:
        num_bytes: Bytes that this rank has stored for it: data, and the description of the state.
        num_retries: Writes that were tried again.
        left: Why older checkpoints are still there; None where they were removed.
    """

    num_bytes: int
    num_retries: int = 0
    left: str | None = None


@dataclass(frozen=True, slots=True)
class SaveJob:
    """A snapshot on its way to the store.

    Args:
        name: The checkpoint.
        kind: What asked for it.
        stall_ns: What the training thread paid for the snapshot.
        taken_ns: Monotonic time at which it was taken.
        publish: Writes and commits it; called once, on the writer's thread.
    """

    name: CheckpointName
    kind: Kind
    stall_ns: int
    taken_ns: int
    publish: Callable[[], Published]


@dataclass(frozen=True, slots=True)
class SaveResult:
    """How a save went.

    Args:
        job: What was to be saved.
        write_ns: Nanoseconds from the snapshot until it was durable, or had failed.
        published: What exists now; None where it failed.
        error: What failed; None for a checkpoint that exists.
    """

    job: SaveJob
    write_ns: int
    published: Published | None
    error: BaseException | None


class Writer:
    """Publishes one save at a time, on a daemon thread that starts with it.

    Inert in a fork of its process. Make it before the first step: a thread that starts in the
    middle of a training starts in the middle of somebody's fork.

    Args:
        clock: Monotonic nanoseconds.
        tell: Called with each result, on the writer's thread: a line of a log may wait for whoever
            reads it, and the training must not.
    """

    def __init__(self, clock: Clock, tell: Callable[[SaveResult], None] | None = None) -> None:
        self._clock = clock
        self._tell = tell
        self._is_our_process = pid_guard()
        self._jobs: queue.SimpleQueue[SaveJob | None] = queue.SimpleQueue()
        self._results: deque[SaveResult] = deque(maxlen=64)
        self._is_busy = False
        self._is_closed = False
        self._idle = threading.Event()
        self._idle.set()
        self.thread = threading.Thread(target=self._run, name="costlens-checkpoint", daemon=True)
        self.thread.start()

    @property
    def is_busy(self) -> bool:
        """Return whether a save is in flight; any thread, no lock."""
        return self._is_busy

    def submit(self, job: SaveJob) -> bool:
        """Return whether the save was taken; False while another one is in flight, or at the end.

        Training thread; about 10 µs.
        """
        if self._is_busy or self._is_closed or not self._is_our_process():
            return False
        self._is_busy = True
        self._idle.clear()
        self._jobs.put(job)
        return True

    def take_results(self) -> list[SaveResult]:
        """Return the saves that have ended since the last call; any thread."""
        taken = []
        while self._results:
            taken.append(self._results.popleft())
        return taken

    def wait(self, timeout_s: float) -> bool:
        """Return whether nothing is in flight any more, after waiting at most ``timeout_s``."""
        return not self._is_our_process() or self._idle.wait(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Take no more saves, wait for the one in flight, and return whether it ended in time.

        Args:
            timeout_s: Most seconds to wait, >= 0; the thread is a daemon and holds up no exit.
        """
        if not self._is_our_process():
            return True
        if not self._is_closed:
            self._is_closed = True
            self._jobs.put(None)
        self.thread.join(timeout_s)
        return not self.thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            result = None
            try:
                result = faults.call("protect.save", self._publish, job)
            finally:
                result = result or self._result(job, None, CheckpointError(_FAULT))
                self._results.append(result)
                if self._tell is not None:
                    faults.call("protect.tell", self._tell, result)
                self._is_busy = False
                self._idle.set()

    def _publish(self, job: SaveJob) -> SaveResult:
        try:
            return self._result(job, job.publish(), None)
        except (CostlensError, OSError, MemoryError) as error:
            return self._result(job, None, error)

    def _result(
        self, job: SaveJob, published: Published | None, error: BaseException | None
    ) -> SaveResult:
        return SaveResult(job, self._clock() - job.taken_ns, published, error)
