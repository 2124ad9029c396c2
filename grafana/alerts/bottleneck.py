"""Alerts on where the time of a run goes: data, transfers, one slow rank, an idle GPU."""

from __future__ import annotations

from grafana.alerts.model import RUN, Alert, Case, Query
from grafana.alerts.situations import HEALTHY, gauge, rank, series
from grafana.alerts.straggler import STRAGGLER

__all__ = ["ALERTS"]

_SHARE = "{{ $value | humanizePercentage }}"
_PHASES_QUERY = Query(
    "Share of the iterations by phase",
    "promql",
    'run:costlens_phase_time:ratio_rate5m{costlens_run_id="$run"}',
)
_DATA = {"data_wait": 0.4, "forward": 0.3, "backward": 0.3}

_DATA_BOUND = Alert(
    name="CostlensDataBound",
    area="bottleneck",
    severity="warning",
    value='run:costlens_phase_time:ratio_rate5m{costlens_phase="data_wait"}',
    bound="> $data_wait_ratio",
    hold="steady",
    summary=f"Run {RUN} waits for its data",
    description=f"{_SHARE} of the time of its iterations goes to waiting for the next batch.",
    dashboard="bottleneck",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.phase.data_wait" }'
    " | quantile_over_time(duration, 0.5, 0.99) by (span.costlens.rank)",
    meaning="Batches are not ready when the training asks for them, and the GPUs idle meanwhile. "
    "That share of the run's money buys nothing.",
    checks=(
        "How many loader workers are there and are they busy? The second query: workers at a whole "
        "CPU each are too few or too slow; idle ones wait for storage.",
        "Is it the storage? CostlensStorageSlow and the third query, for data sets that are read "
        "through `run.filesystem`.",
        "No workers at all: `DataLoader(num_workers=…, persistent_workers=True)`. Enough of them: "
        "is the wait at the start of epochs only (persistent workers), or all the time?",
    ),
    queries=(
        _PHASES_QUERY,
        Query(
            "CPUs that the loader workers use",
            "promql",
            'rate(costlens_loader_cpu_time_seconds_total{costlens_run_id="$run"}[5m])',
        ),
        Query(
            "99th percentile of reads",
            "promql",
            "histogram_quantile(0.99, sum by (le) (rate("
            'costlens_dataset_read_duration_seconds_bucket{costlens_run_id="$run"}[5m])))',
        ),
    ),
    cases=(
        Case(
            "a slow data set",
            rank(phases=_DATA),
            labels={"costlens_run_id": "r", "costlens_phase": "data_wait"},
            description="40% of the time of its iterations goes to waiting for the next batch.",
        ),
        Case("for five minutes only", rank(phases=_DATA, until=7), at="6m"),
        Case(
            "a long wait in an evaluation is not the training's",
            rank(state="evaluating", phases={"validation": 0.9, "data_wait": 0.1}),
        ),
        Case(
            "the run is over",
            rank(phases=_DATA, until=20, then="completed"),
            at="22m",
        ),
    ),
)

_TRANSFER = Alert(
    name="CostlensTransferExposed",
    area="bottleneck",
    severity="warning",
    value='run:costlens_phase_time:ratio_rate5m{costlens_phase="transfer"}',
    bound="> $transfer_ratio",
    hold="steady",
    summary=f"Run {RUN} waits for copies to the device",
    description=f"{_SHARE} of the time of its iterations goes to moving batches to the device.",
    dashboard="bottleneck",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.phase.transfer" }'
    " | quantile_over_time(duration, 0.5, 0.99) by (span.costlens.rank)",
    meaning="Copies are not hidden behind the work on the batch before.",
    checks=(
        "`pin_memory=True` in the loader, `non_blocking=True` in the copy?",
        "Is the batch larger than it must be: float64, one-hot, padding that is thrown away?",
        "PCIe: does the second query come near to what the slot can do (a x16 slot of generation 4 "
        "moves about 25 GB/s)? A card in a narrow slot shows on one rank only.",
    ),
    queries=(
        _PHASES_QUERY,
        Query(
            "Bytes a second over PCIe by GPU",
            "promql",
            'rate(hw_gpu_io_bytes_total{costlens_run_id="$run"}[5m])',
        ),
    ),
    cases=(
        Case(
            "copies that nobody hides",
            rank(phases={"transfer": 0.25, "forward": 0.75}),
            labels={"costlens_run_id": "r", "costlens_phase": "transfer"},
            description="25% of the time of its iterations goes to moving batches to the device.",
        ),
        Case("hidden copies", rank(phases={"transfer": 0.05, "forward": 0.95})),
    ),
)

