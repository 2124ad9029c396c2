"""Phases of a plain loop in the real ``torch.profiler``."""

from __future__ import annotations

import time

import pytest
import torch

import costlens
from costlens.core.phases import NAMES
from costlens.observe.ranges import ITERATION
from tests.adapters.profiled import Ranges, profile

NUM_PASSES = 5


class Net(torch.nn.Module):
    """A net whose passes take a while."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        hidden = self.layer(batch)
        hidden.register_hook(lambda _: time.sleep(0.02))
        return hidden * 2


def read():
    """Yield batches that take a while."""
    for _ in range(1 + NUM_PASSES):
        time.sleep(0.01)
        yield torch.ones(2, 4)


def train() -> tuple[Ranges, dict[str, int]]:
    """Return the ranges of five passes after the first, and the nanoseconds of each phase."""
    run = costlens.start("ranges", ranges="record_function", summary=False)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    run.watch(net, optimizer)
    profiler, before = profile(), None
    for batch in run.batches(read()):
        with run.iteration():
            net(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        if before is None:  # the first pass is start-up
            profiler.__enter__()
            before = run.parts.timeline.phase_ns.copy()
    profiler.__exit__(None, None, None)
    after = run.parts.timeline.phase_ns.copy()
    run.finish()
    assert before is not None
    took_ns = [now - then for now, then in zip(after, before, strict=True)]
    return Ranges.of(profiler), dict(zip(NAMES, took_ns, strict=True))


def test_the_profiler_shows_our_phases() -> None:
    """A range a phase and pass, nested in one a pass."""
    ranges, _ = train()
    for name in ("forward", "backward", "optimizer", "compute"):
        assert len(ranges.named(f"costlens.{name}")) == NUM_PASSES
    # One more fetch, which finds nothing, begins one more that is none.
    assert len(ranges.named("costlens.data_wait")) == NUM_PASSES + 1
    assert len(ranges.named(ITERATION)) == NUM_PASSES + 1
    own_ns = ranges.own_ns()
    for name in ("forward", "backward", "optimizer", "compute", "data_wait"):
        assert own_ns[name] > 0


@pytest.mark.timing
def test_ranges_take_what_phases_take() -> None:
    """Nearly all of a phase's time is in its ranges."""
    ranges, took_ns = train()
    own_ns = ranges.own_ns()
    for name in ("forward", "backward", "data_wait"):
        assert own_ns[name] == pytest.approx(took_ns[name], rel=0.1)
