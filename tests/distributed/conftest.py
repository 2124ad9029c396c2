"""Launches with the real OTLP receiver."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.fixtures_otlp import OtlpReceiver, otlp_process, otlp_receiver

pytest.register_assert_rewrite("tests.distributed.launching")

from tests.distributed.launching import Launcher  # noqa: E402 - its assertions show values now

__all__ = ["otlp_process", "otlp_receiver"]


@pytest.fixture
def launch(tmp_path: Path, otlp_receiver: OtlpReceiver) -> Launcher:
    """Return a launcher whose jobs export to the receiver."""
    return Launcher(tmp_path / "runs", otlp_receiver)


@pytest.fixture
def port() -> str:
    """Return a port that was free a moment ago."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])
