"""The sections on good practice and on how watching itself fared. Pure."""

from __future__ import annotations

from costlens.core.run_record import RunRecord
from costlens.core.telemetry_records import ExportHealth
from costlens.export.figures import show_count, show_duration, show_share
from costlens.export.page.parts import Cell, Figure, Section, Table, Tone, known

__all__ = ["describe_practice", "describe_watching"]

# Words, the field of the record, and whether it counts what was lost.
_COUNTS = {
    "windows closed": ("num_windows", False),
    "iterations not recorded in detail": ("rows_dropped", True),
    "spans dropped": ("spans_dropped", True),
    "quality names dropped": ("quality_dropped", True),
    "device values dropped": ("values_dropped", True),
    "record writes failed": ("record_failures", True),
    "iterations without device time": ("iterations_unresolved", False),
    "requests not read": ("control_failures", True),
}

_TONES: dict[str, Tone] = {"pass": "good", "fail": "bad", "unknown": "muted"}
_MARKS = {"pass": "✓ pass", "fail": "✗ fail", "unknown": "? unknown"}


def describe_practice(record: RunRecord) -> Section:
    """Return the section on good practice: pass, fail or unknown, with why and what to do."""
    checks = record.practice
    rows: list[list[Cell]] = [
        [
            check.name.replace("_", " "),
            Figure(_MARKS[check.standing], tone=_TONES[check.standing]),
            Figure(check.why),
            Figure(check.remedy or ""),
        ]
        for check in checks
    ]
    counts = {standing: sum(c.standing == standing for c in checks) for standing in _MARKS}
    told = ", ".join(f"{count} {standing}" for standing, count in counts.items() if count)
    table = Table("Good practice", ("practice", "", "why", "what to do"), rows, is_open=True)
    lead = f"{told.capitalize()}." if told else "Nobody has looked."
    return Section("practice", "Good practice", lead=lead, tables=[table])


def describe_watching(record: RunRecord) -> Section:
    """Return the section on watching: what it took, sent and lost."""
    seen, total_s = record.telemetry, record.time_s.get("total", 0.0)
    share = f" ({show_share(seen.overhead_s / total_s)} of the time)" if total_s > 0 else ""
    rows: list[list[Cell]] = [
        [
            "CPU time of its own threads",
            known(
                f"{show_duration(seen.overhead_s)}{share}", seen.overhead_s, "telemetry.overhead_s"
            ),
        ]
    ]
    for words, (name, is_loss) in _COUNTS.items():
        count = getattr(seen, name)
        tone: Tone = "bad" if is_loss and count else ""
        rows.append([words, known(show_count(count), count, f"telemetry.{name}", tone)])
    rows += [[f"export of {name}", _health(health)] for name, health in seen.exports.items()]
    rows += [
        [
            f"own fault in {place}",
            known(show_count(count), count, f"telemetry.faults.{place}", "bad"),
        ]
        for place, count in seen.faults.items()
    ]
    lost = sum(getattr(seen, name) for name, is_loss in _COUNTS.values() if is_loss)
    lead = "Nothing was lost." if not lost and not seen.faults else "Something was lost or failed."
    notes = list(record.problems)
    return Section(
        "watching",
        "Watching",
        lead=lead,
        tables=[Table("Watching", ("", "value"), rows)],
        notes=notes,
    )


def _health(health: ExportHealth) -> Figure:
    told = [health.state, f"{show_count(health.exports_ok)} sent"]
    if health.exports_failed:
        told.append(f"{show_count(health.exports_failed)} failed")
    if health.items_dropped:
        told.append(f"{show_count(health.items_dropped)} items dropped")
    if health.last_error_type:
        told.append(health.last_error_type)
    is_bad = bool(health.exports_failed or health.items_dropped)
    return Figure(" · ".join(told), tone="bad" if is_bad else "")
