"""The ledger against a replay: a small world is lived through second by second and counted.

The world writes record files; the ledger merges them. The replay knows neither the records nor
``account/``: it walks over what happened, one second of one rank at a time, with fractions.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from costlens.account.ledger import merge, parse_records

EPOCH = 1_760_000_000
TRAINING = ("forward", "backward", "optimizer", "compute")
WASTE = (
    *("startup", "restore", "data_wait", "transfer", "communication", "checkpoint"),
    *("validation", "callbacks", "logging", "idle", "shutdown", "other"),
)
BAD = ("failed", "lost", "preempted", "interrupted")
ROUNDING = Decimal("1e-9")


@dataclass(frozen=True)
class Life:
    """One rank in one attempt: seconds in order, each with its phase and the step it trained."""

    attempt: int
    rank: int
    seconds: tuple[tuple[str, int | None], ...]
    rate: str | None
    share: str
    currency: str
    has_record: bool
    clock_s: int
    discount: str | None
    is_node_price: bool
    num_unowned: int | None


@dataclass(frozen=True)
class Launch:
    """One attempt: where it resumed, how many steps it made, how it ended, what it last saved."""

    number: int
    outcome: str
    start_step: int
    num_steps: int
    saved_step: int | None
    lives: tuple[Life, ...]


@st.composite
def launches(draw, *, currencies=("USD",)) -> list[Launch]:
    """Draw a run: attempts of any size that resume anywhere, at prices that change."""
    run: list[Launch] = []
    reached = 0
    knows_saves = draw(st.booleans())
    for number in range(1, draw(st.integers(1, 4)) + 1):
        start = draw(st.integers(0, reached + 1))
        num_steps = draw(st.integers(0, 6))
        seconds_a_step = draw(st.integers(1, 3))
        saved = draw(st.integers(start, start + num_steps)) if knows_saves else None
        lives = []
        for rank in range(draw(st.integers(1, 3))):
            trained = [
                (draw(st.sampled_from(TRAINING)), start + n // seconds_a_step)
                for n in range(num_steps * seconds_a_step)
            ]
            wasted = [(phase, None) for phase in draw(st.lists(st.sampled_from(WASTE), max_size=8))]
            lives.append(
                Life(
                    attempt=number,
                    rank=rank,
                    seconds=tuple(draw(st.permutations(trained + wasted))),
                    rate=draw(st.sampled_from(["0", "2.5", "3.333333", "98.32", None])),
                    share=draw(st.sampled_from(["1", "2", "8", "0.125", "0.333333333333"])),
                    currency=draw(st.sampled_from(currencies)),
                    has_record=draw(st.integers(0, 5)) > 0 or rank == 0,
                    clock_s=draw(st.integers(-100_000, 100_000)),
                    discount=draw(st.sampled_from([None, "0", "0.15", "1"])),
                    is_node_price=draw(st.booleans()),
                    # Rank 0 of the node books what nobody drives; the others know of none.
                    num_unowned=draw(st.sampled_from([None, 0, 1, 7])) if rank == 0 else None,
                )
            )
        outcome = draw(st.sampled_from(["completed", "stopped_early", *BAD]))
        run.append(Launch(number, outcome, start, num_steps, saved, tuple(lives)))
        reached = max(reached, start + num_steps)
    return run


def write(run: list[Launch]) -> dict[str, dict[str, object]]:
    """Return the record files of a run as the ranks would have left them, decoded."""
    files: dict[str, dict[str, object]] = {}
    began = EPOCH
    for launch in run:
        for life in launch.lives:
            if life.has_record:
                files[f"record-{life.attempt}-{life.rank}.json"] = _file(launch, life, began)
        began += max(len(life.seconds) for life in launch.lives) + 50
    return json.loads(json.dumps(files))


def _file(launch: Launch, life: Life, began: int) -> dict[str, object]:
    start = began + life.clock_s
    num_ns = Counter(phase for phase, _ in life.seconds)
    file: dict[str, object] = {
        "schema_version": "costlens.rank/1",
        "run": {"id": "run-1", "name": "run", "costlens_version": "0"},
        "attempt": {
            "number": life.attempt,
            "launch_key": str(life.attempt),
            "outcome": launch.outcome,
            "start_time": start,
            "heartbeat_time": start + len(life.seconds),
            "end_time": start + len(life.seconds),
            "start_step": launch.start_step,
            "end_step": launch.start_step + launch.num_steps,
            "saved_step": launch.saved_step,
        },
        "rank": {
            "rank": life.rank,
            "world_size": len(launch.lives),
            "host_name": "node",
            "pid": 1 + life.rank,
            "local_rank": life.rank,
            "unowned_gpus": life.num_unowned,
        },
        "progress": {"iterations": launch.num_steps, "optimizer_steps": launch.num_steps},
        "time_ns": {phase: count * 10**9 for phase, count in num_ns.items()},
        "total_ns": len(life.seconds) * 10**9,
    }
    if life.rate is not None:
        file["price"] = {
            "amount": life.rate,
            "unit": "node" if life.is_node_price else "gpu",
            "discount": life.discount,
            "share": life.share,
            "currency": life.currency,
            "source": "test",
        }
    return file


class Replay:
    """What happened to every second: its phase, whether its work survived, its exact price."""

    def __init__(self, run: list[Launch]) -> None:
        self.num_seconds: Counter[str] = Counter()
        self.money: Counter[str] = Counter()
        self.by_attempt: Counter[int] = Counter()
        self.by_rank: Counter[int] = Counter()
        self.by_currency: Counter[str] = Counter()
        self.lost_s = 0
        self.lost_money = Fraction(0)
        self.num_paid = 0
        survivors = _survivors(run)
        for launch in run:
            for life in launch.lives:
                if life.has_record:
                    self._live(life, survivors)
        self.lost_steps = sum(launch.num_steps for launch in run) - len(survivors)

    def _live(self, life: Life, survivors: set[tuple[int, int]]) -> None:
        a_device = None
        if life.rate is not None:
            a_device = Fraction(life.rate) * (1 - Fraction(life.discount or 0)) / 3600
        self.num_paid += a_device is not None
        for phase, step in life.seconds:
            paid = (a_device or Fraction(0)) * Fraction(life.share)
            self._idle(life, a_device or Fraction(0))
            self.num_seconds[phase] += 1
            self.money[phase] += paid
            self.by_attempt[life.attempt] += paid
            self.by_rank[life.rank] += paid
            self.by_currency[life.currency] += paid
            if step is not None and (life.attempt, step) not in survivors:
                self.lost_s += 1
                self.lost_money += paid

    def _idle(self, life: Life, a_device: Fraction) -> None:
        # A node's price pays for all of its devices already.
        for _ in range(0 if life.is_node_price and life.rate else life.num_unowned or 0):
            self.num_seconds["idle_device"] += 1
            self.money["idle_device"] += a_device
            self.by_attempt[life.attempt] += a_device
            self.by_rank[life.rank] += a_device
            self.by_currency[life.currency] += a_device


def _survivors(run: list[Launch]) -> set[tuple[int, int]]:
    """Return the attempt and number of every step that nobody did again, or will have to."""
    alive: set[tuple[int, int]] = set()
    for launch in run:
        alive = {(attempt, step) for attempt, step in alive if step < launch.start_step}
        alive |= {(launch.number, launch.start_step + n) for n in range(launch.num_steps)}
    if run[-1].outcome in BAD and run[-1].saved_step is not None:
        alive = {(attempt, step) for attempt, step in alive if step < run[-1].saved_step}
    return alive


def _merge(files: dict[str, dict[str, object]]):
    records, problems = parse_records(files)
    assert problems == []
    return merge([*records.values()], now=EPOCH + 10**6)


def _is_near(shown: str | None, exact: Fraction, num_parts: int) -> bool:
    assert shown is not None
    error = abs(Fraction(Decimal(shown)) - exact)
    return error <= (num_parts + 1) * Fraction(ROUNDING)


def _sum(amounts) -> Decimal:
    return sum((Decimal(amount) for amount in amounts), Decimal(0))


@settings(max_examples=250)
@given(run=launches())
def test_time_and_money_are_those_of_every_second(run: list[Launch]) -> None:
    """Phases, attempts, ranks and totals agree with the replay; nothing is lost or doubled."""
    seen, truth = _merge(write(run)), Replay(run)
    num_seconds = sum(truth.num_seconds.values())
    assert seen.time_s["total"] == num_seconds
    assert {n: s for n, s in seen.time_s.items() if s and n != "total"} == truth.num_seconds
    cost = seen.cost
    if not truth.num_paid:
        assert cost.total is None
        return
    num_parts = 60
    assert _is_near(cost.total, sum(truth.money.values()), num_parts)
    assert _sum(cost.by_phase.values()) == _sum(cost.by_attempt.values()) == Decimal(cost.total)
    assert _sum(cost.by_rank.values()) == Decimal(cost.total)
    for name, money in cost.by_phase.items():
        assert Decimal(money) >= 0
        assert _is_near(money, truth.money[name], num_parts)
    for number, money in cost.by_attempt.items():
        assert _is_near(money, truth.by_attempt[int(number)], num_parts)
    for rank, money in cost.by_rank.items():
        assert _is_near(money, truth.by_rank[int(rank)], num_parts)
    lives = [life for launch in run for life in launch.lives]
    assert cost.is_partial == any(not life.has_record or life.rate is None for life in lives)


@settings(max_examples=250)
@given(run=launches())
def test_productive_lost_and_other_make_the_total(run: list[Launch]) -> None:
    """Each second survived, was lost or was no training; sums are exact in time and in money."""
    seen, truth = _merge(write(run)), Replay(run)
    part = seen.goodput
    wasted_s = {name: spent.time_s for name, spent in part.badput.items()}
    lost_s = wasted_s.pop("lost_work", 0.0)
    expected = {n: c for n, c in truth.num_seconds.items() if n not in TRAINING}
    trained_s = sum(truth.num_seconds[name] for name in TRAINING)
    assert wasted_s == expected
    assert part.training.time_s == trained_s
    assert seen.progress.lost_steps == truth.lost_steps
    assert abs(lost_s - truth.lost_s) < 1e-6
    assert abs(part.productive.time_s - (trained_s - truth.lost_s)) < 1e-6
    if part.training.money is None:
        assert not truth.num_paid
        return
    causes = [Decimal(spent.money) for spent in part.badput.values()]
    productive = Decimal(part.productive.money)
    assert min([productive, *causes]) >= 0
    assert productive + sum(causes) == Decimal(seen.cost.total)
    trained = productive + Decimal(
        part.badput["lost_work"].money if "lost_work" in part.badput else 0
    )
    assert trained == Decimal(part.training.money)
    assert abs(Fraction(trained - productive) - truth.lost_money) <= 60 * Fraction(ROUNDING)


@settings(max_examples=100)
@given(run=launches(currencies=("USD", "EUR")))
def test_currencies_are_never_added(run: list[Launch]) -> None:
    """C111: a run that was paid in two currencies has two totals, each the replay's, and no sum."""
    seen, truth = _merge(write(run)), Replay(run)
    lives = [life for launch in run for life in launch.lives if life.has_record]
    currencies = {life.currency for life in lives if life.rate is not None}
    if len(currencies) < 2:
        assert seen.cost.by_currency == {}
        return
    assert seen.cost.total is None
    assert seen.goodput.training.money is None
    assert {*seen.cost.by_currency} == currencies
    for currency, money in seen.cost.by_currency.items():
        assert _is_near(money, truth.by_currency[currency], 60)


