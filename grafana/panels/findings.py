"""What costlens itself finds: named causes, and what mending them would save."""

from __future__ import annotations

from grafana.names import select
from grafana.panel import Panel, prom
from grafana.queries import RUN, RUNS, THE_RANKS, of_team

__all__ = ["FLEET_SAVINGS", "OPEN", "SAVINGS"]

_NAME = "costlens_finding_name"
_CAUSE = f"{_NAME}, costlens_finding_severity"

OPEN = Panel(
    "Which causes of slowness does it find?",
    "Causes by name and severity, and on how many of the chosen ranks each is open; 0 once it is "
    "over. compute_bound is good news. `costlens report` has the evidence and the remedies.",
    "none",
    (
        prom(
            f"sum by ({_CAUSE}) ({select('costlens.finding.open', THE_RANKS)})",
            "{{costlens_finding_name}} ({{costlens_finding_severity}})",
        ),
    ),
    width=12,
    decimals=0,
    least=0,
)
SAVINGS = Panel(
    "What should be mended first?",
    "Money an hour that mending each open cause would save, over the chosen ranks. Causes overlap: "
    "mend the largest, then look again.",
    "none",
    (
        prom(
            f"sort_desc(sum by ({_NAME}, costlens_cost_currency) "
            f"({select('costlens.finding.cost.rate', THE_RANKS)}))",
            "{{costlens_finding_name}} {{costlens_cost_currency}}/h",
            is_instant=True,
        ),
    ),
    kind="bars",
    width=12,
    decimals=2,
)
FLEET_SAVINGS = Panel(
    "What would mending save, and in which run?",
    "Money an hour of the causes that runs find of themselves, by run; the largest first.",
    "none",
    (
        prom(
            "sort_desc(topk(20, "
            + of_team(
                f"sum by ({RUN}, {_NAME}, costlens_cost_currency) "
                f"({select('costlens.finding.cost.rate', RUNS)}) > 0"
            )
            + "))",
            "{{costlens_run_id}} {{costlens_finding_name}} {{costlens_cost_currency}}/h",
            is_instant=True,
        ),
    ),
    kind="bars",
    width=24,
    decimals=2,
)
