"""The rate of failures: learnt from few events, whatever was believed before."""

from __future__ import annotations

import numpy as np
import pytest

from costlens.protect.failures import (
    ON_DEMAND,
    SPOT,
    Exposure,
    FailurePrior,
    failure_rate_per_s,
)

HOUR_S = 3600.0


def posterior_mean_by_sums(num_failures: int, expected: float) -> float:
    """Return the posterior mean of the factor by adding up densities on a grid, with no Gamma."""
    factor = np.geomspace(1e-9, 1e4, 400_000)
    means, weights = np.array([100, 10, 1, 0.1, 0.01]), np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    prior = sum(w / m * np.exp(-factor / m) for w, m in zip(weights, means, strict=True))
    # A Poisson process of rate `factor`, scaled to its largest value to stay in range.
    log_likelihood = num_failures * np.log(factor) - factor * expected
    density = prior * np.exp(log_likelihood - log_likelihood.max()) * np.gradient(factor)
    return float((density * factor).sum() / density.sum())


@pytest.mark.parametrize("num_failures", [0, 1, 5, 40])
@pytest.mark.parametrize("hours", [0.5, 4.0, 40.0, 400.0])
def test_the_posterior_is_bayes(num_failures: int, hours: float) -> None:
    """The closed form is what adding up prior times likelihood gives."""
    prior = FailurePrior(own_mtbf_s=4 * HOUR_S, node_mtbf_s=float("inf"))
    seen = Exposure(num_failures, hours * HOUR_S, hours * HOUR_S)
    rate = failure_rate_per_s(prior, seen, 1)
    expected = posterior_mean_by_sums(num_failures, hours / 4) / (4 * HOUR_S)
    assert rate == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize("factor", [0.01, 0.1, 1.0, 10.0, 100.0])
def test_a_wrong_prior_is_forgotten(factor: float) -> None:
    """After 50 failures in 200 h the rate is one in 4 h within a fifth, however wrong the prior."""
    prior = FailurePrior(own_mtbf_s=4 * HOUR_S * factor, node_mtbf_s=float("inf"))
    seen = Exposure(50, 200 * HOUR_S, 200 * HOUR_S)
    assert failure_rate_per_s(prior, seen, 1) == pytest.approx(1 / (4 * HOUR_S), rel=0.2)


def test_a_resize_keeps_what_was_learnt() -> None:
    """Nodes that fail as believed fail so on any number: the rate follows the nodes."""
    prior = FailurePrior(own_mtbf_s=1e12, node_mtbf_s=100 * HOUR_S)
    seen = Exposure()
    for _ in range(60):
        seen = seen.add(12.5 * HOUR_S, 8, failed=True)
    eight, two = (failure_rate_per_s(prior, seen, nodes) for nodes in (8, 2))
    assert eight == pytest.approx(1 / (12.5 * HOUR_S), rel=0.2)
    assert two == pytest.approx(eight / 4, rel=1e-6)


def test_exposure_adds_up() -> None:
    """A termination with a good save is time without a failure."""
    seen = Exposure().add(100.0, 2, failed=False).add(50.0, 4, failed=True)
    assert seen == Exposure(num_failures=1, job_s=150.0, node_s=400.0)


def test_published_priors() -> None:
    """The defaults are rates that were published, in failures per node-day."""
    assert 86_400 / ON_DEMAND.node_mtbf_s == pytest.approx(0.005)
    assert SPOT.rate_per_s(1) > 10 * ON_DEMAND.rate_per_s(1)
