"""Alerts on the machines: memory, heat, power, errors; each names node and GPU."""

from __future__ import annotations

from grafana.alerts.model import RANK, RUN, Alert, Case, Query
from grafana.alerts.situations import counter, gauge, rank, series

__all__ = ["ALERTS"]

_GPU = "GPU {{ $labels.hw_id }} on {{ $labels.host_name }}"
_SHARE = "{{ $value | humanizePercentage }}"
_WITH_HOST = """
* on (costlens_run_id, costlens_rank) group_left (host_name)
rank:costlens_host:info"""
_AT = {
    "costlens_run_id": "r",
    "costlens_rank": "0",
    "hw_id": "GPU-1",
    "host_name": "node-0",
}
_PERIODS = (
    '{ span.costlens.run.id = "$run" && name = "costlens.rank.period" && span.costlens.rank = $rank'
    " } | select(span.costlens.gpu.utilization, span.costlens.gpu.temperature.max)"
)


def _throttled(reasons: str) -> str:
    return f"""max by (costlens_run_id, costlens_rank, hw_id, costlens_gpu_throttle_reason) (
  rate(costlens_gpu_throttle_time_seconds_total{{costlens_gpu_throttle_reason=~"{reasons}"}}[$rate])
){_WITH_HOST}"""


_THROTTLE_QUERIES = (
    Query(
        "Share of the time in which the clocks were held down, by reason",
        "promql",
        'rate(costlens_gpu_throttle_time_seconds_total{costlens_run_id="$run"}[5m])',
    ),
    Query("Temperature", "promql", 'gpu:hw_temperature:celsius{costlens_run_id="$run"}'),
    Query("Power", "promql", 'gpu:hw_power:watts{costlens_run_id="$run"}'),
    Query("Clocks", "promql", 'costlens_gpu_clock_frequency_hertz{costlens_run_id="$run"}'),
)

_MEMORY = Alert(
    name="CostlensGpuMemoryFull",
    area="hardware",
    severity="warning",
    value=f"max_over_time(gpu:hw_gpu_memory:ratio[$rate]){_WITH_HOST}",
    bound="> $memory_ratio",
    scope="and on (costlens_run_id, costlens_rank) rank:costlens_training:ratio_rate5m",
    hold="soon",
    summary=f"Rank {RANK} of run {RUN} may run out of GPU memory",
    description=f"{_SHARE} of the memory of {_GPU} is in use (rank {RANK}).",
    dashboard="hardware",
    traces=_PERIODS,
    meaning="The next longer sample or fragmentation may end the attempt, and everything since the "
    "newest checkpoint would be done again. The driver counts what torch has reserved as in use: "
    "a cache that fills the card is usual, and harmless where its use is steady.",
    checks=(
        "Does it grow, or is it steady (the first query)? Growth is a leak: losses kept with their "
        "graph, metrics collected on the device.",
        "`torch.cuda.memory_summary()`: much reserved and little allocated is fragmentation "
        "(`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`).",
        "Is the newest checkpoint fresh (the second query)? If not, save now; then a smaller batch "
        "or activation checkpointing.",
    ),
    queries=(
        Query("Share in use", "promql", 'gpu:hw_gpu_memory:ratio{costlens_run_id="$run"}'),
        Query(
            "Work that a crash would lose",
            "promql",
            'costlens_unsaved_time_seconds{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "97 of 100",
            (
                *rank(),
                gauge("hw_gpu_memory_usage_bytes", 97, hw_id="GPU-1"),
                gauge("hw_gpu_memory_limit_bytes", 100, hw_id="GPU-1"),
            ),
            labels=_AT,
            description="97% of the memory of GPU GPU-1 on node-0 is in use (rank 0).",
        ),
        Case(
            "told by dcgm-exporter in MiB",
            (
                *rank(),
                gauge("costlens_run_info", 1, host_name="node-0", hw_id="GPU-1"),
                ('DCGM_FI_DEV_FB_USED{UUID="GPU-1",gpu="0"}', "97x60"),
                ('DCGM_FI_DEV_FB_FREE{UUID="GPU-1",gpu="0"}', "3x60"),
            ),
            labels=_AT,
            description="97% of the memory of GPU GPU-1 on node-0 is in use (rank 0).",
        ),
        Case(
            "80 of 100",
            (
                *rank(),
                gauge("hw_gpu_memory_usage_bytes", 80, hw_id="GPU-1"),
                gauge("hw_gpu_memory_limit_bytes", 100, hw_id="GPU-1"),
            ),
        ),
    ),
)

