"""Who started this process, in which job, and do their variables agree?"""

from __future__ import annotations

from collections.abc import Iterator

from costlens.cli.doctor.answer import Answer, ok, skipped, warning

__all__ = ["check_scheduler"]

_MAX_SHOWN = 6


def check_scheduler() -> Iterator[Answer]:
    """Yield where a run would take itself to be, and what contradicts that."""
    from costlens.observe.placement import detect_placement
    from costlens.observe.placement.contradictions import find_contradictions, seen_variables

    seen = seen_variables()
    placement = detect_placement()
    facts = {
        "launcher": placement.launcher,
        "rank": placement.rank,
        "world_size": placement.world_size,
        "local_world_size": placement.local_world_size,
        "scheduler": None if placement.job is None else placement.job.scheduler,
        "job_id": placement.job_id,
        "variables": seen,
    }
    if not seen and placement.job is None:
        yield skipped("no launcher and no scheduler: a single process", None, facts)
        return
    job = "no scheduler" if placement.job is None else f"{placement.job.scheduler}'s job"
    if placement.job_id is not None:
        job += f" {placement.job_id}"
    launcher = "no launcher" if placement.launcher == "none" else placement.launcher
    ranks = f"rank {placement.rank} of {placement.world_size}"
    more = f" and {len(seen) - _MAX_SHOWN} more" if len(seen) > _MAX_SHOWN else ""
    named = f"; from {', '.join(seen[:_MAX_SHOWN])}{more}" if seen else ""
    yield ok(f"{launcher}, {ranks}, {job}{named}", facts)
    for told, fix in find_contradictions():
        yield warning(told, fix)
