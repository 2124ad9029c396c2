"""The metric catalogue: what its entries read from a snapshot."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.core.device_records import GpuPart
from costlens.core.guard import faults
from costlens.core.phases import Phase
from costlens.core.records import Outcome
from costlens.core.snapshot import Snapshot
from costlens.core.telemetry_records import ExportHealth, TelemetryPart
from costlens.core.trouble_records import StallPart
from costlens.core.window import Histogram
from costlens.export import catalog
from costlens.export.catalog import METRICS, NUM_OWN_VALUES, Metric, read_points
from tests.unit.export.rehearsal import PRICE, Rehearsal, complete

BY_NAME = {metric.name: metric for metric in METRICS}
IDENTITY = {"costlens.run.id", "costlens.rank"}
RARE = (
    "costlens.nonfinite.events",
    "costlens.telemetry.faults",
    "costlens.telemetry.dropped",
    "costlens.telemetry.exports",
    "costlens.record.failures",
)


def values(snapshot: Snapshot, name: str) -> dict[str, float]:
    """Return the values of a metric by those attributes that are not the identity's, joined."""
    found = {}
    for attributes, value in read_points(BY_NAME[name], snapshot):
        own = [str(attributes[key]) for key in attributes if key not in IDENTITY]
        if not isinstance(value, Histogram):
            found[" ".join(own)] = value
    return found


def series(snapshot: Snapshot) -> set[tuple[str, frozenset[tuple[str, object]]]]:
    """Return every series of a snapshot."""
    return {
        (metric.name, frozenset(attributes.items()))
        for metric in METRICS
        for attributes, _ in read_points(metric, snapshot)
    }


def test_series_do_not_grow_with_the_run() -> None:
    """C095.

    The series after 500 steps with five saves are those after 100, and none names a step, a path,
    an address or a message.
    """
    run = complete()
    run.steps(80)
    run.spend(Phase.CHECKPOINT, 1)
    early = series(run.look())
    for _ in range(4):
        run.steps(100)
        run.spend(Phase.CHECKPOINT, 1)
    run.spend(Phase.VALIDATION, 1)
    late = series(run.look())
    assert late == early
    texts = [str(v) for _, attributes in late for k, v in attributes if k != "costlens.run.id"]
    assert not [text for text in texts if re.search(r"[/\\]|0x[0-9a-f]{4}|\d{3}", text)]


def test_attribute_values_come_from_the_closed_lists() -> None:
    """No entry yields an attribute, or a value of one, that its entry does not allow."""
    snapshot = complete().look()
    for metric in METRICS:
        points = list(read_points(metric, snapshot))
        assert points, f"{metric.name} is not covered by the complete run"
        own: dict[str, set[object]] = {}
        for attributes, _ in points:
            assert attributes["costlens.run.id"] == "run-a"
            assert attributes["costlens.rank"] == 0
            rest = {k: v for k, v in attributes.items() if k in metric.attributes}
            assert len(rest) == len(attributes) - 2, metric.name
            for name, value in rest.items():
                if metric.attributes[name]:
                    assert value in metric.attributes[name], metric.name
                own.setdefault(name, set()).add(value)
        for name, seen in own.items():
            if not metric.attributes[name]:
                assert len(seen) <= NUM_OWN_VALUES.get(name, 1)


def test_unknown_is_absent() -> None:
    """What nobody reports has no point: tokens, samples, cost, planned steps, quality (law 3)."""
    run = Rehearsal()
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        run.spend(phase, 1)
    run.recorder.cut()
    snapshot = run.look()
    absent = ("tokens", "samples", "cost", "cost.rate", "step.planned", "loss", "quality")
    for name in absent:
        assert values(snapshot, f"costlens.{name}") == {}, name
    assert values(snapshot, "costlens.iterations") == {"": 1}


def test_a_price_of_zero_is_not_an_unknown_price() -> None:
    """C106: without a price there is no cost; a price of 0 costs exactly 0."""
    free = PRICE.model_copy(update={"amount": "0"})
    assert values(complete(price=None).look(), "costlens.cost") == {}
    cost = values(complete(price=free).look(), "costlens.cost")
    assert set(cost.values()) == {0.0}


