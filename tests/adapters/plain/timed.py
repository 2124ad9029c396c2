"""Parts of a training whose every duration is planted on a fake clock, in real torch objects."""

from __future__ import annotations

import torch
import torch._dynamo  # loads with the first optimizer and sets a variable: here, in no test
from torch import nn
from torch.utils.data import Dataset

from costlens.config import Config
from costlens.core.clock import NS_PER_S
from costlens.core.phases import Phase
from costlens.run import Run
from costlens.testing import FakeClock, MemoryExporter


class _Slow(torch.autograd.Function):
    """Passes its input on; forward and backward each take their time."""

    @staticmethod
    def forward(ctx, value, clock, forward_s, backward_s):
        clock.advance(forward_s)
        ctx.clock, ctx.backward_s = clock, backward_s
        return value.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.advance(ctx.backward_s)
        return gradient, None, None, None


class TimedNet(nn.Module):
    """A small net; forward takes 20 ms and backward 30 ms unless told otherwise."""

    def __init__(self, clock, forward_s=0.02, backward_s=0.03):
        super().__init__()
        self.clock, self.forward_s, self.backward_s = clock, forward_s, backward_s
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, value):
        hidden = self.last(self.first(value))
        return _Slow.apply(hidden, self.clock, self.forward_s, self.backward_s)


class TimedSGD(torch.optim.SGD):
    """An optimizer whose step takes 10 ms."""

    def __init__(self, parameters, clock, step_s=0.01):
        super().__init__(parameters, lr=0.01)
        self.clock, self.step_s = clock, step_s

    def step(self, closure=None):
        loss = super().step(closure)
        self.clock.advance(self.step_s)
        return loss


class TimedSet(Dataset):
    """A dataset of which every sample takes 5 ms to read."""

    def __init__(self, clock, length=8, read_s=0.005):
        self.clock, self.length, self.read_s = clock, length, read_s

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.clock.advance(self.read_s)
        return torch.full((4,), float(index))


class Rig:
    """A run on a fake clock, and what a test wants to know of it."""

    def __init__(self, **settings):
        self.clock = FakeClock()
        self.exporter = MemoryExporter()
        self.run = Run(
            Config(summary=False, **settings), clock=self.clock, exporters=[self.exporter]
        ).open()
        self.net = TimedNet(self.clock)
        self.optimizer = TimedSGD(self.net.parameters(), self.clock)

    @property
    def timeline(self):
        return self.run.parts.timeline

    @property
    def counters(self):
        return self.run.parts.recorder.counters

    def train(self, batch):
        """One forward, backward and step: 20 + 30 + 10 ms."""
        self.optimizer.zero_grad()
        loss = self.net(batch).sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def phases_ms(self):
        """Milliseconds per phase so far, without start-up; their exact sum is asserted."""
        reading = self.timeline.read()
        phase_ns = reading.until(self.clock())
        assert sum(phase_ns) == self.clock() - self.timeline.start_ns
        assert all(value >= 0 for value in phase_ns)
        named = {phase.name.lower(): phase_ns[phase] / 1e6 for phase in Phase if phase_ns[phase]}
        named.pop("startup", None)
        return named

    def finish(self, **how):
        """The record; its phases sum to its total in integer nanoseconds."""
        record = self.run.finish(**how)
        assert sum(record.time_ns.values()) == record.total_ns
        assert record.telemetry.faults == {}
        return record

    def seconds(self, record):
        """Seconds per phase of a record."""
        return {name: value / NS_PER_S for name, value in record.time_ns.items() if value}
