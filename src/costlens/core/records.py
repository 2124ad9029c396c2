"""The record: what one rank writes about one attempt, and what readers make of all of them.

:class:`RankRecord` is written by ``export/record.py`` at every heartbeat and is the only truth of
the ledger; :class:`RunRecord` is what ``account/ledger.py`` merges from them, what ``costlens
report --json`` prints and what docs/record.schema.json describes. Absent means unknown, never zero;
times are Unix seconds, durations nanoseconds (``_ns``) or seconds (``_s``), money a decimal string.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

from pydantic import Field, field_validator

from costlens.core.budget_records import BudgetPart, RunTotalsPart
from costlens.core.checkpoint_records import CheckpointsPart
from costlens.core.device_records import MAX_GPUS, GpuDriverPart, GpuPart
from costlens.core.finding_records import MAX_FINDINGS, FindingPart
from costlens.core.gang_records import GangPart
from costlens.core.host_records import HostPart
from costlens.core.job_records import JobPart
from costlens.core.loading_records import LoadingPart, LooksPart
from costlens.core.mfu_records import FlopsPart
from costlens.core.part import Count, Label, Part, Seconds, UnixTime
from costlens.core.precision_records import PrecisionPart
from costlens.core.preemption_records import PreemptionPart
from costlens.core.price_records import SHARE_PATTERN, EnergyPricePart, PricePart
from costlens.core.telemetry_records import TelemetryPart
from costlens.core.torch_records import AllocatorPart, AllReducePart, CompilerPart
from costlens.core.training_records import (
    IterationTimePart,
    ProgressPart,
    QualityPart,
    RatesPart,
    WindowPart,
)
from costlens.core.trouble_records import LastWordsPart, OomPart, StallPart

__all__ = [
    "LABELS",
    "RANK_SCHEMA",
    "AttemptPart",
    "Outcome",
    "RankPart",
    "RankRecord",
    "RunPart",
    "StartupPart",
]

Pid = Annotated[int, Field(ge=1, lt=2**31)]

LABELS = ("project", "team", "experiment", "experiment_version", "model", "dataset_version")
"""Fields of :class:`RunPart` that say what a run's money was spent on."""

RANK_SCHEMA: Literal["costlens.rank/1"] = "costlens.rank/1"


class Outcome(str, Enum):
    """How an attempt ended, or that it has not."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED_EARLY = "stopped_early"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    PREEMPTED = "preempted"
    LOST = "lost"


class RunPart(Part):
    """Which run this is."""

    id: str
    name: str
    debug: str | None = Field(
        None, description="Why this is a debug run, such as fast_dev_run; absent otherwise."
    )
    framework: str | None = Field(
        None, description="What drives the loop: lightning or torch, with its version."
    )
    costlens_version: str
    project: Label | None = None
    team: Label | None = None
    experiment: Label | None = None
    experiment_version: Label | None = None
    model: Label | None = None
    dataset_version: Label | None = Field(
        None, description="Given, or a fingerprint of the files that were named as the data."
    )

    dataset_unknown: Label | None = Field(
        None, description="Why there is no dataset version, where files were named."
    )

    def labels(self) -> dict[str, str]:
        """Return what a run's money is allocated by, without what nobody has named."""
        values = {name: getattr(self, name) for name in LABELS}
        return {name: value for name, value in values.items() if value}


class AttemptPart(Part):
    """Which launch of the run this is, and how it ended."""

    number: int = Field(ge=1)
    launch_key: str = Field(description="Hash that all ranks of one launch share.")
    outcome: Outcome
    process_start_time: UnixTime | None = Field(
        None, description="Unix time of the process start, from the operating system."
    )
    start_time: UnixTime = Field(
        description="Unix time at which the timeline of this attempt begins."
    )
    heartbeat_time: UnixTime = Field(description="Unix time of this record.")
    end_time: UnixTime | None = None
    error_type: str | None = None
    exit_code: int | None = None
    signal: str | None = Field(
        None, description="Signal that asked the attempt to end, such as SIGTERM."
    )
    start_step: int | None = Field(
        None, description="Optimizer step the attempt resumed at, where the doorway knows it."
    )
    end_step: int | None = Field(
        None, description="Optimizer step reached, on the same scale as start_step."
    )
    saved_step: int | None = Field(
        None,
        description="Optimizer step of the last save that was seen, start_step before the first.",
    )
    num_saves: Count | None = Field(
        None, description="Saves that were seen to end, whoever made them; absent where unseen."
    )
    num_evaluations: Count | None = Field(
        None, description="Evaluations that ended, without the sanity check; absent where unseen."
    )
    end_reason: str | None = Field(
        None, description="What ended the attempt as planned before its last step, such as budget."
    )
    stage: str | None = Field(None, description="train, validation, test or prediction.")
    paid_from: Literal["allocation", "process_start", "start"] = Field(
        "start",
        description="Where paid time begins: the start of the scheduler's allocation, that of the "
        "process, or that of watching.",
    )


