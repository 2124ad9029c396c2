"""From the living parts of a run to the record that everyone reads."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from costlens.account.throughput import compute_rates
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.phases import NAMES, NUM_PHASES, Phase
from costlens.core.price_records import PricePart
from costlens.core.quality import QualityBook
from costlens.core.recorder import UNKNOWN, Recorder
from costlens.core.records import Outcome, RankPart, RankRecord, RunPart
from costlens.core.snapshot import Snapshot
from costlens.core.snapshot_builder import SnapshotBuilder
from costlens.core.telemetry_records import TelemetryPart
from costlens.core.timeline import Timeline
from costlens.core.window import Totals
from costlens.testing import FakeClock

WALL_NS = 1_700_000_000 * NS_PER_S
START_NS = 5_000


class Rank:
    """One rank on a clock of its own."""

    def __init__(
        self, *, has_device: bool = False, probed: dict[str, object] | None = None
    ) -> None:
        self.clock = FakeClock(START_NS)
        self.timeline = Timeline(self.clock, START_NS)
        self.recorder = Recorder(self.timeline)
        self.recorder.counters.watch_steps()
        self.totals = Totals(has_device=has_device)
        self.quality = QualityBook()
        self.state = AttemptState(
            run=RunPart(id="r", name="r", costlens_version="0"),
            rank=RankPart(rank=0, host_name="h", pid=1),
            anchor=Anchor(wall_ns=WALL_NS, mono_ns=START_NS),
            start_ns=START_NS,
        )
        self.builder = SnapshotBuilder(
            self.state,
            self.timeline,
            self.recorder,
            self.totals,
            self.quality,
            rates=compute_rates,
            telemetry=TelemetryPart,
            probed=lambda: probed or {},
        )

    def spend(self, phase: Phase, duration_ns: int) -> None:
        """Let time pass in a phase."""
        self.timeline.enter(phase)
        self.clock.advance_ns(duration_ns)
        self.timeline.leave()

    def look(self, *, is_last: bool = False, opens: bool = False) -> Snapshot:
        """Drain, and close a window now."""
        for row in self.recorder.drain(10**6):
            self.totals.add(row)
        self.quality.fold()
        return self.builder.build(self.clock(), is_last=is_last, opens=opens)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(list(Phase)),
        st.integers(0, 10**10),
        st.sampled_from(["nothing", "cut", "resolve", "close", "open_phase", "tokens"]),
    ),
    max_size=40,
)


def play(rank: Rank, steps: list[tuple[Phase, int, str]]) -> list[Snapshot]:
    """Run a program of phases and return its snapshots, the opening one first."""
    snapshots = [rank.look(opens=True)]
    for phase, duration_ns, then in steps:
        rank.spend(phase, duration_ns)
        if then == "cut":
            rank.recorder.cut()
        elif then == "resolve":
            newest = rank.recorder.counters.iterations
            rank.totals.resolve([(number, duration_ns // 2) for number in range(newest)])
        elif then == "tokens":
            rank.recorder.counters.add_tokens(duration_ns)
        elif then == "open_phase":
            rank.timeline.enter(phase)
        elif then == "close":
            snapshots.append(rank.look())
    rank.state.end_ns = rank.clock()
    return [*snapshots, rank.look(is_last=True)]


@given(steps=STEPS, has_device=st.booleans())
def test_windows_tile_the_attempt_and_their_phases_sum_to_its_own(
    steps: list[tuple[Phase, int, str]], has_device: bool
) -> None:
    """Phases of a window sum to the window, windows follow one another, and nothing is lost."""
    rank = Rank(has_device=has_device)
    _, *closed = play(rank, steps)
    windows, last = [snapshot.window for snapshot in closed], closed[-1].record
    assert [window.index for window in windows] == list(range(len(windows)))
    assert windows[0].start_ns == START_NS
    assert all(after.start_ns == before.end_ns for before, after in pairwise(windows))
    assert all(sum(w.phase_ns) == w.end_ns - w.start_ns for w in windows)
    totals = [sum(column) for column in zip(*[w.phase_ns for w in windows], strict=True)]
    assert dict(zip(NAMES, totals, strict=True)) == last.time_ns
    assert sum(last.time_ns.values()) == last.total_ns == rank.clock() - START_NS


@given(steps=STEPS)
def test_counts_and_durations_of_windows_sum_to_those_of_the_attempt(
    steps: list[tuple[Phase, int, str]],
) -> None:
    """What windows count is what the record counts, and a counter nobody reported is in neither."""
    rank = Rank()
    _, *closed = play(rank, steps)
    windows, last = [snapshot.window for snapshot in closed], closed[-1]
    counts: Counter[str] = Counter()
    for window in windows:
        counts.update(window.counts)
    progress = last.record.progress
    assert counts["iterations"] == progress.iterations == rank.recorder.counters.iterations
    assert counts["tokens"] == (progress.tokens or 0)
    assert ("tokens" in counts) is (progress.tokens is not None)
    assert sum(window.num_iterations for window in windows) == last.histogram.count
    assert sum(window.iteration_sum_ns for window in windows) == last.histogram.sum_ns


@given(steps=STEPS, has_device=st.booleans())
def test_what_is_settled_only_grows_and_ends_as_what_is_booked(
    steps: list[tuple[Phase, int, str]], has_device: bool
) -> None:
    """Exported counters never go back, and at the end they are the record's numbers."""
    snapshots = play(Rank(has_device=has_device), steps)
    for before, after in pairwise(snapshots):
        assert all(a <= b for a, b in zip(before.settled_ns, after.settled_ns, strict=True))
    assert snapshots[-1].settled_ns == tuple(snapshots[-1].record.time_ns.values())


