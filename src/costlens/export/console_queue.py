"""The part of the console report on the scheduler's job and its wait in the queue."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from costlens.core.job_records import JobPart
from costlens.core.run_record import RunRecord
from costlens.export.console_layout import Renderable, Row, join, lay_out, plural
from costlens.export.figures import show_duration

__all__ = ["describe_queue"]


def describe_queue(record: RunRecord) -> Iterable[Renderable]:
    """Yield the job that a run is, and how long it waited before its allocations began."""
    queue = record.queue
    job = next((rank.job for rank in record.ranks if rank.job is not None), None)
    rows: list[Row] = []
    if job is not None:
        rows.append(("job", _describe_job(job)))
    if queue.wait_s is not None:
        deferral_s = queue.deferral_s
        rows.append(
            (
                "waited",
                join(
                    f"{show_duration(queue.wait_s)} for resources",
                    f"{show_duration(deferral_s)} deferred before" if deferral_s else None,
                    plural(queue.num_waits, "allocation") if queue.num_waits > 1 else None,
                ),
            )
        )
    if queue.unknown is not None:
        rows.append(("unknown", Text(queue.unknown, "dim")))
    if rows:
        yield lay_out(rows)


def _describe_job(job: JobPart) -> str:
    restarts = f"started again {plural(job.restart_count, 'time')}" if job.restart_count else None
    place = join(job.provider, job.region, job.instance_type, job.capacity_type)
    return join(
        f"{job.scheduler} {job.job_id or job.pod or ''}".strip(),
        f"task {job.task}" if job.task else None,
        f"queue {job.queue}" if job.queue else None,
        f"namespace {job.namespace}" if job.namespace else None,
        restarts,
        place or None,
    )
