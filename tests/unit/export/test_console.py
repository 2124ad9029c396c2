"""The report of a run as people see it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from costlens.account.ledger import merge
from costlens.core.mfu_records import MfuPart
from costlens.core.run_record import EnergyCostPart, RunRecord
from costlens.core.telemetry_records import Detail, DetailPart, ExportHealth, TelemetryPart
from costlens.core.training_records import QualityPart
from costlens.export.console import render
from tests.unit.account.build import START, make_iteration_time, make_price, make_record
from tests.unit.export.samples import make_demo, make_job

HINT = "no price: set COSTLENS_NODE_HOUR_PRICE to the money a node costs per hour"


def _page(record: RunRecord, *, width: int = 80, now: float = START + 60, **options) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, **options)
    render(record, console, now=now)
    return console.file.getvalue()  # type: ignore[attr-defined]


def _line(page: str, start: str) -> str:
    return next(line.strip() for line in page.splitlines() if line.strip().startswith(start))


def test_a_finished_run_on_one_page() -> None:
    """Time by phase with share and money, speed, work, quality, money and start-up are there."""
    page = _page(make_demo())
    assert page.startswith("tiny  completed\ntiny-1\n")
    assert _line(page, "backward").split()[-5:] == ["48.4", "%", "16.1", "s", "0.0054"]
    assert _line(page, "total ").split() == ["total", "100.0", "%", "33.3", "s", "0.0111"]
    assert "median 63.8 ms" in page
    assert "14,393 tokens/s" in page
    assert _line(page, "optimizer steps") == "optimizer steps     200 of 200"
    assert _line(page, "tokens") == "tokens              391,117 · 4.5 % padding"
    assert _line(page, "val_loss").split() == [
        "val_loss",
        "2.356",
        "2.356",
        "32.6",
        "s",
        "0.0109",
        "USD",
    ]
    assert _line(page, "per million tokens").endswith("0.0283 USD")
    assert _line(page, "price from").endswith("COSTLENS_NODE_HOUR_PRICE")
    assert "process 3.20 s → set-up 700 ms → first iteration 200 ms" in page
    assert "Attempts" not in page, "one attempt needs no table"
    assert "Ranks" not in page
    assert "Problems" not in page


def test_phases_are_sorted_by_time() -> None:
    """The eye finds the largest phase first, and the longest bar is the widest."""
    page = _page(make_demo())
    found = [page.index(f"\n  {name} ") for name in ("backward", "forward", "startup", "data_wait")]
    assert found == sorted(found)
    assert _line(page, "backward").count("█") > _line(page, "forward").count("█") > 0


def test_an_unknown_price_is_told_once_with_what_to_set() -> None:
    """C106: the page says unknown and the one hint; no phase shows 0."""
    page = _page(make_demo(price=None, price_unknown=HINT), width=100)
    assert page.count("COSTLENS_NODE_HOUR_PRICE") == 1
    assert "unknown  no price: set" in page
    assert "USD" not in page
    assert "0.00" not in page


def test_a_price_of_zero_is_shown_as_zero() -> None:
    """C106: free is an amount."""
    assert _line(_page(make_demo(price=make_price("0"))), "total  ").split()[-1] == "0.00"


def test_two_currencies_have_two_totals() -> None:
    """C111: 1.00 USD and 2.00 EUR are shown side by side."""
    run = merge(
        [
            make_record(1, time_s={"compute": 3600.0}, price=make_price("1")),
            make_record(2, time_s={"compute": 3600.0}, price=make_price("2", currency="EUR")),
        ],
        now=START + 9000,
    )
    assert _line(_page(run), "total   ").startswith("total  ")
    assert "2.00 EUR and 1.00 USD" in _page(run)
    assert "3.00" not in _page(run)


def test_a_live_job_says_what_it_is_doing() -> None:
    """64 ranks: which phases are open, for how long, who is slowest, and what each attempt cost."""
    job = make_job()
    page = _page(job, now=job.ranks[0].heartbeat_time + 12.0)
    assert page.startswith("tiny  running\n")
    assert "64 ranks on 8 hosts · 3 attempts" in page
    assert "last heartbeat 12.0 s ago" in page
    assert "62 of 64 ranks in communication, rank 0 for 53.0 s" in page
    assert "2 of 64 ranks in data_wait, rank 17 for 60.0 s" in page
    assert "300 done again" in page
    assert "rank 63 on node-7" in page
    assert _line(page, "3  2025").split()[-5:] == ["9,000", "→", "12,345", "1,511.40", "running"]
    assert len(page.splitlines()) < 70, "64 ranks still make one page"


def test_a_lost_run_says_where_it_was_last_seen() -> None:
    """Its phase does not grow older with the reader's clock."""
    record = make_record(
        outcome="running", time_s={"compute": 9.0}, open_phase="checkpoint", open_phase_s=4.0
    )
    page = _page(merge([record], now=START + 7000), now=START + 7000)
    assert page.startswith("tiny  lost\n")
    assert "last heartbeat 1h 56m ago" in page
    assert "it was in checkpoint, for 4.00 s by then" in page


