"""What would a crash cost: checkpoints, their price, and what is not saved yet."""

from __future__ import annotations

from grafana.names import select
from grafana.panel import Panel, prom
from grafana.queries import RANK, THE_RANKS, THE_RUN, increase, rate
from grafana.settings import SETTINGS

__all__ = [
    "FAILURE_RATE",
    "RETRIES",
    "SAVES",
    "SIZE",
    "STALLS",
    "UNSAVED_COST",
    "UNSAVED_TIME",
    "WRITES",
]

_STALE = SETTINGS.thresholds.stale_intervals
_SAVED = 'costlens_checkpoint_outcome="saved"'

UNSAVED_TIME = Panel(
    "How much work would a crash lose?",
    "Time since the newest checkpoint, from the start where there is none yet; and the interval "
    f"that the policy decided on, times {_STALE:g}: beyond it an alert fires.",
    "s",
    (
        prom(f"max({select('costlens.unsaved.time', THE_RUN)})", "not saved"),
        prom(
            f"{_STALE:g} * max({select('costlens.checkpoint.interval', THE_RUN)})",
            "an alert fires",
        ),
    ),
    least=0,
)
UNSAVED_COST = Panel(
    "What would a crash cost now?",
    "Money of the work since the newest checkpoint, over all ranks. Above the line an alert fires.",
    "none",
    (
        prom(
            "sum by (costlens_cost_currency) ("
            f"max by ({RANK}, costlens_cost_currency) "
            f"({select('costlens.unsaved.cost', THE_RUN)}))",
            "{{costlens_cost_currency}}",
        ),
    ),
    limit="unsaved_cost",
    least=0,
)
SAVES = Panel(
    "Do saves succeed?",
    "Saves from point to point by how they ended. skipped: one was due while another was written.",
    "none",
    (
        prom(
            "sum by (costlens_checkpoint_outcome) "
            f"({increase('costlens.checkpoint.saves', THE_RANKS)})",
            "{{costlens_checkpoint_outcome}}",
        ),
    ),
    decimals=1,
    least=0,
)
STALLS = Panel(
    "How much time do snapshots cost?",
    "Share of the time in which training stands still for snapshots, the mean of the chosen ranks. "
    "Above the line an alert fires.",
    "percentunit",
    (prom(f"avg({rate('costlens.checkpoint.stall.time', THE_RANKS)})", "stands still"),),
    limit="stall_ratio",
    least=0,
)
WRITES = Panel(
    "How long until a checkpoint is durable?",
    "Time from the snapshot until the checkpoint exists in the store, per save; training goes on "
    "meanwhile. Longer than the interval, saves are skipped.",
    "s",
    (
        prom(
            f"sum({rate('costlens.checkpoint.write.time', THE_RANKS)}) / "
            f"(sum({rate('costlens.checkpoint.saves', THE_RANKS, _SAVED)}) > 0)",
            "write",
        ),
        prom(f"max({select('costlens.checkpoint.interval', THE_RUN)})", "interval"),
    ),
    least=0,
)
SIZE = Panel(
    "How large are checkpoints?",
    "Bytes of the state in the newest checkpoint, over the chosen ranks.",
    "bytes",
    (prom(f"sum({select('costlens.checkpoint.size', THE_RANKS)})", "size"),),
    least=0,
)
RETRIES = Panel(
    "Does the store fail and recover?",
    "Writes to the store that were tried again, from point to point.",
    "none",
    (prom(f"sum({increase('costlens.checkpoint.retries', THE_RANKS)})", "tried again"),),
    decimals=0,
    least=0,
)
FAILURE_RATE = Panel(
    "How often does the policy expect a failure?",
    "Failures an hour that the interval between saves is made for; it starts from a belief and "
    "learns from what happens to the run.",
    "none",
    (prom(f"max({select('costlens.checkpoint.failure.rate', THE_RUN)})", "failures/h"),),
    least=0,
)
