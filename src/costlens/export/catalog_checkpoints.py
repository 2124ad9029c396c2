"""The page of the metric catalogue on checkpoints: what is safe, and what a crash would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from costlens.account.cost import charge_rank
from costlens.core.checkpoint_records import CheckpointsPart, IntervalPart
from costlens.core.snapshot import Snapshot
from costlens.export.metric import Metric
from costlens.export.readings import Point, Read, each

__all__ = ["CHECKPOINT_METRICS"]

_OUTCOMES = ("saved", "failed", "skipped")


def _of_part(get: Callable[[CheckpointsPart], float | None]) -> Read:
    def read(snapshot: Snapshot) -> Iterable[Point]:
        part = snapshot.record.checkpoints
        value = None if part is None else get(part)
        return () if value is None else [({}, value)]

    return read


def _of_interval(get: Callable[[IntervalPart], float]) -> Read:
    return _of_part(lambda part: None if part.interval is None else get(part.interval))


def _outcomes(snapshot: Snapshot) -> Mapping[str, float | None]:
    part = snapshot.record.checkpoints
    if part is None:
        return {}
    return dict(zip(_OUTCOMES, (part.num_saved, part.num_failed, part.num_skipped), strict=True))


def _unsaved_s(snapshot: Snapshot) -> float | None:
    """Return the seconds of work that a crash now would lose: since the newest checkpoint."""
    part, attempt = snapshot.record.checkpoints, snapshot.record.attempt
    if part is None or attempt.end_time is not None:
        return None
    since = part.last_time
    # A checkpoint of an earlier attempt is older than everything this one has done.
    begun = attempt.start_time if since is None else max(since, attempt.start_time)
    return max(0.0, attempt.heartbeat_time - begun)


def _read_unsaved(snapshot: Snapshot) -> Iterable[Point]:
    value = _unsaved_s(snapshot)
    return () if value is None else [({}, value)]


def _read_unsaved_cost(snapshot: Snapshot) -> Iterable[Point]:
    unsaved_s, charge = _unsaved_s(snapshot), charge_rank(snapshot.record)
    if unsaved_s is None or charge is None:
        return ()
    per_hour = float(charge.own_rate_per_hour + charge.idle_rate_per_hour)
    return [({"costlens.cost.currency": charge.currency}, per_hour * unsaved_s / 3600)]


CHECKPOINT_METRICS: tuple[Metric, ...] = (
    Metric(
        "costlens.checkpoint.saves",
        "counter",
        "{save}",
        "Saves by how they ended; one that was due while another was written is skipped.",
        each("costlens.checkpoint.outcome", _outcomes),
        {"costlens.checkpoint.outcome": _OUTCOMES},
    ),
    Metric(
        "costlens.checkpoint.stall.time",
        "counter",
        "s",
        "Time that training stood still for snapshots.",
        _of_part(lambda part: part.stall_s),
    ),
    Metric(
        "costlens.checkpoint.write.time",
        "counter",
        "s",
        "Time from snapshots until they were durable, beside the training.",
        _of_part(lambda part: part.write_s),
    ),
    Metric(
        "costlens.checkpoint.retries",
        "counter",
        "{retry}",
        "Writes to the store that were tried again.",
        _of_part(lambda part: part.num_retries),
    ),
    Metric(
        "costlens.checkpoint.size",
        "gauge",
        "By",
        "Bytes that this rank has stored in the newest checkpoint.",
        _of_part(lambda part: part.num_bytes or None),
    ),
    Metric(
        "costlens.checkpoint.step",
        "gauge",
        "{step}",
        "Step of the newest checkpoint that exists.",
        _of_part(lambda part: part.last_step),
    ),
    Metric(
        "costlens.checkpoint.interval",
        "gauge",
        "s",
        "Time between two snapshots that the policy has decided on.",
        _of_interval(lambda interval: interval.interval_s),
    ),
    Metric(
        "costlens.checkpoint.failure.rate",
        "gauge",
        "{failure}/h",
        "Failures an hour that the policy believes in.",
        _of_interval(lambda interval: interval.failure_rate_per_s * 3600),
    ),
    Metric(
        "costlens.unsaved.time",
        "gauge",
        "s",
        "Work that a crash now would lose: the time since the newest checkpoint.",
        _read_unsaved,
    ),
    Metric(
        "costlens.unsaved.cost",
        "gauge",
        "{currency}",
        "Money of the work that a crash now would lose, of this rank.",
        _read_unsaved_cost,
        {"costlens.cost.currency": ()},
    ),
)
"""All metrics on checkpoints; none has a point where costlens saves none."""