def test_a_run_that_has_not_begun_is_a_page_too() -> None:
    """C108: zero iterations, no price, no quality: every section says so or is left out."""
    page = _page(merge([make_record(outcome="running")], now=START), now=START)
    assert "no time has passed yet" in page
    assert "no iteration has been timed" in page
    assert "Quality" not in page
    for word in ("nan", "inf", "None", "Traceback"):
        assert word not in page.lower().replace("information", "")


@pytest.mark.parametrize("state", ["ok", "stopped"])
def test_what_was_sent_well_needs_no_state(state: str) -> None:
    """An exporter that ended with its run does not look as if it had given up."""
    record = make_record()
    health = ExportHealth(state=state, exports_ok=6)
    telemetry = TelemetryPart(exports={"files": health, "traces": health})
    record = record.model_copy(update={"telemetry": telemetry})
    lines = _page(merge([record], now=START)).splitlines()
    assert [line.split() for line in lines if line.split()[:1] in (["files"], ["traces"])] == [
        ["files", "6", "written"],
        ["traces", "6", "sent"],
    ]


def test_what_went_wrong_is_on_the_page() -> None:
    """Faults, drops, failed exports, non-finite values and odd ranks are named."""
    job = make_job()
    page = _page(job, now=job.ranks[0].heartbeat_time)
    told = "no answer, so tried rarely · 134,400 sent · 27 failed · 360 dropped · http_503"
    assert told in " ".join(page.split())
    assert "export.metrics 6×" in page
    assert "36 iterations not recorded in detail" in page
    odd = merge(
        [
            make_record(
                1,
                rank,
                world_size=3,
                outcome=outcome,
                iteration_time=make_iteration_time(0.1),
                quality=quality,
            )
            for rank, outcome, quality in (
                (
                    0,
                    "completed",
                    {"loss": QualityPart(num_nonfinite=2, first_nonfinite_iteration=7)},
                ),
                (1, "completed", {}),
                (2, "failed", {}),
            )
        ],
        ["record-9-0.json: it is no JSON"],
        now=START,
    )
    page = _page(odd)
    assert "loss: 2 values not finite, the first at iteration 7" in page
    assert "rank 2 failed; the others completed" in page
    assert "• record-9-0.json: it is no JSON" in page


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Nothing wraps in the middle of a bar or runs off the edge."""
    for record in (make_demo(), make_job()):
        lines = _page(record, width=width).splitlines()
        assert max(len(line) for line in lines) <= min(width, 100)


def test_names_are_shown_as_they_are() -> None:
    """A run or metric called like markup or an emoji code is not interpreted."""
    record = make_record(quality={"loss[red]:b:": QualityPart(last=1.0)})
    record = record.model_copy(update={"run": record.run.model_copy(update={"name": "[bold]x:b:"})})
    page = _page(merge([record], now=START))
    assert page.startswith("[bold]x:b:  completed")
    assert "loss[red]:b:" in page


def test_colours_are_left_out_where_they_are_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe and NO_COLOR get text without colour codes; a terminal gets colours."""
    out = io.StringIO()
    render(make_demo(), Console(file=out, width=80), now=START)
    assert "\x1b" not in out.getvalue()
    terminal = io.StringIO()
    render(
        make_demo(),
        Console(file=terminal, width=80, force_terminal=True, _environ={"TERM": "xterm-256color"}),
        now=START,
    )
    assert "\x1b[32m" in terminal.getvalue()
    plain = io.StringIO()
    environ = {"NO_COLOR": "1", "TERM": "xterm-256color"}
    render(
        make_demo(), Console(file=plain, width=80, force_terminal=True, _environ=environ), now=START
    )
    assert "\x1b[32m" not in plain.getvalue()


