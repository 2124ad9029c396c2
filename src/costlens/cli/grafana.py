"""``costlens grafana export``: dashboards, data sources and alert rules, as files for a site.

They go to a folder or into a store, and nothing there that differs is written over unasked.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from costlens.cli.progress import progress
from costlens.errors import ConfigError
from costlens.storage import files as store_files
from costlens.storage.location import redact

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

__all__ = ["GRAFANA_URL", "RUNBOOK_URL", "grafana", "read_files"]

GRAFANA_URL = "http://localhost:3000"
"""Where alerts say that Grafana is; what integrations/local-stack starts."""

RUNBOOK_URL = "https://runbooks.example/costlens"
"""Where alerts say that the runbook is; a name that can never exist."""

_URL = re.compile(r"https?://[A-Za-z0-9\-._~:/?#@!&()*+,;=%\[\]]+")
_MAX_SHOWN = 80

_ALERTS = {
    "prometheus": "prometheus/rules/costlens-alerts.yaml",
    "grafana": "provisioning/alerting/costlens.yaml",
}

grafana = typer.Typer(no_args_is_help=True, help="What Grafana needs: dashboards and alerts.")


@grafana.callback()
def group() -> None:
    """What Grafana needs: dashboards and alerts."""


@grafana.command()
def export(
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR|URL", help="Where to write: a folder, made if it is not there, or a URL."
        ),
    ],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Write over files that are there and differ.")
    ] = False,
    alerts: Annotated[
        Literal["prometheus", "grafana"],
        typer.Option(help="Who evaluates the alerts; recording rules are Prometheus's either way."),
    ] = "prometheus",
    grafana_url: Annotated[
        str, typer.Option(metavar="URL", help="Grafana's address, for links in alerts.")
    ] = GRAFANA_URL,
    runbook_url: Annotated[
        str, typer.Option(metavar="URL", help="Where you serve runbook.md, for links in alerts.")
    ] = RUNBOOK_URL,
) -> None:
    """Write dashboards, data sources and alert rules as files; needs no network."""
    _check_url("--grafana-url", grafana_url)
    _check_url("--runbook-url", runbook_url)
    others = [path for who, path in _ALERTS.items() if who != alerts]
    texts = {
        name: text.replace(GRAFANA_URL, grafana_url.rstrip("/")).replace(RUNBOOK_URL, runbook_url)
        for name, text in read_files().items()
        if name not in others
    }
    place = store_files.show_place(directory)
    with progress("looking at what is there"):
        found = _read_present(directory, [*texts, *others])
    _refuse_to_overwrite(place, found, texts, force=force)
    with progress("writing"):
        store_files.write_tree(directory, {name: text.encode() for name, text in texts.items()})
    typer.echo(
        f"{len(texts)} files in {place}: provisioning/ is for Grafana, prometheus/rules/ for "
        "Prometheus"
    )
    if runbook_url == RUNBOOK_URL:
        typer.echo(
            f"serve runbook.md and say where with --runbook-url, or alerts link to {RUNBOOK_URL}, "
            "which does not exist"
        )
    for name in others:
        if name in found:
            typer.echo(f"costlens: {place}/{name} is there, too: alerts fire twice", err=True)


def _check_url(option: str, url: str) -> None:
    # It goes into YAML, and into JSON within it, between quotes and beside templates.
    if _URL.fullmatch(url) is None:
        raise ConfigError(
            f"{option} cannot be {redact(url)[:_MAX_SHOWN]!r}; give a URL such as {GRAFANA_URL}, "
            "with spaces and quotes written as %20 and %22"
        )


def _read_present(directory: str, names: list[str]) -> dict[str, bytes]:
    path = store_files.local_path(directory)
    if path is not None and path.exists() and not path.is_dir():
        raise ConfigError(f"DIR must be a folder or a URL, and {path} is a file; name another")
    return store_files.read_tree(directory, names)


def _refuse_to_overwrite(
    place: str, found: dict[str, bytes], texts: dict[str, str], *, force: bool
) -> None:
    differing = [
        name
        for name, text in sorted(texts.items())
        if found.get(name, text.encode()) != text.encode()
    ]
    if differing and not force:
        raise ConfigError(
            f"{place} has {len(differing)} of these files with other content, such as "
            f"{differing[0]}; --force writes over them"
        )


def read_files() -> dict[str, str]:
    """Return the text of every file that can be exported, by its path."""
    return _read_tree(files("costlens") / "data" / "grafana", "")


def _read_tree(folder: Traversable, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        if entry.is_dir():
            found |= _read_tree(entry, f"{name}/")
        else:
            found[name] = entry.read_text(encoding="utf-8")
    return found
