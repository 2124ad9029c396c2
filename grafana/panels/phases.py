"""Where the time goes, and which rank holds the others up."""

from __future__ import annotations

from grafana.names import select
from grafana.panel import Column, Panel, prom
from grafana.queries import OWN_PHASES, RANK, THE_RANKS, THE_RUN, rate

__all__ = [
    "DATA_WAIT",
    "HOSTS",
    "OWN_TIME",
    "PHASES",
    "PHASE_PER_ITERATION",
    "SLOWDOWN",
    "TRANSFER",
    "WAITS_FOR_OTHERS",
    "WAIT_BY_RANK",
]

_TIME = rate("costlens.phase.time", THE_RANKS)
_TRANSFER = 'costlens_phase="transfer"'
_DATA_WAIT = 'costlens_phase="data_wait"'


def _each(*matchers: str) -> str:
    """Return the time of each rank in these phases, per iteration."""
    return (
        f"sum by ({RANK}) ({rate('costlens.phase.time', *matchers)}) / "
        f"(sum by ({RANK}) ({rate('costlens.iterations', matchers[0])}) > 0)"
    )


_OWN = f'costlens_phase=~"{OWN_PHASES}"'

PHASES = Panel(
    "Where does the time go?",
    "Time of the chosen ranks by phase; every nanosecond is in exactly one. forward, backward, "
    "optimizer and compute train the model, the others are the price of doing so.",
    "percentunit",
    (
        prom(
            f"sum by (costlens_phase) ({_TIME}) / on () group_left () sum({_TIME}) > 0",
            "{{costlens_phase}}",
        ),
    ),
    width=12,
    stack="percent",
    least=0,
    most=1,
)
PHASE_PER_ITERATION = Panel(
    "What does an iteration consist of?",
    "Time per iteration and phase, the mean of the chosen ranks: what to shorten, and by how much.",
    "s",
    (
        prom(
            f"sum by (costlens_phase) ({_TIME}) / on () group_left () "
            f"(sum({rate('costlens.iterations', THE_RANKS)}) > 0) > 0",
            "{{costlens_phase}}",
        ),
    ),
    width=12,
    stack="normal",
    least=0,
)
DATA_WAIT = Panel(
    "Does it wait for data while the GPU has nothing to do?",
    "Share of the time that waits for data, and how busy the GPUs are. High waits with idle GPUs: "
    "more workers, cheaper preprocessing, faster storage. Above the line an alert fires.",
    "percentunit",
    (
        prom(
            f"sum({rate('costlens.phase.time', THE_RANKS, _DATA_WAIT)}) / (sum({_TIME}) > 0)",
            "waits for data",
        ),
        prom(f"avg({select('hw.gpu.utilization', THE_RANKS)})", "GPUs busy"),
    ),
    limit="data_wait_ratio",
    least=0,
    most=1,
)
WAIT_BY_RANK = Panel(
    "Which rank waits for data?",
    "Share of each rank's time that waits for data. One rank alone: its node, its shard. All "
    "alike: the loader or the storage.",
    "percentunit",
    (
        prom(
            f"sum by ({RANK}) ({rate('costlens.phase.time', THE_RANKS, _DATA_WAIT)}) / "
            f"(sum by ({RANK}) ({_TIME}) > 0)",
            "rank {{costlens_rank}}",
        ),
    ),
    limit="data_wait_ratio",
    least=0,
    most=1,
)
TRANSFER = Panel(
    "Does it wait for copies to the device?",
    "Share of the time in which a rank stands still for the copy of a batch. Pinned memory and "
    "non-blocking copies hide it.",
    "percentunit",
    (
        prom(
            f"sum by ({RANK}) ({rate('costlens.phase.time', THE_RANKS, _TRANSFER)}) / "
            f"(sum by ({RANK}) ({_TIME}) > 0)",
            "rank {{costlens_rank}}",
        ),
    ),
    limit="transfer_ratio",
    least=0,
)
OWN_TIME = Panel(
    "How long does each rank work before it meets the others?",
    "Time per iteration in which a rank waits for nobody: fetch, copy, forward, optimizer, "
    "callbacks. In data-parallel training the rank with the highest line is the slow one, even "
    "though all iterations take equally long.",
    "s",
    (prom(_each(THE_RANKS, _OWN), "rank {{costlens_rank}}"),),
    width=12,
    least=0,
)
WAITS_FOR_OTHERS = Panel(
    "Which ranks wait for the others?",
    "Time per iteration in backward and communication, where gradients are exchanged. The ranks "
    "with the *highest* lines are the fast ones: they wait for the slow one.",
    "s",
    (
        prom(
            _each(THE_RANKS, 'costlens_phase=~"backward|communication"'),
            "rank {{costlens_rank}}",
        ),
    ),
    width=12,
    least=0,
)
SLOWDOWN = Panel(
    "Which rank is slow?",
    "Own time of each rank over the median of all ranks; 1 is like the others. Above the line an "
    "alert fires.",
    "none",
    (
        prom(
            f"({_each(THE_RANKS, _OWN)}) / on () group_left () "
            f"quantile(0.5, {_each(THE_RUN, _OWN)})",
            "rank {{costlens_rank}}",
        ),
    ),
    decimals=2,
    limit="straggler_ratio",
    least=0,
)
HOSTS = Panel(
    "Where does each rank run?",
    "Host, device and driver of each rank, with its own time per iteration: the slow rank's node "
    "is the one to look at.",
    "s",
    (
        prom(
            f"max by ({RANK}, host_name, hw_name, hw_id, costlens_gpu_driver, costlens_precision) "
            f"({select('costlens.run.info', THE_RANKS)})",
            is_instant=True,
        ),
        prom(_each(THE_RANKS, _OWN), is_instant=True),
        prom(
            f"sum by ({RANK}) ({rate('costlens.phase.time', THE_RANKS, _DATA_WAIT)}) / "
            f"(sum by ({RANK}) ({_TIME}) > 0)",
            is_instant=True,
        ),
    ),
    kind="table",
    width=24,
    height=7,
    columns={
        RANK: Column("rank"),
        "host_name": Column("host"),
        "hw_name": Column("device"),
        "hw_id": Column("device id"),
        "costlens_gpu_driver": Column("driver"),
        "costlens_precision": Column("precision"),
        "Value #B": Column("own time/iteration", "s", 4),
        "Value #C": Column("waits for data", "percentunit", 1, limit="data_wait_ratio"),
    },
    sort="own time/iteration",
)