_STORAGE = Alert(
    name="CostlensStorageSlow",
    area="bottleneck",
    severity="warning",
    value="""histogram_quantile(0.99,
  sum by (costlens_run_id, le) (rate(costlens_dataset_read_duration_seconds_bucket[$rate]))
)""",
    bound="> $read_s",
    scope="and on (costlens_run_id) run:costlens_phase_time:ratio_rate5m",
    hold="soon",
    summary=f"Reads of run {RUN}'s data set are slow",
    description="One read in a hundred takes {{ $value | humanizeDuration }} or longer.",
    dashboard="bottleneck",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.phase.data_wait"'
    " && duration > 1s }",
    meaning="The store that the data set is read from answers late. It is counted for data sets "
    "that are read through `run.filesystem`, in loader workers as well.",
    checks=(
        "Do training steps suffer? CostlensDataBound tells; workers may hide slow reads.",
        "Do reads fail and get retried (the second query)?",
        "Many small reads or few large ones (the third query)? Small ones want larger files or a "
        "local copy; large ones more workers.",
    ),
    queries=(
        Query(
            "99th percentile of reads",
            "promql",
            "histogram_quantile(0.99, sum by (le) (rate("
            'costlens_dataset_read_duration_seconds_bucket{costlens_run_id="$run"}[5m])))',
        ),
        Query(
            "Reads that failed",
            "promql",
            'increase(costlens_dataset_read_errors_total{costlens_run_id="$run"}[1h])',
        ),
        Query(
            "Bytes of a read",
            "promql",
            'sum(rate(costlens_dataset_io_bytes_total{costlens_run_id="$run"}[5m])) / '
            'sum(rate(costlens_dataset_read_duration_seconds_count{costlens_run_id="$run"}[5m]))',
        ),
    ),
    cases=(
        Case(
            "one read in ten takes seconds",
            (
                *rank(),
                *(
                    series(
                        "costlens_dataset_read_duration_seconds_bucket",
                        f"0+{count}x60",
                        le=bound,
                    )
                    for bound, count in (("0.1", 90), ("1", 90), ("4", 100), ("+Inf", 100))
                ),
            ),
            labels={"costlens_run_id": "r"},
            description="One read in a hundred takes 3.7s or longer.",
        ),
        Case(
            "quick reads",
            (
                *rank(),
                *(
                    series("costlens_dataset_read_duration_seconds_bucket", "0+100x60", le=bound)
                    for bound in ("0.1", "1", "4", "+Inf")
                ),
            ),
        ),
    ),
)


def _share(phase: str, threshold: str) -> str:
    return (
        "label_replace(run:hw_gpu_utilization:ratio_avg5m and on (costlens_run_id) "
        f'run:costlens_phase_time:ratio_rate5m{{costlens_phase="{phase}"}} > {threshold}, '
        f'"cause", "{phase}", "", "")'
    )


_GPU = Alert(
    name="CostlensGpuUnderused",
    area="bottleneck",
    severity="warning",
    value="\nor on (costlens_run_id) ".join(
        (
            _share("data_wait", "$data_wait_ratio"),
            _share("transfer", "$transfer_ratio"),
            _share("communication", "$data_wait_ratio"),
            _share("callbacks", "$data_wait_ratio"),
            _share("logging", "$data_wait_ratio"),
            'label_replace(run:hw_gpu_utilization:ratio_avg5m, "cause", "unknown", "", "")',
        )
    ),
    bound="< $gpu_utilization_ratio",
    scope="and on (costlens_run_id) run:costlens_phase_time:ratio_rate5m",
    hold="steady",
    summary=f"The GPUs of run {RUN} are under-used: {{{{ $labels.cause }}}}",
    description=f"Its GPUs are busy for {_SHARE} of the time. The cause that its phases show: "
    "{{ $labels.cause }}.",
    dashboard="bottleneck",
    traces='{ span.costlens.run.id = "$run" && name = "costlens.iteration" }'
    " | select(span.costlens.rank, span.costlens.phase.time.data_wait)",
    meaning="GPUs that are paid for idle while the run trains; start-up, evaluation and saves are "
    "not judged. `cause` is the first phase that takes more than its share; `unknown` means that "
    "no phase explains it: kernels too small to fill the GPU, points where host and device wait "
    "for each other, or work of the host inside the forward pass.",
    checks=(
        "A cause is named: follow the section of that cause (CostlensDataBound, "
        "CostlensTransferExposed); `communication`: see CostlensStragglerRank first.",
        "`unknown`: does the memory have room (the second query)? Then a larger batch is the "
        "cheapest try. Do iterations call `.item()` or print every step?",
        "All GPUs or one? The third query. One: see CostlensStragglerRank, CostlensGpuThrottled.",
    ),
    queries=(
        _PHASES_QUERY,
        Query(
            "Share of the memory in use",
            "promql",
            'gpu:hw_gpu_memory:ratio{costlens_run_id="$run"}',
        ),
        Query(
            "Utilization by GPU",
            "promql",
            'gpu:hw_gpu_utilization:ratio{costlens_run_id="$run"}',
        ),
    ),
    cases=(
        Case(
            "a slow data set, told over OTLP",
            (*rank(phases=_DATA), gauge("hw_gpu_utilization_ratio", 0.4, hw_id="GPU-1")),
            labels={"costlens_run_id": "r", "cause": "data_wait"},
            description="Its GPUs are busy for 40% of the time. The cause that its phases show: "
            "data_wait.",
        ),
        Case(
            "no phase explains it, told by scrape",
            (*rank(), gauge("hw_gpu_utilization", 0.4, hw_id="GPU-1")),
            labels={"costlens_run_id": "r", "cause": "unknown"},
            description="Its GPUs are busy for 40% of the time. The cause that its phases show: "
            "unknown.",
        ),
        Case(
            "told by dcgm-exporter in per cent",
            (
                *rank(phases=HEALTHY),
                gauge("costlens_run_info", 1, host_name="node-0", hw_id="GPU-1"),
                ('DCGM_FI_DEV_GPU_UTIL{UUID="GPU-1",gpu="0",Hostname="node-0"}', "40x60"),
            ),
            labels={"costlens_run_id": "r", "cause": "unknown"},
            description="Its GPUs are busy for 40% of the time. The cause that its phases show: "
            "unknown.",
        ),
        Case("C148: 0.8 is well used", (*rank(), gauge("hw_gpu_utilization_ratio", 0.8))),
        Case("a slice that cannot tell its utilization", rank(phases=_DATA | {"data_wait": 0.1})),
        Case(
            "idle in an evaluation",
            (
                *rank(state="evaluating", phases={"validation": 1.0}),
                gauge("hw_gpu_utilization_ratio", 0.1),
            ),
        ),
    ),
)

ALERTS = (_DATA_BOUND, _TRANSFER, STRAGGLER, _STORAGE, _GPU)
