"""Money of a run."""

from __future__ import annotations

import json
from decimal import Decimal, getcontext, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costlens.account.cost import charge_rank, format_money, price_run
from costlens.core.phases import NAMES
from costlens.export.figures import show_money
from tests.unit.account.build import make_price, make_record

FREE = make_price("0")
HALF_HOUR_S = 1800.0


def _gpus(amount: str) -> list:
    return [
        make_record(
            rank=rank,
            world_size=4,
            time_s={"startup": 300.0, "compute": HALF_HOUR_S - 300.0},
            price=make_price(amount, unit="gpu"),
            progress={"iterations": 10, "tokens": 250_000},
        )
        for rank in range(4)
    ]


def test_total_per_thousand_and_per_million() -> None:
    """C107: 4 GPUs × 2.50/h × 30 min, 1 000 000 tokens: 5.00, 0.005 per 1k, 5.00 per million."""
    cost = price_run(_gpus("2.50"), lost_steps={1: 0})
    assert (cost.currency, cost.total) == ("USD", "5.00")
    assert cost.per_1k_tokens == "0.005"
    assert cost.per_million_tokens == "5.00"
    assert cost.per_million_productive_tokens == "5.00"
    assert cost.token_basis == "tokens"
    assert cost.rate_per_hour == "10.00"
    assert cost.sources == ["COSTLENS_GPU_HOUR_PRICE"]
    assert not cost.is_partial


def test_one_rank_with_four_gpus_costs_the_same() -> None:
    """C107: whether four ranks or one drive the GPUs, the money is the same."""
    record = make_record(
        time_s={"compute": HALF_HOUR_S},
        price=make_price("2.50", unit="gpu", share="4"),
        progress={"iterations": 10, "tokens": 1_000_000},
    )
    assert price_run([record], {1: 0}).total == "5.00"


def test_three_ranks_share_a_node_without_dust() -> None:
    """Thirds of a node cannot be written down exactly, yet an hour of the node costs its price."""
    share = f"{Decimal(1) / 3:f}"
    records = [
        make_record(
            rank=rank,
            time_s=dict.fromkeys(NAMES[:9], 400.0),
            price=make_price("3", share=share),
        )
        for rank in range(3)
    ]
    assert price_run(records, None).total == "3.00"


def test_unknown_price_is_no_cost_with_one_hint() -> None:
    """C106: no price gives no total and the one hint, never 0."""
    records = [
        make_record(rank=rank, time_s={"compute": 9.0}, price_unknown="set X") for rank in (0, 1)
    ]
    cost = price_run(records, {1: 0})
    assert (cost.total, cost.by_phase, cost.per_1k_tokens) == (None, {}, None)
    assert cost.unknown == "set X"
    assert not cost.is_partial


def test_price_of_zero_costs_exactly_nothing() -> None:
    """C106: a price of 0 gives a total of 0 and ratios of 0, all of them known."""
    record = make_record(
        time_s={"compute": 9.0}, price=FREE, progress={"iterations": 1, "tokens": 10}
    )
    cost = price_run([record], {1: 0})
    assert (cost.total, cost.unknown) == ("0.00", None)
    assert cost.per_million_tokens == "0.00"


def test_sum_with_an_unknown_part_is_partial() -> None:
    """C106: what is priced is shown, marked as partial, and the reason is told."""
    priced = make_record(
        attempt=1,
        time_s={"compute": 3600.0},
        price=make_price("2"),
        progress={"iterations": 5, "tokens": 1000},
    )
    unpriced = make_record(
        attempt=2,
        time_s={"compute": 3600.0},
        price_unknown="set X",
        progress={"iterations": 5, "tokens": 7},
    )
    cost = price_run([priced, unpriced], {1: 0, 2: 0})
    assert (cost.total, cost.is_partial) == ("2.00", True)
    assert cost.unknown == "1 of 2 rank records have no price: set X"
    assert cost.per_1k_tokens == "2.00", "money and tokens must be those of the same ranks"
    assert cost.rate_per_hour is None, "the newest attempt has no price"


