"""Which launch pays from the start of its allocation on, and how the ranks come to know of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.job_records import JobPart
from costlens.core.records import RankPart, RunPart
from costlens.errors import StorageError
from costlens.observe.allocation import AllocationWatch
from costlens.observe.placement.slurm_times import JobTimes
from costlens.storage.store import Store

START_S = 1_796_030_808.0
TIMES = JobTimes(START_S - 900, START_S - 300, START_S, 45.0)


def make_state(
    rank: int = 0,
    *,
    launch: str = "first",
    after_s: float = 40.0,
    job: JobPart | None = None,
    has_start: bool = True,
) -> AttemptState:
    """Return the state of a rank whose process began `after_s` seconds after the allocation."""
    mono_ns = 1000 * NS_PER_S
    return AttemptState(
        run=RunPart(id="r", name="r", costlens_version="0"),
        rank=RankPart(rank=rank, world_size=2, host_name="vm", pid=1),
        anchor=Anchor(mono_ns=mono_ns, wall_ns=int((START_S + after_s) * NS_PER_S)),
        start_ns=mono_ns,
        process_start_ns=mono_ns if has_start else None,
        launch_key=launch,
        job=job or JobPart(scheduler="slurm", cluster="c", job_id="7", restart_count=0),
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Return an empty store."""
    return Store(tmp_path)


def never() -> JobTimes | str:
    """Fail: this rank must not ask the scheduler."""
    raise AssertionError("the scheduler was asked")


def hours() -> Callable[[], float]:
    """Return a clock on which an hour passes between two readings."""
    return itertools.count(0.0, 3600.0).__next__


def settle(
    store: Store,
    state: AttemptState,
    *,
    ask: Callable[[], JobTimes | str] = lambda: TIMES,
    asked_s: float = START_S + 45,
    given: dict[str, float] | None = None,
) -> JobPart:
    """Look once and return the job as the attempt then knows it."""
    AllocationWatch(state, store, given, ask=ask, wall_s=lambda: asked_s).look()
    assert state.job is not None
    return state.job


def test_rank_0_asks_and_pays_from_the_start_of_the_allocation(store: Store) -> None:
    """Submitted, eligible and started as scontrol tells; 40 s passed before the process."""
    state = make_state()
    job = settle(store, state)
    assert (job.submit_time, job.eligible_time, job.start_time) == TIMES[:3]
    assert (job.times_from, job.is_allocation_owner, job.clock_skew_s) == ("scontrol", True, None)
    assert state.lead_ns == 40 * NS_PER_S


def test_other_ranks_read_what_rank_0_was_told(store: Store) -> None:
    """A thousand ranks do not call the controller; each pays from its own process on back."""
    settle(store, make_state())
    state = make_state(1, after_s=52.0)
    job = settle(store, state, ask=never)
    assert (job.start_time, job.times_from, job.is_allocation_owner) == (START_S, "rank 0", True)
    assert state.lead_ns == 52 * NS_PER_S


def test_a_rank_that_comes_before_rank_0_looks_again(store: Store) -> None:
    """No rank waits for another: the next window finds it."""
    state = make_state(1)
    watch = AllocationWatch(state, store, ask=never, mono_s=hours())
    watch.look()
    assert not watch.is_settled
    assert state.lead_ns is None
    settle(store, make_state())
    watch.look()
    assert watch.is_settled
    assert state.lead_ns == 40 * NS_PER_S


def test_looks_become_seldom_and_the_last_window_looks_in_any_case(store: Store) -> None:
    """A dozen requests in a quarter of an hour, whatever the length of a window, then none."""
    now_s, seen = [0.0], []
    state = make_state(1)
    watch = AllocationWatch(state, store, ask=never, mono_s=lambda: now_s[0])
    read = store.read

    def count(key: str) -> bytes | None:
        seen.append(now_s[0])
        return read(key)

    store.read = count  # type: ignore[method-assign]
    for _ in range(20_000):  # windows of a tenth of a second
        watch.look()
        now_s[0] += 0.1
    assert len(seen) == 12
    assert seen[:4] == pytest.approx([0, 0.5, 1.5, 3.5], abs=0.2)
    late = make_state(1)
    watch = AllocationWatch(late, store, ask=never, mono_s=lambda: 0.0)
    watch.look()
    settle(store, make_state())
    watch.look()
    assert late.lead_ns is None
    watch.look(is_last=True)
    assert late.lead_ns == 40 * NS_PER_S


def test_a_second_launch_in_the_allocation_pays_from_its_own_start(store: Store) -> None:
    """What the first one pays for, or wasted, is not paid for twice; nobody is asked again."""
    settle(store, make_state())
    state = make_state(launch="second", after_s=900.0)
    job = settle(store, state, ask=never)
    assert (job.is_allocation_owner, job.start_time) == (False, START_S)
    assert state.lead_ns is None


def test_a_job_that_is_queued_again_has_a_new_allocation(store: Store) -> None:
    """The restart count tells two allocations of one job apart."""
    settle(store, make_state())
    again = JobPart(scheduler="slurm", cluster="c", job_id="7", restart_count=1)
    state = make_state(launch="second", job=again)
    assert settle(store, state).is_allocation_owner
    assert state.lead_ns == 40 * NS_PER_S


