"""When a training thread counts as stalled, to the second."""

from __future__ import annotations

import pytest

from costlens.core.clock import NS_PER_S
from costlens.core.phases import ITERATION_PHASES, NUM_PHASES, Phase
from costlens.core.stall import StallWatch, Verdict
from costlens.core.timeline import TimelineReading


class Looks:
    """A watch that looks once a second, as the pipeline does."""

    def __init__(self, median_iteration_s: float | None = None) -> None:
        self.now_s = 0.0
        self.watch = StallWatch(0)
        self.median_iteration_s = median_iteration_s
        self.told: list[tuple[float, str, bool]] = []

    def look(self, phase: Phase, since_s: float) -> Verdict | None:
        """Look now at a phase that was entered at ``since_s``."""
        reading = TimelineReading((0,) * NUM_PHASES, phase, round(since_s * NS_PER_S))
        verdict = self.watch.judge(reading, round(self.now_s * NS_PER_S), self._median_ns)
        if verdict is not None:
            self.told.append((self.now_s, Phase(verdict.stall.phase).name, verdict.is_over))
        return verdict

    def stay(self, phase: Phase, seconds: int) -> None:
        """Let a phase begin now and nothing move for so long."""
        since_s = self.now_s
        for _ in range(seconds):
            self.now_s += 1
            self.look(phase, since_s)

    def _median_ns(self) -> float | None:
        return None if self.median_iteration_s is None else self.median_iteration_s * NS_PER_S


@pytest.mark.parametrize("phase", ITERATION_PHASES)
@pytest.mark.parametrize(
    ("median_s", "limit_s"), [(None, 60), (0.2, 60), (6, 60), (7, 70), (30, 300)]
)
def test_a_step_stalls_after_a_minute_or_ten_of_its_medians(phase, median_s, limit_s) -> None:
    """Whatever the phase within a step, it is the median step that counts."""
    looks = Looks(median_s)
    looks.stay(phase, limit_s - 1)
    assert looks.told == []
    looks.stay(Phase.OTHER, 1)  # moves: what was before is forgotten
    looks.stay(phase, limit_s)
    assert looks.told == [(2 * limit_s, phase.name, False)]


def test_a_stall_is_told_again_at_twice_its_length_and_once_when_it_is_over() -> None:
    """A night without progress is a dozen lines, not thirty thousand."""
    looks = Looks()
    looks.stay(Phase.DATA_WAIT, 500)
    looks.stay(Phase.COMPUTE, 30)
    assert looks.told == [
        (60, "DATA_WAIT", False),
        (120, "DATA_WAIT", False),
        (240, "DATA_WAIT", False),
        (480, "DATA_WAIT", False),
        (501, "DATA_WAIT", True),
    ]
    assert looks.watch.stall is None


def test_a_stall_knows_since_when_and_how_long() -> None:
    """The record shows the stall as it stands at the newest look."""
    looks = Looks()
    looks.now_s = 100
    looks.stay(Phase.BACKWARD, 75)
    stall = looks.watch.stall
    assert stall is not None
    assert (stall.since_ns, stall.age_ns, stall.limit_ns) == tuple(
        seconds * NS_PER_S for seconds in (100, 75, 60)
    )


@pytest.mark.parametrize("phase", [Phase.VALIDATION, Phase.CHECKPOINT, Phase.IDLE, Phase.RESTORE])
def test_phases_outside_of_steps_are_judged_against_themselves(phase) -> None:
    """The first may take ten minutes; later ones ten times what they usually take."""
    looks = Looks(median_iteration_s=0.1)
    looks.stay(phase, 599)
    assert looks.told == []
    for _ in range(3):
        looks.stay(Phase.COMPUTE, 1)
        looks.stay(phase, 30)
    looks.stay(Phase.COMPUTE, 1)
    begun_s = looks.now_s
    looks.stay(phase, 400)  # the median of 599, 30, 30, 30
    assert looks.told == [(begun_s + 300, phase.name, False)]


def test_a_validation_that_moves_with_every_batch_stalls_after_a_minute() -> None:
    """Batches are signs of life, so it is the batch that usually takes a moment."""
    looks = Looks()
    for _ in range(10):
        looks.stay(Phase.VALIDATION, 1)
    begun_s = looks.now_s
    looks.stay(Phase.VALIDATION, 60)
    assert looks.told == [(begun_s + 60, "VALIDATION", False)]


def test_start_up_may_take_half_an_hour() -> None:
    """Compiling and loading take long, and come once; what was before the run does not count."""
    looks = Looks(median_iteration_s=0.1)
    looks.now_s = 5000
    looks.watch = StallWatch(5000 * NS_PER_S)
    for _ in range(1799):
        looks.now_s += 1
        looks.look(Phase.STARTUP, 0)
    assert looks.told == []
    looks.now_s += 1
    verdict = looks.look(Phase.STARTUP, 0)
    assert verdict is not None
    assert verdict.stall.since_ns == 5000 * NS_PER_S


def test_a_process_that_stood_still_has_not_stalled() -> None:
    """SIGSTOP, a frozen machine: nobody could move between two looks an hour apart."""
    looks = Looks()
    looks.stay(Phase.COMPUTE, 50)
    looks.now_s += 3600
    looks.look(Phase.COMPUTE, 0)  # 5 s of the hour count
    assert looks.told == []
    for _ in range(5):
        looks.now_s += 1
        looks.look(Phase.COMPUTE, 0)
    assert [told[0] for told in looks.told] == [3655]
    assert looks.watch.stall is not None
    assert looks.watch.stall.age_ns == 3655 * NS_PER_S


def test_a_slow_looker_finds_a_stall_late_but_finds_it() -> None:
    """Where a store holds the pipeline up for 20 s every time, 12 looks are enough."""
    looks = Looks()
    looks.look(Phase.COMPUTE, 0)
    for _ in range(12):
        assert looks.told == []
        looks.now_s += 20
        looks.look(Phase.COMPUTE, 0)
    assert len(looks.told) == 1


def test_the_median_is_asked_for_only_in_doubt() -> None:
    """While all is well a look sorts nothing."""
    watch = StallWatch(0)
    reading = TimelineReading((0,) * NUM_PHASES, Phase.COMPUTE, 0)
    for second in range(60):
        assert watch.judge(reading, second * NS_PER_S, pytest.fail) is None
