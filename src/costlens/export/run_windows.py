"""The windows of a rank in one attempt: those in closed segments, and the newest in its record."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from costlens.core.records import RankRecord, WindowPart
from costlens.storage.run_folder import RunFolder

__all__ = ["read_windows"]


def read_windows(folder: RunFolder, record: RankRecord) -> Iterator[WindowPart]:
    """Yield the windows in the order of time, each once; one segment is held at a time.

    A line that is no window is left out: a disk may have lost its end.

    Args:
        folder: The run's folder.
        record: The rank's record of the attempt.

    Raises:
        StorageError: While iterating, if the segments cannot be read.
    """
    newest = -1
    for line in folder.read_segments(record.attempt.number, record.rank.rank):
        try:
            window = WindowPart.model_validate_json(line)
        except ValidationError:
            continue
        if window.index > newest:
            newest = window.index
            yield window
    yield from (window for window in record.windows if window.index > newest)
