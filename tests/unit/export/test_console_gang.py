"""What the report says of how a job's ranks came together."""

from __future__ import annotations

from costlens.account.ledger import merge
from costlens.core.records import StartupPart
from costlens.export.console_gang import describe_gang
from tests.unit.account.build import START, make_record


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