_HOST_MEMORY = Alert(
    name="CostlensHostMemoryLow",
    area="hardware",
    severity="warning",
    value=f"""max by (costlens_run_id, costlens_rank) (container_memory_available_bytes)
/ on (costlens_run_id, costlens_rank) (
  max by (costlens_run_id, costlens_rank) (container_memory_available_bytes)
  + on (costlens_run_id, costlens_rank)
  max by (costlens_run_id, costlens_rank) (container_memory_usage_bytes)
){_WITH_HOST}""",
    bound="< $free_memory_ratio",
    scope="and on (costlens_run_id, costlens_rank) rank:costlens_live:last_time",
    hold="soon",
    summary=f"The memory of run {RUN} on {{{{ $labels.host_name }}}} is nearly used up",
    description=f"{_SHARE} of the memory that the job may use on {{{{ $labels.host_name }}}} is "
    "left; at 0 the kernel kills a process.",
    dashboard="bottleneck",
    meaning="The control group with the tightest limit is nearly full. The kernel will kill the "
    "rank or a loader worker (exit code 137), which looks like a hang to the other ranks.",
    checks=(
        "Who uses it: this process or its loader workers (the queries)?",
        "Do the workers grow from epoch to epoch? Python objects in a data set are copied into "
        "each worker when they are touched: keep arrays instead of lists.",
        "Fewer workers or a smaller `prefetch_factor` help at once; `/dev/shm` counts as well.",
    ),
    queries=(
        Query("This process", "promql", 'process_memory_usage_bytes{costlens_run_id="$run"}'),
        Query(
            "Its loader workers",
            "promql",
            'costlens_loader_memory_usage_bytes{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "2 % left",
            (
                *rank(),
                gauge("container_memory_available_bytes", 2),
                gauge("container_memory_usage_bytes", 98),
            ),
            labels={"costlens_run_id": "r", "costlens_rank": "0", "host_name": "node-0"},
            description="2% of the memory that the job may use on node-0 is left; at 0 the kernel "
            "kills a process.",
        ),
        Case(
            "half of it left",
            (
                *rank(),
                gauge("container_memory_available_bytes", 50),
                gauge("container_memory_usage_bytes", 50),
            ),
        ),
    ),
)

_THROTTLED = Alert(
    name="CostlensGpuThrottled",
    area="hardware",
    severity="warning",
    value=_throttled("thermal_sw|thermal_hw|hw_brake"),
    bound="> $throttle_ratio",
    scope="and on (costlens_run_id, costlens_rank) rank:costlens_training:ratio_rate5m",
    hold="steady",
    summary=f"A GPU of run {RUN} is slowed down: {{{{ $labels.costlens_gpu_throttle_reason }}}}",
    description=f"{_GPU} (rank {RANK}) ran at a lower clock for {_SHARE} of the time: "
    "{{ $labels.costlens_gpu_throttle_reason }}.",
    dashboard="hardware",
    traces=_PERIODS,
    meaning="Heat or the board's own protection holds the clock down. In a data-parallel job all "
    "ranks wait for this one.",
    checks=(
        "One GPU or all of the node (the first query)? All: the room or the node's fans. One: its "
        "heat sink or its place in the node.",
        "`hw_brake` is the power supply: tell whoever runs the machines.",
        "Is it the slow rank as well (CostlensStragglerRank)? Then drain the node.",
    ),
    queries=_THROTTLE_QUERIES,
    cases=(
        Case(
            "a hot chip",
            (
                *rank(),
                counter(
                    "costlens_gpu_throttle_time_seconds_total",
                    30,
                    hw_id="GPU-1",
                    costlens_gpu_throttle_reason="thermal_hw",
                ),
            ),
            labels={**_AT, "costlens_gpu_throttle_reason": "thermal_hw"},
            description="GPU GPU-1 on node-0 (rank 0) ran at a lower clock for 50% of the time: "
            "thermal_hw.",
        ),
        Case(
            "its power limit is another alert",
            (
                *rank(),
                counter(
                    "costlens_gpu_throttle_time_seconds_total",
                    30,
                    hw_id="GPU-1",
                    costlens_gpu_throttle_reason="power_cap",
                ),
            ),
        ),
        Case(
            "hot while nothing trains",
            (
                *rank(state="evaluating", phases={"validation": 1.0}),
                counter(
                    "costlens_gpu_throttle_time_seconds_total",
                    30,
                    hw_id="GPU-1",
                    costlens_gpu_throttle_reason="thermal_hw",
                ),
            ),
        ),
    ),
)

