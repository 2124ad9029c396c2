"""All records of a run merged into one."""

from __future__ import annotations

import json
from decimal import Decimal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.account.ledger import merge, merge_readable, parse_records
from costlens.core.phases import NAMES
from costlens.core.records import RankRecord
from costlens.core.run_record import RunRecord
from costlens.core.telemetry_records import Detail, DetailPart, ExportHealth, TelemetryPart
from costlens.core.training_records import IterationTimePart, QualityPart, RatesPart
from costlens.errors import RecordError
from tests.unit.account.build import START, make_iteration_time, make_price, make_record

NOW = START + 10_000.0


def _two_attempts() -> list[RankRecord]:
    price = make_price("3600")
    return [
        make_record(
            1,
            time_s={"startup": 2.0, "compute": 8.0},
            outcome="failed",
            price=price,
            progress={"iterations": 10, "optimizer_steps": 10, "tokens": 1000},
            rates=RatesPart(tokens_per_s=100.0),
            iteration_time=make_iteration_time(*[1.0] * 9),
            attempt_start_step=0,
            attempt_end_step=10,
        ),
        make_record(
            2,
            time_s={"compute": 1.0},
            price=price,
            progress={"iterations": 1, "optimizer_steps": 1, "tokens": 100},
            rates=RatesPart(tokens_per_s=100.0),
            iteration_time=make_iteration_time(1.0),
            attempt_start_step=8,
            attempt_end_step=9,
        ),
    ]


def test_totals_are_the_runs_and_rates_the_attempts() -> None:
    """C056 as arithmetic: 1000 tokens in 10 s, 100 in 1 s: 100 tokens/s, 1100 tokens, 11 s."""
    run = merge(_two_attempts(), now=NOW)
    assert run.rates.tokens_per_s == 100.0
    assert run.progress.tokens == 1100
    assert run.time_s["total"] == 11.0
    assert run.cost.total == "11.00"
    assert run.cost.by_attempt == {"1": "10.00", "2": "1.00"}


def test_lost_work_is_what_the_second_attempt_did_again() -> None:
    """Attempt 1 reached step 10, attempt 2 resumed at 8: two of eleven steps are lost."""
    progress = merge(_two_attempts(), now=NOW).progress
    assert (progress.optimizer_steps, progress.lost_steps, progress.productive_steps) == (11, 2, 9)


def test_elapsed_time_never_mixes_clocks() -> None:
    """C010 as arithmetic: hosts whose clocks differ by days: durations are sums, never negative."""
    first = make_record(1, time_s={"compute": 40.0}, start_time=START + 1e6)
    second = make_record(2, time_s={"compute": 5.0}, start_time=START)
    run = merge([first, second], now=NOW)
    assert run.time_s["total"] == 45.0
    assert [attempt.wall_s for attempt in run.attempts] == [40.0, 5.0]
    assert any("clocks differ" in problem for problem in run.problems), "and the skew is flagged"


def test_ranks_add_samples_and_share_steps() -> None:
    """Two ranks of one job: tokens and micro-batches add up, iterations and steps do not."""
    counts = {"iterations": 4, "micro_batches": 4, "optimizer_steps": 2, "samples": 8, "tokens": 40}
    run = merge(
        [
            make_record(rank=0, world_size=2, progress=counts),
            make_record(rank=1, world_size=2, progress={**counts, "iterations": 3}),
        ],
        now=NOW,
    )
    assert (run.progress.iterations, run.progress.optimizer_steps) == (4, 2)
    assert (run.progress.micro_batches, run.progress.samples, run.progress.tokens) == (8, 16, 80)
    assert run.problems == []


def test_a_count_that_one_rank_hides_is_absent() -> None:
    """A sum over some of the ranks is not the run's."""
    known = make_record(rank=0, progress={"iterations": 1, "tokens": 5, "samples": 1})
    blind = make_record(rank=1, progress={"iterations": 1, "samples": 1})
    progress = merge([known, blind], now=NOW).progress
    assert (progress.tokens, progress.samples) == (None, 2)


def test_missing_ranks_are_told_and_make_the_money_partial() -> None:
    """Three of four ranks have written: the totals say what they leave out."""
    records = [
        make_record(rank=rank, world_size=4, time_s={"compute": 1.0}, price=make_price("3600"))
        for rank in range(3)
    ]
    run = merge(records, now=NOW)
    assert run.problems == ["attempt 1 has records of 3 of 4 ranks; totals leave the others out"]
    assert (run.cost.total, run.cost.is_partial) == ("3.00", True)


