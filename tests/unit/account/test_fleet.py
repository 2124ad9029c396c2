"""Many runs added up."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from costlens.account.fleet import group_runs, sum_runs
from costlens.account.ledger import merge
from costlens.core.run_record import RunRecord
from tests.unit.account.build import START, make_price, make_record


def make_run(
    outcome: str = "completed",
    *,
    paid_s: float = 100.0,
    trained_s: float = 0.0,
    price: str | None = "36",
    currency: str = "USD",
    knows_steps: bool = True,
    **labels: str,
) -> RunRecord:
    """Return a run of one rank that trained for a part of its time; 36 an hour is 0.01 a second."""
    record = make_record(
        time_s={"compute": trained_s, "data_wait": paid_s - trained_s},
        outcome=outcome,
        price=None if price is None else make_price(price, currency=currency),
        progress={"iterations": 10, "optimizer_steps": 10 if knows_steps else None},
        attempt_start_step=0,
        attempt_end_step=10,
    )
    run = merge([record], now=START + paid_s)
    return run.model_copy(update={"run": run.run.model_copy(update=labels)})


def test_spend_success_and_waste_of_each_team() -> None:
    """Two teams and a run of nobody: money, success rate, goodput and waste of each, and of all."""
    runs = [
        make_run(paid_s=100.0, trained_s=75.0, team="nlp"),
        make_run("failed", paid_s=300.0, trained_s=225.0, team="nlp"),
        make_run("stopped_early", paid_s=1000.0, trained_s=1000.0, team="vision"),
        make_run("running", paid_s=100.0),
    ]
    vision, nlp, nobody = groups = group_runs(runs, "team")
    assert [group.group for group in groups] == ["vision", "nlp", None]
    assert (nlp.num_runs, nlp.success_rate, nlp.paid_s, nlp.goodput) == (2, 0.5, 400.0, 0.75)
    assert nlp.outcomes == {"completed": 1, "failed": 1}
    spent = nlp.spend["USD"]
    assert (spent.total, spent.waste) == ("4.00", "1.00")
    assert spent.by_outcome == {"completed": "1.00", "failed": "3.00"}
    assert (vision.success_rate, vision.spend["USD"].waste) == (1.0, "0.00")
    assert nobody.success_rate is None, "a run that goes on is neither a success nor a failure"
    total = sum_runs(runs)
    assert (total.num_runs, total.spend["USD"].total) == (4, "15.00")


def test_currencies_and_unknown_prices_stay_apart() -> None:
    """C106, C111: euros are not added to dollars, and no price is no spend of zero."""
    runs = [
        make_run(paid_s=100.0),
        make_run(paid_s=200.0, currency="EUR"),
        make_run(paid_s=400.0, price=None),
        make_run(paid_s=100.0, price="0", currency="CHF"),
    ]
    group = sum_runs(runs)
    assert {name: spend.total for name, spend in group.spend.items()} == {
        "CHF": "0.00",
        "EUR": "2.00",
        "USD": "1.00",
    }
    assert (group.num_unpriced, group.paid_s) == (1, 800.0)
    assert sum_runs([make_run(price=None)]).spend == {}


def test_a_run_in_two_currencies_counts_in_both() -> None:
    """C111: an attempt in dollars and one in euros are 1.00 and 2.00, and never 3.00."""
    records = [
        make_record(n, time_s={"compute": 100.0 * n}, price=make_price("36", currency=currency))
        for n, currency in ((1, "USD"), (2, "EUR"))
    ]
    group = sum_runs([merge(records, now=START + 5000)])
    assert {name: spend.total for name, spend in group.spend.items()} == {
        "EUR": "2.00",
        "USD": "1.00",
    }
    assert (group.num_unpriced, group.num_waste_unknown) == (0, 1)


def test_waste_that_is_not_known_is_counted_and_not_zero() -> None:
    """A run whose steps nobody saw has no goodput: it is left out of the waste, and told."""
    runs = [make_run(trained_s=25.0), make_run(trained_s=25.0, knows_steps=False)]
    group = sum_runs(runs)
    assert (group.goodput, group.spend["USD"].waste, group.num_waste_unknown) == (0.25, "0.75", 1)
    blind = sum_runs(runs[1:])
    assert (blind.goodput, blind.spend["USD"].waste, blind.num_waste_unknown) == (None, None, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["completed", "failed", "lost", "running"]),
            st.integers(0, 10_000),
            st.sampled_from(["a", "b", None]),
            st.sampled_from(["1", "3.333", None]),
            st.sampled_from(["USD", "EUR"]),
        ),
        max_size=8,
    )
)
def test_groups_add_up_to_all_runs(drawn: list) -> None:
    """Whatever the grouping, the groups hold every run once and all of the money."""
    runs = [
        make_run(outcome, paid_s=float(paid_s), price=price, currency=currency, team=team)
        for outcome, paid_s, team, price, currency in drawn
    ]
    total = sum_runs(runs)
    for grouping in ("team", "outcome"):
        groups = group_runs(runs, grouping)
        assert sum(group.num_runs for group in groups) == total.num_runs
        for currency, spend in total.spend.items():
            members = [g.spend[currency] for g in groups if currency in g.spend]
            assert sum(Decimal(s.total) for s in members) == Decimal(spend.total)
            assert sum(Decimal(m) for m in spend.by_outcome.values()) == Decimal(spend.total)


def test_a_run_and_a_version_of_an_experiment_have_a_cost() -> None:
    """Versions are groups of their own; the cost per run is over the runs that have a price."""
    runs = [
        make_run(paid_s=100.0, experiment="lr", experiment_version="1"),
        make_run(paid_s=300.0, experiment="lr", experiment_version="2"),
        make_run(paid_s=100.0, experiment="lr", experiment_version="2"),
        make_run(price=None, experiment="lr", experiment_version="2"),
    ]
    second, first = group_runs(runs, "experiment_version")
    assert (first.group, first.spend["USD"].total, first.spend["USD"].per_run) == (
        "1",
        "1.00",
        "1.00",
    )
    assert (second.spend["USD"].total, second.spend["USD"].per_run) == ("4.00", "2.00")
    assert second.num_unpriced == 1
