"""What the report says of how a job's ranks came together."""

from __future__ import annotations

from costlens.account.ledger import merge
from costlens.core.records import StartupPart
from costlens.export.console_gang import describe_gang, describe_loop, describe_missing
from tests.unit.account.build import START, make_price, make_record


def describe(*parts: StartupPart) -> list[str]:
    """Return the lines for a job whose ranks started up like this."""
    records = [
        make_record(rank=rank, world_size=len(parts), time_s={"startup": 20.0}, startup=part)
        for rank, part in enumerate(parts)
    ]
    return [str(line) for line in describe_gang(merge(records, now=START))]


def test_who_waited_for_whom_is_told() -> None:
    """The rank that waited least came last: it is where to look."""
    assert describe(
        StartupPart(gang_wait_s=1.5, first_step_s=8.0),
        StartupPart(gang_wait_s=6.0, first_step_s=7.0),
        StartupPart(gang_wait_s=0.5, first_step_s=7.5),
    ) == [
        "first step after 8.00 s",
        "waited for the other ranks: 6.00 s (rank 1) to 500 ms (rank 2)",
    ]


def test_an_unknown_wait_says_why() -> None:
    """No number is made up; a job of one rank has nothing to say."""
    unseen = StartupPart(gang_wait_unknown="nobody looked")
    assert describe(unseen, unseen) == ["wait for the other ranks unknown: nobody looked"]
    assert describe(StartupPart()) == []


def describe_job(outcome: str, *ranks: int, world_size: int) -> list[str]:
    """Return the lines on missing ranks of a job of which these ranks ended like this."""
    records = [
        make_record(rank=rank, world_size=world_size, outcome=outcome, heartbeat_time=START)
        for rank in ranks
    ]
    return [str(line) for line in describe_missing(merge(records, now=START))]


def test_missing_ranks_are_named_by_number() -> None:
    """A few by number, many by how many; none where all report, or none does."""
    assert describe_job("running", 0, 2, world_size=3) == ["2 of 3 ranks report; missing: rank 1"]
    assert describe_job("completed", 0, world_size=100) == [
        "1 of 100 ranks reported to the end; missing: rank 1, 2, 3, 4, 5, 6, 7, 8 and 91 more"
    ]
    assert describe_job("running", 0, 1, world_size=2) == []
    assert describe_job("lost", 0, 1, world_size=2) == []


def test_a_restart_loop_is_told_with_place_cause_and_money() -> None:
    """What is not known is left out."""

    def describe(made: int, **more: object) -> list[str]:
        records = [
            make_record(
                number,
                outcome="failed",
                time_s={"compute": 10.0},
                progress={"iterations": made, "optimizer_steps": made},
                **more,
            )
            for number in range(1, 4)
        ]
        return [str(line) for line in describe_loop(merge(records, now=START))]

    known = {"attempt_start_step": 0, "attempt_end_step": 1200, "price": make_price("3600")}
    assert describe(1200, attempt_error_type="ValueError", **known) == [
        (
            "restart loop: attempts 1 to 3 got no further than step 1,200 (ValueError), "
            "since 2025-10-09 08:53 UTC; that cost 20.00 USD"
        )
    ]
    (line,) = describe(57)
    assert "got 57 steps and no further, since" in line
    (line,) = describe(0)
    assert "got not to a single step, since" in line
    assert "cost" not in line