def test_the_opening_look_takes_nothing() -> None:
    """What happened before the first window belongs to it, although it was shown already."""
    rank = Rank()
    rank.spend(Phase.COMPUTE, 7)
    rank.recorder.cut()
    rank.quality.add("loss", 1.0, 0, 0)
    opening = rank.look(opens=True)
    assert opening.record.total_ns == 7
    assert opening.record.quality["loss"].last == 1.0
    first = rank.look()
    assert (first.window.index, first.window.start_ns) == (0, START_NS)
    assert first.window.counts["iterations"] == 1
    assert [kept.reason for kept in first.window.kept] == ["first"]
    assert first.quality.window["loss"].last == 1.0


def test_a_window_counts_what_changed_in_it() -> None:
    """Counts of a window are differences; a counter nobody reports is in none."""
    rank = Rank()
    for num in (2, 3):
        for _ in range(num):
            rank.recorder.counters.add_tokens(10)
            rank.recorder.cut()
        counts = rank.look().window.counts
        assert (counts["iterations"], counts["tokens"]) == (num, 10 * num)
        assert "samples" not in counts


def test_a_training_thread_that_moved_on_does_not_shorten_the_window() -> None:
    """A window whose end was read before the last switch ends at the switch."""
    rank = Rank()
    now_ns = rank.clock()
    rank.spend(Phase.COMPUTE, 50)
    window = rank.builder.build(now_ns).window
    assert window.end_ns == START_NS + 50
    assert sum(window.phase_ns) == 50


def test_what_nobody_knows_is_absent_from_the_record() -> None:
    """No counts, no price, no quality, no start-up marks: the record has no zeros for them."""
    record = Rank().look().record
    assert record.progress.tokens is None
    assert record.progress.samples is None
    assert record.price is None
    assert record.quality == {}
    assert record.iteration_time.median_s is None
    assert not record.startup.model_dump(exclude_none=True)
    assert record.host_ns is None
    assert record.attempt.end_time is None
    assert record.attempt.paid_from == "start"


