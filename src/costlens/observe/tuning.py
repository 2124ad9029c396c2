"""Reads what somebody asks of the running run, once a window, and tells when something changes.

A stage of the pipeline: ``costlens tune`` writes the control file, ``core/detail.py`` says what it
means, and the windows that follow keep iterations accordingly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone

from costlens.core.attempt_state import AttemptState
from costlens.core.detail import Control, parse_control
from costlens.core.telemetry_records import Detail, DetailPart
from costlens.core.window import Totals
from costlens.errors import StorageError
from costlens.storage.run_folder import MAX_CONTROL_BYTES, RunFolder

__all__ = ["Tuning"]

_EFFECTS = {
    Detail.OFF: "iterations get no spans",
    Detail.NORMAL: "iterations get spans as the settings ask",
    Detail.STEPS: "every iteration gets a span, as far as the hourly limit goes",
}


class Tuning:
    """Follows the control file of a run, on the pipeline thread; a small read a window.

    What cannot be read or understood changes nothing: what was asked before goes on until it ends.

    Args:
        state: Gets the detail in force, for the record; knows the rank and the log.
        totals: Keeps more or less from the next window on.
        wall_clock: Unix seconds by this host's own clock, against which an end is compared.

    Attributes:
        num_failures: Times that the file could not be read or understood.
    """

    def __init__(
        self, state: AttemptState, totals: Totals, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._state = state
        self._totals = totals
        self._wall_clock = wall_clock
        self._control: Control | None = None
        self._told: set[str] = set()
        self.num_failures = 0

    def look(self, folder: RunFolder) -> None:
        """Read what is asked, and follow it from the next window on."""
        try:
            data = folder.read_control()
            self._control = None if data is None else parse_control(data, MAX_CONTROL_BYTES)
        except StorageError as error:
            self._note_failure("unreadable", f"control.json: {error}")
        except ValueError as error:
            self._note_failure("refused", f"control.json cannot be understood: {error}")
        self._follow()

    def _follow(self) -> None:
        control, before, now = self._control, self._state.detail, self._wall_clock()
        detail = Detail.NORMAL
        if control is not None:
            detail = control.detail_of(self._state.rank.rank, now)
        until = None if control is None or detail is Detail.NORMAL else control.until
        part = DetailPart(name=detail, until=until)
        if part == before:
            return
        self._state.detail = part
        self._totals.tune(detail)
        is_over = detail is Detail.NORMAL and before.until is not None and now >= before.until
        ends = {} if until is None else {"until": until}
        end = "" if until is None else f", until {_show(until)}"
        self._state.log.info(
            "costlens.detail",
            detail=detail.value,
            reason="over" if is_over else "asked",
            **ends,
            message=f"{_EFFECTS[detail]}{end}",
        )

    def _note_failure(self, kind: str, what: str) -> None:
        self.num_failures += 1
        if kind not in self._told:
            self._told.add(kind)
            self._state.log.warning(
                "costlens.control.failed",
                reason=kind,
                message=f"{what}; what was asked before goes on, and training with it",
            )


def _show(unix_s: float) -> str:
    return f"{datetime.fromtimestamp(unix_s, tz=timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
