"""Words that many queries share; everything is a string of PromQL."""

from __future__ import annotations

from grafana.names import select
from grafana.settings import SETTINGS

__all__ = [
    "MILLION",
    "OWN_PHASES",
    "RANK",
    "RUN",
    "RUNS",
    "THE_RANKS",
    "THE_RUN",
    "increase",
    "newest",
    "of_team",
    "over_range",
    "rate",
]

RUN = "costlens_run_id"
RANK = "costlens_rank"
THE_RUN = SETTINGS.run
THE_RANKS = SETTINGS.ranks
RUNS = SETTINGS.runs
MILLION = "1000000"

OWN_PHASES = "|".join(SETTINGS.own_phases)


def rate(metric: str, *matchers: str, part: str = "") -> str:
    """Return how fast a counter grows, per second."""
    return f"rate({select(metric, *matchers, part=part)}[$__rate_interval])"


def increase(metric: str, *matchers: str, part: str = "") -> str:
    """Return by how much a counter grew from point to point."""
    return f"increase({select(metric, *matchers, part=part)}[$__rate_interval])"


def over_range(metric: str, *matchers: str, part: str = "") -> str:
    """Return by how much a counter grew in the dashboard's time range."""
    return f"increase({select(metric, *matchers, part=part)}[$__range])"


def newest(query: str) -> str:
    """Return the newest value in the dashboard's time range, of runs that are over as well.

    The query is aggregated first: two attempts of a run are different series for some back-ends.
    """
    return f"last_over_time(({query})[$__range:1m])"


def of_team(query: str, *, over_range: bool = False) -> str:
    """Return the part of a query that belongs to the chosen teams; it must keep the run's id.

    With ``over_range`` runs count that are over, as ``newest`` finds them.
    """
    chosen = select("costlens.run.info", SETTINGS.team)
    if over_range:
        chosen = f"last_over_time({chosen}[$__range])"
    return f"(({query}) and on ({RUN}) {chosen})"
