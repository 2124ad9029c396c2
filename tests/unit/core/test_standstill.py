"""A process that stood still is told from one that was busy or was woken in time."""

from __future__ import annotations

import pytest

from costlens.core.clock import NS_PER_S
from costlens.core.standstill import Standstill


def sleep(*, meant_s: float, slept_s: float, used_s: float) -> float:
    """Return the seconds of standstill that one sleep shows."""
    now, cpu = [0], [0]
    standstill = Standstill(lambda: now[0], lambda: cpu[0])
    standstill.sleep()
    now[0] += round(slept_s * NS_PER_S)
    cpu[0] += round(used_s * NS_PER_S)
    standstill.wake(meant_s)
    return standstill.total_ns / NS_PER_S


def test_a_stopped_process_wakes_late_and_has_done_nothing() -> None:
    """C011: a sleep of a second that takes a minute, without any work of any thread."""
    assert sleep(meant_s=1.0, slept_s=60.0, used_s=0.01) == pytest.approx(59.0)


@pytest.mark.parametrize(
    ("meant_s", "slept_s", "used_s"),
    [(1.0, 60.0, 55.0), (1.0, 1.3, 0.0), (1.0, 0.2, 0.0)],
    ids=["busy", "nearly in time", "woken"],
)
def test_anything_else_is_none(meant_s: float, slept_s: float, used_s: float) -> None:
    """A thread that held the lock and worked, a late timer, and a wake before time."""
    assert sleep(meant_s=meant_s, slept_s=slept_s, used_s=used_s) == 0.0


def test_work_before_the_stop_is_no_work_during_it() -> None:
    """Eight threads that work as ever until they are all stopped, in the midst of a short sleep."""
    now, cpu = [0], [0]
    standstill = Standstill(lambda: now[0], lambda: cpu[0])
    for slept_s in (0.25, 1.25):
        standstill.sleep()
        now[0] += round(slept_s * NS_PER_S)
        cpu[0] += 8 * NS_PER_S // 4
        standstill.wake(0.25)
    assert standstill.total_ns == NS_PER_S


def test_stops_add_up() -> None:
    """Two stops of a run are both in the sum."""
    now = [0]
    standstill = Standstill(lambda: now[0], lambda: 0)
    for _ in range(2):
        standstill.sleep()
        now[0] += 11 * NS_PER_S
        standstill.wake(1.0)
    assert standstill.total_ns == 20 * NS_PER_S