_CAPPED = Alert(
    name="CostlensGpuPowerCapped",
    area="hardware",
    severity="info",
    value=_throttled("power_cap"),
    bound="> $power_cap_ratio",
    scope="and on (costlens_run_id, costlens_rank) rank:costlens_training:ratio_rate5m",
    hold="half_hour",
    summary=f"A GPU of run {RUN} runs at its power limit",
    description=f"{_GPU} (rank {RANK}) was held down by its power limit for {_SHARE} of the time.",
    dashboard="hardware",
    traces=_PERIODS,
    meaning="A GPU that works hard reaches its limit: mostly a good sign. It is worth a look where "
    "the limit was lowered, or where only some of the GPUs reach it.",
    checks=(
        "Is the limit what the card is made for (the second query)?",
        "Do all GPUs of the run reach it? One that does alone is slower than the others.",
        "Where energy costs more than time the limit may be meant: compare the cost per token.",
    ),
    queries=(
        _THROTTLE_QUERIES[0],
        Query("The limit", "promql", 'costlens_gpu_power_limit_watts{costlens_run_id="$run"}'),
        Query(
            "Energy of the last hour, in joules",
            "promql",
            'increase(gpu:hw_energy:joules{costlens_run_id="$run"}[1h])',
        ),
    ),
    cases=(
        Case(
            "two thirds of the time",
            (
                *rank(),
                counter(
                    "costlens_gpu_throttle_time_seconds_total",
                    40,
                    hw_id="GPU-1",
                    costlens_gpu_throttle_reason="power_cap",
                ),
            ),
            labels={**_AT, "costlens_gpu_throttle_reason": "power_cap"},
            description="GPU GPU-1 on node-0 (rank 0) was held down by its power limit for 66.67% "
            "of the time.",
        ),
        Case(
            "a sixth of the time",
            (
                *rank(),
                counter(
                    "costlens_gpu_throttle_time_seconds_total",
                    10,
                    hw_id="GPU-1",
                    costlens_gpu_throttle_reason="power_cap",
                ),
            ),
        ),
    ),
)

_ERROR = Alert(
    name="CostlensGpuHardwareError",
    area="hardware",
    severity="critical",
    value=f"""(
  gpu:hw_errors:increase15m
  or
  label_replace(
    max by (costlens_run_id, costlens_rank, hw_id) (costlens_gpu_state{{hw_state="failed"}}),
    "error_type", "lost", "", ""
  )
){_WITH_HOST}""",
    bound="> 0",
    scope="and on (costlens_run_id, costlens_rank) rank:costlens_live:last_time",
    summary=f"A GPU of run {RUN} is failing: {{{{ $labels.error_type }}}}",
    description=f"{_GPU} (rank {RANK}): {{{{ $labels.error_type }}}}, "
    "{{ $value | humanize }} in fifteen minutes.",
    dashboard="hardware",
    traces=_PERIODS,
    meaning="The GPU had errors that no retry repairs (uncorrectable memory, a row that could not "
    "be remapped, an XID of the driver), or the driver has lost it (`lost`). Results may be wrong, "
    "and the process may hang or die at any time.",
    checks=(
        "XID: its number is in the kernel's log (`dmesg | grep Xid`). 13, 31 and 43 are mostly the "
        "program's own fault; 48, 63, 64, 74, 79, 94, 95 and 119 are the hardware's.",
        "Save if the run still moves; then drain the node and start again elsewhere.",
        "Is the newest checkpoint from before the first error (the queries)? After uncorrectable "
        "errors do not trust one from later.",
    ),
    queries=(
        Query(
            "Errors by type",
            "promql",
            'increase(hw_errors_total{costlens_run_id="$run"}[1h])',
        ),
        Query(
            "When the newest checkpoint was taken",
            "promql",
            'time() - costlens_unsaved_time_seconds{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "an uncorrectable error",
            (
                *rank(),
                series("hw_errors_total", "0x45 1x14", hw_id="GPU-1", error_type="uncorrected"),
            ),
            labels={**_AT, "error_type": "uncorrected"},
            description="GPU GPU-1 on node-0 (rank 0): uncorrected, 1 in fifteen minutes.",
        ),
        Case(
            "the driver has lost it",
            (*rank(), gauge("costlens_gpu_state", 1, hw_id="GPU-1", hw_state="failed")),
            labels={**_AT, "error_type": "lost"},
            description="GPU GPU-1 on node-0 (rank 0): lost, 1 in fifteen minutes.",
        ),
        Case(
            "an XID that dcgm-exporter tells",
            (
                *rank(),
                gauge("costlens_run_info", 1, host_name="node-0", hw_id="GPU-1"),
                ('DCGM_FI_DEV_XID_ERRORS{UUID="GPU-1",gpu="0"}', "0x45 79x14"),
            ),
            labels={**_AT, "error_type": "xid"},
            description="GPU GPU-1 on node-0 (rank 0): xid, 1 in fifteen minutes.",
        ),
        Case(
            "an old XID that dcgm-exporter goes on telling",
            (
                *rank(),
                gauge("costlens_run_info", 1, host_name="node-0", hw_id="GPU-1"),
                ('DCGM_FI_DEV_XID_ERRORS{UUID="GPU-1",gpu="0"}', "79x60"),
            ),
        ),
        Case(
            "errors that were corrected",
            (
                *rank(),
                counter("hw_errors_total", 5, hw_id="GPU-1", error_type="corrected"),
            ),
        ),
        Case(
            "all GPUs well",
            (*rank(), gauge("costlens_gpu_state", 0, hw_id="GPU-1", hw_state="failed")),
        ),
    ),
)

ALERTS = (_MEMORY, _HOST_MEMORY, _THROTTLED, _CAPPED, _ERROR)
