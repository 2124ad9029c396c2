"""memory_creep: memory in use grows with every iteration, and will not last for long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from costlens.diagnose.finding import Rule, Severity, Verdict
from costlens.diagnose.measures import reach
from costlens.diagnose.wording import danger, gibibytes

if TYPE_CHECKING:
    from costlens.core.records import RankRecord
    from costlens.diagnose.evidence import Evidence

__all__ = ["RULE"]

_Reader = Callable[["RankRecord"], "float | None"]

_NAME = "memory_creep"

# Growth that lasts for longer than this is another day's question.
_SOON_S = 4 * 3600.0

# Caches fill while a training gets going; what grows by less than this is among them.
_MIN_BYTES = 64 * 2**20

# A stretch of the usual windows; within less, workers and caches come and go.
_LEAST_S = 50.0


def _judge(evidence: Evidence) -> Verdict:
    """Find memory that at the pace of the evidence is used up within four hours.

    Needs an earlier record: one alone tells what is used, not what it is growing to.
    """
    if evidence.before is None or evidence.total_s < _LEAST_S:
        return None
    lines = [
        line
        for line in (
            _judge_growth(evidence, "the host's memory", _host_bytes, _host_left),
            _judge_growth(evidence, "the device's memory", _device_bytes, _device_left),
        )
        if line is not None
    ]
    if not lines:
        return None
    return danger(
        _NAME,
        Severity.WARNING,
        lines,
        [
            "Keep numbers, not tensors: losses.append(loss.detach().item()) holds no graph",
            "Empty what collects outputs over an epoch (validation_step_outputs, metric lists)",
            "Data sets of Python objects grow in forked workers: use arrays or tensors",
        ],
    )


def _judge_growth(evidence: Evidence, what: str, used: _Reader, left: _Reader) -> str | None:
    if evidence.before is None:
        return None
    before, now = used(evidence.before), used(evidence.now)
    if before is None or now is None or now - before < _MIN_BYTES:
        return None
    free = left(evidence.now)
    if free is None:
        return None
    per_s = (now - before) / evidence.total_s
    if free / per_s > _SOON_S:
        return None
    return (
        f"{what} grew by {gibibytes(now - before)} in {evidence.total_s:.0f} s; "
        f"{gibibytes(free)} are left, for {free / per_s / 60:.0f} min"
    )


def _host_bytes(record: RankRecord) -> float | None:
    own = reach(record, "host", "process", "memory_bytes")
    workers = reach(record, "host", "loader", "memory_bytes")
    return None if own is None else own + (workers or 0.0)


def _host_left(record: RankRecord) -> float | None:
    for where in ("container", "node"):
        left = reach(record, "host", where, "memory_available_bytes")
        if left is not None:
            return left / record.rank.local_world_size
    return None


def _device_bytes(record: RankRecord) -> float | None:
    return reach(record, "allocator", "peak_allocated_bytes")


def _device_left(record: RankRecord) -> float | None:
    total = reach(record.gpus[0], "memory_total_bytes") if record.gpus else None
    peak = _device_bytes(record)
    return None if total is None or peak is None else max(0.0, total - peak)


RULE = Rule(_NAME, _judge)