def test_cost_is_price_times_phase_time_in_its_currency() -> None:
    """3.60 EUR an hour make 0.001 EUR a second.

    The currency is an attribute of the point (C111).
    """
    snapshot = complete().look()
    cost = values(snapshot, "costlens.cost")
    times = values(snapshot, "costlens.phase.time")
    assert cost == {f"{phase} EUR": pytest.approx(t * 0.001) for phase, t in times.items()}
    assert sum(cost.values()) == pytest.approx(0.020)
    assert values(snapshot, "costlens.cost.rate") == {"EUR": 3.6}


def test_phase_times_add_up_to_the_attempt() -> None:
    """The seconds per phase sum to the time since the attempt began (law 2)."""
    run = complete()
    run.spend(Phase.VALIDATION, 5.5)
    snapshot = run.look()
    times = values(snapshot, "costlens.phase.time")
    assert sum(times.values()) == pytest.approx(25.5)
    assert times["validation"] == 5.5
    assert "idle_device" not in times


def test_one_nan_poisons_nothing() -> None:
    """C073.

    Losses 1, NaN, inf, 2 leave loss 2, two non-finite events, and no value that is not finite.
    """
    run = complete()
    for loss in (1.0, math.nan, math.inf, 2.0):
        run.step()
        run.log(loss=loss)
    snapshot = run.look()
    assert values(snapshot, "costlens.nonfinite.events") == {"loss": 2, "gradient": 0, "metric": 0}
    assert values(snapshot, "costlens.loss")["train"] == 2.0
    assert values(snapshot, "costlens.tokens")["tokens"] == 2400
    for name in BY_NAME:
        assert all(map(math.isfinite, values(snapshot, name).values())), name


def test_a_value_that_is_not_finite_yields_no_point() -> None:
    """Whatever an entry reads: NaN and infinity are not exported."""
    for bad in (math.nan, math.inf, -math.inf):
        metric = Metric("x", "gauge", "", "x", lambda _s, bad=bad: [({}, bad), ({}, 1.0)])
        assert [value for _, value in read_points(metric, complete().look())] == [1.0]


def test_a_failing_entry_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """C101: an entry that raises on each read yields nothing, is counted, and the others flow."""

    def fail(_snapshot: Snapshot) -> list[catalog.Point]:
        raise RuntimeError("no such sensor")

    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr(faults, "counts", {})
    broken = Metric("broken", "gauge", "", "x", fail)
    snapshot = complete().look()
    assert list(read_points(broken, snapshot)) == []
    assert list(read_points(broken, snapshot)) == []
    assert faults.counts == {"export.catalog": 2}
    assert values(snapshot, "costlens.steps") == {"real": 20, "skipped": 0}


def test_rare_counters_are_there_from_the_start() -> None:
    """A counter born at 1 is invisible to increase(): every value exists at 0 in the first look."""
    first = Rehearsal().look(opens=True)
    for name in RARE:
        metric = BY_NAME[name]
        points = list(read_points(metric, first))
        assert len(points) == metric.max_series, name
        assert {value for _, value in points} == {0}, name


def test_counters_start_at_zero_with_the_attempt_and_never_go_back() -> None:
    """All counters of an attempt begin at 0 and only grow, whatever happens."""
    run = complete()
    counters = [m for m in METRICS if m.kind == "counter" and m.since == "attempt"]
    fresh = Rehearsal(price=PRICE).look(opens=True)
    for metric in counters:
        assert all(value == 0 for _, value in read_points(metric, fresh)), metric.name
    before: dict[str, dict[str, float]] = {}
    for phase in (Phase.FORWARD, Phase.CHECKPOINT, Phase.VALIDATION, Phase.LOGGING):
        run.spend(phase, 1 / 3)
        run.step()
        snapshot = run.look()
        for metric in counters:
            now = values(snapshot, metric.name)
            assert all(now[k] >= v for k, v in before.get(metric.name, {}).items()), metric.name
            before[metric.name] = now


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=20))
def test_cost_never_goes_back(spent_ns: list[int]) -> None:
    """However time is spent, no phase's cost is ever less than before.

    To a reader of a counter that would be a restart.
    """
    run = Rehearsal(price=PRICE.model_copy(update={"amount": "0.37", "share": "0.125"}))
    before: dict[str, float] = {}
    for number, spent in enumerate(spent_ns):
        run.spend(list(Phase)[2 + number % 11], spent / 1e9)
        cost = values(run.look(), "costlens.cost")
        assert all(cost[phase] >= money for phase, money in before.items())
        before = cost


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        (Phase.STARTUP, "starting"),
        (Phase.RESTORE, "starting"),
        (Phase.FORWARD, "running"),
        (Phase.DATA_WAIT, "running"),
        (Phase.VALIDATION, "evaluating"),
        (Phase.CHECKPOINT, "checkpoint"),
        (Phase.IDLE, "idle"),
        (Phase.SHUTDOWN, "stopping"),
    ],
)
def test_exactly_one_state_is_on(phase: Phase, state: str) -> None:
    """The open phase says which state a live rank is in; all other states are 0, not absent."""
    run = complete()
    run.timeline.enter(phase)
    states = values(run.look(), "costlens.run.state")
    assert {name for name, is_on in states.items() if is_on} == {state}
    assert len(states) == len(BY_NAME["costlens.run.state"].attributes["costlens.state"])


