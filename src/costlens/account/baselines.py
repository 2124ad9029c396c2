"""A saved baseline: what a run is compared by, as a file that outlives the run's folder."""

from __future__ import annotations

import json

from pydantic import ValidationError

from costlens.account.documents import encode_document
from costlens.core.comparison_records import BASELINE_SCHEMA, RunSummary
from costlens.errors import RecordError

__all__ = ["MAX_BASELINE_BYTES", "parse_baseline", "write_baseline"]

MAX_BASELINE_BYTES = 1024 * 1024
_HOW = "costlens compare RUN --save-baseline FILE makes one"
_MAX_SHOWN = 60
_MAX_REASON = 120


def write_baseline(run: RunSummary) -> bytes:
    """Return the content of the file."""
    return run.model_dump_json(indent=2, exclude_none=True).encode() + b"\n"


def parse_baseline(data: bytes, place: str) -> RunSummary:
    """Return what a saved baseline holds.

    Args:
        data: The file.
        place: Where it is, for messages.

    Raises:
        RecordError: If it is no baseline, or one that this costlens does not read.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{place} is not JSON: {str(error)[:_MAX_REASON]}; {_HOW}") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != BASELINE_SCHEMA:
        raise RecordError(
            f"{place} is no saved baseline: its schema_version is {repr(version)[:_MAX_SHOWN]}, "
            f"and this costlens reads {BASELINE_SCHEMA!r}; {_HOW}"
        )
    try:
        return RunSummary.model_validate_json(encode_document(document), strict=True)
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise RecordError(f"{place} is a broken baseline: {field} is missing or wrong") from error
    except ValueError as error:
        raise RecordError(f"{place} is a broken baseline: {error}") from error