def test_a_terminal_without_unicode_gets_ascii() -> None:
    """Bars become #, and a name that ASCII cannot hold does not end the report."""
    record = make_record(time_s={"compute": 3.0, "startup": 1.0})
    record = record.model_copy(update={"run": record.run.model_copy(update={"name": "größe"})})
    raw = io.BytesIO()
    console = Console(file=io.TextIOWrapper(raw, encoding="ascii"), width=80)
    render(merge([record], now=START), console, now=START)
    console.file.flush()
    page = raw.getvalue().decode("ascii")
    assert page.startswith("gr??e  completed")
    assert "compute  ####" in page


def test_numbers_without_a_better_have_no_best() -> None:
    """A learning rate or a gradient norm is shown as it is: reaching its minimum is no success."""
    part = QualityPart(last=0.002, best=0.001, best_after_s=3.0)
    page = _page(make_demo(quality={"learning_rate": part, "val_loss": part}))
    assert _line(page, "learning_rate").split() == ["learning_rate", "0.002"]
    assert len(_line(page, "val_loss").split()) > 3


def test_what_is_asked_of_a_running_run_is_shown() -> None:
    """The detail of spans and its end, while it is not normal; and requests that were not read."""
    until = START + 600
    steps = TelemetryPart(detail=DetailPart(name=Detail.STEPS, until=until), control_failures=3)
    page = _page(merge([make_record(outcome="running", telemetry=steps)], now=START + 5))
    assert _line(page, "detail") == "detail      steps until 2025-10-09 09:03 UTC"
    assert "3 requests not read" in page
    normal = TelemetryPart(detail=DetailPart(name=Detail.NORMAL))
    assert "detail" not in _page(merge([make_record(telemetry=normal)], now=START + 5))


def test_hours_energy_and_mfu_are_told_where_they_are_known() -> None:
    """What a GPU-hour and an hour of training cost; energy apart from the total; MFU and its peak.

    An unknown MFU is told with its reason where somebody asked for it, and not at all otherwise.
    """
    demo = make_demo()
    cost = demo.cost.model_copy(
        update={
            "per_gpu_hour": "2.50",
            "per_effective_gpu_hour": "5.00",
            "energy": EnergyCostPart(currency="EUR", total="0.0012", energy_kwh=0.004),
        }
    )
    mfu = MfuPart(ratio=0.412, peak_flops_per_s=4e15, precision="bf16", is_estimate=True)
    page = _page(demo.model_copy(update={"cost": cost, "mfu": mfu}))
    assert _line(page, "per GPU-hour").endswith("2.50 USD")
    assert _line(page, "per effective GPU-hour").endswith("5.00 USD")
    assert _line(page, "energy").endswith("0.00120 EUR · 0.004 kWh · not in the total")
    assert _line(page, "MFU").endswith("41.2 % of 4,000 TFLOP/s bf16 · an estimate")
    unknown = demo.model_copy(update={"mfu": MfuPart(unknown="the peak is not known")})
    assert _line(_page(unknown), "MFU").endswith("unknown: the peak is not known")
    assert "MFU" not in _page(demo)
