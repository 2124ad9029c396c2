"""Makes a merged record safe to print: the names in it come from users, files and other hosts.

The console report calls this once, before it lays anything out, so that no section has to think of
terminal escapes.
"""

from __future__ import annotations

from costlens.core.run_record import RunRecord
from costlens.export.figures import show_text

__all__ = ["make_printable"]


def make_printable(record: RunRecord) -> RunRecord:
    """Return the record with every text in it as it can be printed, keys included."""
    document = record.model_dump()
    shown = _show(document)
    # Seldom anything changes, and validating takes longer than looking.
    return record if shown == document else RunRecord.model_validate(shown)


def _show(value: object) -> object:
    if isinstance(value, str):
        return value if value.isprintable() else show_text(value)
    if isinstance(value, dict):
        return {_show(key): _show(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_show(inner) for inner in value]
    return value
