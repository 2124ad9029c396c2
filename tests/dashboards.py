"""The dashboards as a site gets them, for tests: panels, queries, and queries without variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from grafana.settings import SETTINGS

__all__ = ["PAGES", "Query", "fill", "panels", "queries"]

_FOLDER = files("costlens") / "data" / "grafana" / "provisioning" / "dashboards" / "costlens"

PAGES: dict[str, dict[str, Any]] = {
    path.name.removesuffix(".json"): json.loads(path.read_text("utf-8"))
    for path in sorted(_FOLDER.iterdir(), key=lambda path: path.name)
}
"""Every dashboard by its uid."""

assert PAGES, "no dashboards in the package"

_USUAL = {
    "__rate_interval": "5m",
    "__range": "1h",
    "__interval": "15s",
    "__auto": "5m",
    "__tags": 'costlens_run_id="run-a", costlens_rank="0"',
    "run": "run-a",
    "rank": ".*",
    "team": ".*",
}


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel, and where it stands."""

    page: str
    panel: str
    language: str
    text: str
    is_instant: bool
    legend: str

    @property
    def place(self) -> str:
        """Return where it stands, for messages."""
        return f"{self.page}: {self.panel}"


def panels(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the panels of a page without its rows."""
    for panel in page["panels"]:
        if panel["type"] != "row":
            yield panel


def queries() -> Iterator[Query]:
    """Yield every query of every panel, and those of annotations."""
    languages = {"prometheus": "promql", "loki": "logql", "tempo": "traceql"}
    for uid, page in PAGES.items():
        for panel in panels(page):
            for target in panel.get("targets", ()):
                kind = target["datasource"]["type"]
                text = target["query"] if kind == "tempo" else target["expr"]
                is_instant = bool(target.get("instant"))
                legend = target.get("legendFormat", "")
                yield Query(uid, panel["title"], languages[kind], text, is_instant, legend)
        for note in page["annotations"]["list"]:
            yield Query(uid, f"annotation {note['name']}", "promql", note["expr"], False, "")


def fill(text: str, **values: str) -> str:
    """Return a query with Grafana's variables replaced, as Grafana would."""
    known = {**_USUAL, **values}
    found = re.sub(r"\$(\w+)", lambda match: known[match[1]], text)
    assert "$" not in found, f"a variable is left in {found}"
    return found


DASHBOARD_UIDS = {getattr(SETTINGS.dashboards, name) for name in SETTINGS.dashboards.__slots__}
