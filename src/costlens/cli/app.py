"""The commands put together; here an expected error becomes one line and an exit code.

Loads Typer and nothing of weight: what a command needs is imported when it runs.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys

import typer

from costlens.cli.checkpoints import checkpoints
from costlens.cli.compare import compare
from costlens.cli.config import config
from costlens.cli.demo_command import demo
from costlens.cli.doctor_command import doctor
from costlens.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from costlens.cli.export import export
from costlens.cli.grafana import grafana
from costlens.cli.prices import prices
from costlens.cli.replay import replay
from costlens.cli.report import report
from costlens.cli.runs import runs
from costlens.cli.tune import tune
from costlens.errors import ConfigError, CostlensError

__all__ = ["app", "main"]

app = typer.Typer(
    name="costlens",
    help="Shows where the time and the money of training runs go.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (report, runs, compare, tune, export, replay, config, doctor, prices, demo):
    app.command()(command)
app.add_typer(checkpoints, name="checkpoints")
app.add_typer(grafana, name="grafana")


def main() -> None:
    """Run the command line and end the process: 0 is done, 1 failed, 2 a usage error."""
    try:
        _check_output()
        app()
    except ConfigError as error:
        _fail(error, EXIT_USAGE)
    except CostlensError as error:
        _fail(error, EXIT_FAILED)
    except OSError as error:
        _abandon_output()
        _fail(error, EXIT_FAILED)


def _check_output() -> None:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # ASCII has no ±; JSON and CSV see to themselves


def _fail(error: CostlensError | OSError, exit_code: int) -> None:
    from costlens.export.figures import show_text

    lines = [show_text(line) for line in f"costlens: {error}".splitlines()]
    typer.echo("\n".join(lines), err=True)
    sys.exit(exit_code)


def _abandon_output() -> None:
    # What a full disk did not take stands in the buffer, and the interpreter would try again.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
