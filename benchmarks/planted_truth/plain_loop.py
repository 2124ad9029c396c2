"""The plain torch loop of the planted-truth table."""

from __future__ import annotations

import time

import torch

import costlens
from benchmarks.planted_truth.case import EPOCHS, Case, Result, before_ns, make_loader
from benchmarks.planted_truth.plants import ClockedLoader, PlantedNet, PlantedSGD, Plants
from costlens.core.records import RankRecord

__all__ = ["run_plain"]


def run_plain(case: Case, plants: Plants) -> Result:
    """Return what costlens booked for a plain loop with these plants."""
    model = PlantedNet(plants)
    optimizer = PlantedSGD(model.parameters(), plants)
    loader = ClockedLoader(make_loader(case, plants), plants)
    validation = torch.randn(2, 4, 32)
    begin_ns = time.perf_counter_ns()
    run = costlens.start("planted", summary=False)
    run.watch(model, optimizer)
    num_batches = 0
    for _ in range(EPOCHS):
        for batch in run.batches(loader):
            with run.iteration(samples=len(batch)):
                with run.phase("transfer"):
                    plants.spin("transfer")
                loss = model(batch).square().mean()
                loss.backward()
                num_batches += 1
                if num_batches % case.accumulation == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                with run.phase("callbacks"):
                    plants.spin("callback")
                with run.phase("logging"):
                    plants.spin("logger")
        with run.phase("validation"), torch.no_grad():
            model.eval()
            for batch in validation:
                plants.spin("validation")
                model(batch)
            model.train()
        with run.phase("checkpoint"):
            plants.spin("checkpoint")
    outside_ns = time.perf_counter_ns() - begin_ns
    record = run.finish()
    assert isinstance(record, RankRecord)
    return Result(record, plants, outside_ns, before_ns(run))
