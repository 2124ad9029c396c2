"""What the tests of exits share: a collector that never answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exits.script import Script


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Return what runs scripts against a collector that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield Script(tmp_path, f"http://127.0.0.1:{listener.getsockname()[1]}")
