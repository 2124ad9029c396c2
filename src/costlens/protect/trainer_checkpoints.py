"""Saves and resumes a fit of a Lightning Trainer, from the hooks of a callback of its own.

``lightning.py`` attaches one in ``setup``, behind every other callback, and removes it at the end.
Three methods are stood in for, each on the Trainer's own objects: what reads a checkpoint where the
user has named none, what makes a loader ready, and what ends an epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from costlens.core.overrides import Override
from costlens.errors import CheckpointError, ConfigError
from costlens.protect import signals
from costlens.protect.manager import CheckpointManager
from costlens.protect.trainer_precision import serves
from costlens.protect.trainer_state import Trainer, TrainerState

__all__ = ["TrainerCheckpoints", "attach"]


class TrainerCheckpoints:
    """The callback behind all others; about 8 µs a step where no save is due.

    Args:
        trainer: The Trainer, in ``setup``.
        state: What is saved.
        manager: Saves and resumes it.
        exit_timeout_s: Most seconds that the last save waits for the one before.
    """

    def __init__(
        self,
        trainer: Trainer,
        state: TrainerState,
        manager: CheckpointManager,
        exit_timeout_s: float,
    ) -> None:
        self._trainer = trainer
        self._state = state
        self._manager = manager
        self._exit_timeout_s = exit_timeout_s
        self._wish = "never"
        self._resumed: dict[str, Any] | None = None  # until the training begins
        self._step = 0
        self._last_step: int | None = None
        self._overrides: list[Override] = []

    # A copy of a Trainer in the middle of a fit has nothing to save with.
    def __reduce__(self) -> tuple[Any, ...]:
        return (_make_inert, tuple(each for each in type(self).__bases__ if each is not _KIND))

    def install(self, wish: str) -> None:
        """Stand in for three methods, and join the callbacks.

        Args:
            wish: How a fit without ``ckpt_path`` resumes: ``auto``, ``never`` or ``must``.
        """
        self._wish = wish
        trainer = self._trainer
        self._overrides.append(Override(trainer.strategy, "process_dataloader", self._process))
        connector = trainer._checkpoint_connector  # noqa: SLF001 - `fit` has fixed the path
        self._overrides.append(Override(connector, "resume_start", self._resume))
        self._overrides.append(Override(trainer.fit_loop, "on_advance_end", self._end_epoch))
        # Not appended: Lightning is iterating over the list.
        trainer.callbacks = [*trainer.callbacks, self]

    def remove(self) -> None:
        """Take everything off the Trainer."""
        for override in reversed(self._overrides):
            override.remove()
        self._overrides.clear()
        self._state.remove()
        callbacks = self._trainer.callbacks
        self._trainer.callbacks = [each for each in callbacks if each is not self]

    # Set-up.

    def _resume(
        self,
        resume_start: Callable[..., None],
        checkpoint_path: object = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if checkpoint_path:  # the user's own wins
            resume_start(checkpoint_path, *args, **kwargs)
            return
        self._manager.resume_as(self._wish)
        checkpoint = self._state.take_checkpoint()
        if checkpoint is None:
            resume_start(checkpoint_path, *args, **kwargs)
            return
        self._resumed = checkpoint
        loading = Override(self._trainer.strategy, "load_checkpoint", lambda *_, **__: checkpoint)
        try:
            resume_start(self._manager.place, *args, **kwargs)
        finally:
            loading.remove()

    def _process(self, process: Callable[..., Any], loader: object) -> Any:  # noqa: ANN401
        processed = process(loader)
        # A tuner tries its settings out without any callback, and without us.
        if self._trainer.training and self in self._trainer.callbacks:
            if self._state.is_resuming:
                _begin_next_epoch(self._trainer.fit_loop)
            self._state.follow(processed)
        return processed

    # Hooks; training thread.

    def on_fit_start(self, trainer: Trainer, pl_module: object) -> None:
        """Let the Trainer restore what is left: a tuner has put its own state back meanwhile."""
        connector = trainer._checkpoint_connector  # noqa: SLF001 - see `install`
        if self._resumed is not None and not connector._loaded_checkpoint:  # noqa: SLF001 - same
            connector._loaded_checkpoint = self._resumed  # noqa: SLF001 - same

    def on_train_start(self, trainer: Trainer, pl_module: object) -> None:
        """Note where the training begins.

        Raises:
            CheckpointError: If the Trainer has not restored what it was given.
        """
        self._step = int(trainer.global_step)
        signals.take_back(_is_lightnings)
        resumed, self._resumed = self._resumed, None
        if resumed is not None and self._step != resumed["global_step"]:
            raise CheckpointError(
                f"the Trainer begins at step {self._step} and its checkpoint is of step"
                f" {resumed['global_step']}: something has put another state back; remove callbacks"
                " that train before the fit, or set COSTLENS_RESUME=never to begin anew"
            )

    def on_sanity_check_start(self, trainer: Trainer, pl_module: object) -> None:
        """Take signals back from Lightning, which has just begun to handle them."""
        self._step = int(trainer.global_step)
        signals.take_back(_is_lightnings)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: object, *_args: object, **_kwargs: object
    ) -> None:
        """Leave an evaluation where the run is asked to: Lightning goes on in it at a resume.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        preemption = self._manager.preemption
        if self._manager.agrees or preemption is None or not preemption.is_due:
            return
        if trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._state.end_epoch()  # its batches are used up, and nothing else is left of it
        self._leave_if_due(trainer)

    def _leave_if_due(self, trainer: Trainer) -> None:
        preemption = self._manager.preemption
        if preemption is not None and preemption.is_due:
            preemption.leave(self._step)
            trainer.should_stop = True  # where the process does not end by itself

    def on_train_epoch_start(self, trainer: Trainer, pl_module: object) -> None:
        """Go on from a save between two epochs."""
        self._state.begin_epoch()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: object, batch: object, batch_idx: int
    ) -> None:
        """Go on from a save inside an epoch; once, in the first batch."""
        self._state.begin_batch()
        vars(self)["on_train_batch_start"] = None  # Lightning passes over it from now on

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: object, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Save if it is time to and the state is whole: a step is done, and more are to come.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        step = int(trainer.global_step)
        if step == self._step:
            return  # gradients are being accumulated
        self._step = step
        manager, preemption = self._manager, self._manager.preemption
        is_over, is_due = _is_over(trainer), manager.note_step(step)
        is_leaving = preemption is not None and preemption.is_due
        if (is_over or is_due or is_leaving) and self._is_whole(batch_idx):
            self._leave_if_due(trainer)
            manager.save_due(step)
            if is_over:
                self._save_last()

    def _is_whole(self, batch_idx: int) -> bool:
        """Return whether a resume from after this batch leaves nothing out; about 10 µs."""
        every = _batches_to_validation(self._trainer, batch_idx)
        self._state.skips_validation = every == 1
        return not self._trainer.is_last_batch and every != 0

    def _end_epoch(self, end: Callable[[], None]) -> None:
        """Save what was due at the last batch of an epoch.

        Not in a hook: modules, early stopping and schedules of epochs have their say after ours.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        end()
        trainer = self._trainer
        if self not in trainer.callbacks:
            return  # a tuner's
        self._state.end_epoch()
        self._state.skips_validation = False
        self._leave_if_due(trainer)
        if _is_over(trainer) or _reaches(trainer.current_epoch, trainer.max_epochs):
            self._save_last()
        else:
            self._manager.save_due(self._step)

    def _save_last(self) -> None:
        if self._step != self._last_step:  # several ranks wait for one another here
            self._last_step = self._step
            self._manager.save_last(self._step, self._exit_timeout_s)


_KIND = TrainerCheckpoints


def attach(
    trainer: Trainer,
    classes: tuple[type, ...],
    open_manager: Callable[[TrainerState], CheckpointManager | None],
    exit_timeout_s: float,
) -> TrainerCheckpoints | None:
    """Return a callback that saves and resumes a fit, to be installed; None where the run is off.

    In ``setup``; blocks on the store.

    Args:
        trainer: The Trainer.
        classes: The ``Callback`` classes of the loaded Lightning packages.
        open_manager: Returns what saves and resumes a state.
        exit_timeout_s: Most seconds that the last save waits for the one before.

    Raises:
        ConfigError: If the Trainer's strategy keeps its state where it cannot be saved from.
        StorageError: If the place cannot be written.
    """
    strategy = type(trainer.strategy)
    if not serves(strategy):
        raise ConfigError(
            f"checkpoints cannot be kept under {strategy.__name__}, which writes its state itself;"
            " allowed are one device and DDP. Unset COSTLENS_CHECKPOINT_URL and use Lightning's"
            " ModelCheckpoint with a local folder, or torch.distributed.checkpoint"
        )
    state = TrainerState(trainer)
    manager = open_manager(state)
    if manager is None:
        return None
    kind = type(_KIND.__name__, (_KIND, *classes), {"__module__": __name__})
    made: TrainerCheckpoints = kind(trainer, state, manager, exit_timeout_s)
    return made


def _is_lightnings(handler: object) -> bool:
    # One that calls ours, and then raises, or broadcasts from inside a handler.
    return type(handler).__name__ == "_HandlersCompose"


def _make_inert(*classes: type) -> object:
    kind = type("Callback", classes, {"__module__": __name__})
    return object.__new__(kind)


def _batches_to_validation(trainer: Trainer, batch_idx: int) -> int | None:
    """Return 0 if a validation follows this batch, 1 if one follows every batch, else None.

    Lightning runs it after the hooks of the batch, and a resume from here would leave it out.
    """
    every, num_epochs = trainer.val_check_batch, trainer.check_val_every_n_epoch
    if not trainer.enable_validation or every is None or math.isinf(every):
        return None
    if num_epochs is not None and (trainer.current_epoch + 1) % num_epochs:
        return None
    number = trainer.fit_loop.total_batch_idx if num_epochs is None else batch_idx
    if (number + 1) % every:
        return None
    return 1 if every == 1 else 0


def _begin_next_epoch(fit_loop: Any) -> None:  # noqa: ANN401 - Lightning's
    """Let a fit that was saved between two epochs go on with the next one.

    With ``max_steps`` Lightning (2.6) takes it for one that was cut inside the epoch before, and
    trains another batch in that; with ``max_epochs`` it does what is done here.
    """
    epochs = fit_loop.epoch_progress.current
    if epochs.ready == epochs.started == epochs.processed:
        fit_loop._restarting = False  # noqa: SLF001 - its setter makes it true again
        fit_loop.epoch_loop.restarting = False


def _is_over(trainer: Trainer) -> bool:
    """Return whether this step is the last, by a number of steps or by a wish to stop."""
    if _reaches(trainer.global_step, trainer.max_steps):
        return True
    # A wish to stop stands for as long as epochs or steps are short of their minimum.
    return bool(trainer.should_stop) and trainer.fit_loop._can_stop_early  # noqa: SLF001 - not public


def _reaches(value: int, limit: int | None) -> bool:
    return limit is not None and 0 <= limit <= value
