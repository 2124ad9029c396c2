"""When the ranks of a job save: proposed once, taken at one step, named alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import Boundaries
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.recorder import Counters
from costlens.core.records import RankPart, RunPart
from costlens.errors import CheckpointError
from costlens.protect.agreement import Agreement, LocalBoard
from costlens.protect.group_save import GroupSave
from costlens.protect.manifest import CheckpointName, Kind
from costlens.protect.meeting import Meeting
from costlens.testing import FakeClock

WALL_S = 1_790_000_000


class Rank:
    """One rank of a job whose clocks and boards are shared."""

    def __init__(self, rank: int, num: int, board: LocalBoard, clock: FakeClock) -> None:
        self.state = AttemptState(
            run=RunPart(id="r", name="r", costlens_version="0"),
            rank=RankPart(rank=rank, world_size=num, host_name="host", pid=1),
            # No two clocks of a job are the same.
            anchor=Anchor(mono_ns=0, wall_ns=(WALL_S + rank) * NS_PER_S),
            start_ns=0,
        )
        self.state.number, self.state.launch_key = 3, "launch"
        self.boundaries = Boundaries(self.state, Counters())
        self.agreement = Agreement(board, rank, num, clock=clock, patience_s=0.01)
        self.boundaries.agreement = self.agreement
        self.save = GroupSave(
            self.boundaries,
            self.agreement,
            Meeting(LocalBoardView(board), rank, num, patience_s=30.0),
            self.state,
            clock,
        )
        self.step = 0

    def train(self) -> tuple[Kind, CheckpointName] | None:
        """Do a step, and return what is saved after it."""
        self.step += 1
        self.boundaries.tell_step()
        return self.save.take(self.step)


class LocalBoardView(LocalBoard):
    """Another prefix of a board."""

    def __init__(self, board: LocalBoard) -> None:
        super().__init__()
        self._texts = board.__dict__.setdefault("meeting", {})


class Job:
    """Two ranks."""

    def __init__(self) -> None:
        self.clock, board = FakeClock(), LocalBoard()
        self.ranks = [Rank(rank, 2, board, self.clock) for rank in (0, 1)]

    def poll(self, *ranks: Rank) -> None:
        """Let the pipeline threads look."""
        for _ in range(3):
            for rank in ranks or self.ranks:
                rank.agreement.poll()

    def train(self, num_steps: int) -> list[list[tuple[Kind, CheckpointName]]]:
        """Return what each rank saved in some steps."""
        saved: list[list[tuple[Kind, CheckpointName]]] = [[], []]
        for _ in range(num_steps):
            for rank, own in zip(self.ranks, saved, strict=True):
                own.extend(filter(None, [rank.train()]))
            self.poll()
        return saved

    def end(self, *answers: tuple[int, int, str | None]) -> list[object]:
        """Return under which name each rank saves its last state, or why it cannot."""

        def agree(rank: Rank) -> object:
            step, saved_step, refusal = answers[rank.state.rank.rank]
            try:
                return rank.save.agree_on_end(step, saved_step, refusal, 30.0)
            except CheckpointError as error:
                return error

        with ThreadPoolExecutor(2) as pool:
            return [*pool.map(agree, self.ranks)]


@pytest.fixture(name="job")
def _job() -> Job:
    return Job()


def test_both_ranks_save_the_same_under_one_name(job: Job) -> None:
    """Whatever their clocks say: kind, step, attempt, time and nonce are equal."""
    job.train(5)
    assert job.ranks[0].save.ask("interval")
    job.poll()
    one, other = job.train(10)
    assert one == other
    ((kind, name),) = one
    assert kind == "interval"
    assert (name.step, name.attempt, name.wall_s) == (7, 3, WALL_S)


def test_it_does_not_matter_how_many_ranks_ask(job: Job) -> None:
    """One save, whether one rank or both want it, and however often until it is there."""
    for _ in range(3):
        assert [rank.save.ask("manual") for rank in job.ranks] == [True, True]
    job.poll()
    job.ranks[1].save.ask("manual")
    one, other = job.train(20)
    assert one == other
    assert [kind for kind, _ in one] == ["manual"]


def test_names_differ_between_steps_and_attempts(job: Job) -> None:
    """No two saves share their data."""
    seen = set()
    for number in (3, 4):
        for rank in job.ranks:
            rank.state.number = number
        for _ in range(2):
            job.ranks[0].save.ask("interval")
            job.poll()
            one, _ = job.train(5)
            seen.add((one[0][1].attempt, one[0][1].nonce))
    assert len(seen) == 4


def test_ranks_that_never_agree_are_not_asked_for_ever(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that tells no steps makes the others wait: three times, far apart, then no more."""
    first = job.ranks[0]
    asked = []
    for _ in range(4 * 3600):
        job.clock.advance(1.0)
        asked.append(first.save.ask("interval"))
        job.poll(first)
        first.train()
        first.train()
    assert first.agreement._current.number == 3, "rounds that were proposed and called off"
    assert not any(asked[1000:])
    told = capsys.readouterr().err
    assert told.count("does every one of them call checkpoints.step()") == 1


def test_the_end_is_saved_under_one_name(job: Job) -> None:
    """All ended well, at one step that not all have saved."""
    one, other = job.end((40, 40, None), (40, 31, None))
    assert one == other
    assert isinstance(one, CheckpointName)
    assert one.step == 40


def test_an_end_that_is_saved_is_not_saved_again(job: Job) -> None:
    """Every rank has a snapshot of its last step."""
    assert job.end((40, 40, None), (40, 40, None)) == [None, None]


def test_ranks_that_ended_at_different_steps_save_nothing(job: Job) -> None:
    """Their states belong to different moments; both steps are told."""
    for error in job.end((40, 30, None), (39, 30, None)):
        assert isinstance(error, CheckpointError)
        assert "rank 0 ended after 40 steps and rank 1 after 39" in str(error)


@pytest.mark.parametrize("failed", [0, 1])
def test_a_rank_that_failed_lets_nobody_save_or_wait(job: Job, failed: int) -> None:
    """It goes its way, and the other learns at once which rank has no whole state."""
    answers: list[tuple[int, int, str | None]] = [(40, 30, None), (40, 30, None)]
    answers[failed] = (40, 30, "it failed")
    found = job.end(*answers)
    assert found.pop(failed) is None
    assert f"rank {failed}: it failed" in str(found[0])