class RankPart(Part):
    """Which process this is and what it drives."""

    rank: int = Field(ge=0)
    local_rank: int = Field(0, ge=0)
    node_rank: int = Field(0, ge=0)
    world_size: int = Field(1, ge=1)
    local_world_size: int = Field(1, ge=1)
    host_name: str
    pid: Pid
    pid_space: str | None = Field(
        None, description="Hash of the boot and the namespace in which the pid means something."
    )
    pid_start_ticks: Count | None = Field(
        None, description="Start of the process in clock ticks since the boot, as in proc(5)."
    )
    job_id: str | None = None
    device: str = Field("cpu", description="Kind of device this rank drives: cpu, cuda, …")
    num_gpus: int = Field(0, ge=0, description="GPUs this rank drives itself.")
    accelerator: str | None = Field(
        None, max_length=200, description="Product name of those GPUs, as the driver tells it."
    )
    gpu_share: str | None = Field(
        None,
        pattern=SHARE_PATTERN,
        description="GPUs this rank pays for, as a decimal string: one shared by two ranks is 0.5. "
        "Absent: all that it drives.",
    )
    unowned_gpus: int | None = Field(
        None,
        ge=0,
        le=10_000,
        description="Allocated GPUs of the node that no rank drives, booked by local rank 0; "
        "absent where the allocation is not known.",
    )


class StartupPart(Part):
    """Start-up, split; seconds from one to the next, absent where it was not seen."""

    import_s: Seconds | None = Field(
        None,
        description="Process start to the import of costlens: the interpreter, and what the script "
        "imports before it. A part of process_s.",
    )
    allocation_s: Seconds | None = Field(
        None,
        description="Start of the allocation to the process start, where the attempt pays for it: "
        "prologue, containers, own set-up. It goes before the attempt's start_time.",
    )
    process_s: float | None = Field(
        None,
        description="Process start to the start of watching: interpreter, imports, own set-up.",
    )
    setup_s: float | None = Field(
        None, description="Start of watching to the first fetch: model, loaders, sanity check."
    )
    first_iteration_s: float | None = Field(
        None, description="First fetch to the end of the first iteration."
    )
    first_step_s: Seconds | None = Field(
        None,
        description="Process start (start of watching, where that is not known) to the end of the "
        "iteration that made the first optimizer step; absent where no optimizer is watched.",
    )
    gang_wait_s: Seconds | None = Field(
        None,
        description="Time in init_process_group: this rank's wait for the others, and the "
        "connecting. A part of process_s or setup_s.",
    )
    gang_wait_unknown: str | None = Field(
        None, description="Why the wait of a job of several ranks is not known."
    )


class RankRecord(Part):
    """All that one rank knows about one attempt; at most 256 KiB, however long the run."""

    schema_version: Literal["costlens.rank/1"] = RANK_SCHEMA
    run: RunPart
    attempt: AttemptPart
    rank: RankPart
    progress: ProgressPart
    time_ns: dict[str, Count] = Field(
        description="Nanoseconds per phase as they are priced; they sum to total_ns."
    )
    host_ns: dict[str, Count] | None = Field(
        None, description="The host's own phases, where a device's are priced instead."
    )
    total_ns: Count
    startup: StartupPart = StartupPart()
    iteration_time: IterationTimePart = IterationTimePart()
    rates: RatesPart = RatesPart()
    price: PricePart | None = None
    price_unknown: str | None = Field(None, description="Why there is no price.")
    energy_price: EnergyPricePart | None = None
    flops: FlopsPart | None = None
    quality: dict[str, QualityPart] = Field(default_factory=dict)
    telemetry: TelemetryPart = TelemetryPart()
    open_phase: str | None = Field(
        None, description="Phase open at the heartbeat; absent once the attempt has ended."
    )
    open_phase_s: Seconds | None = None
    stall: StallPart | None = None
    stopped_s: Seconds | None = Field(
        None,
        description="Time in which the whole process stood still, such as between SIGSTOP and "
        "SIGCONT; stops of less than a second may be missing.",
    )
    oom: OomPart | None = None
    last_words: LastWordsPart | None = None
    checkpoints: CheckpointsPart | None = None
    preemption: PreemptionPart | None = None
    precision: PrecisionPart | None = None
    run_totals: RunTotalsPart | None = Field(
        None, description="Totals of the run as rank 0 sees them; absent on the others."
    )
    budget: BudgetPart | None = Field(
        None, description="The budget, where one is set; only rank 0 watches it."
    )
    gang: GangPart | None = Field(None, description="What rank 0 sees; absent on the others.")
    host: HostPart | None = None
    loading: LoadingPart | None = Field(None, description="The loader that the rank trains from.")
    looks: LooksPart | None = Field(None, description="Where the training thread was seen.")
    allocator: AllocatorPart | None = Field(None, description="Absent while CUDA is not used.")
    compiler: CompilerPart | None = Field(None, description="Absent while nothing was compiled.")
    all_reduce: AllReducePart | None = Field(
        None,
        description="Absent where no DistributedDataParallel was seen, or in its first passes.",
    )
    gpu_driver: GpuDriverPart | None = None
    gpus: list[GpuPart] = Field(
        default_factory=list, max_length=MAX_GPUS, description="The devices this rank may use."
    )
    job: JobPart | None = Field(
        None, description="The scheduler's job that the rank runs in; absent outside a scheduler."
    )
    findings: list[FindingPart] = Field(
        default_factory=list,
        max_length=MAX_FINDINGS,
        description="What the rank has found of itself so far: what lasts, then what is over.",
    )
    windows: list[WindowPart] = Field(default_factory=list, max_length=60)

    @field_validator("telemetry")
    @classmethod
    def _bound_overhead(cls, value: TelemetryPart) -> TelemetryPart:
        # Here and not at the field, for the merged record holds the sum over all ranks.
        if not 0 <= value.overhead_s < 1e12:
            raise ValueError("overhead_s is no time that a thread can take")
        return value
