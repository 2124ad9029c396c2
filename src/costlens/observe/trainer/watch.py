"""One fit or evaluation of a Trainer under watch: what is put on it, and taken off again.

``lightning.py`` makes one in ``setup`` and removes it in ``teardown`` or ``on_exception``; in
between Lightning's brackets move the timeline and the hooks below complete iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S
from costlens.core.guard import faults
from costlens.core.phases import Phase
from costlens.core.recorder import Recorder
from costlens.core.timeline import Timeline
from costlens.observe.device_events import DeviceGaps
from costlens.observe.device_values import DeviceValues
from costlens.observe.flops import count_parameters
from costlens.observe.host_probe import HostSources
from costlens.observe.trainer import facts
from costlens.observe.trainer.batches import BatchCounter
from costlens.observe.trainer.brackets import BracketProfiler, Scope, ScopeTable
from costlens.observe.trainer.given import Trainer
from costlens.observe.trainer.loop import LoopTimes
from costlens.observe.trainer.methods import ScopedMethod
from costlens.observe.trainer.names import ScopeMaker
from costlens.observe.trainer.quality import QualityReader
from costlens.observe.trainer.scopes import AfterScope, EdgeScope, EvaluationScope
from costlens.observe.trainer.steps import StepCounter

__all__ = ["Choices", "TrainerWatch", "WatchedParts"]

_LOOK_EVERY_NS = NS_PER_S


class WatchedParts(Protocol):
    """The living parts of a run that a watch writes to."""

    @property
    def timeline(self) -> Timeline:
        """Return the timeline."""

    @property
    def recorder(self) -> Recorder:
        """Return the recorder."""

    @property
    def values(self) -> DeviceValues:
        """Return what takes counts and metrics that may be on a device."""

    @property
    def host(self) -> HostSources:
        """Return what takes the workers of data loaders."""

    @property
    def state(self) -> AttemptState:
        """Return the state of the attempt."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chose.

    Args:
        quality: Globs of logged names to keep.
        window_ns: How often logged values are read, in nanoseconds.
        tokens: The user's own count of a batch.
        at_window: Called once a window on the training thread.
    """

    quality: tuple[str, ...]
    window_ns: int
    tokens: Callable[[Any], Any] | None = None
    at_window: Callable[[], None] | None = None


class TrainerWatch:
    """Watches a Trainer from :meth:`install` to :meth:`remove`; training thread only.

    Args:
        trainer: The Trainer.
        parts: The run's parts.
        choices: What the user chose.
    """

    def __init__(self, trainer: Trainer, parts: WatchedParts, choices: Choices) -> None:
        self.trainer = trainer
        self._state = parts.state
        self._values = parts.values
        self._recorder = parts.recorder
        self._counters = parts.recorder.counters
        self._timeline = parts.timeline
        self._host = parts.host
        self._choices = choices
        self._counter = BatchCounter(parts.recorder.counters, parts.values, choices.tokens)
        self._quality = QualityReader(parts.values, choices.quality)
        self._next_look_ns = 0
        self._next_window_ns = parts.timeline.since_ns + choices.window_ns
        self._steps: StepCounter | None = None
        self._is_silent = False
        self._optimizer: Any = None
        self._global_step = 0
        self._is_automatic = True
        self._times = LoopTimes(parts.timeline, parts.recorder, parts.state)
        self._times.is_tuning = lambda: facts.is_tuning(trainer)
        self._times.on_iterators = self._tell_iterators
        self._times.note_save = self._note_save
        self._methods: list[ScopedMethod] = []

    def install(self, stage: str) -> None:
        """Put everything on the Trainer; what has been put on when this fails comes off as well.

        Args:
            stage: What was called: ``fit``, ``validate``, ``test`` or ``predict``.
        """
        times, trainer = self._times, self.trainer
        times.begin_setup()
        self._state.stage = facts.stage_name(stage)
        scopes = ScopeTable(ScopeMaker(times, self._is_overridden))
        times.profiler = BracketProfiler.install(trainer, scopes)
        self._wrap(trainer.strategy, "load_checkpoint", times.timeline.bracket(Phase.RESTORE))
        # Behind it, Lightning creates the iterator and with it the workers.
        wait = times.timeline.bracket(Phase.DATA_WAIT)
        loading = EdgeScope(AfterScope(self._after_loader), wait)
        self._wrap(trainer.strategy, "process_dataloader", loading)
        exchange = times.timeline.bracket(Phase.COMMUNICATION)
        for loop, name in facts.iterate_exchanges(trainer, stage):
            self._wrap(loop, name, exchange)
        for loop, name in facts.iterate_evaluations(trainer, stage):
            scope = EvaluationScope(times, trainer, name, is_all=stage != "fit")
            self._wrap(loop, "run", scope)

    def _wrap(self, owner: object, name: str, scope: Scope) -> None:
        self._methods.append(ScopedMethod(owner, name, scope))

    def _after_loader(self) -> None:
        if self.trainer.training:
            self._times.open_wait()

    def _tell_iterators(self) -> None:
        with faults.contain("lightning.iterators"):
            for iterator in facts.iterate_iterators(self.trainer):
                self._host.workers.add(iterator)
            if self.trainer.training:
                number = self._counters.iterations
                for iterator in facts.iterate_training_iterators(self.trainer):
                    self._host.loader.see(iterator, number)

    def _is_overridden(self, kind: str, owner: str, hook: str) -> bool:
        if kind == "LightningModule":
            return facts.is_overridden(self.trainer.lightning_module, hook, kind)
        if kind == "LightningDataModule":
            return facts.is_overridden(self.trainer.datamodule, hook, kind)
        named = [callback for callback in self.trainer.callbacks if callback.state_key == owner]
        return not named or any(facts.is_overridden(each, hook, "Callback") for each in named)

    def remove(self) -> None:
        """Take everything off the Trainer; the profiler that was there is back."""
        self._times.settle(0)
        if self._times.profiler is not None:
            self._times.profiler.remove(self.trainer)
        for method in reversed(self._methods):
            method.remove()
        self._methods.clear()
        if self._steps is not None:
            self._steps.remove()
        self._look(max(0, self._recorder.counters.iterations - 1))

    # What our callback's hooks do.

    def start_training(self) -> None:
        """Begin a training: optimizers and loaders are set up by now."""
        trainer, state = self.trainer, self._state
        self._times.is_starting = True
        self._times.num_micro = 0
        self._is_automatic = bool(trainer.lightning_module.automatic_optimization)
        optimizers = facts.real_optimizers(trainer)
        self._optimizer = optimizers[0] if optimizers else None
        if self._steps is not None:
            self._steps.remove()
        self._steps = StepCounter(self._times, self._values)
        self._steps.watch(optimizers, facts.find_scaler(trainer))
        self._is_silent = self._steps.is_silent
        state.num_parameters = count_parameters(trainer.lightning_module)
        self._host.all_reduce.see(trainer.strategy.model)
        self._attach_device()
        self._global_step = state.end_step = int(trainer.global_step)
        if state.start_step is None:
            # What an attempt finds when it begins is kept, wherever it came from.
            state.start_step = state.saved_step = self._global_step
        state.total_steps = facts.total_steps(trainer)
        state.num_saves, state.num_evaluations = state.num_saves or 0, state.num_evaluations or 0

    def _attach_device(self) -> None:
        gaps = self._values.gaps
        device = facts.open_device(self.trainer) if gaps is None else None
        if device is not None:
            gaps = self._values.gaps = DeviceGaps(device, self._recorder)
        self._times.gaps = gaps if isinstance(gaps, DeviceGaps) else None

    def _note_save(self) -> None:
        if self._steps is not None and not self._times.is_tuning():
            self._state.saved_step = int(self.trainer.global_step)
            self._state.num_saves = (self._state.num_saves or 0) + 1

    def start_epoch(self) -> None:
        """Begin an epoch: its number goes into the rows."""
        self._recorder.context = int(self.trainer.current_epoch)

    def end_batch(self, outputs: object, batch: object) -> None:
        """Complete an iteration, whose row is cut at the next fetch; about 10 µs."""
        times, counters = self._times, self._counters
        if times.is_complete:  # the same callback stands in the list twice
            return
        times.is_complete = True
        number = counters.iterations
        counters.micro_batches += times.num_micro
        times.num_micro = 0
        # A schedule of accumulation may change it with any epoch, and after our hook.
        factor = self.trainer.accumulate_grad_batches if self._is_automatic else 1
        self._quality.read_batch(outputs, factor, number)
        if self._is_silent or self._timeline.since_ns >= self._next_look_ns:
            self._look(number)
            # Inside a batch Lightning computes no metric for being asked, so no rank waits here.
            if self._timeline.since_ns >= self._next_window_ns:
                self._end_window(number)
        # Last, because it may call a function of the user, which may fail.
        self._counter.count(batch, number)

    # What changes slowly is looked at once a second: often enough for the record of a process that
    # is killed, and seldom enough to cost nothing.
    def _look(self, number: int) -> None:
        self._next_look_ns = self._timeline.since_ns + _LOOK_EVERY_NS
        if self._steps is not None:  # a Trainer that only evaluates has a count of its own
            step = int(self.trainer.global_step)
            if self._is_silent:
                self._counters.optimizer_steps += step - self._global_step
            self._global_step = self._state.end_step = step
            self._steps.tell_scale(number)
        if not self._host.loader.is_known:
            # Where a checkpoint may be restored first, iterators are made after they are told.
            for iterator in facts.iterate_training_iterators(self.trainer):
                self._host.loader.note(iterator)
        if self._optimizer is not None:
            self._quality.read_learning_rate(self._optimizer, number)

    def _end_window(self, number: int) -> None:
        self._next_window_ns = self._timeline.since_ns + self._choices.window_ns
        self._quality.read_logged(facts.look_at_metrics(self.trainer), number)
        if self._choices.at_window is not None:
            self._choices.at_window()

    def end_evaluation(self) -> None:
        """Take what an evaluation logged; the sanity check's values are none."""
        if not self.trainer.sanity_checking:
            self._state.num_evaluations = (self._state.num_evaluations or 0) + 1
            iterations = self._recorder.counters.iterations
            number = iterations if self._times.is_complete else max(0, iterations - 1)
            self._quality.read_logged(self.trainer.callback_metrics, number)
