"""Looks at the training thread: what it waits for, and whether it waits for a device's result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import pytorch_lightning
import torch
from fsspec.implementations.memory import MemoryFileSystem
from pytorch_lightning.trainer.call import _call_callback_hooks
from torch.utils.data import DataLoader, Dataset

from costlens.core.loading_records import MAX_HOOKS, LooksPart
from costlens.core.phases import Phase
from costlens.core.timeline import Timeline
from costlens.observe.looks import Looks
from costlens.testing import FakeClock

QUIET = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


class Scene:
    """A timeline, and looks at whatever frame the test stands in when it says so."""

    def __init__(self, phase: Phase, collate: object = None) -> None:
        self.timeline = Timeline(FakeClock(), 0, Phase.OTHER)
        self.timeline.enter(phase)
        self.frame: FrameType | None = None
        self.looks = Looks(self.timeline, lambda: collate, lambda _ident: self.frame)

    def look_from(self) -> None:
        """Look at the thread while it stands where this is called."""
        self.frame = sys._getframe(1)
        self.looks.look()

    def seen(self) -> LooksPart:
        """Return what was seen."""
        part = self.looks.part()
        assert part is not None
        return part


class Samples(Dataset[torch.Tensor]):
    """Samples that call something while they are made."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        self.call()
        return torch.zeros(1)


def _collate(call: Callable[[], None], samples: list[torch.Tensor]) -> torch.Tensor:
    call()
    return torch.stack(samples)


def test_a_loop_that_makes_its_batches_is_seen_in_its_data_set() -> None:
    """Each of four samples is seen in the making."""
    scene = Scene(Phase.DATA_WAIT)
    list(DataLoader(Samples(scene.look_from), batch_size=2))
    assert scene.seen().model_dump(exclude_defaults=True) == {"num_waiting": 4, "in_dataset": 4}


@pytest.mark.parametrize("is_known", [True, False])
def test_collating_is_told_from_making_samples(is_known: bool) -> None:
    """By the function where it is known, else by where torch calls it from."""
    scene = Scene(Phase.DATA_WAIT)
    collate = partial(_collate, scene.look_from)
    scene.looks = Looks(
        scene.timeline, lambda: collate if is_known else None, lambda _ident: scene.frame
    )
    list(DataLoader(Samples(lambda: None), batch_size=2, collate_fn=collate))
    assert scene.seen().model_dump(exclude_defaults=True) == {"num_waiting": 2, "in_collate": 2}


class _Endless:
    """Has every attribute, as mocks and proxies do."""

    num_asked = 0

    def __getattr__(self, name: str) -> _Endless:
        type(self).num_asked += 1
        assert self.num_asked < 100, "a look goes on for ever"
        return self


def test_a_look_follows_no_endless_chain() -> None:
    """Only partials are unwrapped: of any other object a `func` may lead to another, and on."""
    scene = Scene(Phase.DATA_WAIT)
    scene.looks = Looks(scene.timeline, _Endless, lambda _ident: scene.frame)
    list(DataLoader(Samples(scene.look_from), batch_size=2))
    assert scene.seen().model_dump(exclude_defaults=True) == {"num_waiting": 4, "in_dataset": 4}


def test_reads_are_told_by_who_reads() -> None:
    """A sample that stands in a file system of fsspec's kind is being read."""
    scene = Scene(Phase.DATA_WAIT)

    class Slow(MemoryFileSystem):  # type: ignore[misc]
        def cat_file(self, *_: Any, **__: Any) -> bytes:
            scene.look_from()
            return b""

    def read() -> None:
        Slow().cat("/x")

    list(DataLoader(Samples(read), batch_size=4))
    assert scene.seen().in_read == 4


