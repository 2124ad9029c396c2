"""A signal in a fit saves and leaves, wherever it comes, and the next fit goes on bit by bit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.adapters.lightning.keeping import assert_same_end, make_loader, train


@pytest.fixture(autouse=True)
def _default_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    assert signal.getsignal(signal.SIGTERM) == before


def sender(pl: ModuleType, hook: str, call: int) -> Any:
    """Return a callback that sends SIGTERM to this process in the n-th call of a hook."""
    calls: list[int] = []

    def send(*_: Any, **__: Any) -> None:
        calls.append(1)
        if len(calls) == call:
            signal.raise_signal(signal.SIGTERM)

    callback = pl.Callback()
    setattr(callback, hook, send)
    callback.calls = calls
    return callback


def validation() -> Any:
    """Return a loader of four batches to evaluate on."""
    return DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), 2)


# Five batches an epoch, three epochs; a validation of four batches after each.
POINTS = [
    ("on_train_batch_start", 2, {}, 2),
    ("on_train_batch_end", 8, {}, 8),
    ("on_train_batch_start", 5, {}, 5),
    ("on_validation_batch_start", 2, {}, 5),
    ("on_validation_batch_start", 6, {"val_check_interval": 2}, 4),
]


@pytest.mark.parametrize(("hook", "call", "options", "step"), POINTS)
def test_a_signal_saves_the_step_and_leaves(
    pl: ModuleType, tmp_path: Path, hook: str, call: int, options: dict[str, Any], step: int
) -> None:
    """C064: in a batch, at the last of an epoch, in a validation: exit 143, and no bit is lost."""
    options = {**options, "num_sanity_val_steps": 0}
    whole, *_ = train(pl, make_loader, None, validation=validation(), **options)
    one = sender(pl, hook, call)
    with pytest.raises(SystemExit) as caught:
        train(pl, make_loader, tmp_path, validation=validation(), callbacks=(one,), **options)
    assert caught.value.code == 143
    resumed, _, callback = train(
        pl, make_loader, tmp_path, seed=2, validation=validation(), **options
    )
    part = callback.run.parts.state.checkpoints
    assert part is not None
    assert (part.resumed_step, part.inexact) == (step, [])
    assert len(resumed.losses) == 15 - step
    assert_same_end(resumed, whole)


def test_the_sanity_check_is_left_and_saves_nothing(pl: ModuleType, tmp_path: Path) -> None:
    """C121: no step is done, so nothing is lost."""
    one = sender(pl, "on_sanity_check_start", 1)
    with pytest.raises(SystemExit) as caught:
        train(pl, make_loader, tmp_path, validation=validation(), callbacks=(one,))
    assert caught.value.code == 143
    assert list(tmp_path.glob("*/manifests/*")) == []


def test_the_users_handler_decides(pl: ModuleType, tmp_path: Path) -> None:
    """C063: theirs runs once, the fit stops by itself, and theirs is installed afterwards."""
    calls: list[int] = []

    def mine(*_: object) -> None:
        calls.append(1)

    before = signal.signal(signal.SIGTERM, mine)
    try:
        one = sender(pl, "on_train_batch_start", 2)
        module, trainer, callback = train(pl, make_loader, tmp_path, callbacks=(one,))
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (len(calls), len(module.losses), trainer.global_step) == (1, 2, 2)
    state = callback.run.parts.state
    assert state.outcome.value == "preempted"
    assert state.preemption is not None
    assert state.preemption.is_covered
