"""The gang wait: how long this process stood in ``init_process_group`` until the ranks had met.

torch keeps no such time, so the function is wrapped while somebody listens: an open run, or a
Lightning callback that waits for its first fit, because Lightning makes the group before it calls
any hook. Nothing is wrapped by importing this, and the wrapper goes with the last listener.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from costlens.core.clock import Clock
from costlens.core.guard import is_inert_process

__all__ = ["GangWaits", "explain_unseen", "gang_waits"]

_NAME = "init_process_group"
# All that bind the name for whoever looks it up when it calls.
_HOMES = (
    "torch.distributed",
    "torch.distributed.distributed_c10d",
    "torch.distributed.device_mesh",
)
_MAX_WAITS = 64

_UNSEEN = (
    "the process group was there before the run, or made by a name that was imported before it; "
    "where a launcher sets RANK, start the run first"
)
_NO_GROUP = "this process has joined no process group"


class GangWaits:
    """Times the calls of ``init_process_group`` while anybody listens.

    A call costs two readings of the clock more; nothing here waits, and what the call returns or
    raises is passed on.

    Args:
        clock: Monotonic nanoseconds.
    """

    def __init__(self, clock: Clock = time.perf_counter_ns) -> None:
        self._clock = clock
        self._listeners: dict[int, weakref.ref[object]] = {}
        self._plain: Callable[..., Any] | None = None
        self._wrapped: Callable[..., Any] | None = None
        # Begin and end of each call; one that is under way has no end yet.
        self._waits: deque[list[int]] = deque(maxlen=_MAX_WAITS)

    def listen(self, listener: object) -> None:
        """Time calls from now on, until `listener` is gone or ignored; calling thread, about 5 µs.

        Does nothing where torch's distributed package is not loaded, or in a loader's worker.
        """
        if is_inert_process():
            return
        key = id(listener)
        self._listeners[key] = weakref.ref(listener, lambda _: self._drop(key))
        self._wrap()

    def ignore(self, listener: object) -> None:
        """Stop timing for a listener; the last one takes the wrapper away."""
        self._drop(id(listener))

    def total_ns(self, since_ns: int) -> int | None:
        """Return how long the calls since then took, one under way included; None without one.

        Any thread.

        Args:
            since_ns: Monotonic time; a call that began earlier does not count.
        """
        waits = [[*wait, self._clock()] for wait in [*self._waits] if wait[0] >= since_ns]
        return sum(wait[1] - wait[0] for wait in waits) if waits else None

    def _wrap(self) -> None:
        module = sys.modules.get(_HOMES[1])
        plain: Callable[..., Any] | None = getattr(module, _NAME, None)
        if self._wrapped is not None or plain is None:
            return
        self._wrapped, self._plain = self._make_wrapper(plain), plain
        self._swap(plain, self._wrapped)

    def _make_wrapper(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passes anything on
            wait = [self._clock()]
            self._waits.append(wait)
            try:
                return plain(*args, **kwargs)
            finally:
                wait.append(self._clock())

        return init_process_group

    def _drop(self, key: int) -> None:
        self._listeners.pop(key, None)
        if self._listeners or self._wrapped is None:
            return
        # Where somebody else has wrapped it since, theirs stays, and ours in it only times.
        self._swap(self._wrapped, self._plain)
        self._wrapped = self._plain = None

    def _swap(self, old: object, new: object) -> None:
        for name in _HOMES:
            home = sys.modules.get(name)
            if getattr(home, _NAME, None) is old:
                setattr(home, _NAME, new)


def explain_unseen(world_size: int) -> str | None:
    """Return why no gang wait is known, or None where there is nobody to wait for.

    Args:
        world_size: Ranks of the job.
    """
    if world_size == 1:
        return None
    module = sys.modules.get("torch.distributed")
    has_group = module is not None and module.is_available() and module.is_initialized()
    return _UNSEEN if has_group else _NO_GROUP


gang_waits = GangWaits()
"""The gang waits of this process."""
