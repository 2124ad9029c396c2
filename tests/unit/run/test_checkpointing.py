"""The checkpoints of a run over its attempts: one after the other, each wiser than the last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from costlens.checkpoint_facts import copy_ledger
from costlens.checkpointing import make_manager
from costlens.config import Config
from costlens.core.records import RankRecord
from costlens.errors import CheckpointError, ConfigError, RunStateError, StorageError
from costlens.protect.checkpoints import Checkpoints
from costlens.protect.history import carried_costs, exposure_of
from costlens.run import Run
from costlens.testing import FakeClock


class Numbers:
    """A state of one tensor."""

    def __init__(self) -> None:
        self.weight = torch.zeros(10)

    def gather(self, step: int) -> Any:
        return {"weight": self.weight, "step": step}

    def restore(self, tree: Any) -> list[str]:
        self.weight.copy_(tree["weight"])
        return []


def open_checkpoints(config: Config, clock: FakeClock) -> tuple[Run, Numbers, Checkpoints]:
    """Open an attempt with checkpoints."""
    run = Run(config, clock=clock).open()
    session = run._session
    assert session is not None
    source = Numbers()
    try:
        manager = make_manager(
            config, run.parts, clock, session.require_identity(), source, lambda: None
        )
    except BaseException:
        run.finish()
        raise
    return run, source, Checkpoints(manager, config.resume)


def train(checkpoints: Checkpoints, source: Numbers, clock: FakeClock, num_steps: int) -> None:
    """Do steps of a second each."""
    for _ in range(num_steps):
        clock.advance(1.0)
        source.weight += 1
        checkpoints.step()
        manager = checkpoints._manager
        assert manager is not None
        assert manager._writer.wait(30)


def make_config(root: Path, **settings: Any) -> Config:
    """Return settings with a place for checkpoints; the run folder lies within it."""
    return Config(
        **{"name": "t", "checkpoint_url": str(root), "dir": str(root / "runs"), **settings}
    )


def attempt(
    config: Config, num_steps: int, *, error: BaseException | None = None, resumes: bool = True
) -> tuple[int, RankRecord]:
    """Run one attempt; return the step it began at and its record."""
    clock = FakeClock()
    run, source, checkpoints = open_checkpoints(config, clock)
    start = checkpoints.resume() if resumes else 0
    assert torch.equal(source.weight, torch.full((10,), float(start)))
    train(checkpoints, source, clock, num_steps)
    checkpoints.finish(30.0, is_clean=error is None)
    record = run.finish(error=error)
    assert record is not None
    return start, record


def test_attempts_go_on_from_one_another(tmp_path: Path) -> None:
    """C059: a clean end loses nothing, a failure what came after the last save; steps add up."""
    config = make_config(tmp_path)
    assert attempt(config, 30)[0] == 0
    start, record = attempt(config, 70, error=RuntimeError("boom"))
    assert start == 30
    saved = record.checkpoints
    assert saved is not None
    assert saved.resumed_step == 30
    assert record.attempt.start_step == 30
    assert attempt(config, 5)[0] == saved.last_step


def test_a_later_attempt_knows_what_saves_cost(tmp_path: Path) -> None:
    """Costs and failures persist with the run: the second attempt plans from its first step on."""
    config = make_config(tmp_path)
    _, first = attempt(config, 200, error=RuntimeError("boom"))
    assert carried_costs([first]) is not None
    seen = exposure_of([first])
    assert (seen.num_failures, seen.job_s) == (1, first.total_ns / 1e9)
    assert seen.job_s >= 200
    clock = FakeClock()
    run, source, checkpoints = open_checkpoints(config, clock)
    train(checkpoints, source, clock, 3)
    manager = checkpoints._manager
    assert manager is not None
    plan = manager._cadence.plan
    assert plan is not None
    assert plan.decision is not None
    checkpoints.finish(30.0, is_clean=False)
    run.finish()


def test_a_clean_end_is_no_failure(tmp_path: Path) -> None:
    """What ended well, or by a person, is exposure and no failure."""
    _, record = attempt(make_config(tmp_path), 5)
    assert exposure_of([record]).num_failures == 0
    _, interrupted = attempt(make_config(tmp_path / "b"), 5, error=KeyboardInterrupt())
    assert exposure_of([interrupted]).num_failures == 0


def test_resuming_can_be_forbidden_or_demanded(tmp_path: Path) -> None:
    """COSTLENS_RESUME: never starts afresh; must is an error where there is nothing."""
    assert attempt(make_config(tmp_path), 5)[0] == 0
    assert attempt(make_config(tmp_path, resume="never"), 2)[0] == 0
    must = make_config(tmp_path / "empty", resume="must")
    run, _, checkpoints = open_checkpoints(must, FakeClock())
    with pytest.raises(CheckpointError, match="COSTLENS_RESUME is must"):
        checkpoints.resume()
    checkpoints.finish(1.0, is_clean=False)
    run.finish()


def test_a_place_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    """C038: before the first step, with the place and the errno."""
    (tmp_path / "file").write_text("in the way")
    config = make_config(tmp_path / "file", dir=str(tmp_path / "runs"))
    with pytest.raises(StorageError, match="ENOTDIR"):
        open_checkpoints(config.model_copy(update={"run_id": "t"}), FakeClock())


def test_no_place_is_an_error_that_helps() -> None:
    """The message names the variable."""
    with pytest.raises(ConfigError, match="COSTLENS_CHECKPOINT_URL"):
        open_checkpoints(Config(name="t"), FakeClock())


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("2.5h", 9000)])
def test_durations_are_written_as_people_write_them(text: str, seconds: float) -> None:
    """A number and its unit."""
    assert Config(max_loss=text).max_loss == seconds


@pytest.mark.parametrize("text", ["", "10", "h", "-5m", "1e9h", "5 weeks", "0s"])
def test_other_durations_are_refused_with_what_is_allowed(text: str) -> None:
    """A number alone has no unit, and nothing is guessed."""
    with pytest.raises(ConfigError, match="mtbf"):
        Config(mtbf=text)


def test_a_run_has_one_set_of_checkpoints(tmp_path: Path) -> None:
    """A second call would save beside the first, and ranks would meet about two things at once."""
    model = torch.nn.Linear(2, 1)
    with Run(make_config(tmp_path)) as run:
        first = run.checkpoints(model=model)
        with pytest.raises(RunStateError, match=r"call run\.checkpoints once"):
            run.checkpoints(model=model)
        assert first.resume() == 0
        first.step()
    with run:
        again = run.checkpoints(model=model)
        assert again.resume() == 1, "a run that is opened again has its own"


def test_a_crash_before_the_first_save_has_saved_nothing(tmp_path: Path) -> None:
    """C059: its steps are lost, and known to be, though no save was ever seen."""
    _, record = attempt(make_config(tmp_path), 3, error=RuntimeError("boom"))
    begun = record.attempt
    assert (begun.start_step, begun.saved_step, begun.end_step) == (0, 0, 3)


def test_a_manifest_has_a_copy_of_the_ledger(tmp_path: Path) -> None:
    """Totals of the run for whoever has nothing but a checkpoint; none where none are known."""
    config = make_config(tmp_path, node_hour_price="3.60", currency="EUR")
    _, record = attempt(config, 5)
    copied = copy_ledger(record)
    assert record.run_totals is not None
    assert copied["cost_EUR"] == record.run_totals.cost["EUR"]
    assert float(copied["time_s"]) == pytest.approx(record.run_totals.time_s, abs=1e-3)
    assert (copied["attempt"], copied["is_partial"]) == ("1", "false")
    assert copy_ledger(None) == {}
