"""``costlens doctor``: what would go wrong with a run here, before money is spent on it."""

from __future__ import annotations

import typer

from costlens.cli.exit_codes import EXIT_FAILED
from costlens.cli.options import Directory, JsonFlag, make_console, print_json

__all__ = ["doctor"]


def doctor(directory: Directory = None, as_json: JsonFlag = False) -> None:
    """Check endpoint, stores, GPUs, scheduler, clock, versions, precision and price of a run here.

    Ends with exit code 1 where there is a problem; a warning is none. Nothing is trained.
    """
    from costlens.cli.doctor.answer import Status
    from costlens.cli.doctor.settings import look_at_settings
    from costlens.cli.doctor.show import make_document, make_table

    settings = look_at_settings(directory)
    outcomes = [settings.outcome]
    if settings.config is not None:
        from costlens.cli.doctor.checks import list_checks
        from costlens.cli.doctor.loading import load_packages
        from costlens.cli.doctor.running import run_checks
        from costlens.cli.progress import progress

        checks, config = list_checks(), settings.config
        with progress("checking", len(checks)) as advance:
            outcomes += run_checks(
                checks, config, load=lambda: load_packages(config), on_done=advance
            )
    if as_json:
        print_json(make_document(outcomes, settings.rows))
    else:
        make_console(is_table=True).print(make_table(outcomes), markup=False, highlight=False)
        if settings.config is None:
            typer.echo("the rest is looked at once the settings can be used")
    if any(outcome.status is Status.PROBLEM for outcome in outcomes):
        raise typer.Exit(EXIT_FAILED)
