"""What a rank finds of itself while it runs, in its record, its log and, from there, its telemetry.

``assembly.py`` drives it on the pipeline thread, once a window; ``diagnose/`` judges.
"""

from __future__ import annotations

from dataclasses import replace

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S
from costlens.core.finding_records import FindingPart
from costlens.core.snapshot import Snapshot
from costlens.core.standstill import Standstill
from costlens.diagnose.causes import COMPUTE_BOUND, find_cause
from costlens.diagnose.watch import FindingWatch
from costlens.export.finding_parts import own_parts

__all__ = ["Findings"]


class Findings:
    """The findings of a rank; pipeline thread, under 1 ms a window.

    Args:
        state: The attempt of this rank, for its log.

    Attributes:
        standstill: Adds up how long the process stood still.
    """

    def __init__(self, state: AttemptState) -> None:
        self.standstill = Standstill()
        self._state = state
        self._watch = FindingWatch()

    def complete(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with findings in its record, and log which come and go."""
        stopped = {"stopped_s": self.standstill.total_ns / NS_PER_S}
        record = snapshot.record.model_copy(update=stopped)
        change = self._watch.look(record)
        parts = own_parts(self._watch.standing, record)
        by_name = {part.name: part for part in parts}
        for standing in change.opened:
            self._tell("costlens.finding.opened", by_name.get(standing.finding.name))
        for standing in change.closed:
            self._tell("costlens.finding.closed", by_name.get(standing.finding.name))
        return replace(snapshot, record=record.model_copy(update={"findings": parts}))

    def _tell(self, event: str, part: FindingPart | None) -> None:
        if part is None:
            return
        log = self._state.log
        title, is_new = find_cause(part.name).title, part.is_open
        tell = log.info
        if part.name == COMPUTE_BOUND:
            tell = log.debug  # all is well
        elif is_new and part.severity != "info":
            tell = log.error if part.severity == "critical" else log.warning
        remedy = f"; {part.remedies[0]}" if is_new and part.remedies else ""
        facts = {
            "finding": part.name,
            "severity": part.severity,
            "share": part.share,
            "money_per_hour": part.money_per_hour,
            "money_so_far": part.money_so_far,
            "currency": part.currency,
        }
        tell(
            event,
            **{name: value for name, value in facts.items() if value is not None},
            message=f"{title}{remedy}" if is_new else f"no longer: {title}",
        )
