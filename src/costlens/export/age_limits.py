"""How old telemetry may be for common back-ends, as they come: what a replay warns about.

Facts with sources in docs/replay.md; every limit can be raised, so nothing here stops a replay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from costlens.core.clock import NS_PER_S
from costlens.export.figures import show_duration
from costlens.export.otlp_replay import Planned

__all__ = ["AGE_LIMITS", "AgeLimit", "warn_of_age"]

_HOUR_S = 3600
_DAY_S = 24 * _HOUR_S


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """What a back-end does with old telemetry.

    Args:
        signal: The signal it takes.
        max_age_s: Seconds before now from which on it happens.
        effect: What happens to older telemetry.
        remedy: What raises the limit.
    """

    signal: str
    max_age_s: int
    effect: str
    remedy: str


AGE_LIMITS: Mapping[str, AgeLimit] = {
    "tempo": AgeLimit(
        "traces",
        120,
        "keeps older traces and finds them by id and by links, but not by a search over their time",
        "raise ingestion_time_range_slack of its WAL for the time of the replay",
    ),
    "prometheus": AgeLimit(
        "metrics",
        _HOUR_S,
        "refuses samples that lie further behind its newest",
        "set storage.tsdb.out_of_order_time_window to more than their age",
    ),
    "mimir": AgeLimit(
        "metrics",
        _HOUR_S,
        "refuses samples that lie further behind its newest",
        "set limits.out_of_order_time_window to more than their age",
    ),
    "victoriametrics": AgeLimit(
        "metrics",
        31 * _DAY_S,
        "drops samples from before its retention and answers that all is well",
        "start it with a longer -retentionPeriod",
    ),
    "loki": AgeLimit(
        "logs",
        7 * _DAY_S,
        "refuses older records",
        "raise limits_config.reject_old_samples_max_age",
    ),
}
"""By back-end; the defaults of its present releases."""


def warn_of_age(backend: str, segments: Iterable[Planned], now_ns: int) -> str | None:
    """Return a warning about segments that a back-end will not take as they are, or None.

    Args:
        backend: A key of ``AGE_LIMITS``.
        segments: What is to be sent.
        now_ns: Unix time in nanoseconds.
    """
    limit = AGE_LIMITS[backend]
    ages_s = [
        (now_ns - planned.first_ns) / NS_PER_S
        for planned in segments
        if planned.segment.signal == limit.signal and planned.first_ns
    ]
    old = [age_s for age_s in ages_s if age_s > limit.max_age_s]
    if not old:
        return None
    return (
        f"{len(old)} of {len(ages_s)} segments of {limit.signal} begin up to "
        f"{show_duration(max(old))} ago; as it comes, {backend} {limit.effect} "
        f"({show_duration(limit.max_age_s)}): {limit.remedy}"
    )
