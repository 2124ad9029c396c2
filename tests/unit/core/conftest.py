"""What the tests of the core share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from costlens.core import guard
from costlens.core.guard import Faults


@pytest.fixture
def contained(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """Return the process's faults, emptied, for a test that plants some: they are not raised."""
    with monkeypatch.context() as patch:
        patch.setattr(guard.faults, "strict", False)
        patch.setattr(guard.faults, "counts", {})
        patch.setattr(guard.faults, "_logged", set())
        yield guard.faults
