"""``costlens compare``: two runs side by side, and whether the second is worse than allowed."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from costlens.cli.exit_codes import EXIT_FAILED, EXIT_WORSE
from costlens.cli.options import Directory, JsonFlag, load_config, make_console, print_json
from costlens.cli.progress import progress, track
from costlens.errors import ConfigError

if TYPE_CHECKING:
    from costlens.core.comparison_records import Comparison, RunSummary

__all__ = ["compare"]

_SHARE = re.compile(r"\s*([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(%?)\s*")
_MAX_SHOWN = 40
_BASELINE_END = ".json"


def compare(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] B",
            help="The run to compare with, and the one that is judged by it: a run's id, the "
            "beginning or a part of one, latest, the path or URL of a run's folder, or a saved "
            "baseline (.json).",
            show_default=False,
        ),
    ] = None,
    fail_above: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="End with exit code 3 where a figure is worse by more than this, such as 5%, and "
            "noise does not explain it.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A saved baseline in place of A; B is latest by default."
        ),
    ] = None,
    save_baseline: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Keep what B is compared by in a file, a path or a URL; B may stand alone then.",
        ),
    ] = None,
    directory: Directory = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare two runs: time, money, goodput, throughput and findings, each with its noise."""
    from costlens.account.comparison import compare_runs

    allowed = None if fail_above is None else _parse_share(fail_above)
    names = _choose(runs or [], baseline, saves=save_baseline is not None)
    run_dir = load_config(dir=directory).run_dir
    summaries = [_fetch(name, run_dir) for name in names]
    if baseline is not None:
        summaries.insert(0, _read_baseline(baseline))
    if save_baseline is not None:
        _save(summaries[-1], save_baseline)
    if len(summaries) == 1:
        if as_json:
            print_json(summaries[0].model_dump_json(indent=2))
        return
    comparison = compare_runs(*summaries, fail_above=allowed)
    _show(comparison, as_json=as_json)
    _end(comparison)


def _choose(runs: list[str], baseline: str | None, *, saves: bool) -> list[str]:
    """Return the runs to read, without the baseline."""
    if baseline is not None and not runs:
        runs = ["latest"]
    num_needed = {1} if baseline is not None else {1, 2} if saves else {2}
    if len(runs) not in num_needed:
        raise ConfigError(
            "two runs are compared, so name both: costlens compare A B; or one and --baseline "
            f"FILE, or one and --save-baseline FILE; got {len(runs)} "
            f"{'and a baseline' if baseline else 'and no baseline'}"
        )
    return runs


def _parse_share(text: str) -> float:
    match = _SHARE.fullmatch(text)
    # "5" may mean 5 % or five times as much: who writes neither % nor a point is asked.
    if match is None or not (match[2] or "." in match[1]):
        raise ConfigError(
            f"--fail-above cannot be {text[:_MAX_SHOWN]!r}; write a share such as 5% or 0.05"
        )
    return float(match[1]) / (100 if match[2] else 1)


def _fetch(name: str, run_dir: str) -> RunSummary:
    from costlens.account.run_summary import choose_leads, summarize_run
    from costlens.export.record import read_ranks, read_run
    from costlens.export.run_windows import read_windows
    from costlens.observe.last_words import witness_end
    from costlens.storage.runs import open_run

    if name.endswith(_BASELINE_END):
        return _read_baseline(name)
    folder = open_run(name, run_dir)
    now = time.time()
    with progress(f"reading {name[-_MAX_SHOWN:]}"):
        record = read_run(folder, now, witness_end)
        ranks, _ = read_ranks(folder, now, witness_end)
    leads = choose_leads(ranks)
    windows = [[*read_windows(folder, lead)] for lead in track(leads, "reading windows")]
    return summarize_run(record, ranks, windows)


def _read_baseline(url: str) -> RunSummary:
    from costlens.account.baselines import MAX_BASELINE_BYTES, parse_baseline
    from costlens.storage import files

    with progress("reading the baseline"):
        data = files.read_bounded(url, MAX_BASELINE_BYTES)
    return parse_baseline(data, files.show_place(url))


def _save(run: RunSummary, url: str) -> None:
    from costlens.account.baselines import write_baseline
    from costlens.export.figures import show_text
    from costlens.storage import files

    with progress("saving the baseline"):
        files.write_whole(url, write_baseline(run))
    saved = f"{run.run_id} is saved as a baseline in {files.show_place(url)}"
    typer.echo(show_text(saved), err=True)


def _show(comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        print_json(comparison.model_dump_json(indent=2))
        return
    from costlens.export.console_compare import render_comparison

    render_comparison(comparison, make_console(is_table=True))


def _end(comparison: Comparison) -> None:
    if comparison.fail_above is None:
        return
    if comparison.too_bad:
        raise typer.Exit(EXIT_WORSE)
    if not any(figure.is_judged for figure in comparison.figures):
        typer.echo(
            "costlens: --fail-above could judge no figure: each is unknown or not comparable, "
            "as the table says",
            err=True,
        )
        raise typer.Exit(EXIT_FAILED)
