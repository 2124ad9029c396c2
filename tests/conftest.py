"""Guards that hold for every test: nothing leaks, nothing of the machine's settings gets in."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from costlens.core.log import configure_log

# Parts of the outside world that a machine may lack. A name missing here is refused, so that a
# misspelt COSTLENS_REQUIRE cannot quietly leave a skip a skip.
PARTS = frozenset(
    {
        "azure",
        "backends",
        "browser",
        "collector",
        "cuda",
        "gcs",
        "grafana",
        "grammars",
        "kubernetes",
        "lightning_oldest",
        "mounts",
        "nvml",
        "prometheus",
        "ray",
        "s3",
        "slurm",
        "tempo",
        "torchrun",
    }
)
OURS = ("COSTLENS_", "OTEL_", "PL_")
SCHEDULERS = ("SLURM_", "KUBERNETES_", "POD_", "JOBSET_", "RAY_")
# Set once by the libraries themselves: OpenMP when torch loads, Lightning's seed, pytest's own.
SET_BY_LIBRARIES = (
    "KMP_",
    "TORCHINDUCTOR_",
    "PL_GLOBAL_SEED",
    "PL_SEED_WORKERS",
    "PYTEST_CURRENT_TEST",
)
THREAD_GRACE_S = 2.0

# Repeatable and without per-example deadlines: two busy cores would break them at random.
settings.register_profile("costlens", deadline=None, derandomize=True)
settings.load_profile("costlens")


# A loader's worker is a fork of this process. What other tests left to the collector (a process
# group of gloo, a channel of gRPC) crashes or hangs a child that collects it.
os.register_at_fork(after_in_child=gc.freeze)


def _required_parts(environ: Mapping[str, str]) -> frozenset[str]:
    named = {part.strip() for part in environ.get("COSTLENS_REQUIRE", "").split(",")}
    unknown = (named := named - {""}) - PARTS
    if unknown:
        raise pytest.UsageError(
            f"COSTLENS_REQUIRE names unknown parts {sorted(unknown)}; known: {sorted(PARTS)}"
        )
    return frozenset(named)


# Read before any test, because tests do not see the variable.
REQUIRED = pytest.StashKey[frozenset[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Remember what COSTLENS_REQUIRE names."""
    config.stash[REQUIRED] = _required_parts(os.environ)


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(SET_BY_LIBRARIES)}


def _stray_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    return [
        thread
        for thread in threading.enumerate()
        if thread not in before and (not thread.daemon or thread.name.startswith("costlens"))
    ]


@pytest.fixture(autouse=True)
def _nothing_leaks() -> Iterator[None]:
    """Fail the test that leaves the environment changed or a thread behind.

    Unclosed sockets and files are ResourceWarnings, which are errors already.
    """
    environment, threads = _environment(), set(threading.enumerate())
    yield
    # A run sets the level of the process's log; what a module's fixture logs next must not miss.
    configure_log("info", "auto")
    deadline = time.monotonic() + THREAD_GRACE_S
    while (stray := _stray_threads(threads)) and time.monotonic() < deadline:
        time.sleep(0.01)
    after = _environment()
    changed = sorted(k for k in environment.keys() | after if environment.get(k) != after.get(k))
    for name in changed:
        os.environ.pop(name, None)
        if name in environment:
            os.environ[name] = environment[name]
    assert not changed, f"the test changed the environment: {changed}"
    assert not stray, f"the test left threads running: {[thread.name for thread in stray]}"


@pytest.fixture(autouse=True)
def _own_settings(_nothing_leaks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the machine's settings and its scheduler, and send run folders to `tmp_path`."""
    for name in [name for name in os.environ if name.startswith((*OURS, *SCHEDULERS))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COSTLENS_DIR", str(tmp_path / "costlens-runs"))


@pytest.fixture
def in_tmp_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return `tmp_path` after making it the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def require(pytestconfig: pytest.Config) -> Callable[[str, bool, str], None]:
    """Return `require(part, available, reason)`.

    It skips the test with the reason where the part is not available, or fails it where
    COSTLENS_REQUIRE names the part.
    """

    def check(part: str, available: bool, reason: str) -> None:
        assert part in PARTS, f"unknown part {part!r}; known: {sorted(PARTS)}"
        if available:
            return
        if part in pytestconfig.stash[REQUIRED]:
            pytest.fail(f"COSTLENS_REQUIRE names {part}, but: {reason}")
        pytest.skip(f"{part}: {reason}")

    return check
