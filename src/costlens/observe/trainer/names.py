"""Which scope a bracket of Lightning gets, by its name.

Names look like ``[Strategy]DDPStrategy.training_step`` or ``run_training_epoch``; measured on
Lightning 2.6. A hook that nobody overrides does nothing, so its bracket gets no clock reading.
"""

from __future__ import annotations

from collections.abc import Callable

from costlens.core.phases import Phase
from costlens.core.timeline import Bracket
from costlens.observe.trainer.brackets import Scope
from costlens.observe.trainer.loop import LoopTimes
from costlens.observe.trainer.scopes import (
    UNTOUCHED,
    AfterScope,
    BackwardBegin,
    BackwardEnd,
    EdgeScope,
    EpochScope,
    FetchScope,
    FrameScope,
    GapBegin,
    StepScope,
    UpdateScope,
)

__all__ = ["DOOR_KEY", "IsOverridden", "ScopeMaker"]

DOOR_KEY = "CostLensCallback"
"""What the state key of our own callback begins with."""

IsOverridden = Callable[[str, str, str], bool]
"""Returns whether somebody overrides a hook: by kind, owner and hook, as they stand in the name."""

_MODULE_KINDS = frozenset({"LightningModule", "LightningDataModule"})
_PHASE_OF_HOOK = {
    "on_before_batch_transfer": Phase.TRANSFER,
    "transfer_batch_to_device": Phase.TRANSFER,
    "on_after_batch_transfer": Phase.TRANSFER,
    "optimizer_zero_grad": Phase.OPTIMIZER,
    "configure_gradient_clipping": Phase.OPTIMIZER,
    "lr_scheduler_step": Phase.OPTIMIZER,
    "train_dataloader": Phase.DATA_WAIT,
}
# Their own implementation does the work, so they count where nobody overrides them, too.
_ALWAYS_WORKING = frozenset({"optimizer_zero_grad", "lr_scheduler_step"})


class ScopeMaker:
    """Makes the scope of a bracket name, once per name.

    Args:
        times: The state of the loop that the scopes change.
        is_overridden: Tells whether a hook does anything.
    """

    def __init__(self, times: LoopTimes, is_overridden: IsOverridden) -> None:
        self._times = times
        self._is_overridden = is_overridden
        self._plain: dict[str, Callable[[], Scope]] = {
            "run_training_epoch": lambda: EpochScope(times),
            "run_training_batch": lambda: FrameScope(times),
            "optimizer_step": lambda: UpdateScope(times),  # of manual optimization
            "save_checkpoint": lambda: EdgeScope(
                AfterScope(times.note_save), self._phase(Phase.CHECKPOINT)
            ),
        }

    def __call__(self, name: str) -> Scope:
        """Return the scope of a bracket."""
        plain = self._plain.get(name)
        if plain is not None:
            return plain()
        kind, _, rest = name.removeprefix("[").partition("]")
        owner, _, hook = rest.rpartition(".")
        if kind == "Strategy":
            return self._strategy(hook)
        if kind in _MODULE_KINDS:
            return self._module(kind, owner, hook)
        if kind == "Callback":
            return self._callback(owner, hook)
        return self._loop(hook)

    def _loop(self, hook: str) -> Scope:
        if hook == "train_dataloader_next":
            return FetchScope(self._times)
        return UNTOUCHED

    def _phase(self, phase: Phase) -> Bracket:
        return self._times.timeline.bracket(phase)

    def _strategy(self, hook: str) -> Scope:
        times = self._times
        if hook == "batch_to_device":
            return self._phase(Phase.TRANSFER)
        if hook == "training_step":
            return StepScope(times)
        if hook == "validation_step":
            return AfterScope(times.count_validation_batch)
        if hook == "test_step":
            return AfterScope(times.count_test_batch)
        if hook == "on_train_end":
            return AfterScope(times.shut_down)
        return UNTOUCHED

    def _module(self, kind: str, owner: str, hook: str) -> Scope:
        times = self._times
        if hook == "optimizer_step":
            return UpdateScope(times)
        is_working = hook in _ALWAYS_WORKING or self._is_overridden(kind, owner, hook)
        phase = _PHASE_OF_HOOK.get(hook, Phase.CALLBACKS)
        # The backward pass lies between the first two, in manual optimization as well.
        edges: dict[str, Scope] = {
            "on_before_backward": BackwardBegin(times),
            "on_after_backward": BackwardEnd(times),
            "on_train_batch_end": GapBegin(times),
        }
        edge = edges.get(hook)
        if not is_working:
            return edge or UNTOUCHED
        return self._phase(phase) if edge is None else EdgeScope(edge, self._phase(phase))

    def _callback(self, owner: str, hook: str) -> Scope:
        if owner.startswith(DOOR_KEY) or not self._is_overridden("Callback", owner, hook):
            return UNTOUCHED
        return self._phase(Phase.CALLBACKS)
