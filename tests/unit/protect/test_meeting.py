"""Ranks that meet at the start and at the end, and what happens where one does not come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from costlens.errors import CheckpointError, StorageError
from costlens.protect.agreement import LocalBoard
from costlens.protect.meeting import Meeting
from costlens.testing import FakeClock


def join(answers: Sequence[str]) -> str:
    """Decide for what everybody said."""
    return "+".join(answers)


def meet(
    num: int, hold: Callable[[Meeting], object], *, patience_s: float = 30.0
) -> list[object | Exception]:
    """Return what each rank gets from a meeting, an exception where it raises."""
    board = LocalBoard()
    meetings = [Meeting(board, rank, num, patience_s=patience_s) for rank in range(num)]

    def attend(meeting: Meeting) -> object | Exception:
        try:
            return hold(meeting)
        except CheckpointError as error:
            return error

    with ThreadPoolExecutor(num) as pool:
        return [*pool.map(attend, meetings)]


def test_every_rank_learns_what_rank_0_decides() -> None:
    """Answers come in the order of the ranks, and meetings follow one another."""

    def twice(meeting: Meeting) -> tuple[str, str]:
        first = meeting.hold("one", f"r{meeting.rank}", join)
        return first, meeting.hold("two", f"s{meeting.rank}", join)

    assert meet(3, twice) == [("r0+r1+r2", "s0+s1+s2")] * 3


@pytest.mark.parametrize("kind", [CheckpointError, StorageError])
def test_what_rank_0_refuses_is_refused_on_all(kind: type[Exception]) -> None:
    """Its reason reaches every rank."""

    def refuse(_: Sequence[str]) -> str:
        raise kind("too old")

    found = meet(2, lambda meeting: meeting.hold("load", "", refuse))
    assert all(isinstance(each, CheckpointError) and "too old" in str(each) for each in found)


@pytest.mark.parametrize("refusing", [0, 1])
def test_a_rank_that_refuses_waits_for_nobody(refusing: int) -> None:
    """The others learn who and why, and none of them acts."""

    def hold(meeting: Meeting) -> str:
        if meeting.rank == refusing:
            meeting.refuse("load", "no memory")
            return "told"
        return meeting.hold("load", "", join)

    found = meet(3, hold)
    assert found.pop(refusing) == "told"
    assert all(f"rank {refusing}: no memory" in str(each) for each in found)


def test_a_rank_that_does_not_come_is_named() -> None:
    """Nobody waits for ever: after its patience every rank fails, and the message says for whom."""
    found = meet(
        3,
        lambda meeting: None if meeting.rank == 1 else meeting.hold("load", "", join),
        patience_s=0.2,
    )
    assert found.pop(1) is None
    for each in found:
        assert isinstance(each, CheckpointError)
        assert "rank 1 of 3 did not come within 0.2 s" in str(each)


def test_who_gives_up_first_does_so_for_all() -> None:
    """A decision that comes too late decides nothing, so that no rank acts alone."""
    board, clock = LocalBoard(), FakeClock()
    late, impatient = (
        Meeting(board, rank, 2, clock=clock, sleep=clock.advance, patience_s=5.0) for rank in (0, 1)
    )
    with pytest.raises(CheckpointError, match="rank 0 of 2 did not come within 5 s"):
        impatient.hold("end", "", join)
    with pytest.raises(CheckpointError, match="rank 0 of 2 did not come"):
        late.hold("end", "", join)


def test_ranks_that_meet_about_different_things_are_told() -> None:
    """One resumes while the other has ended: both fail, and neither waits for the other."""
    found = meet(2, lambda meeting: meeting.hold("load" if meeting.rank else "end", "", join))
    assert all(isinstance(each, CheckpointError) for each in found)
    assert "rank 1 is at 'load'" in str(found[0])


def test_a_board_out_of_reach_is_an_error_that_helps() -> None:
    """The process group's store has gone, mostly with rank 0."""

    class Broken(LocalBoard):
        def read(self, key: str) -> str | None:
            raise RuntimeError("connection reset")

    with pytest.raises(CheckpointError, match="is rank 0 alive"):
        Meeting(Broken(), 0, 1).hold("end", "", join)
