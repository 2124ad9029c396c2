"""What is sampled beside the loop: the port of a probe, and the set that a run drives.

A probe reads a device or the host on the pipeline thread and adds its part to the record; the
training thread knows nothing of it. ``probes.py`` says which probes a run has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from costlens.core.clock import NS_PER_S
from costlens.core.guard import faults

__all__ = ["SAMPLE_EVERY_NS", "Probe", "ProbeSet"]

SAMPLE_EVERY_NS = 2 * NS_PER_S
"""Time between two samples of a probe."""


class Probe(Protocol):
    """Something outside the loop that can be read; what it raises is contained and counted.

    It must bound its own time and memory. What it cannot know it leaves out, with the reason.
    """

    name: str

    def load(self) -> None:
        """Import what sampling needs; calling thread, before the first step."""

    def start(self) -> None:
        """Open what is read; pipeline thread, once an attempt, before the first sample."""

    def sample(self, now_ns: int) -> None:
        """Read once; pipeline thread, every 2 s and once more at the end.

        Args:
            now_ns: Monotonic time of the sample.
        """

    def contribute(self) -> Mapping[str, object]:
        """Return fields of ``RankRecord`` by name, from the samples so far; pipeline thread."""

    def stop(self) -> None:
        """Close what was opened; pipeline thread."""


class ProbeSet:
    """Drives the probes of a run; one that fails leaves the others alone.

    Args:
        probes: The probes; each is asked for the fields that it alone fills.
    """

    def __init__(self, probes: Sequence[Probe] = ()) -> None:
        self._probes = tuple(probes)
        self._last_ns: int | None = None

    def load(self) -> None:
        """Import what sampling needs; calling thread, before the first step."""
        for probe in self._probes:
            faults.call(f"observe.{probe.name}.load", probe.load)

    def start(self, now_ns: int) -> None:
        """Open all probes and take the first samples; pipeline thread."""
        for probe in self._probes:
            faults.call(f"observe.{probe.name}.start", probe.start)
        self.sample(now_ns)

    def look(self, now_ns: int) -> None:
        """Sample if it is time to."""
        if self._last_ns is None or now_ns - self._last_ns >= SAMPLE_EVERY_NS:
            self.sample(now_ns)

    def sample(self, now_ns: int) -> None:
        """Sample now.

        Args:
            now_ns: Monotonic time of the samples.
        """
        self._last_ns = now_ns
        for probe in self._probes:
            faults.call(f"observe.{probe.name}", probe.sample, now_ns)

    def contribute(self) -> dict[str, object]:
        """Return the fields of the record that the probes fill."""
        fields: dict[str, object] = {}
        for probe in self._probes:
            fields.update(faults.call(f"observe.{probe.name}.contribute", probe.contribute) or {})
        return fields

    def stop(self) -> None:
        """Close all probes."""
        for probe in self._probes:
            faults.call(f"observe.{probe.name}.stop", probe.stop)