def test_an_ended_attempt_shows_its_outcome() -> None:
    """The last window says how the attempt ended, and that no phase is open any more."""
    last = complete().end(Outcome.PREEMPTED)
    states = values(last, "costlens.run.state")
    assert {name for name, is_on in states.items() if is_on} == {"preempted"}
    assert set(values(last, "costlens.phase.open.age").values()) == {0.0}


def test_the_open_phase_shows_its_age() -> None:
    """A rank that hangs is seen: the open phase's age grows, the others stay at 0."""
    run = complete()
    run.timeline.enter(Phase.BACKWARD)
    run.now_ns += 90_000_000_000
    ages = values(run.look(), "costlens.phase.open.age")
    assert {phase: age for phase, age in ages.items() if age} == {"backward": 90.0}


def test_steps_tokens_and_samples_are_separate_counts() -> None:
    """C109 and law 4.

    Slots, non-padding and loss tokens are kinds of their own, skipped steps too.
    """
    run = complete()
    run.recorder.counters.skipped_steps += 2
    snapshot = run.look()
    assert values(snapshot, "costlens.tokens") == {"slots": 2560, "tokens": 2000, "loss": 1500}
    assert values(snapshot, "costlens.steps") == {"real": 20, "skipped": 2}
    assert values(snapshot, "costlens.samples") == {"": 80}
    assert values(snapshot, "costlens.evaluation.batches") == {"validation": 3, "test": 0}


def test_the_current_step_counts_over_attempts() -> None:
    """A resumed attempt goes on counting where it resumed; a loop that does not say starts at 0."""
    run = complete()
    assert values(run.look(), "costlens.step.current") == {"": 60}
    run.state.end_step = None
    assert values(run.look(), "costlens.step.current") == {"": 60}  # resumed at 40, 20 made
    run.state.start_step = None
    assert values(run.look(), "costlens.step.current") == {"": 20}


@pytest.mark.parametrize(
    ("logged", "stage"),
    [
        ("loss", "train"),
        ("train_loss", "train"),
        ("train/loss_step", "train"),
        ("val_loss", "validation"),
        ("validation.loss", "validation"),
        ("eval-loss", "validation"),
        ("test_loss", "test"),
        ("val_accuracy", None),
        ("lossless", None),
    ],
)
def test_losses_are_known_by_their_names(logged: str, stage: str | None) -> None:
    """A loss is found by the word in its name, and its stage by another."""
    run = Rehearsal()
    run.log(**{logged: 1.5})
    snapshot = run.look()
    assert values(snapshot, "costlens.loss") == ({} if stage is None else {stage: 1.5})
    assert values(snapshot, "costlens.quality") == {logged: 1.5}


def test_of_two_losses_of_a_stage_the_first_speaks() -> None:
    """Where a stage's loss is logged per step and per epoch, always the same one is shown."""
    run = Rehearsal()
    for value in (3.0, 2.0):
        run.log(train_loss_step=value, train_loss_epoch=value + 10)
    assert values(run.look(), "costlens.loss") == {"train": 2.0}


