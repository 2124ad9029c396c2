"""Writes what ``costlens grafana export`` hands out; ``--check`` only compares.

    python -m grafana.build [--check]

The files are part of the package: nothing is read from this folder when costlens runs.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from grafana.alerts.files import alert_files
from grafana.dashboards import DASHBOARDS
from grafana.managed_alerts import managed_alert_files
from grafana.provisioning import provisioning_files

__all__ = ["TARGET", "main", "make_files"]

TARGET = Path(__file__).parent.parent / "src" / "costlens" / "data" / "grafana"


def make_files() -> dict[str, str]:
    """Return the text of every generated file, by its path in the export."""
    with warnings.catch_warnings():
        # The classic model on purpose: every Grafana in use reads it from files.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog.encoder import JSONEncoder

        from grafana.render import render

    encoder = JSONEncoder(sort_keys=True, indent=2)
    files = {
        f"provisioning/dashboards/costlens/{page.uid}.json": encoder.encode(render(page)) + "\n"
        for page in DASHBOARDS
    }
    return files | provisioning_files() | alert_files() | managed_alert_files()


def main(arguments: list[str]) -> int:
    """Write the files, or say which differ; return the exit code."""
    if sys.version_info < (3, 11):
        print("grafana.build: Grafana's SDK needs Python 3.11; nothing was compared")
        return 0
    files = make_files()
    known = {str(path.relative_to(TARGET)) for path in TARGET.rglob("*") if path.is_file()}
    stale = [name for name, text in files.items() if _read(TARGET / name) != text]
    orphans = sorted(known - files.keys())
    if "--check" in arguments:
        for name in [*stale, *orphans]:
            print(f"src/costlens/data/grafana/{name} is not what grafana/ makes")
        if stale or orphans:
            print("run python -m grafana.build")
        return 1 if stale or orphans else 0
    for name in stale:
        (TARGET / name).parent.mkdir(parents=True, exist_ok=True)
        (TARGET / name).write_text(files[name], encoding="utf-8")
    for name in orphans:
        (TARGET / name).unlink()
    return 0


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
