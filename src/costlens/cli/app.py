"""The commands put together; here an expected error becomes one line and an exit code.

Loads Typer and nothing of weight: what a command needs is imported when it runs.
"""

from __future__ import annotations

import sys

import typer

from costlens.cli.config import config
from costlens.cli.demo_command import demo
from costlens.cli.replay import replay
from costlens.cli.report import report
from costlens.cli.runs import runs
from costlens.errors import ConfigError, CostlensError

__all__ = ["app", "main"]

EXIT_FAILED = 1
EXIT_USAGE = 2

app = typer.Typer(
    name="costlens",
    help="Shows where the time and the money of training runs go.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (report, runs, replay, config, demo):
    app.command()(command)


def main() -> None:
    """Run the command line and end the process: 0 is done, 1 failed, 2 a usage error."""
    try:
        app()
    except ConfigError as error:
        _fail(error, EXIT_USAGE)
    except CostlensError as error:
        _fail(error, EXIT_FAILED)


def _fail(error: CostlensError, exit_code: int) -> None:
    typer.echo(f"costlens: {error}", err=True)
    sys.exit(exit_code)
