"""Is the run healthy: its states, who reports, and what is open."""

from __future__ import annotations

from grafana.names import select
from grafana.panel import Panel, prom
from grafana.panels.states import STATE_TEXTS, state_number
from grafana.queries import RANK, THE_RANKS, THE_RUN, rate

__all__ = [
    "DONE",
    "HEARTBEAT",
    "OPEN_PHASE",
    "RANKS_REPORTING",
    "REMAINING",
    "RESTARTS",
    "RUN_ALERTS",
    "STALL",
    "STATES",
    "STEP",
]

STATES = Panel(
    "What is each rank doing?",
    "The state of each rank, and how it ended. A rank that is alone in its state makes the others "
    "wait.",
    "none",
    (prom(f"max by ({RANK}) ({state_number(THE_RANKS)})", "rank {{costlens_rank}}"),),
    kind="states",
    width=16,
    texts=STATE_TEXTS,
)
RUN_ALERTS = Panel(
    "Which alerts fire for this run?",
    "Alerts whose labels name this run; each links to its section of the runbook.",
    "none",
    (),
    kind="alerts",
    width=8,
)
HEARTBEAT = Panel(
    "How old is the newest word of each rank?",
    "Age of the values that a rank sent last. It grows when the process is dead, its machine is "
    "lost or nothing gets through, and when the run is over. Above the line an alert fires, unless "
    "the rank had said that it ends.",
    "s",
    (
        # A series that is not sent any more is gone after five minutes, its last value is not.
        prom(
            f"time() - max by ({RANK}) "
            f"(last_over_time({select('costlens.heartbeat.time', THE_RANKS)}[$__range]))",
            "rank {{costlens_rank}}",
        ),
    ),
    limit="heartbeat_age_s",
    least=0,
)
RANKS_REPORTING = Panel(
    "Do all ranks report?",
    "Ranks that the job was launched with, and those that wrote their record not long ago, as rank "
    "0 sees them.",
    "none",
    (
        prom(f"max({select('costlens.run.ranks', THE_RUN)})", "launched"),
        prom(f"max({select('costlens.run.ranks.reporting', THE_RUN)})", "reporting"),
    ),
    decimals=0,
    least=0,
)
OPEN_PHASE = Panel(
    "Which phase is open, and for how long?",
    "Age of the open phase, the oldest of the ranks. A line that climbs is a run that stands: the "
    "phase says where. Saves and validation may climb for long.",
    "s",
    (
        prom(
            f"max by (costlens_phase) ({select('costlens.phase.open.age', THE_RANKS)}) > 0",
            "{{costlens_phase}}",
        ),
    ),
    least=0,
)
STEP = Panel(
    "Which step has it reached?",
    "Optimizer steps over all attempts; a fall is work that is done again.",
    "none",
    (
        prom(f"max({select('costlens.step.current', THE_RUN)})", "reached"),
        prom(f"max({select('costlens.step.planned', THE_RUN)})", "planned"),
        prom(f"max({select('costlens.checkpoint.step', THE_RUN)})", "newest checkpoint"),
    ),
    decimals=0,
    least=0,
)
STALL = Panel(
    "Does the training stand still?",
    "How long the training thread of each rank has not moved, where that is longer than it ever "
    "should be; 0 while it moves. Any other number fires an alert; the log says where it stands.",
    "s",
    (
        prom(
            f"max by ({RANK}) ({select('costlens.stall.age', THE_RANKS)})",
            "rank {{costlens_rank}}",
        ),
    ),
    least=0,
)
DONE = Panel(
    "How far is it?",
    "Share of the planned optimizer steps that were made; empty where the loop has no plan.",
    "percentunit",
    (
        prom(
            f"max({select('costlens.step.current', THE_RUN)}) / "
            f"max({select('costlens.step.planned', THE_RUN)})",
            "done",
        ),
    ),
    kind="number",
    width=4,
    height=4,
    decimals=1,
)
REMAINING = Panel(
    "When is it done?",
    "Time until the last planned step at the present rate of steps.",
    "s",
    (
        prom(
            f"(max({select('costlens.step.planned', THE_RUN)}) - "
            f"max({select('costlens.step.current', THE_RUN)})) / "
            f"(max({rate('costlens.steps', THE_RUN)}) > 0)",
            "left",
        ),
    ),
    kind="number",
    width=4,
    height=4,
)
RESTARTS = Panel(
    "How often did it start again?",
    "Attempts of the run before this one, and how many of them in a row ended badly without "
    "getting further.",
    "none",
    (
        prom(f"max({select('costlens.restarts', THE_RUN)})", "restarts"),
        prom(f"max({select('costlens.restart_loop', THE_RUN)})", "in a loop"),
    ),
    decimals=0,
    least=0,
    limit="restart_loop",
)