def test_a_killed_run_is_lost_where_it_was_last_seen() -> None:
    """An old record that says running ends at its heartbeat, in the phase it was in."""
    record = make_record(
        time_s={"compute": 20.0}, outcome="running", open_phase="data_wait", open_phase_s=4.0
    )
    run = merge([record], now=START + 1000.0)
    (attempt,), (rank,) = run.attempts, run.ranks
    assert (attempt.outcome.value, attempt.end_time) == ("lost", START + 20.0)
    assert (rank.outcome.value, rank.open_phase) == ("lost", "data_wait")
    live = merge([record], now=START + 21.0)
    assert (live.attempts[0].outcome.value, live.ranks[0].open_phase_s) == ("running", 4.0)


def test_each_rank_is_shown_in_its_newest_attempt() -> None:
    """A job that shrank from two ranks to one still shows the rank that left."""
    records = [
        make_record(1, rank, world_size=2, time_s={"compute": 5.0}, outcome="failed")
        for rank in (0, 1)
    ]
    records.append(make_record(2, 0, time_s={"compute": 7.0}))
    run = merge(records, now=NOW)
    assert [(rank.rank, rank.attempt) for rank in run.ranks] == [(0, 2), (1, 1)]
    assert run.ranks[0].time_s["total"] == 7.0


def test_the_newest_of_two_records_of_a_rank_counts() -> None:
    """Two files for one attempt and rank: the newer heartbeat wins and a line says so."""
    old = make_record(time_s={"compute": 5.0})
    new = make_record(time_s={"compute": 9.0})
    run = merge([new, old], now=NOW)
    assert run.time_s["total"] == 9.0
    assert run.problems == ["attempt 1, rank 0 has 2 records; the newest counts"]


def test_phases_that_do_not_add_up_are_told() -> None:
    """Every nanosecond belongs to one phase; a record that breaks this is shown as broken."""
    record = make_record(time_s={"compute": 1.0}).model_copy(update={"total_ns": 5})
    (problem,) = merge([record], now=NOW).problems
    assert problem == "attempt 1, rank 0: the phases add up to 1000000000 ns, not to 5 ns"


def test_other_versions_and_damaged_records_are_skipped_and_told() -> None:
    """A reader takes what it understands and says what it left out."""
    good = json.loads(make_record().model_dump_json())
    newer = {**good, "schema_version": "costlens.rank/9"}
    broken = {**good, "rank": {"rank": -1}}
    records, problems = parse_records(
        {f"record-1-{rank}.json": each for rank, each in enumerate([good, newer, broken, {}])}
    )
    assert records == {"record-1-0.json": make_record()}
    reads = "was skipped; this costlens reads costlens.rank/1"
    assert problems == [
        f"record-1-1.json: a record of version 'costlens.rank/9' {reads}",
        "record-1-2.json: the record was skipped: rank.rank is missing or wrong",
        f"record-1-3.json: a record of version None {reads}",
    ]


HUGE = 2**70
IMPOSSIBLE = [
    ("price.amount", "1e60"),
    ("price.amount", "1e999999"),
    ("price.amount", "-1"),
    ("price.amount", "0.0000000000001"),
    ("price.amount", "NaN"),
    ("price.share", "1e9"),
    ("rank.pid", HUGE),
    ("rank.pid", str(HUGE)),
    ("rank.pid", 0),
    ("rank.pid_start_ticks", -1),
    ("progress.tokens", -1),
    ("progress.tokens", HUGE),
    ("progress.iterations", "12"),
    ("attempt.heartbeat_time", 1e300),
    ("attempt.start_time", -1.0),
    ("attempt.end_time", float("nan")),
    ("attempt.exit_code", HUGE),
    ("time_ns.compute", -1),
    ("total_ns", HUGE),
    ("telemetry.overhead_s", 1e308),
    ("telemetry.overhead_s", "inf"),
    ("run.name", "\ud800"),
    ("rates.tokens_per_s", float("inf")),
    ("quality.\udcff", {}),
]


