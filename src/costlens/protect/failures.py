"""How often the job fails, learnt from its own attempts and a prior that may be far off.

Pure; the counts persist in the run's records, so that every attempt goes on with what the ones
before it have seen. Only failures that lost work count: a termination with a good save is exposure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ON_DEMAND", "SPOT", "Exposure", "FailurePrior", "failure_rate_per_s"]

_DAY_S = 86_400.0

# The prior may be off by a hundred either way: five exponential priors on the factor that it is off
# by. A single Gamma lost up to 8 % of a short run's cost where its prior was a hundred times off.
_FACTORS = (100.0, 10.0, 1.0, 0.1, 0.01)
_WEIGHTS = (0.1, 0.2, 0.4, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class FailurePrior:
    """What is believed before anything was seen.

    Args:
        own_mtbf_s: Mean seconds between failures that the job brings along: bugs, memory, limits.
        node_mtbf_s: Mean seconds between failures of one node.
    """

    own_mtbf_s: float
    node_mtbf_s: float

    def rate_per_s(self, num_nodes: int) -> float:
        """Return the failures a second of a job on that many nodes."""
        return 1 / self.own_mtbf_s + num_nodes / self.node_mtbf_s


ON_DEMAND = FailurePrior(own_mtbf_s=3 * _DAY_S, node_mtbf_s=200 * _DAY_S)
"""5 failures per 1,000 node-days, between what was published of Llama 3 (3.8) and OPT (7.6)."""

SPOT = FailurePrior(own_mtbf_s=3 * _DAY_S, node_mtbf_s=3 * 3600.0)
"""3 hours a node: public preemption series have means of 0.7 to 9.7 hours."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """What was seen so far, over all attempts of a run.

    Args:
        num_failures: Failures that lost work, >= 0.
        job_s: Seconds the job was up.
        node_s: Those seconds times its nodes; a resize changes the rate, not what was learnt.
    """

    num_failures: int = 0
    job_s: float = 0.0
    node_s: float = 0.0

    def add(self, up_s: float, num_nodes: int, *, failed: bool) -> Exposure:
        """Return the exposure after a stretch of an attempt.

        Args:
            up_s: Seconds it was up, >= 0.
            num_nodes: Its nodes, >= 1.
            failed: Whether it ended by a failure that lost work.
        """
        return Exposure(
            self.num_failures + failed, self.job_s + up_s, self.node_s + up_s * num_nodes
        )


def failure_rate_per_s(prior: FailurePrior, exposure: Exposure, num_nodes: int) -> float:
    """Return the expected failures a second of a job on ``num_nodes`` nodes.

    The posterior mean of the factor by which the prior is off, times the prior's rate. The factor
    has a mixture of five Gamma priors of shape 1 with means 100 to 1/100; n failures in an
    exposure of E prior-expected failures weigh component i by ``b_i / (b_i + E)^(1 + n)`` with
    ``b_i = 1 / mean_i``. The arithmetic mean is used since cost is linear in the rate.

    Args:
        prior: What was believed before.
        exposure: What was seen.
        num_nodes: Nodes of the job now, >= 1.
    """
    expected = exposure.job_s / prior.own_mtbf_s + exposure.node_s / prior.node_mtbf_s
    shape = 1 + exposure.num_failures
    logs = [
        math.log(weight / factor) - shape * math.log(1 / factor + expected)
        for factor, weight in zip(_FACTORS, _WEIGHTS, strict=True)
    ]
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    means = [shape / (1 / factor + expected) for factor in _FACTORS]
    mean = sum(w * m for w, m in zip(weights, means, strict=True)) / sum(weights)
    return mean * prior.rate_per_s(num_nodes)
