"""What a dashboard is: rows of panels about the chosen runs, ranks or one run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grafana.panel import Row

__all__ = ["Dashboard"]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page.

    Args:
        uid: Its name in links; never changes.
        title: What it is called in lists.
        about: The question it answers.
        rows: Its panels.
        scope: Whether it shows many runs or the ranks of one.
        since: How far back it looks when it is opened.
    """

    uid: str
    title: str
    about: str
    rows: tuple[Row, ...]
    scope: Literal["runs", "run"] = "run"
    since: str = "now-3h"
