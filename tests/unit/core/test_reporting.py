"""Which ranks report, told from the versions of their records alone."""

from __future__ import annotations

from costlens.core.clock import NS_PER_S
from costlens.core.reporting import Reporting, ReportingWatch

PATIENCE_S = 60.0


def at(seconds: float) -> int:
    """Return a monotonic time."""
    return int(seconds * NS_PER_S)


def test_ranks_report_while_their_records_change() -> None:
    """One that stays as it is for longer than patience is missing; the next change helps."""
    watch = ReportingWatch(3, at(0), PATIENCE_S)
    for second in range(0, 100, 10):
        versions = dict.fromkeys(range(3), f"{second}")
        if second >= 30:
            versions[1] = "20"
        seen = watch.judge(versions, at(second))
        if second <= 80:
            assert seen == Reporting(3, (), ())
    assert seen == Reporting(2, (1,), (1,))
    assert watch.judge({0: "a", 1: "b", 2: "c"}, at(100)) == Reporting(3, (), ())


def test_a_rank_that_never_came_is_missing_after_patience() -> None:
    """Until then it does not report, and is not missed; nothing of it can be read."""
    watch = ReportingWatch(2, at(1000), PATIENCE_S)
    assert watch.judge({0: "a"}, at(1060)) == Reporting(1, (), ())
    assert watch.judge({0: "b"}, at(1061)) == Reporting(1, (1,), ())
    assert watch.judge({0: "c", 1: "a"}, at(1070)) == Reporting(2, (), ())


def test_a_rank_that_ended_by_its_own_word_is_not_missed() -> None:
    """As long as its record is the one that said so."""
    watch = ReportingWatch(2, at(0), PATIENCE_S)
    watch.judge({0: "a", 1: "end"}, at(0))
    assert watch.judge({0: "b", 1: "end"}, at(70)).silent == (1,)
    watch.note_ended([1])
    assert watch.judge({0: "c", 1: "end"}, at(80)) == Reporting(2, (), ())
    watch.judge({0: "d", 1: "a second fit"}, at(90))
    assert watch.judge({0: "e", 1: "a second fit"}, at(160)).missing == (1,)
