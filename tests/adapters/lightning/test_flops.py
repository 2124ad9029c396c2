"""What MFU is made of under a Trainer."""

from __future__ import annotations

from costlens.config import Config
from tests.adapters.lightning.jobs import fit, make_module, rows


def test_the_modules_parameters_make_the_estimate(pl) -> None:
    """4 × 2 weights and 2 biases: 60 FLOPs a token, labelled as an estimate."""
    config = Config(estimate_flops=True, summary=False)
    record = fit(pl, make_module(pl), rows(4), max_epochs=1, watch={"config": config})
    assert record.flops is not None
    assert (record.flops.per_token, record.flops.is_estimate) == (60.0, True)
    assert record.flops.unknown is not None, "the peak of a CPU is not known"
