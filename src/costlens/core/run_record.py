"""The merged record of a run: what readers make of the records of all its ranks and attempts.

``account/ledger.py`` makes it, ``costlens report --json`` prints it, docs/record.schema.json
describes it. As in ``core/records.py`` None means unknown, and money is a decimal string.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from costlens.core.budget_records import BudgetPart
from costlens.core.checkpoint_records import IntervalPart
from costlens.core.device_records import GpuSummary
from costlens.core.finding_records import FindingPart, UndecidedPart
from costlens.core.gang_records import RestartLoopPart
from costlens.core.goodput_record import GoodputPart
from costlens.core.host_records import HostSummary
from costlens.core.job_records import JobPart, QueuePart
from costlens.core.mfu_records import MfuPart
from costlens.core.part import Part
from costlens.core.practice_records import CheckPart
from costlens.core.precision_records import PrecisionSummary
from costlens.core.preemption_records import PreemptionPart
from costlens.core.records import Outcome, RunPart, StartupPart
from costlens.core.telemetry_records import DetailPart, TelemetryPart
from costlens.core.training_records import IterationTimePart, ProgressPart, QualityPart, RatesPart
from costlens.core.trouble_records import LastWordsPart, StallPart

__all__ = [
    "NOT_LOOKED_AT",
    "AttemptSummary",
    "CheckpointPart",
    "CostPart",
    "EnergyCostPart",
    "FindingPart",
    "RankSummary",
    "RunProgress",
    "RunRecord",
]

RUN_SCHEMA: Literal["costlens.run/1"] = "costlens.run/1"

NOT_LOOKED_AT = "not looked at"
"""Why nothing is found in a merged record of which nobody has asked why it is slow."""


class AttemptSummary(Part):
    """One attempt over all its ranks."""

    number: int
    outcome: Outcome
    start_time: float
    end_time: float | None = None
    heartbeat_time: float
    wall_s: float
    num_ranks: int
    world_size: int
    num_reporting: int | None = Field(
        None, description="Ranks that are alive, or ended by their own word."
    )
    missing_ranks: list[int] = Field(
        default_factory=list,
        description="Ranks that fell silent or left no record, the first 64.",
    )
    error_type: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    start_step: int | None = None
    end_step: int | None = None
    saved_step: int | None = None
    end_reason: str | None = None
    preemption: PreemptionPart | None = Field(
        None, description="How it left when it was asked to, as rank 0 tells it."
    )
    first_step_s: float | None = Field(
        None, description="Process start to the first optimizer step, on the slowest rank."
    )
    gang_wait_s: float | None = Field(
        None, description="Longest wait of a rank for the others to come."
    )
    last_words: LastWordsPart | None = Field(
        None, description="Those of a rank that ended as the attempt did, when it ended badly."
    )


class RankSummary(Part):
    """One rank in the newest attempt it took part in."""

    rank: int
    attempt: int
    host_name: str
    device: str
    outcome: Outcome
    heartbeat_time: float
    time_s: dict[str, float]
    progress: ProgressPart
    median_iteration_s: float | None = None
    startup: StartupPart = StartupPart()
    open_phase: str | None = None
    open_phase_s: float | None = None
    stall: StallPart | None = None
    job: JobPart | None = None
    detail: DetailPart | None = Field(None, description="Absent once the attempt has ended.")


class RunProgress(ProgressPart):
    """Totals of the run over attempts and ranks.

    Samples, tokens and micro-batches are sums over ranks; iterations and steps are those of the
    job, which all ranks make together.
    """

    productive_steps: int | None = Field(
        None, description="Optimizer steps that were not lost; null when unknown."
    )
    lost_steps: int | None = Field(
        None,
        description="Optimizer steps that a later attempt did again, or that no save of a run "
        "that ended badly holds; null when unknown.",
    )


class EnergyCostPart(Part):
    """Money for the energy of the GPUs: in no other price and no other total."""

    currency: str | None = None
    total: str | None = Field(None, description="A decimal string; null when unknown.")
    energy_kwh: float | None = Field(None, description="The energy that the total is for.")
    is_partial: bool = Field(False, description="Whether a part of the energy is not known.")
    unknown: str | None = Field(None, description="Why there is no total.")


class CostPart(Part):
    """Money, as decimal strings of one currency; several currencies are never added."""

    currency: str | None = Field(None, description="The currency, when there is one only.")
    total: str | None = Field(None, description="Null when unknown.")
    unknown: str | None = Field(None, description="Why there is no cost.")
    is_partial: bool = Field(False, description="Whether a part of the run has no known price.")
    by_phase: dict[str, str] = Field(default_factory=dict)
    by_attempt: dict[str, str] = Field(default_factory=dict)
    by_rank: dict[str, str] = Field(
        default_factory=dict, description="Money per rank over all attempts."
    )
    per_1k_tokens: str | None = None
    per_million_tokens: str | None = None
    per_million_productive_tokens: str | None = None
    token_basis: Literal["tokens", "slots"] | None = Field(
        None, description="What is counted as a token: non-padding, or positions."
    )
    per_sample: str | None = None
    per_step: str | None = Field(None, description="Per optimizer step, lost ones included.")
    per_productive_step: str | None = Field(None, description="Per optimizer step that survived.")
    per_gpu_hour: str | None = Field(
        None, description="Per paid hour of a GPU; shares of one and idle ones count as such."
    )
    per_effective_gpu_hour: str | None = Field(
        None, description="Per paid hour of a GPU over the goodput, at least 0.01."
    )
    cost_per_effective_unit: str | None = Field(
        None, description="Per paid hour of a GPU over the utilization, at least 0.01."
    )
    utilization: float | None = Field(
        None, description="The share of use, 0 to 1, that cost_per_effective_unit is divided by."
    )
    utilization_name: str | None = Field(
        None, description="Which share of use that is: gpu_utilization or goodput."
    )
    rate_per_hour: str | None = Field(
        None, description="Money per hour at the newest attempt's prices."
    )
    energy: EnergyCostPart | None = Field(None, description="Null where no price of energy is set.")
    sources: list[str] = Field(default_factory=list)
    by_currency: dict[str, str] = Field(
        default_factory=dict, description="A total per currency, when there are several."
    )


class CheckpointPart(Part):
    """The saves of a run; all but ``time_s`` only where costlens saves them itself."""

    time_s: float = Field(0.0, description="Seconds of all ranks in saves, whoever saved.")
    url: str | None = Field(None, description="Where they go, without credentials.")
    num_saved: int = 0
    num_failed: int = 0
    num_skipped: int = 0
    num_retries: int = 0
    stall_s: float = 0.0
    write_s: float = 0.0
    num_bytes: int | None = Field(
        None, description="Bytes of the newest checkpoint in the store, of all ranks."
    )
    last_step: int | None = None
    last_time: float | None = None
    next_step: int | None = None
    interval: IntervalPart | None = None
    worst_loss_money: str | None = Field(
        None, description="Money of the most work that a failure can lose now."
    )
    resumed_from: str | None = None
    resumed_step: int | None = None
    rejected: list[str] = Field(default_factory=list)
    inexact: list[str] = Field(default_factory=list)


class RunRecord(Part):
    """The merged record of a run: what ``costlens report --json`` prints.

    Every key is always there; null means unknown, never zero.
    """

    schema_version: Literal["costlens.run/1"] = RUN_SCHEMA
    run: RunPart
    attempts: list[AttemptSummary]
    restart_loop: RestartLoopPart | None = Field(
        None, description="The newest attempts, where they end badly without getting further."
    )
    ranks: list[RankSummary]
    progress: RunProgress
    time_s: dict[str, float] = Field(
        description="Seconds per phase over all attempts and ranks, and their total."
    )
    rates: RatesPart
    iteration_time: IterationTimePart
    startup: StartupPart
    queue: QueuePart = QueuePart()
    gpu: GpuSummary = Field(
        default_factory=GpuSummary, description="Device telemetry; what is null is unknown."
    )
    host: list[HostSummary] = Field(
        default_factory=list, description="The hosts, each in the newest attempt on it."
    )
    cost: CostPart
    goodput: GoodputPart = GoodputPart()
    mfu: MfuPart = MfuPart()
    budget: BudgetPart | None = Field(
        None, description="The budget that the newest attempt has, with what is spent of it."
    )
    checkpoints: CheckpointPart
    precision: PrecisionSummary | None = None
    quality: dict[str, QualityPart]
    findings: list[FindingPart] = Field(
        default_factory=list,
        description="Why the newest attempt is slow, the greatest cause first.",
    )
    undecided: list[UndecidedPart] = Field(
        default_factory=list, description="Causes that nobody can tell of, and what is missing."
    )
    unjudged: str | None = Field(
        NOT_LOOKED_AT,
        description="Why the steps of the newest attempt are not judged; null where they are.",
    )
    practice: list[CheckPart] = Field(
        default_factory=list,
        description="The checks of good practice, all of them; none where nobody has looked.",
    )
    telemetry: TelemetryPart
    problems: list[str] = Field(
        default_factory=list, description="What could not be read, and flags such as skewed clocks."
    )