def test_a_missing_rank_makes_the_sum_partial() -> None:
    """A rank without a record has cost something, too."""
    record = make_record(time_s={"compute": 3600.0}, price=make_price("2"))
    assert price_run([record], None, is_complete=False).is_partial


@pytest.mark.parametrize(
    ("time_s", "progress"),
    [
        ({"compute": 5.0}, {"iterations": 5, "tokens": 0}),
        ({}, {"iterations": 0}),
        ({"startup": 0.0}, {"iterations": 0, "tokens": 0}),
    ],
)
def test_nothing_is_divided_by_zero(time_s: dict, progress: dict) -> None:
    """C108: 0 tokens or 0 s: ratios are absent, totals present, nothing is infinite or NaN."""
    cost = price_run(
        [make_record(time_s=time_s, price=make_price("3600"), progress=progress)], {1: 0}
    )
    assert cost.total == format_money(Decimal(int(sum(time_s.values()))))
    assert cost.per_1k_tokens is None
    assert cost.per_million_tokens is None
    assert cost.per_million_productive_tokens is None
    json.loads(cost.model_dump_json(), parse_constant=pytest.fail)


def test_currencies_are_never_added() -> None:
    """C111: attempts costing 1.00 USD and 2.00 EUR have two totals, never 3.00."""
    cost = price_run(
        [
            make_record(attempt=1, time_s={"compute": 3600.0}, price=make_price("1")),
            make_record(
                attempt=2, time_s={"compute": 3600.0}, price=make_price("2", currency="EUR")
            ),
        ],
        {1: 0, 2: 0},
    )
    assert cost.by_currency == {"EUR": "2.00", "USD": "1.00"}
    assert (cost.currency, cost.total, cost.by_attempt, cost.by_phase) == (None, None, {}, {})
    assert cost.unknown == "prices in EUR and USD are not added"


def test_padding_is_not_counted_when_tokens_are_known() -> None:
    """Non-padding tokens are the basis; positions only where nothing better was observed."""
    price = make_price("3600")
    both = {"iterations": 1, "tokens": 22, "slots": 28}
    cost = price_run([make_record(time_s={"compute": 22.0}, price=price, progress=both)], {1: 0})
    assert (cost.token_basis, cost.per_1k_tokens) == ("tokens", "1000.00")
    slots = {"iterations": 1, "slots": 28}
    cost = price_run([make_record(time_s={"compute": 28.0}, price=price, progress=slots)], {1: 0})
    assert (cost.token_basis, cost.per_1k_tokens) == ("slots", "1000.00")


def test_one_rank_without_tokens_hides_the_ratio() -> None:
    """A job whose tokens are known only in part has no cost per token: unknown is not zero."""
    price = make_price("1")
    records = [
        make_record(
            rank=0, time_s={"compute": 1.0}, price=price, progress={"iterations": 1, "tokens": 5}
        ),
        make_record(rank=1, time_s={"compute": 1.0}, price=price, progress={"iterations": 1}),
    ]
    cost = price_run(records, {1: 0})
    assert (cost.token_basis, cost.per_1k_tokens) == (None, None)


def test_an_attempt_that_never_iterated_does_not_hide_the_ratio() -> None:
    """A crash in start-up adds its money and no tokens."""
    price = make_price("3600")
    records = [
        make_record(attempt=1, time_s={"startup": 10.0}, price=price, outcome="failed"),
        make_record(
            attempt=2,
            time_s={"compute": 10.0},
            price=price,
            progress={"iterations": 1, "tokens": 1000},
        ),
    ]
    assert price_run(records, {1: 0, 2: 0}).per_1k_tokens == "20.00"


