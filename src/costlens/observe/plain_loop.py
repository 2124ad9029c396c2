"""What a plain loop does, told by hooks that see one event each: fetch, forward, backward, step.

Hooks (``torch_hooks``) and watched loaders (``loader``) report here on the training thread; this
turns their reports into phases on the timeline and, where the user brackets no iterations, into
iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import NamedTuple

from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import Boundaries
from costlens.core.guard import faults
from costlens.core.phases import Phase
from costlens.core.recorder import Recorder
from costlens.observe.device import Device
from costlens.observe.device_events import DeviceGaps
from costlens.observe.device_values import DeviceValues
from costlens.observe.watch import NOBODY, Host, Watch, WatchedModel

__all__ = ["PlainLoop"]

_STARTUP = int(Phase.STARTUP)
_RESTORE = int(Phase.RESTORE)
_DATA_WAIT = int(Phase.DATA_WAIT)
_TRANSFER = int(Phase.TRANSFER)
_FORWARD = int(Phase.FORWARD)
_BACKWARD = int(Phase.BACKWARD)
_OPTIMIZER = int(Phase.OPTIMIZER)
_VALIDATION = int(Phase.VALIDATION)

# Only these stand at the bottom of the stack while a loop runs; start-up and shut-down are not ours
# to end.
_LOOP_BASES = frozenset({Phase.OTHER, Phase.COMPUTE, Phase.VALIDATION})

_NUM_SKIPPED_HINT = 100
_NOT_OPEN = -1


def _leave_alone(_loader: object) -> AbstractContextManager[None]:
    return nullcontext()


class _Step(NamedTuple):
    owner: object
    depth: int
    num_passes: int


class PlainLoop:
    """Turns what hooks see into phases and iterations; one per run, training thread only.

    Every method costs a clock read or two. Where ``run.iteration`` is used, iterations are the
    user's; elsewhere one ends at the next fetch after a forward pass of training, or, when no
    loader is watched, at the next such pass after a backward one.

    Args:
        host: Says whether the run is still on.
        recorder: Takes iterations; its timeline takes phases.
        values: Takes counts that are still on a device, and device gaps.
        state: Takes the moments that split start-up.
        on_device: Called once when a watched model turns out to be on GPUs, with their number.
    """

    def __init__(
        self,
        host: Host,
        recorder: Recorder,
        values: DeviceValues,
        state: AttemptState,
        on_device: Callable[[int], None],
    ) -> None:
        self.recorder = recorder
        self.timeline = recorder.timeline
        self.values = values
        self.models: list[WatchedModel] = []
        self.watches: list[Watch] = []
        self.num_step_calls = 0
        self.has_eval_gradient = False
        self.own_scaler: object = None
        self.on_iterator: Callable[[object], object] = bool
        self.around_iterator: Callable[[object], AbstractContextManager[None]] = _leave_alone
        self.contained = faults.contain("plain.loop")
        self._host = host
        self._boundaries: Boundaries | None = None
        self._state = state
        self._on_device = on_device
        self._gaps: DeviceGaps | None = None
        self._counters = recorder.counters
        self._num_cut = recorder.counters.iterations
        self._is_explicit = False
        self._is_inferring = False
        self._is_trained = False
        self._is_propagated = False
        self._num_fetches = 0
        self._num_skipped = 0
        # Iterators whose batch nobody has trained on yet.
        self._takers: set[int] = set()
        self._taker = 0
        # Depths of the timeline at which phases were opened that have not been closed yet.
        self._fetch_depth = _NOT_OPEN
        self._backward_depth = _NOT_OPEN
        self._forward_depths: list[int] = []
        self._steps: list[_Step] = []
        self._num_passes = 0

    def is_here(self) -> bool:
        """Return whether the run is on and this is the thread that trains."""
        return self._host.is_active and self.timeline.owner == get_ident()

    def join(self, boundaries: Boundaries) -> None:
        """Tell of the ends of steps from now on, and end the training where all ranks do."""
        self._boundaries = boundaries
        boundaries.count_steps = lambda: self.num_step_calls

    def find(self, target: object) -> Watch | None:
        """Return the watch on an object, if there is one."""
        return next((watch for watch in self.watches if watch.target() is target), None)

    def adopt_device(self, device: Device, num_gpus: int, ordinals: Iterable[int] = ()) -> None:
        """Measure device gaps from now on, and tell the run that it drives ``num_gpus`` GPUs.

        Only before the first iteration has ended: what was booked by the host stays booked.

        Args:
            device: The stream that the first of them trains on.
            num_gpus: How many there are, > 0.
            ordinals: Torch's numbers of them, where they are known.
        """
        self._state.gpu_ordinals = tuple(ordinals) or None
        if self._gaps is None and self.recorder.counters.iterations == 0:
            self._gaps = self.values.gaps = DeviceGaps(device, self.recorder)
            self._on_device(num_gpus)

    def add_parameters(self, num_parameters: int | None) -> None:
        """Tell the run the size of another model that it watches; None where it has none yet."""
        if num_parameters is not None:
            self._state.num_parameters = (self._state.num_parameters or 0) + num_parameters

    def remove(self) -> None:
        """Take all hooks off, and count the last iteration if its backward pass was complete."""
        for watch in reversed(self.watches):
            watch.remove()
        self.watches.clear()
        self.models.clear()
        self._mend()
        if self.timeline.depth == 0 and self._is_propagated:
            self._end_iteration()
        # A loader may outlive the run, and the run may be opened again.
        self._host = NOBODY

    # Fetches.

    def begin_fetch(self, taker: object) -> bool:
        """Open the wait for a batch; return False for a fetch inside a fetch, or off our thread.

        Args:
            taker: The iterator that is asked, so that two loaders side by side can be told apart.
        """
        timeline = self.timeline
        if (
            self._fetch_depth != _NOT_OPEN
            or timeline.owner != get_ident()
            or not self._host.is_active
        ):
            return False
        if self._steps or self._forward_depths or self._backward_depth != _NOT_OPEN:
            self._mend()
        depth = self._fetch_depth = len(timeline.levels) - 1
        if depth == 0:
            num_cut = self._counters.iterations
            if self._is_explicit and num_cut != self._num_cut:  # what the call would do
                self._num_cut = num_cut
                self._is_trained = self._is_propagated = False
                self._takers.clear()
            else:
                self._end_iteration()
        self._taker = id(taker)
        is_usual = not self.models and timeline.base != _STARTUP
        phase = _DATA_WAIT if is_usual else self._fetch_phase(depth, self._taker)
        now_ns = timeline.enter(phase)
        if self._num_fetches == 0:
            self._state.first_fetch_ns = now_ns
        if depth == 0 and not self._takers:
            self.recorder.start_ns = now_ns
        if self._gaps is not None and timeline.phase == _DATA_WAIT:
            with self.contained:
                self._gaps.begin_wait()
        self._num_fetches += 1
        return True

    def must_stop(self) -> bool:
        """End the iteration before, and return whether no batch is to follow: training stops.

        Evaluation goes on, where the models tell that it is one.
        """
        boundaries = self._boundaries
        if boundaries is None or (
            boundaries.pause is None and boundaries.agreement is None and boundaries.reason is None
        ):
            return False
        if self._fetch_depth != _NOT_OPEN or not self.is_here():
            return False
        if boundaries.pause is not None:
            boundaries.pause()
        if boundaries.agreement is None and not boundaries.should_stop:
            return False
        if self._steps or self._forward_depths or self._backward_depth != _NOT_OPEN:
            self._mend()
        if self.timeline.depth == 0:
            self._end_iteration()
        if not boundaries.should_stop:
            return False
        return not self.models or any(model.is_training() for model in self.models)

    def end_fetch(self, has_batch: bool) -> None:  # noqa: FBT001 - a keyword costs more
        """Close the wait for a batch; only after ``begin_fetch`` returned True."""
        timeline = self.timeline
        depth, self._fetch_depth = self._fetch_depth, _NOT_OPEN
        is_validation = timeline.phase == _VALIDATION
        if self._gaps is not None:
            with self.contained:
                self._gaps.end_wait(self._counters.iterations)
        timeline.leave()
        if not has_batch:
            self._takers.clear()
            if depth == 0:
                self._set_base(Phase.OTHER)
        elif is_validation:
            self._counters.validation_batches += 1
            if depth == 0:
                self._set_base(Phase.VALIDATION)
        elif depth == 0:
            self._takers.add(self._taker)
            phase = Phase.COMPUTE if self._is_inferring else Phase.OTHER
            if timeline.base != phase:
                self._set_base(phase)

    def begin_transfer(self) -> bool:
        """Open a transfer; return False off our thread."""
        if not self.is_here():
            return False
        self.timeline.enter(_TRANSFER)
        return True

    def end_transfer(self) -> None:
        """Close a transfer."""
        self.timeline.leave()

    def _fetch_phase(self, depth: int, taker: int) -> int:
        for model in self.models:
            if model.is_training():
                break
        else:
            if self.models:
                return _VALIDATION
        # In start-up, a batch that nobody trained on was skipped: the loop is catching up.
        if depth or taker not in self._takers or self.timeline.base != _STARTUP:
            return _DATA_WAIT
        self._num_skipped += 1
        if self._num_skipped == _NUM_SKIPPED_HINT:
            self._state.log.info(
                "costlens.plain.skipping",
                num_batches=_NUM_SKIPPED_HINT,
                message="batches are fetched and not trained on, which is booked as restore; if "
                "this is training, watch the model or put the work into run.iteration()",
            )
        return _RESTORE

    # Compute.

    def begin_forward(self, *, is_training: bool) -> None:
        """Open the forward pass of a watched model; nothing off our thread."""
        timeline = self.timeline
        if timeline.owner != get_ident() or not self._host.is_active:
            return
        depth = len(timeline.levels) - 1
        self._forward_depths.append(depth)
        self._num_passes += 1
        if depth == 0 and is_training:
            if self._num_fetches == 0 and self._is_propagated:
                self._end_iteration()
            if self._is_inferring:
                self._set_base(Phase.COMPUTE)
        timeline.enter(_FORWARD if is_training else _VALIDATION)

    def end_forward(self, *, is_trained: bool) -> bool:
        """Close the forward pass, and return whether it was open.

        Args:
            is_trained: Whether gradients may follow.
        """
        if not self._forward_depths or self.timeline.owner != get_ident():
            return False
        self._forward_depths.pop()
        self.timeline.leave()
        self._is_trained |= is_trained
        return True

    @property
    def is_in_backward(self) -> bool:
        """Return whether a backward pass is open."""
        return self._backward_depth != _NOT_OPEN

    def begin_backward(self) -> bool:
        """Open the backward pass unless it is open; return whether it was opened.

        On CUDA the autograd engine calls from a thread of its own while the training thread waits
        for it, so the thread is the caller's to check.
        """
        if self._backward_depth != _NOT_OPEN or not self._host.is_active:
            return False
        self._backward_depth = len(self.timeline.levels) - 1
        self.timeline.enter(_BACKWARD)
        return True

    def end_backward(self) -> None:
        """Close the backward pass, if it is open."""
        depth, self._backward_depth = self._backward_depth, _NOT_OPEN
        if depth != _NOT_OPEN and self._host.is_active:
            self.timeline.leave()
            # A gradient of an evaluation (adversarial examples) makes no iteration.
            self._is_propagated |= self._is_trained

    def begin_step(self, owner: object) -> bool:
        """Open a step; return False off our thread.

        Args:
            owner: The watch of the optimizer or scaler; a subclass whose step calls the one it
                inherits reports twice.
        """
        timeline = self.timeline
        if timeline.owner != get_ident() or not self._host.is_active:
            return False
        for step in self._steps:
            if step.owner is owner and step.num_passes != self._num_passes:
                # Passes went by since: that step was abandoned, this is none inside it.
                self._mend()
                break
        self._steps.append(_Step(owner, len(timeline.levels) - 1, self._num_passes))
        timeline.enter(_OPTIMIZER)
        return True

    def end_step(self, owner: object) -> bool:
        """Close a step and return whether it is complete, rather than one that it inherits."""
        steps, timeline = self._steps, self.timeline
        if timeline.owner != get_ident() or not steps:
            return False
        step = steps.pop()
        if step.owner is owner:
            timeline.leave()
        else:
            # An error has left the steps inside this one open.
            while steps and step.owner is not owner:
                step = steps.pop()
            timeline.unwind(step.depth)
        if steps and any(outer.owner is owner for outer in steps):
            return False
        self._is_trained = self._is_propagated = True
        if step.depth == 0:
            self._set_base(Phase.OTHER)
        return True

    # Iterations.

    def _end_iteration(self) -> None:
        counters = self._counters
        if counters.iterations != self._num_cut:
            # Somebody else cut: the user brackets iterations, and nothing is inferred any more.
            self._is_explicit, self._is_inferring = True, False
            self._takers.clear()
        elif self._is_trained and not self._is_explicit:
            counters.micro_batches += 1
            self.recorder.cut()
            if self._boundaries is not None:
                self._boundaries.note_iteration()
            self._is_inferring = True
            self._takers.clear()
        self._num_cut = counters.iterations
        self._is_trained = self._is_propagated = False

    def _set_base(self, phase: Phase) -> None:
        timeline = self.timeline
        if timeline.base != phase and timeline.base in _LOOP_BASES:
            timeline.rebase(phase)

    # An exception may leave a phase open: only forward hooks are called whatever happens. What is
    # still open when the next fetch begins was abandoned; a scope around it may have closed it.

    def _mend(self) -> None:
        self.abandon_backward()
        abandoned = [*(step.depth for step in self._steps), *self._forward_depths]
        if abandoned:
            if self.timeline.phase in (_OPTIMIZER, _FORWARD):
                self.timeline.unwind(min(abandoned))
            self._steps.clear()
            self._forward_depths.clear()

    def abandon_backward(self) -> None:
        """Close a backward pass that an error has ended."""
        depth, self._backward_depth = self._backward_depth, _NOT_OPEN
        if depth != _NOT_OPEN and self.timeline.phase == _BACKWARD:
            self.timeline.unwind(depth)