def test_the_record_tells_times_by_the_wall_and_durations_by_the_clock() -> None:
    """Start, heartbeat and end are the anchor plus monotonic differences."""
    rank = Rank()
    rank.state.process_start_ns = START_NS
    rank.state.watch_start_ns = START_NS + NS_PER_S
    rank.state.first_fetch_ns = START_NS + 3 * NS_PER_S
    rank.recorder.first_cut_ns = START_NS + 7 * NS_PER_S
    rank.spend(Phase.COMPUTE, 10 * NS_PER_S)
    rank.state.end_ns = rank.clock()
    rank.state.outcome = Outcome.COMPLETED
    record = rank.look(is_last=True).record
    assert record.attempt.start_time == 1_700_000_000
    assert record.attempt.heartbeat_time == record.attempt.end_time == 1_700_000_010
    assert record.attempt.paid_from == "process_start"
    split = record.startup
    assert (split.process_s, split.setup_s, split.first_iteration_s) == (1.0, 2.0, 4.0)
    assert (record.open_phase, record.open_phase_s) == (None, None)


def test_the_first_step_ends_with_the_iteration_that_made_it() -> None:
    """Accumulated iterations before it belong to the wait for it; later steps do not move it."""
    rank = Rank()
    for number in range(6):
        rank.spend(Phase.COMPUTE, NS_PER_S)
        rank.recorder.counters.optimizer_steps += number % 3 == 2
        rank.recorder.cut()
        assert rank.look().record.startup.first_step_s == (3.0 if number >= 2 else None)


def test_a_first_step_that_a_device_tells_late_is_dated_by_its_iteration() -> None:
    """A scaler on a device skips the first two: the third made it, whenever that became known."""
    rank = Rank()
    for _ in range(5):
        rank.spend(Phase.COMPUTE, NS_PER_S)
        rank.recorder.cut()
    assert rank.look().record.startup.first_step_s is None
    for number, made in enumerate([0, 0, 1, 1]):
        rank.totals.add_late("optimizer_steps", number, made)
    assert rank.look().record.startup.first_step_s == 3.0


def test_without_a_watched_optimizer_there_is_no_first_step() -> None:
    """Iterations alone say nothing of steps."""
    rank = Rank()
    rank.recorder.counters.optimizer_steps = UNKNOWN
    rank.spend(Phase.COMPUTE, NS_PER_S)
    rank.recorder.cut()
    assert rank.look().record.startup.first_step_s is None


def test_the_open_phase_and_its_age_are_told_while_the_run_lives() -> None:
    """A rank that hangs says in what and for how long."""
    rank = Rank()
    rank.recorder.cut()
    rank.timeline.enter(Phase.DATA_WAIT)
    rank.clock.advance(12.0)
    record = rank.look().record
    assert (record.open_phase, record.open_phase_s) == ("data_wait", 12.0)


def test_quality_in_the_record_is_finite_and_dated() -> None:
    """The mean is that of the finite values; the best is dated from the start of the attempt."""
    rank = Rank()
    for iteration, (loss, at_s) in enumerate(((4.0, 1), (math.nan, 2), (2.0, 3))):
        rank.quality.add("loss", loss, iteration, START_NS + at_s * NS_PER_S)
    loss = rank.look().record.quality["loss"]
    assert (loss.mean, loss.best, loss.best_after_s, loss.num_nonfinite) == (3.0, 2.0, 3.0, 1)