def test_waiting_for_workers_is_waiting_in_their_queue() -> None:
    """A loop with a worker stands where torch waits for its batches; looked at from elsewhere.

    In a process of its own: a worker is forked, and this process has much that a fork cannot take.
    """
    command = [sys.executable, str(Path(__file__).with_name("job_queue_wait.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    part = LooksPart.model_validate_json(done.stdout)
    assert part.in_queue > 0
    assert part.in_collate == part.in_read == 0


class Loss:
    """A result on a device; whoever asks it is looked at, as calls without frames would be seen."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def _look(self) -> None:
        self.scene.frame = sys._getframe(2)
        self.scene.looks.look()

    def item(self) -> float:
        """Wait for the number."""
        self._look()
        return 0.0

    def detach(self) -> None:
        """Wait for nothing."""
        self._look()


def test_waits_for_a_result_are_told_by_the_call() -> None:
    """`loss.item()` waits for the device, `loss.detach()` and arithmetic do not."""
    scene = Scene(Phase.COMPUTE)
    loss = Loss(scene)
    total = 0.0
    total += loss.item()
    loss.detach()
    part = scene.seen()
    assert (part.num_iterating, part.in_sync) == (2, 1)


def test_only_iterations_are_looked_at() -> None:
    """Start-up, saves and evaluation are none of it; before anything was seen there is no part."""
    for phase in (Phase.CHECKPOINT, Phase.VALIDATION):
        scene = Scene(phase)
        scene.look_from()
        assert scene.looks.part() is None


def test_a_thread_that_is_gone_is_not_seen() -> None:
    """Without a frame there is nothing to count."""
    scene = Scene(Phase.DATA_WAIT)
    scene.looks.look()
    assert scene.looks.part() is None


def _make_callback(scene: Scene, name: str, *, is_decorated: bool) -> pytorch_lightning.Callback:
    def look(*_: object) -> None:
        scene.look_from()

    def hook(self: object, *arguments: object) -> None:
        look(*arguments)

    code = hook.__code__.replace(co_name="on_train_batch_end")
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=f"test.<locals>.{name}.on_train_batch_end")
    hook.__code__ = code
    decorated = torch.no_grad()(hook) if is_decorated else hook
    kind = type(name, (pytorch_lightning.Callback,), {"on_train_batch_end": decorated})
    made: pytorch_lightning.Callback = kind()
    return made


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects do not know their class")
@pytest.mark.parametrize("is_decorated", [False, True])
def test_the_hook_that_a_trainer_calls_is_named(is_decorated: bool) -> None:
    """By class and hook as Lightning calls it, also behind a decorator."""
    scene = Scene(Phase.CALLBACKS)
    callbacks = [
        _make_callback(scene, f"Slow{number}", is_decorated=is_decorated)
        for number in range(MAX_HOOKS)
    ]
    trainer = pytorch_lightning.Trainer(callbacks=callbacks, **QUIET)
    for _ in range(2):
        _call_callback_hooks(trainer, "on_train_batch_end", None, None, 0)
    part = scene.seen()
    assert part.in_callbacks == part.num_iterating == 2 * MAX_HOOKS
    assert part.hooks == {f"Slow{n}.on_train_batch_end": 2 for n in range(MAX_HOOKS)}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects do not know their class")
def test_a_hook_that_turns_slow_late_is_named() -> None:
    """Twenty quick hooks were seen before; it is met as often as all of those together."""
    scene = Scene(Phase.CALLBACKS)
    quick = [_make_callback(scene, f"Quick{number}", is_decorated=False) for number in range(20)]
    trainer = pytorch_lightning.Trainer(callbacks=quick, **QUIET)
    for _ in range(3):
        _call_callback_hooks(trainer, "on_train_batch_end", None, None, 0)
    before = scene.seen()
    late = _make_callback(scene, "Late", is_decorated=False)
    for callback in [*quick, *quick]:
        trainer.callbacks = [late, callback]
        _call_callback_hooks(trainer, "on_train_batch_end", None, None, 0)
    seen = scene.seen()
    assert len(before.hooks) == len(seen.hooks) == MAX_HOOKS
    assert 36 <= seen.hooks["Late.on_train_batch_end"] <= 40
    assert sum(seen.hooks.values()) <= seen.in_callbacks == 60 + 80


def test_outside_a_trainer_no_hook_is_named() -> None:
    """What a plain loop does in its callbacks is counted, and nobody guesses at a name."""
    scene = Scene(Phase.CALLBACKS)
    scene.look_from()
    assert (scene.seen().in_callbacks, scene.seen().hooks) == (1, {})
