"""A plain loop that saves and resumes through the run: its place in a watched loader, its epoch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from costlens.config import resolve_config
from costlens.run import Run
from tests.log_events import capture_events

NUM_EPOCHS = 3


def train(url: Path, seed: int, num_batches: int | None) -> tuple[list[list[float]], int]:
    """Train in a run of its own, to the end or so many batches; return those and the first step."""
    torch.manual_seed(seed)
    config = resolve_config(summary=False, run_id="same", checkpoint_url=str(url))
    run = Run(config, exporters=[]).open()
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = run.batches(DataLoader(TensorDataset(torch.arange(10.0).reshape(10, 1)), 1, True))
    checkpoints = run.checkpoints(model=model, optimizer=optimizer, loader=loader)
    first = checkpoints.resume()
    seen: list[list[float]] = []
    try:
        for _ in range(checkpoints.epoch, NUM_EPOCHS):
            for (batch,) in loader:
                with run.iteration():
                    loss = model(batch).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                seen.append([batch.item(), loss.item()])
                checkpoints.step()
                if len(seen) == num_batches:
                    return seen, first
    finally:
        run.finish()
    return seen, first


def test_place_in_a_watched_loader_is_resumed(tmp_path: Path) -> None:
    """Stopped in the second epoch and resumed: the batches left, the epoch after, and 30 steps."""
    whole, _ = train(tmp_path / "whole", 1, None)
    before, _ = train(tmp_path / "broken", 1, 17)
    after, first = train(tmp_path / "broken", 2, None)
    assert first == 17
    assert len(whole) == 30
    assert before + after == whole


@pytest.mark.parametrize(
    ("settings", "is_given_late", "is_told"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"run_id": "mine"}, True, False),
        ({"resume": "never"}, True, False),
    ],
)
def test_a_place_that_names_no_run_is_told(
    tmp_path: Path, settings: dict[str, str], is_given_late: bool, is_told: bool
) -> None:
    """Given after the start it ties no restart to the run; one line says so, and what to set."""
    url = str(tmp_path / "place")
    early = {} if is_given_late else {"checkpoint_url": url}
    config = resolve_config(summary=False, dir=str(tmp_path / "runs"), **early, **settings)
    run = Run(config, exporters=[]).open()
    with capture_events() as events:
        run.checkpoints(url if is_given_late else None, model=torch.nn.Linear(1, 1))
    run.finish()
    told = [event for event in events if event["event"] == "costlens.checkpoint.untied"]
    assert len(told) == is_told
    assert all("COSTLENS_CHECKPOINT_URL" in event["message"] for event in told)