@pytest.mark.parametrize(("place", "value"), IMPOSSIBLE)
def test_an_impossible_value_costs_its_record_and_no_other(place: str, value: object) -> None:
    """The record is left out by the name of its file; the rest is merged and can be written."""
    good = make_record(attempt=2, time_s={"compute": 1.0}, price=make_price("1"))
    broken = json.loads(make_record(price=make_price("1")).model_dump_json())
    *parents, last = place.split(".")
    part = broken
    for parent in parents:
        part = part[parent]
    part[last] = value
    documents = {"record-1-0.json": broken, "record-2-0.json": json.loads(good.model_dump_json())}
    records, problems = parse_records(documents)
    assert [*records] == ["record-2-0.json"]
    assert [problem.split(":")[0] for problem in problems] == ["record-1-0.json"]
    merge_readable(records, problems, now=NOW).model_dump_json().encode()


def test_a_record_that_breaks_the_sums_is_named() -> None:
    """Bins far beyond any duration, and rows that do not fit: the others are merged."""
    good, other = (make_record(rank=rank, world_size=3, time_s={"compute": 1.0}) for rank in (0, 1))
    far = IterationTimePart(count=1, sum_ns=1, sketch={10**9: 1})
    broken = make_record(rank=2, time_s={"compute": 1.0}, iteration_time=far)
    run = merge_readable({"a.json": broken, "b.json": good, "c.json": other}, now=NOW)
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert "a.json: the record was skipped: OverflowError in its sums" in run.problems
    short, long = (IterationTimePart(bounds_s=[1.0], buckets=[0] * n) for n in (1, 2))
    records = {
        name: record.model_copy(update={"iteration_time": part})
        for name, record, part in (("b.json", good, short), ("c.json", other, long))
    }
    run = merge_readable(records, now=NOW)
    assert [rank.rank for rank in run.ranks] == [0]
    assert "c.json: the record was skipped: ValueError in its sums" in run.problems


def test_fields_of_a_newer_costlens_are_ignored() -> None:
    """A record with an additional field is read like any other."""
    records, problems = parse_records(
        {"a": {**json.loads(make_record().model_dump_json()), "mood": 1}}
    )
    assert (len(records), problems) == (1, [])


def test_no_record_is_an_error_that_says_so() -> None:
    """There is nothing to report before the first record."""
    with pytest.raises(RecordError, match="no readable record"):
        merge([], now=NOW)


def test_quality_is_the_newest_attempts_with_the_best_of_all() -> None:
    """The last value is the newest attempt's; the best may be older, with its time and money."""
    records = [
        make_record(
            1,
            time_s={"compute": 100.0},
            price=make_price("3600"),
            quality={"val_loss": QualityPart(last=3.0, best=2.0, best_after_s=60.0, num_values=4)},
        ),
        make_record(
            2,
            time_s={"compute": 50.0},
            price=make_price("3600"),
            quality={
                "val_loss": QualityPart(last=2.5, best=2.4, best_after_s=10.0, num_values=2),
                "val_acc": QualityPart(
                    last=0.5, best=0.6, best_after_s=20.0, higher_is_better=True
                ),
            },
        ),
    ]
    quality = merge(records, now=NOW).quality
    loss, accuracy = quality["val_loss"], quality["val_acc"]
    assert (loss.last, loss.best, loss.best_after_s, loss.num_values) == (2.5, 2.0, 60.0, 2)
    assert loss.cost_to_best == "60.00"
    assert (accuracy.best, accuracy.best_after_s, accuracy.cost_to_best) == (0.6, 120.0, "120.00")


def test_quality_survives_into_an_attempt_that_has_not_validated_yet() -> None:
    """After a restart the last known value is still the run's."""
    before = make_record(1, quality={"val_loss": QualityPart(last=3.0, best=2.0)})
    assert merge([before, make_record(2)], now=NOW).quality["val_loss"].last == 3.0


def test_cost_to_best_counts_every_rank_and_needs_every_price() -> None:
    """Reaching a value costs what all ranks had been paid by then; unknown if one has no price."""
    quality = {"val_loss": QualityPart(last=1.0, best=1.0, best_after_s=10.0)}
    priced = [
        make_record(rank=rank, time_s={"compute": 30.0}, price=make_price("3600"), quality=quality)
        for rank in (0, 1)
    ]
    assert merge(priced, now=NOW).quality["val_loss"].cost_to_best == "20.00"
    unpriced = make_record(rank=2, time_s={"compute": 30.0})
    assert merge([*priced, unpriced], now=NOW).quality["val_loss"].cost_to_best is None


