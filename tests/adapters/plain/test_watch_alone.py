"""`run.watch(model, optimizer, loader)` and no other change to the loop."""

from __future__ import annotations

import pytest
import torch

import costlens
from costlens.errors import ConfigError


def _train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: object) -> None:
    for _ in range(2):
        for batch in loader:  # type: ignore[attr-defined]
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("is_named", [True, False])
def test_one_line_gives_waits_passes_and_steps(is_named: bool) -> None:
    """The loader goes in by position or by name; iterations are inferred from its fetches."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(40, 8), batch_size=4)
    run = costlens.start("alone", summary=False)
    if is_named:
        run.watch(model, optimizer, loader=loader)
    else:
        run.watch(model, optimizer, loader)
    _train(model, optimizer, loader)
    record = run.finish()
    assert record is not None
    assert record.progress.iterations == record.progress.optimizer_steps == 20
    assert record.progress.samples is None
    phases = ("data_wait", "forward", "backward", "optimizer")
    assert all(record.time_ns[name] > 0 for name in phases)
    assert sum(record.time_ns.values()) == record.total_ns
    assert not hasattr(loader, "_get_iterator") or "_get_iterator" not in vars(loader)


def test_what_cannot_be_watched_is_refused_with_a_hint() -> None:
    """A loss function in the place of an optimizer is the user's slip, and is named."""
    model = torch.nn.Linear(2, 1)
    with (
        costlens.start("slip", summary=False) as run,
        pytest.raises(ConfigError, match="MSELoss"),
    ):
        run.watch(model, torch.nn.MSELoss())
