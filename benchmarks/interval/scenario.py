"""The fourteen scenarios: what a save costs, how the job fails, and what is believed before.

Sizes follow published jobs: spot up-times as Weibull fits (shape 0.49 to 0.93 in 30 public series),
rates of failure per node-day as reported for large runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from costlens.protect.failures import FailurePrior
from costlens.protect.interval import CheckpointCosts

__all__ = ["COLD", "SCENARIOS", "Scenario"]

HOUR_S = 3600.0


@dataclass(frozen=True)
class Scenario:
    """One job.

    Args:
        key: Its letter.
        title: What it is.
        costs: What a save and a failure cost, in its first half.
        mtbf_s: Mean seconds of up-time between failures that lose work.
        shape: Weibull shape of the up-times; 1 is memoryless.
        work_s: Useful seconds of the whole job.
        prior_factor: How many times longer the believed MTBF is than the real one.
        late_costs: What a save costs in the second half, where it differs.
        late_rate_factor: How many times more failures there are in the second half.
        step_s: Seconds of one optimizer step.
        max_loss_s: The loss that the user tolerates; None for no limit.
    """

    key: str
    title: str
    costs: CheckpointCosts
    mtbf_s: float
    shape: float = 1.0
    work_s: float = 72 * HOUR_S
    prior_factor: float = 1.0
    late_costs: CheckpointCosts | None = None
    late_rate_factor: float = 1.0
    step_s: float = 1.0
    max_loss_s: float | None = None

    @property
    def prior(self) -> FailurePrior:
        """Return what is believed: the real mean, off by the scenario's factor."""
        return FailurePrior(self.mtbf_s * self.prior_factor, float("inf"))

    def costs_at(self, progress_s: float) -> CheckpointCosts:
        """Return what a save costs at that progress."""
        is_late = self.late_costs is not None and progress_s > self.work_s / 2
        return self.late_costs if is_late and self.late_costs is not None else self.costs


def _money(per_hour: float) -> float:
    return per_hour / HOUR_S


_SPOT = CheckpointCosts(
    stall_s=4,
    write_s=60,
    slowdown=0.03,
    restart_s=420,
    money_per_s=_money(12),
    money_per_save=0.0005,
)
_THOUSAND = CheckpointCosts(
    stall_s=6, write_s=90, slowdown=0.04, restart_s=480, money_per_s=_money(2560)
)
_B = Scenario("B", "8 GPUs, spot, MTBF 4 h", _SPOT, 4 * HOUR_S)

SCENARIOS = (
    Scenario(
        "A",
        "1 GPU, MTBF 500 h",
        CheckpointCosts(
            stall_s=3, write_s=20, slowdown=0.02, restart_s=300, money_per_s=_money(2.5)
        ),
        500 * HOUR_S,
    ),
    _B,
    Scenario("C", "1,024 GPUs, MTBF 7.9 h", _THOUSAND, 7.9 * HOUR_S, step_s=5),
    Scenario(
        "D",
        "16k GPUs, MTBF 2.7 h",
        CheckpointCosts(
            stall_s=8, write_s=120, slowdown=0.045, restart_s=600, money_per_s=_money(40_960)
        ),
        2.7 * HOUR_S,
        step_s=20,
    ),
    Scenario(
        "E",
        "synchronous save of 120 s, MTBF 12 h",
        CheckpointCosts(stall_s=120, restart_s=600, money_per_s=_money(80)),
        12 * HOUR_S,
    ),
    replace(
        _B,
        key="F",
        title="B, write x3 and price x2 halfway",
        late_costs=replace(_SPOT, write_s=180, stall_s=12, money_per_s=_money(24)),
    ),
    replace(_B, key="G", title="B, prior 10x optimistic", prior_factor=10),
    replace(_B, key="H", title="B, prior 10x pessimistic", prior_factor=0.1),
    Scenario("I", "Weibull shape 0.65, mean 4 h", _SPOT, 4 * HOUR_S, shape=0.65),
    Scenario("J", "Weibull shape 1.5, mean 7.9 h", _THOUSAND, 7.9 * HOUR_S, shape=1.5, step_s=5),
    replace(_B, key="K", title="B, failures x4 halfway", late_rate_factor=4),
    Scenario(
        "L",
        "1.2 an hour, 0.02 a checkpoint",
        CheckpointCosts(
            stall_s=4,
            write_s=60,
            slowdown=0.03,
            restart_s=420,
            money_per_s=_money(1.2),
            money_per_save=0.02,
        ),
        18 * HOUR_S,
    ),
    Scenario("M", "spot, Weibull shape 0.66, mean 5.7 h", _SPOT, 5.7 * HOUR_S, shape=0.66),
    Scenario("N", "4 spot nodes, Weibull shape 0.85, mean 3.7 h", _SPOT, 3.7 * HOUR_S, shape=0.85),
)

COLD = tuple(
    replace(
        _B,
        key=f"{hours} h, prior x{factor:g}",
        title="cold start",
        work_s=hours * HOUR_S,
        prior_factor=factor,
    )
    for hours in (6, 72)
    for factor in (0.01, 0.1, 1.0, 10.0, 100.0)
)
"""B from a cold start, with priors that are off by up to a hundred either way."""
