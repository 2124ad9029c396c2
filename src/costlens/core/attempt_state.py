"""What is known of an attempt beside its counters: who it is, how it goes on, how it ended.

The doors, ``run.py`` and the pipeline thread write it; ``core/snapshot_builder.py`` makes the
record's parts of it at every heartbeat.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from costlens.core.checkpoint_records import CheckpointsPart, SaveNote
from costlens.core.clock import Anchor
from costlens.core.gang_records import GangPart
from costlens.core.job_records import JobPart
from costlens.core.log import Logger, log
from costlens.core.phases import Phase
from costlens.core.precision_records import PrecisionPart
from costlens.core.preemption_records import PreemptionPart
from costlens.core.records import Outcome, RankPart, RunPart
from costlens.core.telemetry_records import Detail, DetailPart
from costlens.core.trouble_records import LastWordsPart, OomPart, StallPart

__all__ = ["AttemptState"]

_SAVE, _EVALUATION = (phase.name.lower() for phase in (Phase.CHECKPOINT, Phase.VALIDATION))


@dataclass(slots=True)
class AttemptState:
    """What the doorway and run.py know about the attempt; read at each heartbeat.

    Times are monotonic nanoseconds; ``log`` is the log of the run. ``lead_ns`` is what is paid for
    before the timeline begins, from the start of the allocation; None where that is not known.
    ``turn`` counts the runs of this name that the process has opened before.
    ``rank_facts`` and ``run_facts`` hold fields of ``rank`` and ``run`` that probes find out: the
    pipeline thread alone writes them. ``chosen_precision`` is the door's, ``precision`` the
    pipeline thread's.
    """

    run: RunPart
    rank: RankPart
    anchor: Anchor
    start_ns: int
    number: int = 1
    launch_key: str = ""
    process_start_ns: int | None = None
    watch_start_ns: int | None = None
    lead_ns: int | None = None
    turn: int = 0
    job: JobPart | None = None
    first_fetch_ns: int | None = None
    import_ns: int | None = None
    gang_wait_ns: int | None = None
    gang_wait_unknown: str | None = None
    gang: GangPart | None = None
    end_ns: int | None = None
    outcome: Outcome = Outcome.RUNNING
    error_type: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    error_stack: tuple[str, ...] = ()
    start_step: int | None = None
    end_step: int | None = None
    saved_step: int | None = None
    num_saves: int | None = None
    num_evaluations: int | None = None
    end_reason: str | None = None
    total_steps: int | None = None
    stage: str | None = None
    num_parameters: int | None = None
    rank_facts: dict[str, Any] = field(default_factory=dict)
    run_facts: dict[str, Any] = field(default_factory=dict)
    stall: StallPart | None = None
    oom: OomPart | None = None
    detail: DetailPart = field(default_factory=lambda: DetailPart(name=Detail.NORMAL))
    last_words: LastWordsPart | None = None
    checkpoints: CheckpointsPart | None = None
    preemption: PreemptionPart | None = None
    saves: deque[SaveNote] = field(default_factory=lambda: deque(maxlen=64))
    chosen_precision: PrecisionPart | None = None
    precision: PrecisionPart | None = None
    gpu_ordinals: tuple[int, ...] | None = None
    last_xid: int | None = None
    log: Logger = log

    def describe_run(self) -> RunPart:
        """Return the run with what the probes have found out about it."""
        return self.run.model_copy(update=self.run_facts) if self.run_facts else self.run

    def describe_rank(self) -> RankPart:
        """Return the rank with what the probes have found out about it."""
        return self.rank.model_copy(update=self.rank_facts) if self.rank_facts else self.rank

    def count_phase(self, name: str) -> None:
        """Count a save or an evaluation that the user brackets; training thread, under 1 µs."""
        if name == _SAVE:
            self.num_saves = (self.num_saves or 0) + 1
        elif name == _EVALUATION:
            self.num_evaluations = (self.num_evaluations or 0) + 1

    def reopen(self) -> None:
        """Forget how the attempt ended: it goes on."""
        self.end_ns = None
        self.outcome = Outcome.RUNNING
        self.error_type = self.exit_code = self.signal = self.end_reason = None
        self.error_stack = ()
        self.stall = self.last_words = self.preemption = None
