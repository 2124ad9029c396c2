"""What the tests of the core share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from costlens.core import guard, log
from costlens.core.guard import Faults


@pytest.fixture(autouse=True)
def _own_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each test a log without the settings, runs and taps that other tests left."""
    monkeypatch.setattr(log, "_state", {"level": 20, "format": "auto"})
    taps, live = log.taps.copy(), log._open.copy()
    log.taps.clear()
    log._open.clear()
    yield
    log.taps[:], log._open[:] = taps, live


@pytest.fixture
def contained(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """Return the process's faults, emptied, for a test that plants some: they are not raised."""
    with monkeypatch.context() as patch:
        patch.setattr(guard.faults, "strict", False)
        patch.setattr(guard.faults, "counts", {})
        patch.setattr(guard.faults, "_logged", set())
        yield guard.faults
