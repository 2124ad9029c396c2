"""What ``torch.profiler`` saw of our ranges."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch

from costlens.observe.ranges import ITERATION

NS_PER_US = 1000


def profile() -> Any:
    """Return a profiler of the CPU."""
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])


@dataclass(frozen=True)
class Ranges:
    """The ranges of a profile."""

    events: list[Any]

    @classmethod
    def of(cls, profiler: Any) -> Ranges:
        """Return those of a profiler that has stopped."""
        return cls([event for event in profiler.events() if event.name.startswith("costlens.")])

    def named(self, name: str) -> list[Any]:
        """Return the ranges of a name."""
        return [event for event in self.events if event.name == name]

    def own_ns(self) -> Counter[str]:
        """Return nanoseconds by phase, without those of ranges inside, after checking the nest."""
        own: Counter[str] = Counter()
        stack: list[Any] = []
        spans = [(event.time_range.start, -event.time_range.end, event) for event in self.events]
        for start, end, event in sorted(spans, key=lambda span: span[:2]):
            while stack and stack[-1].time_range.end <= start:
                stack.pop()
            assert not stack or -end <= stack[-1].time_range.end, "a range crosses another"
            assert not stack or event.name != ITERATION
            took_ns = (-end - start) * NS_PER_US
            own[event.name.removeprefix("costlens.")] += took_ns
            if stack:
                own[stack[-1].name.removeprefix("costlens.")] -= took_ns
            stack.append(event)
        return own