def test_telemetry_adds_up_and_shows_the_worst_state() -> None:
    """Faults and drops of all ranks add up; a signal shows the state of its worst rank."""
    fine = TelemetryPart(
        exports={"metrics": ExportHealth(state="ok", exports_ok=9)}, faults={"a": 1}
    )
    bad = TelemetryPart(
        exports={"metrics": ExportHealth(state="open", exports_failed=3, last_error_type="X")},
        faults={"a": 2, "b": 1},
        rows_dropped=7,
    )
    telemetry = merge(
        [make_record(rank=0, telemetry=fine), make_record(rank=1, telemetry=bad)], now=NOW
    ).telemetry
    assert telemetry.faults == {"a": 3, "b": 1}
    assert telemetry.rows_dropped == 7
    assert telemetry.exports["metrics"] == ExportHealth(
        state="open", exports_ok=9, exports_failed=3, last_error_type="X"
    )


def test_the_detail_of_a_run_is_that_of_its_newest_attempt() -> None:
    """Of its ranks the one whose detail ends last speaks for the run; each keeps its own.

    Unread requests add up; an attempt that has ended has no detail in force.
    """
    normal = DetailPart(name=Detail.NORMAL)
    off, steps = (DetailPart(name=name, until=NOW + 60) for name in (Detail.OFF, Detail.STEPS))
    records = [
        make_record(
            attempt,
            rank,
            outcome=outcome,
            world_size=2,
            heartbeat_time=NOW,
            telemetry=TelemetryPart(detail=detail, control_failures=2),
        )
        for attempt, rank, outcome, detail in (
            (1, 0, "failed", off),
            (2, 0, "running", normal),
            (2, 1, "running", steps),
        )
    ]
    merged = merge(records, now=NOW)
    assert merged.telemetry.detail == steps
    assert merged.telemetry.control_failures == 6
    assert [rank.detail for rank in merged.ranks] == [normal, steps]
    ended = merge(records[:1], now=NOW)
    assert [rank.detail for rank in ended.ranks] == [None]


def test_the_merged_record_fits_its_own_schema() -> None:
    """What is printed as JSON validates against the published schema, with and without a price."""
    schema = RunRecord.model_json_schema()
    for records in (_two_attempts(), [make_record()]):
        jsonschema.validate(json.loads(merge(records, now=NOW).model_dump_json()), schema)


_RECORDS = st.lists(
    st.builds(
        lambda attempt, rank, phases, tokens, amount, outcome: make_record(
            attempt,
            rank,
            time_s=phases,
            outcome=outcome,
            world_size=3,
            progress={"iterations": 1, "optimizer_steps": tokens % 7, "tokens": tokens},
            price=make_price(f"{amount:f}"),
            iteration_time=make_iteration_time(0.1 + rank),
            quality={"loss": QualityPart(last=float(tokens), best=float(tokens), best_after_s=0.5)},
            attempt_start_step=0,
        ),
        st.integers(1, 4),
        st.integers(0, 2),
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 1000).map(lambda ms: ms / 1000)),
        st.integers(0, 10_000),
        st.decimals(0, 100, places=3),
        st.sampled_from(["running", "completed", "failed"]),
    ),
    min_size=1,
    max_size=10,
)


@given(records=_RECORDS, order=st.randoms(use_true_random=False))
def test_the_order_of_the_records_does_not_matter(records: list, order) -> None:
    """Any permutation gives the same merged record, also with duplicates among them."""
    shuffled = records.copy()
    order.shuffle(shuffled)
    assert merge(shuffled, now=NOW) == merge(records, now=NOW)


@given(records=_RECORDS)
def test_sums_equal_an_independent_computation(records: list) -> None:
    """Time, tokens and money are the plain sums over one record per attempt and rank."""
    unique = {}
    for record in sorted(records, key=lambda r: r.model_dump_json()):
        unique.setdefault((record.attempt.number, record.rank.rank), record)
    records = list(unique.values())
    run = merge(records, now=NOW)
    assert run.time_s["total"] == pytest.approx(sum(r.total_ns for r in records) / 1e9, abs=1e-6)
    for name in NAMES:
        expected = sum(r.time_ns.get(name, 0) for r in records) / 1e9
        assert run.time_s[name] == pytest.approx(expected, abs=1e-6)
    assert run.progress.tokens == sum(r.progress.tokens for r in records)
    money = sum(Decimal(r.price.amount) * r.total_ns / 3_600_000_000_000 for r in records)
    assert abs(Decimal(run.cost.total) - money) <= len(records) * Decimal("5e-10")
    assert run.iteration_time.count == sum(
        r.iteration_time.count for r in records if r.attempt.number == run.attempts[-1].number
    )
