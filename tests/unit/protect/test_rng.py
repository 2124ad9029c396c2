"""The random state: every stream goes on where it was, after a trip through checkpoint bytes."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from costlens.errors import CheckpointError
from costlens.protect.rng import (
    capture_rng,
    is_generator,
    read_generator,
    restore_rng,
    write_generator,
)
from costlens.protect.snapshot import HostBuffer, load_tree

LEGACY = np.random.mtrand._rand
"""The global stream behind ``np.random.random`` and its kin."""


def through_bytes(tree: Any) -> Any:
    """Return the tree as a checkpoint gives it back."""
    snapshot = HostBuffer().take(tree)
    return load_tree(snapshot.skeleton, snapshot.buffer.clone())


def draw() -> list[float]:
    """Return a few numbers of every stream, those that buffer one included."""
    return [
        random.random(),
        random.gauss(0, 1),
        float(LEGACY.random_sample()),
        float(LEGACY.standard_normal()),
        float(torch.rand(())),
        float(torch.randn(3)[0]),
    ]


def test_all_streams_go_on() -> None:
    """C058: Python's, numpy's and torch's numbers after a restore are those after the capture."""
    draw()  # a second Gaussian is now waiting in Python's and numpy's state
    state = through_bytes(capture_rng())
    expected = [draw() for _ in range(3)]
    random.seed(1)
    LEGACY.seed(1)
    torch.manual_seed(1)
    assert restore_rng(state) == []
    assert [draw() for _ in range(3)] == expected


GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch": (
        lambda: torch.Generator().manual_seed(3),
        lambda g: torch.rand(2, generator=g).tolist(),
    ),
    "python": (lambda: random.Random(3), lambda g: [g.random(), g.gauss(0, 1)]),
    "PCG64": (lambda: np.random.default_rng(3), lambda g: g.random(3).tolist()),
    "MT19937": (
        lambda: np.random.Generator(np.random.MT19937(3)),
        lambda g: g.random(3).tolist(),
    ),
    "Philox": (
        lambda: np.random.Generator(np.random.Philox(3)),
        lambda g: g.integers(99, size=3).tolist(),
    ),
    "RandomState": (lambda: np.random.RandomState(3), lambda g: g.standard_normal(3).tolist()),
}


@pytest.mark.parametrize("kind", GENERATORS)
def test_generators_go_on(kind: str) -> None:
    """A generator of any kind goes on where it was, in a new object, by ``weights_only``."""
    make, take = GENERATORS[kind]
    generator = make()
    assert is_generator(generator)
    take(generator)
    state = through_bytes(read_generator(generator))
    other = make()
    write_generator(other, state)
    assert [take(other) for _ in range(3)] == [take(generator) for _ in range(3)]


def test_other_kind_of_generator_is_refused() -> None:
    """The state of a numpy generator in the place of torch's is an error that names both."""
    state = read_generator(np.random.default_rng(0))
    with pytest.raises(CheckpointError, match="Generator cannot take the numpy state"):
        write_generator(torch.Generator(), state)
    assert not is_generator("no generator")


def test_broken_state_is_refused() -> None:
    """A random state without its parts is an error of the checkpoint."""
    with pytest.raises(CheckpointError, match="random number state"):
        restore_rng({"python": {"version": 3}})


def test_missing_cuda_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of devices that are not here is left out, and named."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    state = capture_rng()
    state["cuda"] = [torch.zeros(16, dtype=torch.uint8)] * 2
    assert restore_rng(io_round(state)) == [
        "random numbers: saved for 2 CUDA devices, and there are 0"
    ]


def io_round(state: Any) -> Any:
    """Return the state as ``torch.load`` gives it back when it may load weights only."""
    target = io.BytesIO()
    torch.save(state, target)
    return torch.load(io.BytesIO(target.getvalue()), weights_only=True)
