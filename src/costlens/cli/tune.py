"""``costlens tune``: shows and changes how much detail the spans of a running run have."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from costlens.cli.options import Directory, JsonFlag, load_config, print_json
from costlens.cli.progress import progress
from costlens.duration import parse_duration_s
from costlens.errors import RunStateError

if TYPE_CHECKING:
    from costlens.core.detail import Control
    from costlens.core.run_record import RunRecord
    from costlens.storage.run_folder import RunFolder

__all__ = ["tune"]

_MAX_S = 30 * 86400.0
_USUALLY = "10m"


class Choice(str, Enum):
    """How much detail spans have."""

    STEPS = "steps"
    NORMAL = "normal"
    OFF = "off"


def tune(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's id, the beginning of one, a part of one such as its name, latest, or the "
            "path or URL of its folder.",
            show_default=False,
        ),
    ],
    detail: Annotated[
        Choice | None,
        typer.Option(
            help="steps: a span for every iteration, as far as the hourly limit on spans goes; "
            "off: none for any; normal: as the settings say. Without it, show what is in force.",
        ),
    ] = None,
    lasts: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="How long, such as 90s, 10m or 2h, at most 30d; then it is normal again. Each "
            "rank ends by its own clock, so hosts whose clocks differ end apart by as much.",
            show_default=_USUALLY,
        ),
    ] = None,
    rank: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Only this rank; may be given again.", show_default="all ranks"),
    ] = None,
    directory: Directory = None,
    as_json: JsonFlag = False,
) -> None:
    """Show or change how much detail the spans of a running run have, without a restart."""
    from costlens.core.records import Outcome
    from costlens.export.record import read_run
    from costlens.observe.last_words import witness_end
    from costlens.storage.runs import open_run

    if lasts is not None and detail in {None, Choice.NORMAL}:
        raise typer.BadParameter("--for goes with --detail steps or --detail off")
    lasts_s = _parse_duration(lasts or _USUALLY)
    if rank and detail in {None, Choice.NORMAL}:
        raise typer.BadParameter("--rank goes with --detail steps or --detail off")
    folder = open_run(run, load_config(dir=directory).run_dir)
    with progress("reading the run"):
        record = read_run(folder, time.time(), witness_end)
    attempt = record.attempts[-1]
    if detail is not None:
        if attempt.outcome is not Outcome.RUNNING:
            raise RunStateError(
                f"run {record.run.id!r} has ended ({attempt.outcome.value}), and only a running "
                "run can be tuned; its next attempt takes COSTLENS_ITERATION_SPAN_EVERY"
            )
        _ask(folder, detail, lasts_s, _check_ranks(rank, attempt.world_size))
    (_print if as_json else _show)(record, folder)


def _ask(folder: RunFolder, detail: Choice, lasts_s: float, ranks: tuple[int, ...] | None) -> None:
    from costlens.core.detail import Control
    from costlens.core.telemetry_records import Detail

    until = None if detail is Choice.NORMAL else time.time() + lasts_s
    asked = Control(detail=Detail(detail.value), until=until, ranks=ranks)
    folder.write_control(asked.model_dump_json(exclude_none=True).encode())


def _parse_duration(text: str) -> float:
    try:
        lasts_s = parse_duration_s(text)
    except ValueError:
        lasts_s = 0.0
    if not 0 < lasts_s <= _MAX_S:
        raise typer.BadParameter(
            f"--for cannot be {text[:40]!r}; a number and its unit are needed, such as 90s, 10m, "
            "2h or 1d, up to 30d"
        )
    return lasts_s


def _check_ranks(ranks: Collection[int] | None, world_size: int) -> tuple[int, ...] | None:
    if not ranks:
        return None
    unknown = [rank for rank in ranks if rank >= world_size]
    if unknown:
        raise typer.BadParameter(
            f"--rank {unknown[0]}: the run has the ranks 0 to {world_size - 1}"
        )
    return tuple(sorted({*ranks}))


def _read_asked(folder: RunFolder) -> tuple[Control | None, str | None]:
    """Return what is asked at present, or why that cannot be understood."""
    from costlens.core.detail import parse_control
    from costlens.storage.run_folder import MAX_CONTROL_BYTES

    data = folder.read_control()
    try:
        asked = None if data is None else parse_control(data, MAX_CONTROL_BYTES)
    except ValueError as error:
        return None, f"control.json cannot be understood: {error}"
    return (None if asked is None or asked.is_over(time.time()) else asked), None


def _print(record: RunRecord, folder: RunFolder) -> None:
    asked, problem = _read_asked(folder)
    shown = {
        "run_id": record.run.id,
        "outcome": record.attempts[-1].outcome.value,
        "asked": None if asked is None else asked.model_dump(mode="json"),
        "problem": problem,
        "ranks": [
            {"rank": rank.rank, **rank.detail.model_dump(mode="json")}
            for rank in record.ranks
            if rank.detail is not None and rank.attempt == record.attempts[-1].number
        ],
    }
    print_json(json.dumps(shown, indent=2))


def _show(record: RunRecord, folder: RunFolder) -> None:
    from costlens.export.figures import show_text

    asked, problem = _read_asked(folder)
    outcome = record.attempts[-1].outcome.value
    typer.echo(f"{show_text(record.run.id)}  {outcome}")
    if problem is not None:
        typer.echo(f"asked     nothing: {show_text(problem)}")
    else:
        typer.echo(f"asked     {'nothing' if asked is None else _describe(asked)}")
    in_force = defaultdict(list)
    for rank in record.ranks:
        if rank.detail is not None and rank.attempt == record.attempts[-1].number:
            in_force[_until(rank.detail.name.value, rank.detail.until)].append(rank.rank)
    for what, ranks in in_force.items():
        typer.echo(f"in force  {what}, {_name_ranks(ranks)}")
    if outcome == "running":
        typer.echo("each rank follows at its next heartbeat, and ends by its own clock")


def _describe(asked: Control) -> str:
    what = _until(asked.detail.value, asked.until)
    return what if asked.ranks is None else f"{what}, {_name_ranks(asked.ranks)}"


def _until(detail: str, until: float | None) -> str:
    from costlens.export.figures import show_duration

    if until is None:
        return detail
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(until))
    left_s = until - time.time()
    return f"{detail} until {at} UTC" + (f", for {show_duration(left_s)}" if left_s > 0 else "")


def _name_ranks(ranks: Collection[int]) -> str:
    shown = ", ".join(str(rank) for rank in [*ranks][:10])
    more = f" and {len(ranks) - 10} more" if len(ranks) > 10 else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"
