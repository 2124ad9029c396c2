"""Which iterations are kept in full."""

from __future__ import annotations

from costlens.core.durations import Sketch
from costlens.core.kept import Iteration, Keeper, KeepPolicy
from costlens.core.phases import NUM_PHASES, Phase
from costlens.core.recorder import UNKNOWN, Row
from costlens.core.telemetry_records import Detail

NOTHING = (0,) * NUM_PHASES


def make_row(number: int, compute_ns: int = 0) -> Row:
    """Return a row whose cumulative compute is given."""
    phase_ns = tuple(compute_ns if phase is Phase.COMPUTE else 0 for phase in Phase)
    counts = (UNKNOWN,) * 8
    return Row(number, 10 * number, 10 * number + 9, *counts, is_startup=0, phase_ns=phase_ns)


def offer(keeper: Keeper, sketch: Sketch, durations_ns: list[int], first: int = 0) -> None:
    """Offer iterations of these durations."""
    for number, duration_ns in enumerate(durations_ns, start=first):
        sketch.add(duration_ns)
        keeper.offer(make_row(number), NOTHING, duration_ns)


def show(kept: tuple[Iteration, ...]) -> list[tuple[int, str]]:
    """Return number and reason of each."""
    return [(iteration.index, iteration.reason) for iteration in kept]


def test_the_first_and_every_nth_iteration_are_kept_within_the_limit() -> None:
    """Every 10th iteration, but two a window; a new window begins with the next look."""
    sketch = Sketch()
    keeper = Keeper(KeepPolicy(every=10, max_sampled=2, max_slow=0), sketch)
    offer(keeper, sketch, [100] * 45)
    assert show(keeper.take()) == [(0, "first"), (10, "sampled"), (20, "sampled")]
    offer(keeper, sketch, [100] * 10, first=45)
    assert show(keeper.take()) == [(50, "sampled")]
    assert keeper.take() == ()


def test_the_slowest_of_a_window_are_kept_in_order() -> None:
    """Longer than 1.5 medians is slow; the three slowest stay, as they came."""
    sketch = Sketch()
    keeper = Keeper(KeepPolicy(every=10_000), sketch)
    slow = {40: 160, 45: 500, 50: 170, 55: 900, 60: 149}
    offer(keeper, sketch, [slow.get(number, 100) for number in range(70)])
    kept = keeper.take()
    assert show(kept) == [(0, "first"), (45, "slow"), (50, "slow"), (55, "slow")]
    assert kept[1].iteration_ns == 500


def test_nothing_is_slow_before_there_is_a_usual() -> None:
    """Twenty iterations must have been counted: a median of fewer says little."""
    sketch = Sketch()
    keeper = Keeper(KeepPolicy(every=10_000), sketch)
    offer(keeper, sketch, [100] * 10 + [5_000] + [100] * 9)
    assert show(keeper.take()) == [(0, "first")]


def test_a_kept_iteration_knows_its_own_time() -> None:
    """Phases are its own, not those since the start of the attempt."""
    keeper = Keeper(KeepPolicy(every=1), Sketch())
    keeper.offer(make_row(1, compute_ns=700), make_row(0, compute_ns=300).phase_ns, 400)
    (kept,) = keeper.take()
    assert kept.phase_ns[Phase.COMPUTE] == sum(kept.phase_ns) == 400
    assert (kept.start_ns, kept.end_ns) == (10, 19)


def test_what_is_asked_begins_and_ends_with_a_window() -> None:
    """`steps` keeps every iteration, slow ones beyond the usual three among them; `off` keeps none.

    What would have been kept anyway says so, and bears that all were asked for.
    """
    sketch = Sketch()
    keeper = Keeper(KeepPolicy(every=10, max_slow=1), sketch)
    keeper.next_detail = Detail.STEPS
    offer(keeper, sketch, [100] * 25)
    assert show(keeper.take()) == [(0, "first"), (10, "sampled")]
    keeper.next_detail = Detail.OFF
    offer(keeper, sketch, [100, 500, 300, 100, 100, 100], first=25)
    kept = keeper.take()
    reasons = ["asked", "slow", "slow", "asked", "asked", "sampled"]
    assert show(kept) == [*zip(range(25, 31), reasons, strict=True)]
    assert all(iteration.is_asked for iteration in kept)
    keeper.next_detail = Detail.NORMAL
    offer(keeper, sketch, [100, 900, 100], first=39)
    assert keeper.take() == ()
    offer(keeper, sketch, [100, 900], first=50)
    assert show(keeper.take()) == [(50, "sampled"), (51, "slow")]


def test_a_fast_loop_keeps_no_more_than_could_be_shown() -> None:
    """However many iterations a window has, some 150 are held in memory: the first of it."""
    sketch = Sketch()
    keeper = Keeper(KeepPolicy(every=10_000), sketch)
    keeper.detail = Detail.STEPS
    offer(keeper, sketch, [100] * 5_000, first=1)
    assert [kept.index for kept in keeper.take()] == [*range(1, 151)]
