"""What came of a run's precision: steps that overflowed, what they cost, and the loss scale.

Whoever watches a scaler hands its scale over on the training thread; ``lookout.py`` lets
:class:`PrecisionWatch` look on the pipeline thread, which fills ``precision`` of the record and
warns, once each, of a training that loses its steps to overflow, or never asked for what is set.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S
from costlens.core.precision_records import PrecisionPart
from costlens.core.scopes import CountTaker

__all__ = ["LOSS_SCALE", "SCALE_EVERY_NS", "PrecisionWatch", "tell_scale"]

LOSS_SCALE = "costlens.loss_scale"
"""Under this name a scale travels among the quality metrics, of which it is none."""

SCALE_EVERY_NS = NS_PER_S
"""Time between two looks at a scale: it is copied on its device, never waited for."""

_NUM_WARM_UP_STEPS = 200  # a scale begins far too high and comes down by a skipped step at a time
_NUM_JUDGED_STEPS = 200
_MAX_SKIPPED_SHARE = 0.05
_MIN_SCALE = 1.0


def tell_scale(values: CountTaker, scaler: object, number: int) -> None:
    """Hand over what a scaler multiplies with; training thread, up to 6 µs, no sync.

    Args:
        values: Takes it, on whatever device it is.
        scaler: A ``GradScaler``, or what stands for one; nothing is told of any other.
        number: Number of the iteration.
    """
    # Its public reader waits for the device.
    scale = getattr(scaler, "_scale", None)
    if scale is not None:
        values.add_metric(LOSS_SCALE, scale, number)


class PrecisionWatch:
    """Adds to what was chosen what came of it; pipeline thread.

    Args:
        requested: The setting.
        state: The attempt, whose ``precision`` this writes.
        counts: Returns the counters as they stand.
        iteration_ns: Returns the nanoseconds of all iterations that were timed.
    """

    def __init__(
        self,
        requested: Literal["off", "auto", "bf16", "fp16", "fp32"],
        state: AttemptState,
        counts: Callable[[], Mapping[str, int]],
        iteration_ns: Callable[[], int],
    ) -> None:
        self._state = state
        self._counts = counts
        self._iteration_ns = iteration_ns
        self._unchosen = PrecisionPart(
            requested=requested,
            reason="COSTLENS_PRECISION is off"
            if requested == "off"
            else "the loop has not asked for it: run.autocast() and run.scaler do",
        )
        self._scale: float | None = None
        self._min_scale: float | None = None
        self._max_scale: float | None = None
        self._booked = (0, 0)  # steps of both kinds, and those that were skipped
        self._booked_ns = 0
        self._skipped_ns = 0.0
        self._history: deque[tuple[int, int]] = deque()
        self._told: set[str] = set()

    def see_scale(self, scale: float) -> None:
        """Take a scale that has arrived from the training thread."""
        if not math.isfinite(scale) or scale < 0:
            return
        self._scale = scale
        self._min_scale = scale if self._min_scale is None else min(self._min_scale, scale)
        self._max_scale = scale if self._max_scale is None else max(self._max_scale, scale)
        if scale < _MIN_SCALE:
            self._tell(
                "costlens.precision.loss_scale",
                f"the loss scale has fallen to {scale:g}: gradients overflow however little they "
                "are scaled. Look for a loss that is not finite; bf16 needs no scale",
            )

    def look(self) -> None:
        """Book the steps since the last look and bring the record's part up to date; a few µs."""
        counts, state = self._counts(), self._state
        skipped = counts.get("skipped_steps")
        if skipped is not None:
            total = counts.get("optimizer_steps", 0) + skipped
            self._book(total, skipped)
            self._judge(total, skipped)
        chosen = state.chosen_precision
        if chosen is None:
            if self._unchosen.requested == "off" and self._scale is None and not skipped:
                return
            chosen = self._unchosen
            if chosen.requested != "off" and counts.get("iterations"):
                self._tell(
                    "costlens.precision.unused",
                    f"COSTLENS_PRECISION is {chosen.requested}, and nothing computes in it: put "
                    "the forward pass into run.autocast(), step with run.scaler, or leave it off",
                )
        state.precision = chosen.model_copy(
            update={
                "skipped_steps": skipped,
                "skipped_s": None if skipped is None else self._skipped_ns / NS_PER_S,
                "loss_scale": self._scale,
                "min_loss_scale": self._min_scale,
                "max_loss_scale": self._max_scale,
            }
        )

    def _book(self, total: int, skipped: int) -> None:
        # A step that is skipped takes what any other takes, but for the update.
        total_before, skipped_before = self._booked
        num_steps = total - total_before
        if num_steps <= 0:
            return
        now_ns = self._iteration_ns()
        share = (skipped - skipped_before) / num_steps
        self._skipped_ns += max(0.0, share) * (now_ns - self._booked_ns)
        self._booked, self._booked_ns = (total, skipped), now_ns

    def _judge(self, total: int, skipped: int) -> None:
        history = self._history
        if total < _NUM_WARM_UP_STEPS or (history and history[-1][0] == total):
            return
        history.append((total, skipped))
        while len(history) > 1 and total - history[1][0] >= _NUM_JUDGED_STEPS:
            history.popleft()
        num_steps, num_skipped = total - history[0][0], skipped - history[0][1]
        if num_steps >= _NUM_JUDGED_STEPS and num_skipped > _MAX_SKIPPED_SHARE * num_steps:
            self._tell(
                "costlens.precision.skipping",
                f"{num_skipped} of the last {num_steps} optimizer steps were skipped, for their "
                "gradients overflowed. bf16 does not, where the hardware has it; else look at the "
                "learning rate, and for a loss that is not finite",
            )

    def _tell(self, event: str, message: str) -> None:
        if event not in self._told:
            self._told.add(event)
            self._state.log.warning(event, message=message)