def test_lost_steps_make_productive_tokens_dearer() -> None:
    """100 of 400 steps were done again: a productive token costs a third more."""
    price = make_price("3600")
    records = [
        make_record(
            attempt=number,
            time_s={"compute": 600.0},
            price=price,
            progress={"iterations": 200, "optimizer_steps": 200, "tokens": 1_000_000},
        )
        for number in (1, 2)
    ]
    cost = price_run(records, {1: 100, 2: 0})
    assert cost.per_million_tokens == "600.00"
    assert cost.per_million_productive_tokens == "800.00"
    assert price_run(records, None).per_million_productive_tokens is None, "unknown is absent"


def test_unusable_price_in_a_record_is_unknown() -> None:
    """A damaged price is never taken for zero and never ends the report."""
    for amount in ("cheap", "NaN", "Infinity"):
        price = make_price("1").model_copy(update={"amount": amount})
        record = make_record(time_s={"compute": 1.0}, price=price)
        assert charge_rank(record) is None
        assert price_run([record], None).unknown == "no price in the record"


@pytest.mark.parametrize("amount", ["0.000000000001", "0.0001"])
def test_tiny_money_is_not_free(amount: str) -> None:
    """What is there has digits: total, phases, rate and price of a token, and they still add up."""
    record = make_record(
        time_s={"startup": 0.0005, "compute": 0.001},
        price=make_price(amount, share="0.0625"),
        progress={"iterations": 10, "tokens": 10**12},
    )
    cost = price_run([record], {1: 0})
    exact = Decimal(amount) * Decimal("0.0625") * Decimal("0.0015") / 3600
    assert cost.total is not None
    assert Decimal(cost.total) == pytest.approx(exact, rel=Decimal("0.01"))
    assert sum(map(Decimal, cost.by_phase.values())) == Decimal(cost.total)
    for money in (cost.rate_per_hour, cost.per_1k_tokens, cost.per_million_tokens):
        assert Decimal(money or "0") > 0
    assert "E" not in cost.total
    assert show_money(cost.total) != show_money("0")


@given(
    amounts=st.lists(st.decimals(0, 1000, places=6), min_size=1, max_size=4),
    phases=st.dictionaries(
        st.sampled_from(NAMES), st.integers(0, 10**16), min_size=1, max_size=len(NAMES)
    ),
)
def test_phases_and_attempts_add_up_to_the_total(amounts: list, phases: dict) -> None:
    """Money by phase and by attempt sums to the total to the last digit; none is negative."""
    records = [
        make_record(
            attempt=number, time_s={}, price=make_price(f"{amount:f}", share="0.3333333333")
        ).model_copy(update={"time_ns": phases, "total_ns": sum(phases.values())})
        for number, amount in enumerate(amounts, start=1)
    ]
    cost = price_run(records, None)
    total = Decimal(cost.total or "-1")
    assert sum(map(Decimal, cost.by_phase.values())) == total
    assert sum(map(Decimal, cost.by_attempt.values())) == total
    assert all(Decimal(money) >= 0 for money in cost.by_phase.values())
    exact = sum(
        amount * Decimal("0.3333333333") * sum(phases.values()) / 3_600_000_000_000
        for amount in amounts
    )
    assert abs(exact - total) <= len(amounts) * Decimal("5e-10")


def test_the_host_applications_decimal_context_does_not_matter() -> None:
    """A training script may set a coarse decimal precision; money stays exact."""
    with localcontext() as context:
        context.prec = 2
        assert price_run(_gpus("2.57"), {1: 0}).total == "5.14"
        assert getcontext().prec == 2


def test_money_is_written_plainly() -> None:
    """At least two decimals, no more than needed, never an exponent."""
    written = [format_money(Decimal(text)) for text in ("5", "0.005", "1E-7", "12.50", "1E+3", "0")]
    assert written == ["5.00", "0.005", "0.0000001", "12.50", "1000.00", "0.00"]