@settings(max_examples=100)
@given(run=launches(), again=st.data())
def test_records_that_come_twice_or_in_any_order_change_nothing(run: list[Launch], again) -> None:
    """An older copy of a record beside the newer one is not paid for again."""
    files = write(run)
    plain = _merge(files)
    name = again.draw(st.sampled_from(sorted(files)))
    older = json.loads(json.dumps(files[name]))
    older["attempt"]["heartbeat_time"] -= 1
    shuffled = again.draw(st.permutations([*files.items(), (f"older-{name}", older)]))
    twice = _merge(dict(shuffled))
    assert twice.cost == plain.cost
    assert twice.time_s == plain.time_s
    assert twice.goodput == plain.goodput
    assert twice.progress == plain.progress


@settings(max_examples=100)
@given(run=launches())
def test_skewed_clocks_make_nothing_negative(run: list[Launch]) -> None:
    """C010: hosts that are a day apart: no duration below 0, and the sums are still the ranks'."""
    seen = _merge(write(run))
    assert all(attempt.wall_s >= 0 for attempt in seen.attempts)
    assert all(seconds >= 0 for seconds in seen.goodput.unpaid_s.values())
    longest = [max(len(x.seconds) for x in launch.lives if x.has_record) for launch in run]
    assert [attempt.wall_s for attempt in seen.attempts] == longest
