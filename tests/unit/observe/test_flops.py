"""What a rank's MFU is made of: parameters from the model that is watched, peaks by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from costlens.config import Config
from costlens.observe.flops import count_parameters
from costlens.run import Run
from costlens.testing import MemoryExporter


def _train(*models: nn.Module, **settings: Any) -> Any:
    exporter = MemoryExporter()
    run = Run(Config(summary=False, **settings), exporters=[exporter]).open()
    for model in models:
        run.watch(model)
    run.finish()
    return exporter.snapshots[-1].record


def test_parameters_of_all_watched_models_make_the_estimate() -> None:
    """6 FLOPs a parameter and token; a CPU has no known peak, and the record says so."""
    first, second = nn.Linear(4, 8), nn.Linear(8, 2, bias=False)
    record = _train(first, second, first, estimate_flops=True)
    assert record.flops.per_token == 6 * (4 * 8 + 8 + 8 * 2), "watched twice is counted once"
    assert record.flops.is_estimate
    assert "the peak of a CPU is not known" in record.flops.unknown


def test_nobody_asks_by_default() -> None:
    """Without FLOPs and without asking for an estimate there is nothing in the record."""
    assert _train(nn.Linear(2, 2)).flops is None


def test_shared_parameters_count_once_and_lazy_ones_are_unknown() -> None:
    """Tied weights are one tensor; a module without a shape yet has no number of parameters."""
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    assert count_parameters(tied) == 16
    assert count_parameters(nn.LazyLinear(3)) is None
    with torch.device("meta"):
        assert count_parameters(nn.Linear(10, 10)) == 110


def test_a_rank_that_sees_a_part_of_the_model_does_not_estimate() -> None:
    """Shards are not the model; parameters that know their whole size are."""

    class FullyShardedDataParallel(nn.Sequential):
        pass

    assert count_parameters(nn.Sequential(FullyShardedDataParallel(nn.Linear(4, 4)))) is None
    partitioned = nn.Linear(4, 4, bias=False)
    partitioned.weight.data = torch.empty(0)
    assert count_parameters(partitioned) is None, "nothing here is not a model of size 0"
    partitioned.weight.ds_numel = 16
    assert count_parameters(partitioned) == 16
