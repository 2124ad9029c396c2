"""What torch counts by itself: memory of its allocator, compilations, the all-reduce of DDP.

Pipeline thread. torch is neither imported nor CUDA initialised for it; it keeps these counts in any
case, and asking for them waits for no device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from costlens.core.attempt_state import AttemptState
from costlens.core.torch_records import AllocatorPart, CompilerPart
from costlens.observe.all_reduce import AllReduceWatch
from costlens.observe.rising import RisingSum

__all__ = ["TorchProbe"]

# Under this name torch keeps the durations of compiling one frame each.
_COMPILATION = "_compile.compile_inner"


class TorchProbe:
    """Asks torch; about 0.1 ms where CUDA is used.

    Args:
        state: The attempt, which knows the devices of the rank.
        has_started: Tells whether the first iteration has ended.
        all_reduce: Asks the DDP module that is trained.
    """

    name = "torch"

    def __init__(
        self,
        state: AttemptState,
        has_started: Callable[[], bool] = bool,
        all_reduce: AllReduceWatch | None = None,
    ) -> None:
        self._state = state
        self._all_reduce = all_reduce or AllReduceWatch()
        self._has_started = has_started
        self._num_compiled, self._compile_s = RisingSum(), RisingSum()
        for total in (self._num_compiled, self._compile_s):
            total.add({"": 0})  # what there is at the first look counts, too
        self._startup = (0, 0.0)
        self._is_startup_known = False
        self._fields: dict[str, object] = {}

    def load(self) -> None:
        """Do nothing: what torch has not loaded by itself is not there to be asked."""

    def start(self) -> None:
        """Do nothing: nothing is opened."""

    def sample(self, now_ns: int) -> None:
        """Ask for all of them."""
        allocator, compiler = self._ask_allocator(), self._ask_compiler()
        if allocator is not None:
            self._fields["allocator"] = allocator
        if compiler is not None:
            self._fields["compiler"] = compiler
        all_reduce = self._all_reduce.take()
        if all_reduce is not None:
            self._fields["all_reduce"] = all_reduce

    def contribute(self) -> Mapping[str, object]:
        """Return the newest answers."""
        return self._fields

    def stop(self) -> None:
        """Do nothing: nothing was opened."""

    def _ask_allocator(self) -> AllocatorPart | None:
        cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
        is_initialized = getattr(cuda, "is_initialized", None)
        if is_initialized is None or not is_initialized():
            return None
        ordinals = self._state.gpu_ordinals
        stats = cuda.memory_stats(ordinals[0] if ordinals else None)

        def current(name: str, what: str = "current") -> int:
            return max(0, int(stats.get(f"{name}.all.{what}", 0)))

        return AllocatorPart(
            allocated_bytes=current("allocated_bytes"),
            reserved_bytes=current("reserved_bytes"),
            peak_allocated_bytes=current("allocated_bytes", "peak"),
            inactive_split_bytes=current("inactive_split_bytes"),
            num_alloc_retries=int(stats.get("num_alloc_retries", 0)),
            num_ooms=int(stats.get("num_ooms", 0)),
        )

    def _ask_compiler(self) -> CompilerPart | None:
        times = getattr(sys.modules.get("torch._dynamo.utils"), "compilation_time_metrics", None)
        if not isinstance(times, dict):
            return None
        durations = [*times.get(_COMPILATION, ())]
        # torch forgets them where somebody resets its compiler.
        num = self._num_compiled.add({"": len(durations)})
        seconds = self._compile_s.add({"": sum(durations)})
        if not self._is_startup_known:
            # Most of what the first iteration compiles is done right before it ends, which nobody
            # sees but at the next look: what there is then, even if nothing, counts as start-up.
            self._is_startup_known = self._has_started()
            self._startup = (int(num or 0), float(seconds or 0.0))
        if not num or not seconds:
            return None
        startup = self._startup
        return CompilerPart(
            num_compilations=int(num),
            compile_s=seconds,
            num_startup=startup[0],
            startup_s=startup[1],
        )
