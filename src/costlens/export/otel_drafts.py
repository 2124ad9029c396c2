"""Drafts of the spans of a run: names, ids, times and attributes, made from records and iterations.

``otel_traces`` decides which are wanted and ``otel_spans`` writes them. Unix nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from costlens.account.cost import charge_rank
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.phases import NAMES
from costlens.core.quality import Observation
from costlens.core.records import Outcome, RankRecord
from costlens.core.trouble_records import LastWordsPart
from costlens.core.window import Iteration
from costlens.export import otel_ids
from costlens.export.finding_attributes import finding_attributes
from costlens.export.gpu_readings import gpu_attributes
from costlens.export.job_attributes import job_attributes, queue_attributes
from costlens.export.money_attributes import money_attributes
from costlens.export.otel_ids import Ids, run_key
from costlens.export.periods import COUNTS, Period, lay_out, phase_times

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

__all__ = [
    "Draft",
    "alarm_draft",
    "end_draft",
    "identity",
    "iteration_draft",
    "marker_draft",
    "period_draft",
    "phase_drafts",
    "rank_draft",
]

Links = Sequence[tuple["SpanContext | None", str]]
AttributeValues = Mapping[str, str | int | float | None]


@dataclass(frozen=True, slots=True)
class Draft:
    """A span to be written.

    Args:
        name: Its name.
        ids: Where it stands, by hash; a host's tracer gives it others.
        start_ns: Unix time in nanoseconds.
        end_ns: Unix time in nanoseconds, >= ``start_ns``.
        attributes: Its attributes; None is left out.
        parent: The span above it, or None for a root.
        links: Linked spans with what the link means; None is left out.
        error: A short constant word when it went wrong.
    """

    name: str
    ids: Ids
    start_ns: int
    end_ns: int
    attributes: AttributeValues
    parent: SpanContext | None = None
    links: Links = ()
    error: str | None = None


def marker_draft(record: RankRecord, links: Links) -> Draft:
    """Return the marker of an attempt: it is over at once, so that it can be seen at once."""
    run, rank = record.run, record.rank
    start_ns = int(record.attempt.start_time * NS_PER_S)
    attributes = {
        **identity(record),
        "costlens.run.name": run.name,
        "costlens.run.debug": run.debug,
        "costlens.run.ranks": rank.world_size,
        "costlens.version": run.costlens_version,
        "costlens.framework": run.framework,
        "costlens.device": rank.device,
        **job_attributes(record.job),
        "costlens.startup.gang_wait": record.startup.gang_wait_s,
    }
    ids = otel_ids.marker_ids(*run_key(record))
    return Draft("costlens.run", ids, start_ns, start_ns, attributes, links=links)


def end_draft(record: RankRecord, end_ns: int, parent: SpanContext | None) -> Draft:
    """Return the end of an attempt, in the trace of its marker: how it ended, and its totals."""
    attempt = record.attempt
    is_failed = attempt.outcome is Outcome.FAILED
    progress = record.progress.model_dump()
    attributes = {
        **identity(record),
        **{attribute: progress[name] for name, attribute in COUNTS.items()},
        **phase_times(record.time_ns),
        **_cost(record, record.total_ns),
        "costlens.outcome": attempt.outcome.value,
        "costlens.run.time": record.total_ns / NS_PER_S,
        "costlens.startup.gang_wait": record.startup.gang_wait_s,
        "costlens.startup.first_step": record.startup.first_step_s,
        "costlens.step.start": attempt.start_step,
        "costlens.step.end": attempt.end_step,
        "error.type": attempt.error_type,
        "process.exit.code": attempt.exit_code,
        "costlens.process.signal": attempt.signal,
        **_last_words(record.last_words),
    }
    return Draft(
        "costlens.run.end",
        otel_ids.end_ids(*run_key(record), record.rank.rank, end_ns),
        end_ns,
        end_ns,
        attributes,
        parent=parent,
        error=(attempt.error_type or "failed") if is_failed else None,
    )


def period_draft(record: RankRecord, period: Period, anchor: Anchor, links: Links) -> Draft:
    """Return the root of a period's trace, which rank 0 writes for all."""
    return Draft(
        "costlens.period",
        otel_ids.period_ids(*run_key(record), period.number),
        anchor.to_wall_ns(period.start_ns),
        anchor.to_wall_ns(period.end_ns),
        {**identity(record), "costlens.run.name": record.run.name},
        links=links,
    )


