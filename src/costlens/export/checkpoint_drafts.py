"""Drafts of the spans of a save: a trace of its own, linked to the run's marker.

The root lasts from the snapshot until the checkpoint is durable, or the save has failed; under it
are the stall that training paid and the write that went on beside it.
"""

from __future__ import annotations

from collections.abc import Iterator

from costlens.core.checkpoint_records import SaveNote
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.records import RankRecord
from costlens.export import otel_ids
from costlens.export.otel_drafts import AttributeValues, Draft, Links, identity
from costlens.export.otel_ids import run_key

__all__ = ["save_draft", "save_parts"]


def save_draft(record: RankRecord, note: SaveNote, anchor: Anchor, links: Links) -> Draft:
    """Return the root of a save's trace."""
    interval = None if record.checkpoints is None else record.checkpoints.interval
    attributes: AttributeValues = {
        **identity(record),
        "costlens.checkpoint.name": note.name,
        "costlens.checkpoint.kind": note.kind,
        "costlens.checkpoint.size": note.num_bytes,
        "costlens.checkpoint.stall.time": note.stall_ns / NS_PER_S,
        "costlens.checkpoint.write.time": note.write_ns / NS_PER_S,
        "costlens.step.current": note.step,
        "costlens.checkpoint.interval": None if interval is None else interval.interval_s,
        "costlens.checkpoint.rail": None if interval is None else interval.rail,
        "costlens.checkpoint.worst_loss": None if interval is None else interval.worst_loss_s,
        "error.type": note.error_type,
    }
    start_ns = anchor.to_wall_ns(note.start_ns)
    return Draft(
        "costlens.checkpoint",
        _ids(record, note, "root"),
        start_ns,
        start_ns + note.stall_ns + note.write_ns,
        attributes,
        links=links,
        error=note.error_type,
    )


def save_parts(record: RankRecord, root: Draft, note: SaveNote) -> Iterator[Draft]:
    """Yield the stall and the write; the caller sets their parent."""
    middle_ns = root.start_ns + note.stall_ns
    for part, start_ns, end_ns in (
        ("stall", root.start_ns, middle_ns),
        ("write", middle_ns, root.end_ns),
    ):
        name = f"costlens.checkpoint.{part}"
        yield Draft(name, _ids(record, note, part), start_ns, end_ns, identity(record))


def _ids(record: RankRecord, note: SaveNote, part: str) -> otel_ids.Ids:
    run_id, _ = run_key(record)
    return otel_ids.checkpoint_ids(run_id, note.name, f"{record.rank.rank}/{part}")