def test_a_name_is_cut_to_a_label() -> None:
    """A metric logged under a whole sentence does not make a label of it."""
    run = Rehearsal()
    run.log(**{"a" * 1000: 1.0})
    assert values(run.look(), "costlens.quality") == {"a" * 100: 1.0}


def test_gradient_norm_and_learning_rate_are_known_by_their_names() -> None:
    """Their usual spellings get a metric of their own; what merely looks alike does not."""
    run = Rehearsal()
    run.log(**{"grad_2.0_norm_total": 3.0, "lr-AdamW": 0.1, "colour": 7.0})
    snapshot = run.look()
    assert values(snapshot, "costlens.grad.norm") == {"": 3.0}
    assert values(snapshot, "costlens.learning_rate") == {"": 0.1}


def test_more_names_than_allowed_make_no_more_series() -> None:
    """A run that logs a new metric name each step stays within the limit (C095)."""
    run = Rehearsal()
    run.log(**{f"metric_{number}": 1.0 for number in range(100)})
    assert len(values(run.look(), "costlens.quality")) == NUM_OWN_VALUES["costlens.quality.name"]


def test_faults_and_drops_are_told_by_place() -> None:
    """Faults are counted by the part of costlens, an unknown one as other; drops by who dropped."""
    run = Rehearsal()
    run.telemetry = TelemetryPart(
        faults={"export.otel_metrics.start": 2, "export.catalog": 1, "somewhere.new": 3},
        rows_dropped=7,
        spans_dropped=8,
        exports={
            "metrics": ExportHealth(state="open", exports_ok=1, exports_failed=4, items_dropped=9)
        },
    )
    snapshot = run.look()
    counted = {k: v for k, v in values(snapshot, "costlens.telemetry.faults").items() if v}
    assert counted == {"export": 3, "other": 3}
    dropped = {k: v for k, v in values(snapshot, "costlens.telemetry.dropped").items() if v}
    assert dropped == {"recorder": 7, "span_limit": 8, "metrics": 9}
    exports = {k: v for k, v in values(snapshot, "costlens.telemetry.exports").items() if v}
    assert exports == {"metrics success": 1, "metrics failure": 4}


def test_energy_and_devices_nobody_drives_are_costs_of_their_own() -> None:
    """6000 J at 0.30 are 0.0005, in no phase; an idle device costs what a driven one does."""
    run = complete(price=PRICE.model_copy(update={"unit": "gpu"}))
    snapshot = run.look()
    assert values(snapshot, "costlens.energy.cost") == {"USD": pytest.approx(0.0005)}
    cost = values(snapshot, "costlens.cost")
    elapsed_s = snapshot.record.total_ns / 1e9
    assert cost["idle_device EUR"] == pytest.approx(elapsed_s * 0.001)
    run.gpus.append(GpuPart(uuid="silent"))
    assert values(run.look(), "costlens.energy.cost") == {}, "a part would look like all of it"


def test_mfu_is_a_ratio_of_known_work_and_known_peak() -> None:
    """100 tokens a second at 1e9 FLOPs each are a tenth of 1e12 FLOP/s."""
    assert values(complete().look(), "costlens.mfu.ratio") == {"": pytest.approx(0.1)}
    assert values(Rehearsal().look(), "costlens.mfu.ratio") == {}


def test_unit_costs_of_the_run_name_what_they_are_per() -> None:
    """C107: the attribute names the unit, and the money is that of one of it."""
    found = values(complete().look(), "costlens.run.unit.cost")
    assert found == {"token EUR": 0.000035, "step EUR": 0.0035}
    run = complete()
    assert run.run_totals is not None
    run.run_totals = run.run_totals.model_copy(update={"cost": {"EUR": "1", "USD": "1"}})
    assert values(run.look(), "costlens.run.unit.cost") == {}


def test_a_stall_is_told_by_its_age_and_its_absence_by_0() -> None:
    """An alert needs no knowledge of limits: above 0 the rank has judged that it stands still."""
    run = complete()
    assert values(run.look(), "costlens.stall.age") == {"": 0}
    run.state.stall = StallPart(phase="data_wait", since=1.0, age_s=75.0, limit_s=60.0)
    assert values(run.look(), "costlens.stall.age") == {"": 75}
