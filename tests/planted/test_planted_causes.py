"""One planted cause, one finding: it alone, in the first line of the report, with its money."""

from __future__ import annotations

import io
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
import pytorch_lightning  # sets variables of its own: here, in no test
import torch
from rich.console import Console

from costlens.config import Config
from costlens.core.finding_records import FindingPart
from costlens.core.run_record import RunRecord
from costlens.diagnose.causes import COMPUTE_BOUND, find_cause
from costlens.export.console import render
from costlens.export.record import read_run
from costlens.run import Run
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.planted.causes import (
    HEALTHY,
    PLANTS,
    PRICE_PER_HOUR,
    Plant,
    train_plainly,
    train_with_lightning,
)

LOOPS = ("plain", "lightning")
# A neighbour on the machine can take the processor from a loader's workers, and then they do make
# the training wait; what is wrongly found is found in all tries.
TRIES = 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Lightning's advice about loaders and steps
]


@pytest.fixture(autouse=True)
def _settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """One thread for small nets; the first run, which begins with the process, is over."""
    monkeypatch.chdir(tmp_path)  # Lightning's root
    Run(Config(summary=False, log_level="error"), exporters=[]).open().finish()
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def train(loop: str, plant: Plant) -> RunRecord:
    """Return the merged record of a training, read from its folder as the report does."""
    if loop == "plain":
        run = train_plainly(plant)
    else:
        run = train_with_lightning(pytorch_lightning, plant)
    assert run.id is not None
    return read_run(RunFolder(Store(run.config.run_dir), run.id), time.time())


def findings_of(record: RunRecord) -> list[FindingPart]:
    """Return what is to be mended."""
    return [part for part in record.findings if part.name != COMPUTE_BOUND]


def first_line(record: RunRecord) -> str:
    """Return the first line under the header of the report, and that of the section."""
    console = Console(file=io.StringIO(), width=100, color_system=None)
    render(record, console)
    body = console.file.getvalue().split("\n\n", 1)[1].splitlines()  # type: ignore[attr-defined]
    assert body[0] == "What to fix first"
    return body[1].strip()


@pytest.mark.parametrize("name", PLANTS)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_planted_cause_is_the_one_finding(loop: str, name: str) -> None:
    """It is named, alone, with what it costs an hour: a good part of the price, and no more."""
    record = train(loop, PLANTS[name])
    found = findings_of(record)
    assert [part.name for part in found] == [name], record.undecided
    (part,) = found
    assert part.money_per_hour is not None
    assert 0.25 * PRICE_PER_HOUR < Decimal(part.money_per_hour) < PRICE_PER_HOUR
    assert part.remedies
    assert part.is_open, "the rank has told it while it ran"
    if (loop, name) == ("lightning", "slow_callbacks"):
        named = "Slow.on_train_batch_end" if sys.version_info >= (3, 11) else "on_train_batch_end"
        assert f"foremost {named}, take" in part.evidence[0]
    title = find_cause(name).title
    line = first_line(record)
    assert line.startswith(f"1  {title[0].upper()}{title[1:]} · ")
    assert line.endswith(" USD/h")


@pytest.mark.parametrize("plant", HEALTHY.values(), ids=[*HEALTHY])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_healthy_training_has_no_finding(loop: str, plant: Plant) -> None:
    """C016: a loader that keeps up, with or without workers, is no cause of anything."""
    for _ in range(TRIES):
        record = train(loop, plant)
        if not findings_of(record):
            break
    assert findings_of(record) == []
    assert record.unjudged is None
    assert first_line(record).startswith("nothing to fix")
