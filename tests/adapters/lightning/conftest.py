"""Real Trainers of both Lightning packages, quiet and on the CPU."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from costlens.run import Run
from costlens.testing import FakeClock

PACKAGES = ("pytorch_lightning", "lightning.pytorch")
HERE = Path(__file__).parent
# Advice about a job that is small on purpose: too few batches to log, no validation.
ADVICE = (
    "ignore::lightning_fabric.utilities.warnings.PossibleUserWarning",
    "ignore::lightning.fabric.utilities.warnings.PossibleUserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore Lightning's advice in these tests."""
    for item in items:
        if HERE in item.path.parents:
            for advice in ADVICE:
                item.add_marker(pytest.mark.filterwarnings(advice))


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no report at the end of a run."""
    monkeypatch.setenv("COSTLENS_SUMMARY", "0")


@pytest.fixture
def pl() -> ModuleType:
    """Return the package that most tests use."""
    return importlib.import_module(PACKAGES[0])


@pytest.fixture(params=PACKAGES)
def each_pl(request: pytest.FixtureRequest) -> ModuleType:
    """Return one package after the other."""
    return importlib.import_module(request.param)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """Return the clock of every run of the test; it stands still unless the test advances it."""
    fake = FakeClock(10**15)
    assert Run.__init__.__kwdefaults__ is not None
    monkeypatch.setitem(Run.__init__.__kwdefaults__, "clock", fake)
    return fake


@pytest.fixture
def written(tmp_path: Path) -> Callable[[], list[dict]]:
    """Return a function that reads every rank record that was written, in the order of runs."""

    def read() -> list[dict]:
        paths = sorted(tmp_path.glob("costlens-runs/*/record-*.json"))
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    return read
