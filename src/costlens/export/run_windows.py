"""The windows of a rank in one attempt: those in closed segments, and the newest in its record."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import ValidationError

from costlens.core.records import RankRecord
from costlens.core.training_records import WindowPart
from costlens.storage.run_folder import RunFolder

__all__ = ["is_sound", "read_windows"]

_YEAR_10000 = 253_402_300_800.0
_MOST = 10**18  # nanoseconds of thirty years, and more tokens than anybody counts in ten seconds
_MOST_S = 1e12


def read_windows(folder: RunFolder, record: RankRecord) -> Iterator[WindowPart]:
    """Yield the windows in the order of time, each once; one segment is held at a time.

    A line that is no window, or an impossible one, is left out: a disk may have lost its end.

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
        if is_sound(window) and window.index > newest:
            newest = window.index
            yield window
    yield from (each for each in record.windows if each.index > newest and is_sound(each))


def is_sound(window: WindowPart) -> bool:
    """Return whether a window can be worked with: a file may hold anything."""
    times = (window.start_time, window.end_time)
    seconds = (window.iteration_mean_s or 0.0, window.iteration_max_s or 0.0)
    sums = [*window.phase_ns.values(), *window.counts.values()]
    return (
        0 <= times[0] <= times[1] < _YEAR_10000
        and all(0 <= value < _MOST_S for value in seconds)
        and all(0 <= value < _MOST for value in sums)
        and 0 <= window.num_iterations < _MOST
        and 0 <= window.index < _MOST
    )
