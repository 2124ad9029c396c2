"""The alert on one slow rank that all others wait for, and what tells it from a rank that waits."""

from __future__ import annotations

from grafana.alerts.model import RANK, RUN, Alert, Case, Query
from grafana.alerts.situations import rank

__all__ = ["STRAGGLER"]

_SLOW = {"data_wait": 0.02, "forward": 0.5, "backward": 0.42, "optimizer": 0.06}
_FAST = {"data_wait": 0.02, "forward": 0.2, "backward": 0.72, "optimizer": 0.06}

STRAGGLER = Alert(
    name="CostlensStragglerRank",
    area="bottleneck",
    severity="warning",
    value="""topk by (costlens_run_id, costlens_rank) (1,
  rank:costlens_phase_iteration_time:mean_rate5m{costlens_phase=~"$own_phases"}
  - on (costlens_run_id, costlens_phase) group_left ()
  quantile by (costlens_run_id, costlens_phase) (0.5,
    rank:costlens_phase_iteration_time:mean_rate5m{costlens_phase=~"$own_phases"}
  )
)
* on (costlens_run_id, costlens_rank) group_left (host_name)
rank:costlens_host:info""",
    bound="> 0",
    scope="""and on (costlens_run_id, costlens_rank) (
  rank:costlens_own_time:mean_rate5m
  > on (costlens_run_id) group_left ()
  $straggler_ratio * quantile by (costlens_run_id) (0.5, rank:costlens_own_time:mean_rate5m)
)
and on (costlens_run_id, costlens_rank) (
  rank:costlens_own_time:mean_rate5m
  - on (costlens_run_id) group_left ()
  quantile by (costlens_run_id) (0.5, rank:costlens_own_time:mean_rate5m)
  > $straggler_loss_ratio * rank:costlens_iteration_time:mean_rate5m
)""",
    hold="steady",
    summary=f"Rank {RANK} of run {RUN} is slow in {{{{ $labels.costlens_phase }}}}",
    description=f"Rank {RANK} on {{{{ $labels.host_name }}}} needs "
    "{{ $value | humanizeDuration }} more in {{ $labels.costlens_phase }} of each iteration than "
    "the median of the ranks; all others wait for it.",
    dashboard="bottleneck",
    traces='{ span.costlens.run.id = "$run" && span.costlens.rank = $rank'
    ' && name = "costlens.iteration" } | select(span.costlens.phase.time.data_wait,'
    " span.costlens.phase.time.forward, span.costlens.phase.time.backward)",
    meaning="In data-parallel training all ranks have the same step time: the fast ones wait for "
    "the slow one inside `backward` (or `communication`), so the slow rank is the one with the "
    "SHORTEST backward. What tells is the time before ranks meet: waiting for data, transfer, "
    "forward, optimizer. Where a GPU's phases are not split (`compute`), only the wait for data "
    "can be compared.",
    checks=(
        "Confirm the rank: the first query lists the seconds before ranks meet, the slow rank on "
        "top; the second one the seconds in which they wait, the slow rank at the bottom.",
        "Which phase? The third query, worst first. `data_wait`: its loader, its storage, its "
        "CPUs. `forward`: its GPU (heat, clock, PCIe width, another process), or longer samples.",
        "Which node? The fourth query. If all its ranks are slow, drain the node (`scontrol update "
        "nodename=HOST state=drain reason=slow`, `kubectl drain HOST`) and start again from the "
        "newest checkpoint; if only this one is, look at its GPU on the hardware dashboard.",
    ),
    queries=(
        Query(
            "Seconds of an iteration before ranks meet, the slow rank on top",
            "promql",
            'sort_desc(rank:costlens_own_time:mean_rate5m{costlens_run_id="$run"})',
        ),
        Query(
            "Seconds of an iteration in backward and communication, the slow rank at the bottom",
            "promql",
            "sort_desc(sum by (costlens_run_id, costlens_rank) ("
            "rank:costlens_phase_iteration_time:mean_rate5m"
            '{costlens_run_id="$run",costlens_phase=~"backward|communication"}))',
        ),
        Query(
            "By how much each rank exceeds the median, by phase, worst first",
            "promql",
            "sort_desc(rank:costlens_phase_iteration_time:mean_rate5m"
            '{costlens_run_id="$run",costlens_phase!~"backward|communication|compute"}'
            " - on (costlens_phase) group_left () quantile by (costlens_phase) (0.5, "
            'rank:costlens_phase_iteration_time:mean_rate5m{costlens_run_id="$run"}))',
        ),
        Query("The host of each rank", "promql", 'rank:costlens_host:info{costlens_run_id="$run"}'),
    ),
    cases=(
        Case(
            "rank 1 of two is slow in forward, and rank 0 waits for it in backward",
            (*rank(0, phases=_FAST), *rank(1, phases=_SLOW)),
            labels={
                "costlens_run_id": "r",
                "costlens_rank": "1",
                "costlens_phase": "forward",
                "host_name": "node-1",
            },
            description="Rank 1 on node-1 needs 150ms more in forward of each iteration than the "
            "median of the ranks; all others wait for it.",
        ),
        Case(
            "rank 2 of four waits for its data",
            (
                *rank(0, phases=_FAST),
                *rank(1, phases=_FAST),
                *rank(2, phases={"data_wait": 0.4, "forward": 0.2, "backward": 0.4}),
                *rank(3, phases=_FAST),
            ),
            labels={
                "costlens_run_id": "r",
                "costlens_rank": "2",
                "costlens_phase": "data_wait",
                "host_name": "node-2",
            },
            description="Rank 2 on node-2 needs 380ms more in data_wait of each iteration than "
            "the median of the ranks; all others wait for it.",
        ),
        Case("two ranks alike", (*rank(0), *rank(1))),
        Case(
            "one rank is no straggler",
            rank(phases={"data_wait": 0.4, "forward": 0.3, "backward": 0.0}),
        ),
        Case(
            "a fast rank that waits in its forward for the other's data is not slow",
            (
                *rank(0, phases={"data_wait": 0.02, "forward": 0.5, "backward": 0.48}),
                *rank(1, phases={"data_wait": 0.32, "forward": 0.2, "backward": 0.48}),
            ),
        ),
        Case(
            "twice as slow in what takes next to nothing",
            (
                *rank(0, phases={"logging": 0.01, "backward": 0.99}),
                *rank(1, phases={"logging": 0.02, "backward": 0.98}),
            ),
        ),
        Case(
            "work that nobody split is not judged",
            (
                *rank(0, phases={"data_wait": 0.02, "compute": 0.98}),
                *rank(1, phases={"data_wait": 0.02, "compute": 0.98}),
            ),
        ),
    ),
)
