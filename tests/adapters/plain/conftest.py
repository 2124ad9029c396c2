"""A run on a fake clock for every test of the plain loop."""

from __future__ import annotations

import pytest

from tests.adapters.plain.timed import Rig


@pytest.fixture
def rig():
    """An open run with a timed net and optimizer; finished when the test ends."""
    rig = Rig()
    yield rig
    rig.run.finish()
