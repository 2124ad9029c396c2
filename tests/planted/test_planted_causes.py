"""One planted cause, one finding: it alone, in the first line of the report, with its money."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path

import pytest
import pytorch_lightning  # sets variables of its own: here, in no test
import torch

from costlens.config import Config
from costlens.core.run_record import RunRecord
from costlens.run import Run
from tests.planted.causes import DANGERS, HEALTHY, LOSSES, PRICE_PER_HOUR, Plant
from tests.planted.plain import train_plainly
from tests.planted.reading import check_named, findings_of, first_line, read_report
from tests.planted.trainer import train_with_lightning

# A neighbour on the machine can take the processor from a loader's workers, and then they do make
# the training wait; what is wrongly found is found in all tries.
TRIES = 3
ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice about loaders and steps
]


@pytest.fixture(autouse=True)
def _settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread for small nets; the first run, which begins with the process, is over."""
    monkeypatch.chdir(tmp_path)  # Lightning's root
    Run(Config(summary=False, log_level="error"), exporters=[]).open().finish()
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch._dynamo.config.patch(recompile_limit=1000):
        yield
    torch._dynamo.reset()
    torch.set_num_threads(num_threads)


def train(loop: str, plants: Mapping[str, Plant], name: str) -> RunRecord:
    """Return the merged record of a training."""
    if loop == "process":
        return _train_apart(name)
    if loop == "plain":
        run = train_plainly(plants[name])
    else:
        run = train_with_lightning(pytorch_lightning, plants[name])
    return read_report(run.config.run_dir, run.id)


def _train_apart(name: str) -> RunRecord:
    """Return the record of a danger in a plain loop that has a process of its own."""
    command = [sys.executable, "-m", train_plainly.__module__, name]
    folder = Path(os.environ["COSTLENS_DIR"]) / "apart"
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "COSTLENS_DIR": str(folder)}
    subprocess.run(command, cwd=ROOT, env=environ, timeout=60, check=True)
    (run,) = (path for path in folder.iterdir() if not path.name.startswith("."))
    return read_report(folder, run.name)


def in_loops(plants: Mapping[str, Plant]) -> pytest.MarkDecorator:
    """Return the parameters of a test in all loops that its plants are planted into."""
    cases = [(loop, name) for name, plant in plants.items() for loop in plant.loops]
    return pytest.mark.parametrize(("loop", "name"), cases)


@in_loops(LOSSES)
def test_a_planted_cause_is_the_one_finding(loop: str, name: str) -> None:
    """It is named, alone, with what it costs an hour: a good part of the price, and no more."""
    part = check_named(train(loop, LOSSES, name), name)
    assert part.money_per_hour is not None
    assert 0.25 * PRICE_PER_HOUR < Decimal(part.money_per_hour) < PRICE_PER_HOUR
    assert part.is_open, "the rank has told it while it ran"
    if (loop, name) == ("lightning", "slow_callbacks"):
        named = "Slow.on_train_batch_end" if sys.version_info >= (3, 11) else "on_train_batch_end"
        assert f"foremost {named}, take" in part.evidence[0]


@in_loops(DANGERS)
def test_a_planted_danger_is_the_one_finding(loop: str, name: str) -> None:
    """It is named, alone, and nobody says that it has cost anything."""
    part = check_named(train(loop, DANGERS, name), name)
    assert part.money_per_hour is None
    assert part.evidence


@in_loops(HEALTHY)
def test_a_healthy_training_has_no_finding(loop: str, name: str) -> None:
    """C016: a loader that keeps up is no cause of anything, nor is what happens once or twice."""
    for _ in range(TRIES):
        record = train(loop, HEALTHY, name)
        if not findings_of(record):
            break
    assert findings_of(record) == []
    assert record.unjudged is None
    assert first_line(record).startswith("nothing to fix")