def test_window_rate_and_average_rate_agree_at_steady_speed() -> None:
    """C012: 10 steps × 100 tokens × 0.1 s: 1000 tokens/s in each window and over the attempt."""
    rank, windows = Rank(), []
    rank.recorder.cut()
    for step in range(1, 11):
        rank.spend(Phase.COMPUTE, NS_PER_S // 10)
        rank.recorder.counters.add_tokens(100)
        rank.recorder.cut()
        if step in {3, 9, 10}:
            windows.append(rank.look())
    assert [seen.window.num_iterations for seen in windows] == [3, 6, 1]
    assert [seen.window.rates.tokens_per_s for seen in windows] == [1000.0] * 3
    assert [seen.record.rates.tokens_per_s for seen in windows] == [1000.0] * 3


def test_the_rate_of_a_window_is_its_own() -> None:
    """A window at half the speed says so, while the attempt tells the mean; an idle one nothing."""
    rank = Rank()
    rank.recorder.cut()
    for duration_s in (1, 2):
        rank.spend(Phase.COMPUTE, duration_s * NS_PER_S)
        rank.recorder.counters.add_tokens(600)
        rank.recorder.cut()
        seen = rank.look()
    assert seen.window.rates.tokens_per_s == 300
    assert seen.record.rates.tokens_per_s == 400
    idle = rank.look()
    assert idle.window.rates.tokens_per_s is None
    assert idle.record.rates.tokens_per_s == 400


def test_late_counts_are_added_to_those_of_the_host() -> None:
    """Tokens that were summed on a device stand beside those that were integers."""
    rank = Rank()
    rank.recorder.counters.add_tokens(5)
    rank.totals.add_late("tokens", 0, 30)
    rank.totals.add_late("loss_tokens", 0, 7)
    progress = rank.look().record.progress
    assert (progress.tokens, progress.loss_tokens, progress.slots) == (35, 7, None)


def test_a_run_that_goes_on_after_its_end_keeps_counting() -> None:
    """A second fit follows the first in the same record; the time between is idle."""
    rank = Rank()
    rank.recorder.cut()
    rank.state.end_ns = rank.clock()
    rank.look(is_last=True)
    rank.timeline.rebase(Phase.IDLE)
    rank.clock.advance_ns(100)
    rank.state.end_ns = None
    rank.timeline.rebase(Phase.OTHER)
    assert rank.look(opens=True).record.time_ns["idle"] == 100
    rank.spend(Phase.COMPUTE, 10)
    rank.recorder.cut()
    window = rank.look().window
    assert (window.index, sum(window.phase_ns)) == (1, 110)


def test_a_device_has_its_host_phases_shown_beside_the_priced_ones() -> None:
    """What is priced and what the host saw sum to the same time."""
    rank = Rank(has_device=True)
    rank.recorder.cut()
    rank.spend(Phase.TRANSFER, 90)
    rank.recorder.cut()
    record = rank.look().record
    assert record.host_ns is not None
    assert (record.time_ns["compute"], record.host_ns["transfer"]) == (90, 90)
    assert sum(record.host_ns.values()) == sum(record.time_ns.values())


def test_a_record_survives_its_own_json() -> None:
    """What is written is what is read, and a newer costlens's fields are skipped."""
    price = PricePart(
        amount="2.50", unit="gpu", share="1", currency="USD", source="argument gpu_hour_price"
    )
    rank = Rank(probed={"price": price})
    for _ in range(40):
        rank.spend(Phase.COMPUTE, 10**7)
        rank.recorder.cut()
    record = rank.look().record
    text = record.model_dump_json(exclude_none=True)
    assert RankRecord.model_validate_json(text) == record
    newer = text.replace('"total_ns"', '"from_the_future":1,"total_ns"')
    assert RankRecord.model_validate_json(newer) == record
    assert len(record.time_ns) == NUM_PHASES


def test_time_before_the_process_that_is_paid_for_is_startup() -> None:
    """From the start of the allocation on: phases still sum to the total, counters include it."""
    rank = Rank(has_device=True)
    rank.spend(Phase.COMPUTE, 3 * NS_PER_S)
    before = rank.look()
    assert (before.record.attempt.paid_from, before.record.startup.allocation_s) == ("start", None)
    rank.state.lead_ns = 40 * NS_PER_S
    rank.spend(Phase.COMPUTE, 2 * NS_PER_S)
    after = rank.look()
    record = after.record
    assert record.attempt.paid_from == "allocation"
    assert record.startup.allocation_s == 40
    assert record.total_ns == sum(record.time_ns.values()) == 45 * NS_PER_S
    assert sum((record.host_ns or {}).values()) == record.total_ns
    assert record.time_ns["startup"] - before.record.time_ns["startup"] >= 40 * NS_PER_S
    assert record.attempt.start_time == before.record.attempt.start_time
    grown = [now - was for now, was in zip(after.settled_ns, before.settled_ns, strict=True)]
    assert min(grown) >= 0
    assert sum(grown) == 42 * NS_PER_S


def test_an_allocation_that_began_with_the_process_is_known_and_adds_nothing() -> None:
    """Zero is a measurement here: it says where paid time begins."""
    rank = Rank()
    rank.state.lead_ns = 0
    record = rank.look().record
    assert (record.attempt.paid_from, record.startup.allocation_s) == ("allocation", 0)
