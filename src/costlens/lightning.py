"""The Lightning door: ``Trainer(callbacks=[CostLensCallback()])`` watches a training.

It translates the Trainer's hooks and nothing else: ``observe/trainer`` does the watching, and
``run.py`` the rest. Both ``lightning.pytorch`` and ``pytorch_lightning`` are served; importing this
module loads neither.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from costlens.agreeing import check_can_agree
from costlens.config import Config, resolve_config
from costlens.core.boundaries import Boundaries
from costlens.core.guard import faults
from costlens.core.log import log
from costlens.core.records import Outcome
from costlens.errors import ConfigError, RunStateError
from costlens.observe.gang_wait import gang_waits
from costlens.observe.trainer import states
from costlens.observe.trainer.given import Trainer
from costlens.observe.trainer.packages import as_callback, callback_classes
from costlens.protect.signals import give_back
from costlens.run import Run

if TYPE_CHECKING:
    from costlens.observe.trainer.watch import TrainerWatch
    from costlens.protect.trainer_checkpoints import TrainerCheckpoints
    from costlens.protect.trainer_precision import TrainerPrecision

__all__ = ["CostLensCallback", "autoattach_callbacks"]

# A copy has none of these: what lives belongs to the original alone.
_LIVING = frozenset(
    {"_run", "_watch", "_end_batch", "_debug", "_training_outcome", "_boundary_step"}
    | {"_precision", "_keeper", "_kept_trainer", "log", "log_dict"}
)

_AUTOMATIC = "automatic"  # no name's repr: those have quotes


class CostLensCallback:
    """Watches every fit, validation, test and prediction of the Trainer it is given to.

    An instance is a ``Callback`` of whichever Lightning package is loaded. A copy (deepcopy,
    pickle) knows the settings and is inert until a run starts on it. A second callback of the same
    name in one Trainer is inert.

    Args:
        name: Name of the run, for people.
        checkpoint_url: Where checkpoints go, any fsspec URL: the fit saves itself there, and goes
            on from there without a ``ckpt_path``.
        tokens: Counts a batch: returns its non-padding tokens, or a mapping with any of ``tokens``,
            ``slots``, ``loss_tokens``, ``samples``; numbers or tensors. Without it the members
            ``input_ids``, ``attention_mask`` and ``labels`` of a batch are counted.
        gpu_hour_price: Money per GPU and hour, >= 0.
        budget: Money that the run may cost over all its attempts, > 0.
        precision: ``auto``, ``bf16``, ``fp16`` or ``fp32`` where the Trainer's own ``precision``
            was left at its default (32-true, which looks the same written out).
        log_to_trainer: Whether rates and cost also go to the Trainer's loggers, once a window.
        config: Ready settings; the arguments override its fields.

    Raises:
        ConfigError: If a setting is not usable.
        MissingExtraError: If no Lightning package is installed.
    """

    door: ClassVar[type[CostLensCallback]]
    """The class as it was written, without the bases of Lightning that an instance gets."""

    state_key: str = "CostLensCallback"
    """What tells this callback from others in a Trainer and in its checkpoints."""

    # Lightning passes over hooks that are None, and opens no bracket for them either.
    on_train_batch_start = None
    on_before_zero_grad = None
    on_before_backward = None
    on_after_backward = None
    on_before_optimizer_step = None
    on_validation_batch_start = None
    on_validation_batch_end = None
    on_test_batch_start = None
    on_test_batch_end = None
    on_predict_batch_start = None
    on_predict_batch_end = None

    def __new__(cls, *_: Any, **__: Any) -> CostLensCallback:
        """Return an instance that is a callback of the loaded Lightning packages, too."""
        return object.__new__(as_callback(cls, callback_classes()))

    def __init__(  # noqa: PLR0913 - each is a setting that users give here
        self,
        name: str | None = None,
        *,
        checkpoint_url: str | None = None,
        tokens: Callable[[Any], Any] | None = None,
        gpu_hour_price: Decimal | float | str | None = None,
        budget: Decimal | float | str | None = None,
        precision: Literal["off", "auto", "bf16", "fp16", "fp32"] | None = None,
        log_to_trainer: bool = False,
        config: Config | None = None,
    ) -> None:
        self._config = resolve_config(
            config,
            name=name,
            checkpoint_url=checkpoint_url,
            gpu_hour_price=gpu_hour_price,
            budget=budget,
            precision=precision,
        )
        self._tokens = tokens
        self._logs_to_trainer = log_to_trainer
        self._name(repr(self._config.name))
        self._forget()
        self._listen()

    def _forget(self) -> None:
        self._run: Run | None = None
        self._watch: TrainerWatch | None = None
        self._precision: TrainerPrecision | None = None
        self._keeper: TrainerCheckpoints | None = None
        self._kept_trainer: weakref.ref[Any] | None = None
        self._end_batch: Callable[[object, object], None] = _unwatched
        self._debug: str | None = None
        self._training_outcome: Outcome | None = None
        self._boundary_step = 0

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        kept = {name: value for name, value in vars(self).items() if name not in _LIVING}
        return (_make_copy, (type(self).door,), kept)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._forget()
        vars(self).update(state)
        self._listen()

    def _listen(self) -> None:
        # Lightning makes the process group before it calls any hook: here, or in a process that
        # unpickles the callback to train there.
        if self._config.enabled:
            faults.call("lightning.gang_wait", gang_waits.listen, self)

    # Lightning asks for it in every bracket. A subclass may have a property of its own.
    def _name(self, kind: str) -> None:
        self.is_automatic = kind == _AUTOMATIC
        vars(self)["state_key"] = f"CostLensCallback[{kind}]"

    @property
    def run(self) -> Run:
        """Return the run that this callback feeds.

        Raises:
            RunStateError: If no fit or evaluation has begun yet.
        """
        if self._run is None:
            raise RunStateError("there is no run yet: it begins with trainer.fit, validate or test")
        return self._run

    # Hooks. Lightning calls them on the training thread; all but `on_train_batch_end` (about 10 µs)
    # are rare.

    def setup(self, trainer: Trainer, pl_module: object, stage: str) -> None:
        """Begin or go on with a run; may take a second, in start-up.

        Raises:
            ConfigError: If the ranks are to stop together and cannot agree, or the precision that
                is asked for cannot be had, or this training cannot be saved.
            StorageError: If the place of the checkpoints cannot be written.
        """
        check_can_agree(self._config, trainer.world_size)
        with faults.contain("lightning.setup"):
            watched = None if self._watch is None else self._watch.trainer
            if watched is not None and watched is not trainer and states.is_running(watched):
                return  # a hook trains something else in between
            if self._is_superfluous(trainer):
                self._run = self._run or _inert_run(self._config)
                gang_waits.ignore(self)
                return
            self._open(trainer, states.read_state(stage))
        if self._config.enabled:
            self._settle_precision(trainer)
        if states.read_state(stage) == "fit":
            self._keep_checkpoints(trainer)

    def teardown(self, trainer: Trainer, pl_module: object, stage: str) -> None:
        """End the run for now; takes what ``Run.finish`` takes."""
        if self._watch is not None and self._watch.trainer is trainer:
            self._close(
                faults.call("lightning.outcome", self._outcome, trainer, states.read_state(stage))
            )

    def on_exception(self, trainer: Trainer, pl_module: object, exception: BaseException) -> None:
        """End the run; an exception skips ``teardown``."""
        if self._watch is not None and self._watch.trainer is trainer:
            self._close(states.outcome_of(exception), exception)
            faults.call("lightning.signals", _give_back_signals, trainer)
        elif self._watch is None and self._run is not None and states.is_past_teardown(exception):
            self._run.open()  # it was closed by our own `teardown`, a moment ago
            self._close(states.outcome_of(exception), exception)

    def on_train_start(self, trainer: Trainer, pl_module: object) -> None:
        """Look at optimizers and limits."""
        watch = self._watch
        if watch is not None and watch.trainer is trainer:
            with faults.contain("lightning.train_start"):
                watch.start_training()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: object) -> None:
        """Note the epoch."""
        watch = self._watch
        if watch is not None and watch.trainer is trainer:
            with faults.contain("lightning.epoch_start"):
                watch.start_epoch()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Complete an iteration; about 10 µs."""
        watch = self._watch
        if watch is not None and watch.trainer is trainer:
            self._end_batch(outputs, batch)
            if self._run is not None and self._run.parts.boundaries.agreement is not None:
                self._reach_boundary(self._run.parts.boundaries, trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: object) -> None:
        """Take what a validation logged."""
        watch = self._watch
        if watch is not None and watch.trainer is trainer:
            with faults.contain("lightning.validation_end"):
                watch.end_evaluation()

    on_test_end = on_validation_end

    # What they do.

    # Loud where it was asked for, and else an observation like any other.
    def _settle_precision(self, trainer: Trainer) -> None:
        from costlens.protect.trainer_precision import TrainerPrecision

        if self._precision is None:
            source = self._config.source_of("precision")
            earlier = "" if self._run is None else self._run.recall_precision()
            self._precision = TrainerPrecision(self._config.precision, source, earlier)
        if self._config.precision == "off":
            part = faults.call("lightning.precision", self._precision.settle, trainer)
        else:
            part = self._precision.settle(trainer)
        if self._run is not None and self._run.is_active:
            self._run.parts.state.chosen_precision = part

    # Its own callback, behind all others; loud, for the user asked for it.
    def _keep_checkpoints(self, trainer: Trainer) -> None:
        run = self._run
        if run is None or not run.is_active or run.config.checkpoint_url is None:
            return
        from costlens.protect.trainer_checkpoints import attach

        kept = None if self._kept_trainer is None else self._kept_trainer()
        if self._kept_trainer is not None and kept is not trainer:
            log.warning(
                "costlens.checkpoint.unprotected",
                message="this run keeps the checkpoints of the Trainer that was fitted first, and"
                " none of this one; give each training a CostLensCallback and a checkpoint_url",
            )
            return
        self._kept_trainer = weakref.ref(trainer)
        timeout_s = run.config.checkpoint_exit_timeout_s
        self._keeper = attach(trainer, callback_classes(), run.keep_state, timeout_s)
        if self._keeper is not None:
            # What a Trainer was left with in this process is newer than any checkpoint.
            self._keeper.install(run.config.resume if kept is None else "never")

    def _reach_boundary(self, boundaries: Boundaries, trainer: Trainer) -> None:
        with faults.contain("lightning.boundary"):
            if trainer.global_step != self._boundary_step:
                self._boundary_step = trainer.global_step
                if boundaries.reach():
                    trainer.should_stop = True

    def _is_superfluous(self, trainer: Trainer) -> bool:
        keys = [
            callback.state_key
            for callback in trainer.callbacks
            if isinstance(callback, CostLensCallback) and callback is not self
        ]
        if self.is_automatic:
            return bool(keys)
        others = trainer.callbacks[: trainer.callbacks.index(self)]
        is_second = self.state_key in keys and any(
            isinstance(other, CostLensCallback) and other.state_key == self.state_key
            for other in others
        )
        if is_second:
            log.warning(
                "costlens.callback.duplicate",
                message=f"this Trainer has two CostLensCallbacks named {self._config.name!r}; the"
                " second one does nothing. Remove it, or give it another name",
            )
        return is_second

    def _open(self, trainer: Trainer, stage: str) -> None:
        # Lightning, and so torch, is loaded by now.
        from costlens.observe.trainer import facts
        from costlens.observe.trainer.watch import Choices, TrainerWatch

        if self._watch is not None:  # a fit whose end was not told
            self._watch.remove()
            self._watch = None
        debug = facts.describe_debug(trainer)
        if self._run is not None and debug != self._debug:
            self._run.finish()
            self._run = None
        if self._run is None:
            self._run = self._make_run(trainer, debug)
            self._debug = debug
        device = facts.device_kind(trainer)
        is_gpu = device == "cuda"
        self._run.open(has_device=is_gpu, num_gpus=int(is_gpu), device=device)
        gang_waits.ignore(self)  # the run listens from now on
        if not self._run.is_active:
            return
        parts = self._run.parts
        parts.state.run = parts.state.run.model_copy(update={"debug": debug})
        parts.state.gpu_ordinals = facts.device_ordinals(trainer)
        at_window = self._log_to_trainer if self._logs_to_trainer else None
        choices = Choices(self._config.quality, self._config.window_ns, self._tokens, at_window)
        self._watch = TrainerWatch(trainer, parts, choices)
        self._end_batch = faults.shield("lightning.batch", self._watch.end_batch)
        self._watch.install(stage)

    def _make_run(self, trainer: Trainer, debug: str | None) -> Run:
        from costlens.observe.trainer import facts

        config, placement = self._config, facts.place_trainer(trainer)
        if debug is not None:
            # A debug run is a run of its own: it must not enter the totals of the real one.
            config = config.model_copy(update={"run_id": None, "checkpoint_url": None})
            placement = dataclasses.replace(placement, job_id=None)
        return Run(config, placement=placement, framework=facts.describe_framework(trainer))

    def _close(self, outcome: Outcome | None, error: BaseException | None = None) -> None:
        watch, self._watch = self._watch, None
        self._end_batch = _unwatched
        if self._keeper is not None:
            self._keeper.remove()
            self._keeper = None
        if watch is not None:
            with faults.contain("lightning.remove"):
                watch.remove()
        if self._run is not None:
            # Lightning turns an interrupt into exit code 1.
            exit_code = 1 if isinstance(error, KeyboardInterrupt) else None
            with faults.contain("lightning.finish"):
                self._run.finish(outcome, error=error, exit_code=exit_code)

    def _outcome(self, trainer: Trainer, stage: str) -> Outcome:
        if stage != "fit":
            return self._training_outcome or Outcome.COMPLETED
        outcome = Outcome.COMPLETED
        if states.is_stopped_early(trainer):
            # A user's handler may ask the Trainer to stop.
            is_asked = self.run.parts.state.signal is not None
            outcome = Outcome.PREEMPTED if is_asked else Outcome.STOPPED_EARLY
        self._training_outcome = outcome
        return outcome

    def _log_to_trainer(self) -> None:
        from costlens.observe.trainer.loggers import log_snapshot

        snapshot = None if self._run is None else self._run.snapshot
        if snapshot is not None and self._watch is not None:
            log_snapshot(self._watch.trainer, snapshot)


def autoattach_callbacks() -> list[CostLensCallback]:
    """Return a callback when ``COSTLENS_AUTOATTACH`` asks for one, else an empty list.

    Every Trainer calls this when it is built, also where nobody thinks of costlens: a setting that
    is not usable is logged here, not raised.
    """
    try:
        config = resolve_config()
    except ConfigError as error:
        log.error("costlens.autoattach.refused", message=str(error))
        return []
    if not config.autoattach or not config.enabled:
        return []
    callback = CostLensCallback(config=config)
    callback._name(_AUTOMATIC)  # noqa: SLF001 - its own module
    return [callback]


def _unwatched(*_: object) -> None:
    return None


def _make_copy(kind: type[CostLensCallback]) -> CostLensCallback:
    return kind.__new__(kind)


def _inert_run(config: Config) -> Run:
    run = Run(config)
    run.silence()
    return run


def _give_back_signals(trainer: Trainer) -> None:
    # After an exception Lightning puts back the handlers it found when the training began: ours.
    found = getattr(getattr(trainer, "_signal_connector", None), "_original_handlers", None)
    if isinstance(found, dict):
        give_back(found)
