"""The witness of one training: every call that user code gets, in order, and what is planted there.

It knows nothing of costlens. Two trainings are the same if their witnesses saw the same.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.fuzz.planted import Planted
from tests.fuzz.tally import Tally

__all__ = ["MAX_EVENTS", "TooLongError", "Witness"]

MAX_EVENTS = 2500
"""A plan may ask for a training without end; it fails here, with costlens or without."""

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_MAX_DEPTH = 8


class TooLongError(RuntimeError):
    """Ends a training that would not end."""


class Witness:
    """Notes calls, tells objects apart by the order they came in, and springs traps.

    Args:
        folder: Folder of this training; its path is left out of what is noted.

    Attributes:
        events: What was noted.
        traps: What to do at the n-th call of a name: ``{"first.on_train_end": [(1, action)]}``.
        tally: Counts of the training.
        trainer: The Trainer, once it exists.
        planted: Lets time pass at some calls, where there is a fake clock.
    """

    def __init__(self, folder: Path) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.traps: dict[str, list[tuple[int, Callable[[], None]]]] = {}
        self.tally = Tally()
        self.trainer: Any = None
        self.planted: Planted | None = None
        self._folder = str(folder)
        self._times: dict[str, int] = {}
        self._ordinals: dict[int, int] = {}
        self._kept: list[Any] = []
        self._is_springing = False

    def __deepcopy__(self, memo: object) -> Witness:
        return self

    def note(self, name: str, *arguments: Any) -> None:
        """Note a call of ``source.name`` and spring the traps that wait for it."""
        self.events.append((name, self._situation(), *(self.show(each) for each in arguments)))
        if len(self.events) % MAX_EVENTS == 0:  # not each time: what fails of it is noted as well
            raise TooLongError
        if self.planted is not None:
            self.planted.pass_time(name)
        nth = self._times[name] = self._times.get(name, 0) + 1
        if self._is_springing:  # saving in a hook that saving calls
            return
        for at, action in self.traps.get(name, ()):
            if at == nth:
                self._is_springing = True
                try:
                    action()
                finally:
                    self._is_springing = False

    def _situation(self) -> tuple[Any, ...]:
        trainer = self.trainer
        globally = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), digest_rng())
        if trainer is None:
            return globally
        loop = trainer.fit_loop.epoch_loop
        module = trainer.lightning_module
        return (
            *globally,
            str(trainer.state.stage),
            trainer.global_step,
            trainer.current_epoch,
            trainer.should_stop,
            trainer.num_training_batches,
            loop.batch_progress.is_last_batch,
            loop.batch_progress.total.completed,
            None if module is None else (module.training, module._current_fx_name),
        )

    def show(self, value: Any, depth: int = 0) -> Any:
        """Return something comparable that tells a value and whether it is one seen before."""
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, (str, float)):
            return self.text(value)
        shown: Any = self._ordinal(value)
        if isinstance(value, torch.Tensor):
            shown = (shown, *digest_tensor(value))
        elif isinstance(value, BaseException):
            shown = self.text(value)
        elif depth < _MAX_DEPTH and isinstance(value, Mapping):
            shown = shown, {self.text(k): self.show(v, depth + 1) for k, v in value.items()}
        elif depth < _MAX_DEPTH and isinstance(value, (list, tuple)):
            # Not whether it was seen before: a tuple of arguments is made anew for every call.
            shown = [self.show(each, depth + 1) for each in value]
        return (type(value).__name__, shown)

    def text(self, value: object) -> str:
        """Return a text without what differs from one training to the next: paths, addresses."""
        shown = repr(value) if isinstance(value, float) else str(value)
        return _ADDRESS.sub("0x", shown.replace(self._folder, "."))

    def _ordinal(self, value: object) -> int:
        key = id(value)
        if key not in self._ordinals:
            self._ordinals[key] = len(self._ordinals)
            self._kept.append(value)  # so that no other object gets its identity
        return self._ordinals[key]


def digest_tensor(value: torch.Tensor) -> tuple[Any, ...]:
    """Return type, shape, whether it has a gradient function, and a hash of a tensor's bytes."""
    found = value.detach().cpu().contiguous()
    data = found.view(torch.uint8) if found.dim() else found.reshape(1).view(torch.uint8)
    code = hashlib.blake2b(data.numpy().tobytes(), digest_size=8).hexdigest()
    return (str(value.dtype), tuple(value.shape), value.requires_grad, code)


def digest_rng() -> str:
    """Return a hash of the states of the random number generators: torch's, Python's, NumPy's."""
    code = hashlib.blake2b(torch.get_rng_state().numpy().tobytes(), digest_size=8)
    code.update(repr(random.getstate()).encode())
    code.update(np.random.get_state()[1].tobytes())  # noqa: NPY002 - the state that code shares
    return code.hexdigest()
