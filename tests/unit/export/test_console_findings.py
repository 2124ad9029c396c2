"""What the report opens with: the causes and their money, or why none is named."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from costlens.core.finding_records import FindingPart
from costlens.core.records import Outcome
from costlens.core.run_record import RunRecord
from costlens.export.console import render
from tests.unit.export.samples import make_demo, make_job


def lines_of(record: RunRecord, width: int = 80) -> list[str]:
    """Return the lines of the report from the first after the header on."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    render(record, console, now=record.attempts[-1].heartbeat_time)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.strip() for line in text.split("\n\n", 1)[1].splitlines()]


def part(name: str = "too_few_workers", **facts: Any) -> FindingPart:
    """Return a finding of one rank at 1.23 an hour."""
    return FindingPart(
        **{
            "name": name,
            "severity": "warning",
            "share": 0.41,
            "money_per_hour": "1.23",
            "money_so_far": "0.0456",
            "currency": "USD",
            "ranks": [0],
            "num_ranks": 1,
            "evidence": ["The training waited 8.20 s of 20.0 s."],
            "remedies": ["DataLoader(num_workers=4) instead of 1."],
            **facts,
        }
    )


def found(*parts: FindingPart, **facts: Any) -> RunRecord:
    """Return a run of one rank with these findings."""
    return make_demo().model_copy(update={"findings": list(parts), "unjudged": None, **facts})


def test_the_first_line_names_the_cause_and_its_money() -> None:
    """Below the header stand cause and money per hour, then the rest, the measurement, the knob."""
    assert lines_of(found(part()))[:5] == [
        "What to fix first",
        "1  The data loader has too few workers · 1.23 USD/h",
        "41.0 % of the paid time · 0.0456 USD so far · too_few_workers",
        "The training waited 8.20 s of 20.0 s.",
        "→ DataLoader(num_workers=4) instead of 1.",
    ]


@pytest.mark.parametrize(
    ("outcome", "is_open", "when"),
    [
        (Outcome.RUNNING, True, "lately "),
        (Outcome.COMPLETED, True, "at the end "),
        (Outcome.COMPLETED, False, ""),
        (Outcome.RUNNING, None, ""),
    ],
)
def test_the_share_says_of_which_time_it_is(
    outcome: Outcome, is_open: bool | None, when: str
) -> None:
    """What lasts has the newest minute's share, and money of the whole attempt beside it."""
    one = found(part(is_open=is_open))
    newest = one.attempts[-1].model_copy(update={"outcome": outcome})
    lines = lines_of(one.model_copy(update={"attempts": [newest]}))
    told = f"{when}41.0 % of the paid time · 0.0456 USD so far · too_few_workers"
    assert lines[2].removesuffix(" · over by now") == told


def test_what_is_the_least_is_no_estimate() -> None:
    """Money or share of a floor is told as one."""
    line = "1  The device could compute faster in mixed precision · at least "
    least = part("full_precision", is_least=True)
    assert lines_of(found(least))[1] == f"{line}1.23 USD/h"
    assert (
        "at least 41.0 % of the paid time · at least 0.0456 USD so far" in lines_of(found(least))[2]
    )
    unpriced = least.model_copy(update={"money_per_hour": None, "money_so_far": None})
    assert lines_of(found(unpriced))[1].startswith(f"{line}41.0 %")


def test_without_a_price_the_share_stands_for_it() -> None:
    """Money that is not known is not told, and is no zero."""
    unpriced = part(money_per_hour=None, money_so_far=None, currency=None)
    assert lines_of(found(unpriced))[1:3] == [
        "1  The data loader has too few workers · 41.0 % of the paid time",
        "too_few_workers",
    ]


def test_a_danger_without_a_loss_is_told_all_the_same() -> None:
    """Neither money nor share: the cause alone."""
    danger = part("hardware_fault", money_per_hour=None, money_so_far=None, share=None)
    assert lines_of(found(danger))[1] == "1  A device reports faults"


def test_three_are_told_and_the_others_named() -> None:
    """The greatest three in full, the names of the rest."""
    names = ("storage_read", "transfer", "slow_logging", "slow_callbacks", "padding_waste")
    lines = lines_of(found(*[part(name) for name in names]))
    assert [line[0] for line in lines if line[:3] in {"1  ", "2  ", "3  ", "4  "}] == [
        "1",
        "2",
        "3",
    ]
    assert "also found: slow_callbacks, padding_waste" in lines


def test_a_job_says_which_ranks() -> None:
    """By number where they are few, and how many more; all are all."""
    job = make_job(16).model_copy(update={"unjudged": None})

    def shown(*ranks: int, **facts: Any) -> str:
        one = part(ranks=list(ranks), num_ranks=len(ranks), money_so_far=None, **facts)
        return lines_of(job.model_copy(update={"findings": [one]}), 100)[2].rsplit(" · ", 1)[1]

    assert shown(3) == "rank 3"
    assert shown(3, 5) == "ranks 3, 5"
    assert shown(*range(12)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4 more"
    assert shown(*range(16)) == "all ranks"
    assert shown(3, is_open=False) == "over by now"


def test_nothing_to_fix_is_said() -> None:
    """Bound by computing, or nothing found: either way the section is there."""
    well = part("compute_bound", severity="info", share=None, money_per_hour=None)
    assert lines_of(found(well))[:2] == [
        "What to fix first",
        "nothing to fix: the training is bound by what the device can compute",
    ]
    assert lines_of(found())[1] == "nothing to fix was found"


def test_who_is_not_judged_hears_why() -> None:
    """A run that is too short to judge is not called healthy."""
    assert lines_of(found(unjudged="still starting"))[:2] == [
        "What to fix first",
        "not judged: still starting",
    ]


def test_where_nobody_has_looked_nothing_is_claimed() -> None:
    """A merged record that no rule has seen has no such section."""
    assert lines_of(make_demo())[0] == "Where the time went"


def test_texts_from_outside_are_made_printable() -> None:
    """A terminal's escapes in a text do not reach the terminal."""
    lines = lines_of(found(part(remedies=["\x1b[2Jgone"], evidence=[])))
    assert r"→ \x1b[2Jgone" in lines
