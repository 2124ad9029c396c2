"""Ranks that agree on a boundary without a collective."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.protect.agreement import Agreement, LocalBoard
from costlens.testing import FakeClock

NOBODY_COMES_S = 0.01


def make_ranks(num: int, *, patience_s: float = NOBODY_COMES_S) -> tuple[list[Agreement], object]:
    """Return agreements over one board, and their clock."""
    board, clock = LocalBoard(), FakeClock()
    return [Agreement(board, r, num, clock=clock, patience_s=patience_s) for r in range(num)], clock


def poll_all(ranks: list[Agreement], times: int = 3) -> None:
    """Let every pipeline thread look a few times."""
    for _ in range(times):
        for rank in ranks:
            rank.poll()


def test_all_ranks_act_at_the_same_boundary() -> None:
    """Three ranks at boundaries 7, 9 and 8: a proposal of rank 2 happens once, at one boundary."""
    ranks, _ = make_ranks(3)
    for rank, num in zip(ranks, (7, 9, 8), strict=True):
        assert [rank.reach_boundary() for _ in range(num)] == [None] * num
    ranks[2].propose("stop:budget")
    poll_all(ranks)
    acted = []
    for rank, num in zip(ranks, (7, 9, 8), strict=True):
        at = {num + n: rank.reach_boundary() for n in range(1, 20)}
        acted.append({boundary: action for boundary, action in at.items() if action})
    assert acted == [{11: "stop:budget"}] * 3, "two boundaries beyond the rank furthest on"
    assert not any(rank.is_pending("stop:budget") for rank in ranks)


def test_one_rank_acts_at_its_next_boundary() -> None:
    """Nobody else has to be heard."""
    (rank,), _ = make_ranks(1)
    rank.reach_boundary()
    rank.propose("save")
    assert rank.reach_boundary() is None, "nobody has looked yet"
    rank.poll()
    assert rank.reach_boundary() == "save"
    assert rank.reach_boundary() is None


def test_the_horizon_is_some_seconds_of_steps() -> None:
    """At ten boundaries a second ranks answer five seconds ahead, so that none has to wait."""
    ranks, clock = make_ranks(2)
    poll_all(ranks, 1)
    for rank in ranks:
        for _ in range(10):
            rank.reach_boundary()
    clock.advance(1.0)
    ranks[0].propose("save")
    for rank in ranks:
        rank.poll()
    poll_all(ranks)
    assert [[r.reach_boundary() for _ in range(50)].index("save") for r in ranks] == [49, 49]


def test_two_looks_at_once_do_not_make_the_horizon_longer() -> None:
    """A step between two looks a millisecond apart is no thousand steps a second."""
    ranks, clock = make_ranks(2)
    for _ in range(20):
        for rank in ranks:
            rank.reach_boundary()
        clock.advance(0.1)
        poll_all(ranks, 1)
    for rank in ranks:
        rank.reach_boundary()
    clock.advance(0.001)
    ranks[0].propose("save")
    poll_all(ranks)
    at = [[r.reach_boundary() for _ in range(100)].index("save") + 1 for r in ranks]
    assert at == [pytest.approx(50, abs=5)] * 2


def test_rounds_follow_one_another() -> None:
    """What is proposed while a round lasts happens in the next, and the same wish only once."""
    ranks, _ = make_ranks(2)
    for rank in ranks:
        rank.propose("save")
    poll_all(ranks)
    ranks[0].propose("stop")
    poll_all(ranks)
    seen: list[list[str]] = [[], []]
    for _ in range(12):
        for rank, actions in zip(ranks, seen, strict=True):
            actions.extend(filter(None, [rank.reach_boundary()]))
        poll_all(ranks)
    assert seen == [["save", "stop"]] * 2


def test_a_rank_waits_at_its_boundary_for_a_late_decision() -> None:
    """It has answered and must not run past: the decision wakes it."""
    ranks, _ = make_ranks(2, patience_s=20.0)
    ranks[0].propose("save")
    ranks[0].poll()
    seen: list[str | None] = []
    training = threading.Thread(target=lambda: seen.extend(ranks[0].reach_boundary() for _ in "ab"))
    training.start()
    training.join(0.1)
    assert training.is_alive(), "rank 1 has not answered"
    assert seen == [None]
    poll_all(ranks)
    training.join(10.0)
    assert not training.is_alive()
    assert seen == [None, "save"]
    assert [ranks[1].reach_boundary() for _ in "ab"] == [None, "save"]


def test_a_silent_rank_calls_the_round_off_for_all() -> None:
    """Nobody waits for ever, nobody acts alone, and the next round works again."""
    ranks, _ = make_ranks(2)
    ranks[0].propose("save")
    ranks[0].poll()
    assert [ranks[0].reach_boundary() for _ in range(4)] == [None] * 4
    poll_all(ranks)
    assert [ranks[1].reach_boundary() for _ in range(4)] == [None] * 4
    ranks[0].propose("save")
    poll_all(ranks)
    assert [[r.reach_boundary() for _ in range(4)].index("save") for r in ranks] == [1, 1]


def test_a_decision_that_was_made_holds_against_who_gives_up() -> None:
    """A rank that gave up waiting finds that rank 0 had decided: it acts with the others."""
    ranks, _ = make_ranks(2)
    ranks[1].propose("save")
    ranks[1].poll()
    ranks[0].poll()
    assert [ranks[1].reach_boundary() for _ in "ab"] == [None, "save"], "without a poll of its own"
    assert [ranks[0].reach_boundary() for _ in "ab"] == [None, "save"]


def test_a_rank_that_ends_calls_off_what_is_undecided() -> None:
    """Its training is over, so it would never act: the others learn it without waiting."""
    ranks, _ = make_ranks(2, patience_s=60.0)
    ranks[0].propose("save")
    ranks[0].poll()
    ranks[1].close()
    poll_all(ranks)
    assert [ranks[0].reach_boundary() for _ in range(5)] == [None] * 5
    assert not ranks[0].is_pending("save")


class _BrokenBoard(LocalBoard):
    """Fails as often as it is told."""

    num_left = 0

    def replace(self, key: str, expected: str, text: str) -> str:
        """Fail, or put a text."""
        if self.num_left:
            self.num_left -= 1
            raise RuntimeError("Connection reset by peer")
        return super().replace(key, expected, text)


@pytest.mark.parametrize("num_failures", [1, 2, 3])
def test_a_request_that_fails_is_made_again(num_failures: int) -> None:
    """Whichever request is lost, the ranks still act together, each once."""
    board = _BrokenBoard()
    ranks = [Agreement(board, rank, 2, clock=FakeClock()) for rank in range(2)]
    ranks[0].propose("save")
    board.num_left = num_failures
    poll_all(ranks, 8)
    assert [[r.reach_boundary() for _ in range(4)].count("save") for r in ranks] == [1, 1]


def test_a_board_out_of_reach_stops_the_asking(caplog) -> None:
    """After some failures nobody asks any more, and training is not held up."""
    board = _BrokenBoard()
    board.num_left = 10**9
    rank = Agreement(board, 0, 2, clock=FakeClock(), patience_s=NOBODY_COMES_S)
    rank.propose("save")
    poll_all([rank], 9)
    assert rank.is_lost
    assert 10**9 - board.num_left == 5
    assert [rank.reach_boundary() for _ in range(5)] == [None] * 5


@given(
    plan=st.lists(st.sampled_from(["b0", "b1", "b2", "p0", "p1", "p2", "w0", "w2"]), max_size=80)
)
def test_in_any_order_of_events_ranks_act_at_equal_boundaries(plan: list[str]) -> None:
    """Boundaries, polls and wishes of three ranks as they come: each action at one boundary."""
    ranks, _ = make_ranks(3, patience_s=0.0)
    acted: list[list[tuple[int, str]]] = [[], [], []]
    counts = [0, 0, 0]

    def reach(number: int) -> None:
        counts[number] += 1
        action = ranks[number].reach_boundary()
        if action:
            acted[number].append((counts[number], action))

    for kind, number in ((event[0], int(event[1])) for event in plan):
        if kind == "b":
            reach(number)
        elif kind == "p":
            ranks[number].poll()
        else:
            ranks[number].propose(f"act{len(plan)}")
    poll_all(ranks)
    for _ in range(4):
        goal = max(counts) + 4
        for number in range(3):
            while counts[number] < goal:
                reach(number)
        poll_all(ranks)
    assert acted[0] == acted[1] == acted[2]


def test_different_wishes_of_one_rank_all_happen() -> None:
    """A save that is proposed beside a stop does not push it aside, nor the other way round."""
    ranks, _ = make_ranks(2)
    ranks[0].propose("stop:budget")
    ranks[0].propose("save:interval:1")
    assert ranks[0].is_pending("stop:budget")
    assert ranks[0].is_pending("save:interval:1")
    poll_all(ranks)
    seen: list[list[str]] = [[], []]
    for _ in range(12):
        for rank, actions in zip(ranks, seen, strict=True):
            actions.extend(filter(None, [rank.reach_boundary()]))
        poll_all(ranks)
    assert seen == [["stop:budget", "save:interval:1"]] * 2


def test_one_wish_of_several_ranks_happens_once() -> None:
    """What differs after the second colon is one thing: it happens as the first of them said."""
    ranks, _ = make_ranks(2)
    ranks[0].propose("save:manual:one")
    ranks[1].propose("save:manual:two")
    poll_all(ranks)
    ranks[1].propose("save:manual:three")
    seen: list[list[str]] = [[], []]
    for _ in range(12):
        for rank, actions in zip(ranks, seen, strict=True):
            actions.extend(filter(None, [rank.reach_boundary()]))
        poll_all(ranks)
    assert seen == [["save:manual:one"]] * 2
