"""Probes: sampled beside the loop, every 2 s, each contained by itself."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from costlens.core.clock import NS_PER_S
from costlens.core.guard import faults
from costlens.core.probe import ProbeSet


class Witness:
    """A probe that writes down what happens to it and fails where it is told to."""

    def __init__(self, name: str, fails_at: str = "") -> None:
        self.name = name
        self.fails_at = fails_at
        self.seen: list[object] = []

    def _note(self, what: str, value: object = None) -> None:
        self.seen.append(what if value is None else value)
        if what == self.fails_at:
            raise OSError(what)

    def load(self) -> None:
        self._note("load")

    def start(self) -> None:
        self._note("start")

    def sample(self, now_ns: int) -> None:
        self._note("sample", now_ns)

    def contribute(self) -> Mapping[str, object]:
        self._note("contribute")
        return {self.name: len(self.seen)}

    def stop(self) -> None:
        self._note("stop")


def test_samples_are_two_seconds_apart_and_one_is_forced_at_the_end() -> None:
    """Looking every second samples every other time; the end samples whatever the time."""
    probe = Witness("host")
    probes = ProbeSet([probe])
    probes.load()
    probes.start(0)
    for second in range(1, 6):
        probes.look(second * NS_PER_S)
    probes.sample(5 * NS_PER_S + 1)
    probes.stop()
    assert probe.seen == [
        *("load", "start"),
        *(0, 2 * NS_PER_S, 4 * NS_PER_S, 5 * NS_PER_S + 1),
        "stop",
    ]


@pytest.mark.parametrize("place", ["load", "start", "sample", "contribute", "stop"])
def test_a_probe_that_fails_leaves_the_others_alone(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C101: a failing probe is counted, and its neighbour goes on being read and heard."""
    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "counts", {})
    broken, sound = Witness("gpus", place), Witness("host")
    probes = ProbeSet([broken, sound])
    probes.load()
    probes.start(0)
    probes.look(2 * NS_PER_S)
    fields = probes.contribute()
    probes.stop()
    assert faults.counts, "the fault was not counted"
    assert all(name.startswith("observe.gpus") for name in faults.counts)
    assert sound.seen == ["load", "start", 0, 2 * NS_PER_S, "contribute", "stop"]
    assert fields["host"] == 5