def _driven(amount: str, *, share: str, unowned: int | None, discount: str | None = None) -> list:
    record = make_record(time_s={"compute": 36.0}, price=make_price(amount, unit="gpu"))
    price = record.price.model_copy(update={"share": share, "discount": discount})
    rank = record.rank.model_copy(update={"unowned_gpus": unowned})
    return [record.model_copy(update={"price": price, "rank": rank})]


def test_four_ranks_of_one_device_each_cost_four_devices_c024() -> None:
    """C024: 4 local ranks, a device each, 36 s at 2.50 per GPU-hour: 0.10, not 16 or 4 times it."""
    records = [
        make_record(
            rank=rank,
            world_size=4,
            time_s={"compute": 36.0},
            price=make_price("2.50", unit="gpu"),
        )
        for rank in range(4)
    ]
    assert price_run(records, None).total == "0.10"


def test_devices_that_no_rank_drives_are_paid_for() -> None:
    """Of 8 allocated GPUs one is driven: the other seven cost as much, as idle_device."""
    cost = price_run(_driven("100", share="1", unowned=7), None)
    assert cost.by_phase == {"compute": "1.00", "idle_device": "7.00"}
    assert (cost.total, cost.rate_per_hour) == ("8.00", "800.00")
    known = price_run(_driven("100", share="1", unowned=0), None)
    assert known.by_phase == {"compute": "1.00"}


def test_a_nodes_price_pays_for_its_idle_devices_already() -> None:
    """A node is paid as a whole, and another local rank does not book what the first one does."""
    record = make_record(time_s={"compute": 36.0}, price=make_price("100"))
    rank = record.rank.model_copy(update={"unowned_gpus": 7})
    assert price_run([record.model_copy(update={"rank": rank})], None).total == "1.00"
    (second,) = _driven("100", share="1", unowned=7)
    rank = second.rank.model_copy(update={"local_rank": 1})
    assert price_run([second.model_copy(update={"rank": rank})], None).total == "1.00"


def test_a_discount_comes_off_driven_and_idle_devices() -> None:
    """15 % less is 15 % less of everything that has the price."""
    cost = price_run(_driven("100", share="0.5", unowned=1, discount="0.15"), None)
    assert cost.by_phase == {"compute": "0.425", "idle_device": "0.85"}
    free = price_run(_driven("100", share="1", unowned=None, discount="1"), None)
    assert free.total == "0.00"


@given(
    amount=st.decimals(0, 1000, places=12),
    shares=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    discount=st.decimals(0, 1, places=12),
    unowned=st.integers(0, 16),
    phases=st.dictionaries(st.sampled_from(NAMES[:15]), st.integers(0, 10**15), min_size=1),
)
def test_money_adds_up_over_shares_discounts_and_idle_devices(
    amount: Decimal, shares: list, discount: Decimal, unowned: int, phases: dict
) -> None:
    """To the last digit, and within a rounding of the exact product; nothing is negative."""
    total_ns = sum(phases.values())
    base = make_record(time_s={}).model_copy(update={"time_ns": phases, "total_ns": total_ns})
    records = []
    for rank, slices in enumerate(shares):
        price = make_price(f"{amount:f}", unit="gpu").model_copy(
            update={"share": f"{Decimal(slices) / 7:f}", "discount": f"{discount:f}"}
        )
        part = base.rank.model_copy(
            update={"rank": rank, "local_rank": rank, "unowned_gpus": unowned}
        )
        records.append(base.model_copy(update={"price": price, "rank": part}))
    cost = price_run(records, None)
    total = Decimal(cost.total or "-1")
    assert sum(map(Decimal, cost.by_phase.values())) == total
    assert all(Decimal(money) >= 0 for money in cost.by_phase.values())
    paid = sum(Decimal(slices) / 7 for slices in shares) + unowned
    exact = amount * (1 - discount) * paid * total_ns / 3_600_000_000_000
    assert abs(exact - total) <= len(records) * Decimal("5e-10") + exact * Decimal("1e-20")
