"""An object store that takes a connection and then nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.object_stores.servers import running, why_missing

JOB = """
import os, sys, threading
from costlens.storage.store import Store
store = Store(sys.argv[1])
store.put("a", b"1")
if os.fork() == 0:
    sys.exit()  # as a plain child ends, with every hook at exit
assert os.wait()[1] == 0
print("ready", flush=True)
sys.stdin.readline()
parts = {key: bytes(10_000_000) for key in "bc"}
thread = threading.Thread(target=store.put_many, args=(parts,), daemon=True)
thread.start()
thread.join(1)
print("hung" if thread.is_alive() else "through", flush=True)
"""


@pytest.mark.parametrize("part", ["s3", "azure", "gcs"])
def test_a_store_that_hangs_holds_up_no_exit(
    part: str, require: Callable[[str, bool, str], None], tmp_path: Path
) -> None:
    """C041: a process with parts on their way ends; so does a child that it forked."""
    missing = why_missing(part)
    require(part, not missing, missing)
    with running(part, tmp_path / "log") as server:
        process = subprocess.Popen(
            [sys.executable, "-c", JOB, server.new_url()],
            env={**os.environ, **server.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            server.process.send_signal(signal.SIGSTOP)
            print("go", file=process.stdin, flush=True)
            assert process.stdout.readline() == "hung\n"
            began_s = time.monotonic()
            assert process.wait(60) == 0
            assert time.monotonic() - began_s < 30
        finally:
            process.kill()
            process.communicate()