def rank_draft(
    record: RankRecord,
    period: Period,
    anchor: Anchor,
    parent: SpanContext | None,
    *,
    num_shown: int,
) -> Draft:
    """Return what one rank did in a period, of whose iterations ``num_shown`` have spans."""
    attributes = {
        **identity(record),
        **period.attributes(),
        **gpu_attributes(period.gpus_before, period.gpus),
        **queue_attributes(record),
        **_cost(record, period.end_ns - period.start_ns),
        **money_attributes(record),
        **finding_attributes(record),
        "costlens.detail": period.detail.value,
        "costlens.iterations.shown": num_shown,
    }
    return Draft(
        "costlens.rank.period",
        otel_ids.rank_ids(*run_key(record), period.number, record.rank.rank),
        anchor.to_wall_ns(period.start_ns),
        anchor.to_wall_ns(period.end_ns),
        attributes,
        parent=parent,
    )


def iteration_draft(
    record: RankRecord,
    kept: Iteration,
    anchor: Anchor,
    parent: SpanContext,
    bad: Observation | None,
) -> Draft:
    """Return an iteration that was kept; ``bad`` is the value that made it one."""
    attributes = {
        **identity(record),
        **phase_times(dict(zip(NAMES, kept.phase_ns, strict=True))),
        "costlens.iteration": kept.index,
        "costlens.iteration.duration": kept.iteration_ns / NS_PER_S,
        "costlens.reason": kept.reason if bad is None else "nonfinite",
        "costlens.quality.name": None if bad is None else bad.name,
        "error.type": None if bad is None else "nonfinite",
        # Its phases are sums laid end to end: when each was entered and left is not recorded.
        "costlens.phase.order": "approximate",
    }
    return Draft(
        "costlens.iteration",
        otel_ids.iteration_ids(parent.trace_id, record.rank.rank, kept.index),
        anchor.to_wall_ns(kept.start_ns),
        anchor.to_wall_ns(kept.end_ns),
        attributes,
        parent=parent,
        error=None if bad is None else "nonfinite",
    )


def phase_drafts(
    record: RankRecord, kept: Iteration, anchor: Anchor, parent: SpanContext
) -> Iterator[Draft]:
    """Yield the phases of an iteration that took any time."""
    for name, start_ns, end_ns in lay_out(kept):
        yield Draft(
            f"costlens.phase.{name}",
            otel_ids.iteration_ids(parent.trace_id, record.rank.rank, kept.index, name),
            anchor.to_wall_ns(start_ns),
            anchor.to_wall_ns(end_ns),
            {**identity(record), "costlens.phase": name},
            parent=parent,
        )


def alarm_draft(
    record: RankRecord, alarm: Observation, anchor: Anchor, parent: SpanContext
) -> Draft:
    """Return the moment a quality metric first was not finite, where its iteration was not kept."""
    at_ns = anchor.to_wall_ns(alarm.mono_ns)
    attributes = {
        **identity(record),
        "costlens.iteration": alarm.iteration,
        "costlens.quality.name": alarm.name,
        "costlens.quality.value": str(alarm.value),
        "error.type": "nonfinite",
    }
    return Draft(
        "costlens.nonfinite",
        otel_ids.iteration_ids(parent.trace_id, record.rank.rank, alarm.iteration, alarm.name),
        at_ns,
        at_ns,
        attributes,
        parent=parent,
        error="nonfinite",
    )


def _last_words(words: LastWordsPart | None) -> dict[str, str | int | None]:
    if words is None:
        return {}
    return {
        "costlens.error.location": words.stack[0] if words.stack else None,
        "costlens.oom_kills": words.oom_kills,
        "costlens.nonfinite.name": words.nonfinite,
        "costlens.nonfinite.iteration": words.nonfinite_iteration,
        "costlens.gpu.xid": words.xid,
        "costlens.flight_recorder": words.flight_recorder,
    }


def identity(record: RankRecord) -> dict[str, str | int | float | None]:
    """Return the attributes that every span has: which run, attempt and rank it is of."""
    return {
        "costlens.run.id": record.run.id,
        "costlens.attempt": record.attempt.number,
        "costlens.rank": record.rank.rank,
    }


def _cost(record: RankRecord, paid_ns: int) -> dict[str, str | float]:
    charge = charge_rank(record)
    if charge is None:
        return {}
    return {
        "costlens.cost": float(charge.until(paid_ns)),
        "costlens.cost.currency": charge.currency,
    }
