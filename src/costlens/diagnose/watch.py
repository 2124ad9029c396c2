"""Findings of one rank while it runs: over the newest stretch, once they have lasted.

Looks once a window at the difference between the newest record and one some windows earlier. A
finding opens when it was found several windows in a row and closes when it has been gone for
longer than the stretch, so that nothing flaps. Pure but for what it remembers, and that is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from costlens.core.clock import NS_PER_S
from costlens.core.records import RankRecord
from costlens.diagnose.causes import find_cause
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.finding import Abstention, Finding, Rule
from costlens.diagnose.judge import MIN_ITERATIONS, judge
from costlens.diagnose.rules import RULES

__all__ = ["Change", "FindingWatch", "Standing"]

MAX_RECORDS = 7
"""Records held: the stretch has six windows where steps are fast enough, and more where not."""

OPENS_AFTER = 3
"""Windows in a row in which a cause must be found to be told."""

CLOSES_AFTER = MAX_RECORDS + 1
"""Windows in a row in which it must not be found to be over: a long validation, which makes any
share of the time smaller, has left the stretch before that."""

MAX_STANDING = 16

_STANDS = "no step has ended in the newest window"


@dataclass(slots=True)
class Standing:
    """A finding and its history in this attempt.

    Args:
        finding: As it was found last.
        since_time: Unix time from which on it was found without a break.
        lost_s: Paid seconds that it has cost so far, where it is a loss.
        num_found: Windows in a row in which it was found.
        num_gone: Windows in a row in which it was not.
        is_open: Whether it is told.
        has_opened: Whether it ever was.
    """

    finding: Finding
    since_time: float
    lost_s: float = 0.0
    num_found: int = 0
    num_gone: int = 0
    is_open: bool = False
    has_opened: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """What a look has changed."""

    opened: tuple[Standing, ...] = ()
    closed: tuple[Standing, ...] = ()


@dataclass(slots=True)
class FindingWatch:
    """Watches one rank; pipeline thread, under 1 ms a window.

    Args:
        rules: The rules to ask.

    Attributes:
        abstentions: What the rules could not tell at the last look.
        unjudged: Why nothing was judged at the last look; None where it was.
    """

    rules: Sequence[Rule] = RULES
    abstentions: tuple[Abstention, ...] = ()
    unjudged: str | None = None
    _records: list[RankRecord] = field(default_factory=list)
    _seen_ns: int = 0
    _standing: dict[str, Standing] = field(default_factory=dict)

    @property
    def standing(self) -> list[Standing]:
        """Return what is or was told in this attempt, the newest opened last."""
        return [each for each in self._standing.values() if each.has_opened]

    def look(self, record: RankRecord) -> Change:
        """Take the record at the end of a window, and return what opens and what closes with it."""
        last = self._records[-1] if self._records else None
        if last is not None and not _continues(last, record):
            self._records.clear()
            self._standing.clear()
            last = None
        change = Change()
        if last is None:
            self.unjudged = "still starting"
        else:
            moved = Evidence(record, last)
            judgement = judge(Evidence(record, self._records[0]), self._choose(moved))
            self.abstentions = judgement.abstentions
            self.unjudged = judgement.unjudged if moved.num_iterations else _STANDS
            window_s = (record.total_ns - self._seen_ns) / NS_PER_S
            change = self._compare(judgement.findings, record, window_s)
        self._seen_ns = record.total_ns
        if last is None or record.iteration_time.count > last.iteration_time.count:
            self._keep(record, last)
        return change

    def _choose(self, moved: Evidence) -> Sequence[Rule]:
        # While it evaluates, saves or is in one long step, nothing new is known of steps.
        if moved.num_iterations:
            return self.rules
        return [rule for rule in self.rules if not rule.needs_steps]

    def _compare(self, findings: Sequence[Finding], record: RankRecord, window_s: float) -> Change:
        names = {finding.name for finding in findings}
        opened: list[Standing] = []
        for finding in findings:
            each = self._standing.get(finding.name)
            if each is None:
                if len(self._standing) >= MAX_STANDING and not self._forget():
                    continue
                each = Standing(finding, record.attempt.heartbeat_time - window_s)
                self._standing[finding.name] = each
            elif not each.is_open and each.num_found == 0:
                each.since_time = record.attempt.heartbeat_time - window_s
            each.finding = finding
            each.num_found, each.num_gone = each.num_found + 1, 0
            each.lost_s += (finding.saved_share or 0.0) * window_s
            if not each.is_open and each.num_found >= OPENS_AFTER:
                each.is_open = each.has_opened = True
                opened.append(each)
        # What could not be judged is neither there nor gone.
        closed = [] if self.unjudged is not None else self._let_go(names)
        return Change(tuple(opened), tuple(closed))

    def _let_go(self, names: set[str]) -> list[Standing]:
        families = {find_cause(name).family for name in names} - {None}
        closed = []
        for name, each in [*self._standing.items()]:
            if name in names:
                continue
            each.num_found, each.num_gone = 0, each.num_gone + 1
            if not each.has_opened:
                del self._standing[name]
                continue
            # The same loss under another name: more is known of it now.
            is_renamed = find_cause(name).family in families
            if each.is_open and (is_renamed or each.num_gone >= CLOSES_AFTER):
                each.is_open = False
                closed.append(each)
        return closed

    def _forget(self) -> bool:
        over = next((name for name, each in self._standing.items() if not each.is_open), None)
        if over is not None:
            del self._standing[over]
        return over is not None

    def _keep(self, record: RankRecord, last: RankRecord | None) -> None:
        if record.iteration_time.count == 0:
            return  # start-up is not judged
        if last is not None and (record.stopped_s or 0.0) > (last.stopped_s or 0.0):
            # What the process waited for while it stood still is no cause: look from here on.
            self._records.clear()
        self._records.append(record)
        if len(self._records) <= MAX_RECORDS:
            return
        if Evidence(record, self._records[1]).num_iterations >= MIN_ITERATIONS:
            del self._records[0]
        else:
            # Slow steps: a longer stretch instead, of records that are further apart.
            del self._records[1:-1:2]


def _continues(last: RankRecord, record: RankRecord) -> bool:
    return (
        record.attempt.number == last.attempt.number
        and record.run.id == last.run.id
        and record.total_ns >= last.total_ns
        and record.iteration_time.count >= last.iteration_time.count
    )
