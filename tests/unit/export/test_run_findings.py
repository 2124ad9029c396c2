"""The findings of a merged run: one cause once, with its ranks, and money that adds up."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from costlens.core.finding_records import MAX_FINDINGS, MAX_SENTENCES, MAX_TEXT, FindingPart
from costlens.core.records import RankRecord
from costlens.diagnose.finding import Abstention, Finding, JobRule, Place, Remedy, Rule, Severity
from costlens.export.run_findings import find_causes
from tests.unit.account.build import START, make_price
from tests.unit.diagnose.planted import always, find, train, waits


def judged(rules: list[Rule], job_rules: list[JobRule], *records: RankRecord) -> dict[str, Any]:
    """Return what is found in records by just these rules."""
    return find_causes(records, rules, job_rules)


def own(name: str = "data_wait", share: float | None = 0.8, **facts: Any) -> FindingPart:
    """Return a finding that a rank has in its record."""
    given = {"severity": "warning", "since": START + 60.0, "is_open": True, **facts}
    return FindingPart(name=name, share=share, **given)


def test_money_is_price_times_share_and_exact() -> None:
    """Two ranks at 3.60 an hour lose 50 s and 100 s of 100 s and 150 s: 1/2 and 2/3 of it."""
    price = make_price("3.60")
    records = [train(wait_s=0.5, price=price), train(wait_s=1.0, rank=1, price=price)]
    (part,) = judged([waits()], [], *records)["findings"]
    assert (part.name, part.scope, part.ranks, part.num_ranks) == ("data_wait", "rank", [0, 1], 2)
    assert part.share == pytest.approx(150 / 250)
    assert part.currency == "USD"
    # Shares count to nine decimals: 1.80 and 3.60 × 0.666666667.
    assert part.money_per_hour == "4.200000001"
    assert Decimal(part.money_so_far) == Decimal("0.05") + Decimal("0.100000000")


def test_without_a_price_there_is_no_money() -> None:
    """Nor where one of the ranks has none, or another currency: a part is not the whole."""
    price, euros = make_price("3.60"), make_price("3.60", currency="EUR")
    for other in (None, euros):
        records = [train(wait_s=0.5, price=price), train(wait_s=0.5, rank=1, price=other)]
        (part,) = judged([waits()], [], *records)["findings"]
        assert (part.money_per_hour, part.money_so_far, part.currency) == (None, None, None)
        assert part.share == pytest.approx(0.5)


def test_a_rank_alone_pays_for_its_own_loss() -> None:
    """What only the unpriced rank's neighbour loses has its price."""
    records = [train(wait_s=0.5, price=make_price("3.60")), train(rank=1)]
    (part,) = judged([waits()], [], *records)["findings"]
    assert (part.ranks, part.money_per_hour) == ([0], "1.80")


def test_a_job_finding_costs_all_ranks() -> None:
    """A quarter of the time of two ranks at 36.00 an hour: 18.00 an hour, of 50 s each 0.25."""
    price = make_price("36.00")
    rule = JobRule("straggler", lambda _evidence: find("straggler", 0.25, ranks=(1,)))
    records = [train(price=price), train(rank=1, price=price)]
    (part,) = judged([], [rule], *records)["findings"]
    assert (part.scope, part.ranks, part.num_ranks) == ("job", [1], 1)
    assert (part.money_per_hour, part.money_so_far) == ("18.00", "0.25")


def test_what_lasts_counts_as_it_is_now() -> None:
    """A rank that lately loses 80 % is told with 80 % an hour, and with what it has lost so far."""
    lately = own(share=0.8, remedies=["Do it."], remedy_shares=[0.7], is_least=True)
    record = train(wait_s=0.5, price=make_price("3.60"), findings=[lately])
    (part,) = judged([waits()], [], record)["findings"]
    assert (part.share, part.money_per_hour) == (0.8, "2.88")
    assert part.remedy_shares == [0.7], "a part of the same time's loss"
    assert part.is_least, "the share is the rank's own"
    assert part.money_so_far == "0.05"
    assert (part.since, part.is_open) == (START + 60.0, True)


def test_what_began_lately_is_told_before_the_whole_shows_it() -> None:
    """After hours of health the whole attempt shows nothing; the rank's own record does."""
    lasting = own(money_so_far="0.25", remedies=["Do it."], remedy_shares=[0.7], evidence=["So."])
    record = train(price=make_price("3.60"), findings=[lasting])
    (part,) = judged([waits()], [], record)["findings"]
    assert (part.share, part.money_per_hour, part.money_so_far) == (0.8, "2.88", "0.25")
    assert (part.evidence, part.remedies, part.remedy_shares) == (["So."], ["Do it."], [0.7])


def test_what_is_over_is_told_only_where_the_whole_shows_it() -> None:
    """A closed finding of a rank alone is history; beside the whole's it says that it is over."""
    over = own(is_open=False)
    assert judged([waits()], [], train(findings=[over]))["findings"] == []
    (part,) = judged([waits()], [], train(wait_s=0.5, findings=[over]))["findings"]
    assert (part.share, part.is_open) == (pytest.approx(0.5), False)


def test_the_newest_attempt_is_judged() -> None:
    """What slowed an attempt that has ended is no cause now; rules about the job may look back."""
    seen = []
    rule = JobRule("faulty_node", lambda evidence: seen.append(len(evidence.earlier)))
    records = [train(wait_s=0.5), train(attempt=2)]
    assert judged([waits()], [rule], *records)["findings"] == []
    assert seen == [1]


def test_what_cannot_be_told_stands_beside() -> None:
    """Undecided causes are named with what is missing, and who is not judged with the reason."""
    rules = [always(Abstention("transfer", "pinned memory is not recorded"))]
    told = judged(rules, [], train())
    assert [(u.name, u.missing) for u in told["undecided"]] == [
        ("transfer", "pinned memory is not recorded")
    ]
    assert told["unjudged"] is None
    assert judged(rules, [], train(3))["unjudged"] is not None


def test_a_record_holds_so_much_and_no_more() -> None:
    """However many findings with however long texts there are, the record stays bounded."""
    text = "x" * 5000
    long = [
        Finding(
            f"cause_{n}",
            Severity.WARNING,
            0.3,
            (text,) * 50,
            (Remedy(text, 2.0),) * 50,
            text,
            places=(Place(text, text, text),) * 100,
        )
        for n in range(40)
    ]
    told = judged([always(each) for each in long], [], train())
    assert len(told["findings"]) == MAX_FINDINGS
    for part in told["findings"]:
        FindingPart.model_validate_json(part.model_dump_json(), strict=True)
        assert len(part.evidence) == len(part.remedies) == MAX_SENTENCES
        assert max(map(len, part.evidence)) == MAX_TEXT
        assert part.remedy_shares == [1.0] * MAX_SENTENCES


def test_findings_come_by_their_money() -> None:
    """A cheap rank's great loss comes after a dear rank's small one."""
    cheap, dear = make_price("1.00"), make_price("100.00")

    def rule(name: str, rank: int, share: float) -> Rule:
        return Rule(name, lambda e: find(name, share) if e.now.rank.rank == rank else None)

    records = [train(price=cheap), train(rank=1, price=dear)]
    rules = [rule("transfer", 0, 0.9), rule("slow_logging", 1, 0.1)]
    told = judged(rules, [], *records)["findings"]
    assert [part.name for part in told] == ["slow_logging", "transfer"]
