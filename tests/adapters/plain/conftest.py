"""A run on a fake clock for every test of the plain loop."""

from __future__ import annotations

import pytest
import torch

from tests.adapters.plain.timed import Rig


@pytest.fixture(autouse=True)
def _one_thread():
    """Small nets on two busy cores are ten times slower with two threads than with one."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture
def rig():
    """An open run with a timed net and optimizer; finished when the test ends."""
    rig = Rig()
    yield rig
    rig.run.finish()