def test_a_scheduler_that_does_not_answer_is_asked_three_times(store: Store) -> None:
    """Then the allocation is claimed without times: absent, with the reason."""
    asked: list[int] = []

    def fail() -> str:
        asked.append(1)
        return "scontrol did not answer within 2 s"

    state = make_state()
    watch = AllocationWatch(state, store, ask=fail, mono_s=hours())
    for _ in range(10):
        watch.look()
    assert (len(asked), watch.is_settled) == (3, True)
    assert state.job is not None
    assert (state.job.start_time, state.job.is_allocation_owner) == (None, True)
    assert state.job.times_unknown == "scontrol did not answer within 2 s"
    assert state.lead_ns is None
    assert settle(store, make_state(1), ask=never).is_allocation_owner


def test_clocks_that_differ_do_not_enter_the_money(store: Store) -> None:
    """This host runs an hour ahead: durations by each clock alone give the 40 s, and it is told."""
    state = make_state(after_s=3640.0)
    job = settle(store, state, asked_s=START_S + 3645)
    assert job.clock_skew_s == 3600
    assert state.lead_ns == 40 * NS_PER_S


def test_a_process_older_than_its_allocation_pays_nothing_before_itself(store: Store) -> None:
    """Without the scheduler's own duration a negative difference is 0, and flagged."""
    state = make_state(after_s=-30.0)
    job = settle(store, state, ask=lambda: TIMES._replace(run_time_s=None))
    assert (state.lead_ns, job.clock_skew_s) == (0, 30)


def test_times_that_the_settings_give_are_enough(store: Store) -> None:
    """A template passes them where the scheduler tells nothing; they go before all others."""
    pod = JobPart(scheduler="kubernetes", job_id="train", pod_uid="u1")
    given = {"submit_time": START_S - 100, "start_time": START_S}
    state = make_state(1, job=pod)
    job = settle(store, state, ask=never, given=given)
    assert (job.submit_time, job.times_from, job.is_allocation_owner) == (
        START_S - 100,
        "settings",
        True,
    )
    assert state.lead_ns == 40 * NS_PER_S


def test_pods_of_a_job_are_allocations_of_their_own(store: Store) -> None:
    """Every rank pays from the start of its pod; a second process in it does not."""
    given = {"start_time": START_S}
    for uid, launch, owns in (("a", "x", True), ("b", "x", True), ("a", "y", False)):
        pod = JobPart(scheduler="kubernetes", job_id="train", pod_uid=uid)
        state = make_state(launch=launch, job=pod)
        assert settle(store, state, ask=never, given=given).is_allocation_owner is owns


def test_a_pod_without_times_says_why_it_has_no_wait(store: Store) -> None:
    """Kubernetes tells them only through its API, which is not asked."""
    state = make_state(job=JobPart(scheduler="kubernetes", pod_uid="u"))
    job = settle(store, state, ask=never)
    assert job.is_allocation_owner is None
    assert "kubernetes does not tell" in (job.times_unknown or "")
    assert store.children() == []


def test_outside_a_job_nothing_is_asked_and_nothing_written(store: Store) -> None:
    """C143: no scheduler, no wait; times alone make a job of an unknown scheduler."""
    state = make_state()
    state.job = None
    watch = AllocationWatch(state, store, ask=never, mono_s=hours())
    watch.look()
    assert (watch.is_settled, state.job, store.children()) == (True, None, [])
    state = make_state()
    state.job = None
    job = settle(store, state, ask=never, given={"start_time": START_S})
    assert (job.scheduler, job.is_allocation_owner) == ("other", True)


def test_a_later_run_of_the_process_has_no_start_of_its_own(store: Store) -> None:
    """It begins where watching begins, and leaves the allocation alone."""
    state = make_state(has_start=False)
    watch = AllocationWatch(state, store, ask=never, mono_s=hours())
    watch.look()
    assert watch.is_settled
    assert state.job is not None
    assert state.job.is_allocation_owner is False
    assert store.children() == []


def test_a_store_that_refuses_is_asked_again_a_while(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is raised, nothing is guessed, and it ends."""
    state = make_state(1)
    watch = AllocationWatch(state, store, ask=never, mono_s=hours())

    def refuse(key: str) -> bytes:
        raise StorageError(key)

    monkeypatch.setattr(store, "read", refuse)
    for _ in range(20):
        watch.look()
    assert (watch.is_settled, state.lead_ns) == (True, None)


@pytest.mark.parametrize("data", [b"[]", b"{", b"[" * 100_000, b'{"start_time": "x"}', b"1"])
def test_a_claim_that_cannot_be_understood_is_another_launchs(store: Store, data: bytes) -> None:
    """Damage may lose a start, never pay for one twice."""
    settle(store, make_state())
    (name,) = store.children(".allocations")
    store.put(f".allocations/{name}", data)
    state = make_state()
    job = settle(store, state, ask=never)
    assert (job.is_allocation_owner, state.lead_ns) == (False, None)
