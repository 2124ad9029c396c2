"""A run without a training.

Real timeline, recorder, totals and snapshot builder on a clock one turns.
"""

from __future__ import annotations

from typing import Any

from costlens.account.device_meter import COUNTERS, THROTTLE_REASONS
from costlens.account.throughput import compute_rates
from costlens.core.attempt_state import AttemptState
from costlens.core.budget_records import BudgetPart, RunTotalsPart
from costlens.core.checkpoint_records import CheckpointsPart, IntervalPart
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.device_records import GpuDriverPart, GpuPart
from costlens.core.finding_records import FindingPart
from costlens.core.gang_records import GangPart
from costlens.core.host_records import (
    READ_BOUNDS_S,
    ContainerPart,
    HostPart,
    LoaderPart,
    NodePart,
    ProcessPart,
    ReadsPart,
)
from costlens.core.job_records import JobPart
from costlens.core.mfu_records import FlopsPart
from costlens.core.phases import Phase
from costlens.core.precision_records import PrecisionPart
from costlens.core.price_records import EnergyPricePart, PricePart
from costlens.core.quality import Observation, QualityBook
from costlens.core.recorder import Recorder
from costlens.core.records import Outcome, RankPart, RunPart
from costlens.core.snapshot import Snapshot
from costlens.core.snapshot_builder import SnapshotBuilder
from costlens.core.telemetry_records import ExportHealth, TelemetryPart
from costlens.core.timeline import Timeline
from costlens.core.window import KeepPolicy, Totals

# The start of a minute, so that trace periods of 60 s begin with the run.
WALL_NS = 1_699_999_980 * NS_PER_S
MONO_NS = 5_000 * NS_PER_S

USUAL = {Phase.DATA_WAIT: 0.2, Phase.FORWARD: 0.3, Phase.BACKWARD: 0.4, Phase.OPTIMIZER: 0.1}
PRICE = PricePart(amount="3.60", unit="node", share="1", currency="EUR", source="a test")


class Rehearsal:
    """One rank of a run; its clock stands still until a step is made."""

    def __init__(
        self,
        rank: int = 0,
        world_size: int = 1,
        *,
        run_id: str = "run-a",
        attempt: int = 1,
        price: PricePart | None = None,
        every: int = 10,
        wall_ns: int = WALL_NS,
    ) -> None:
        self.now_ns = MONO_NS
        self.telemetry = TelemetryPart()
        self.host: HostPart | None = None
        self.run_totals: RunTotalsPart | None = None
        self.budget: BudgetPart | None = None
        self.timeline = Timeline(lambda: self.now_ns, MONO_NS)
        self.recorder = Recorder(self.timeline)
        self.recorder.counters.watch_steps()
        self.totals = Totals(KeepPolicy(every=every))
        self.quality = QualityBook()
        self.alarms: list[Observation] = []
        self.gpus: list[GpuPart] = []
        self.probed: dict[str, object] = {}
        self.state = AttemptState(
            run=RunPart(
                id=run_id, name="gpt-small", framework="torch 2.13", costlens_version="0.1.0"
            ),
            rank=RankPart(rank=rank, world_size=world_size, host_name=f"node-{rank}", pid=1),
            anchor=Anchor(wall_ns, MONO_NS),
            start_ns=MONO_NS,
            number=attempt,
        )
        self._builder = SnapshotBuilder(
            self.state,
            self.timeline,
            self.recorder,
            self.totals,
            self.quality,
            rates=compute_rates,
            telemetry=lambda: self.telemetry,
            probed=lambda: {
                "price": price,
                "host": self.host,
                "run_totals": self.run_totals,
                "budget": self.budget,
                "gpus": self.gpus,
                "gpu_driver": GpuDriverPart(state="ok", driver_version="57.8"),
                **self.probed,
            },
        )

    def spend(self, phase: Phase, seconds: float) -> None:
        """Let time pass in a phase."""
        self.timeline.enter(phase)
        self.now_ns += round(seconds * NS_PER_S)
        self.timeline.leave()

    def step(self, phases: dict[Phase, float] = USUAL, *, tokens: int = 100) -> None:
        """Make one iteration of 1 s (or of other phases) with 4 samples."""
        for phase, seconds in phases.items():
            self.spend(phase, seconds)
        counters = self.recorder.counters
        counters.micro_batches += 1
        counters.optimizer_steps += 1
        counters.add_samples(4)
        counters.add_slots(tokens + 28)
        counters.add_tokens(tokens)
        self.recorder.cut()

    def steps(self, num: int) -> None:
        """Make several usual iterations."""
        for _ in range(num):
            self.step()

    def log(self, **metrics: float) -> None:
        """Log quality metrics of the last iteration."""
        number = max(0, self.recorder.counters.iterations - 1)
        for name, value in metrics.items():
            self.quality.add(name, value, number, self.now_ns)

    def look(self, *, opens: bool = False, is_last: bool = False) -> Snapshot:
        """Close a window and return its snapshot."""
        for row in self.recorder.drain(100_000):
            self.totals.add(row)
        alarms = tuple(self.quality.fold())
        if is_last:
            self.state.end_ns = self.now_ns
        return self._builder.build(self.now_ns, opens=opens, is_last=is_last, alarms=alarms)

    def end(self, outcome: Outcome = Outcome.COMPLETED) -> Snapshot:
        """End the attempt and return its last snapshot."""
        self.state.outcome = outcome
        return self.look(is_last=True)


def complete(price: PricePart | None = PRICE) -> Rehearsal:
    """Return a run about which everything is known that a catalogue entry can show."""
    run = Rehearsal(price=price)
    run.run_totals = RunTotalsPart(
        time_s=70.0, cost={"EUR": "0.07"}, goodput=0.6, productive_steps=18, lost_steps=2,
        tokens=2000, num_records=2, unit_cost={"token": "0.000035", "step": "0.0035"},
    )  # fmt: skip
    run.budget = BudgetPart(amount="0.10", currency="EUR", action="warn", spent="0.07", share=0.7)
    run.state.start_step, run.state.end_step, run.state.total_steps = 40, 60, 100
    run.state.gang_wait_ns = 1_500_000_000
    run.state.job = JobPart(
        scheduler="slurm",
        job_id="7",
        submit_time=1000,
        eligible_time=1600,
        start_time=1900,
        is_allocation_owner=True,
    )
    run.state.gang = GangPart(num_reporting=3, num_restarts=2, restart_loop=0)
    run.steps(20)
    run.state.checkpoints = CheckpointsPart(
        url="memory://c", num_saved=2, num_bytes=1000, last_step=55, last_time=1.0,
        interval=IntervalPart(
            interval_s=300.0, optimum_s=300.0, rail="optimum", worst_loss_s=360.0,
            is_loss_kept=True, failure_rate_per_s=1e-4, stall_s=1.0, write_s=59.0, slowdown=0.0,
        ),
    )  # fmt: skip
    run.gpus = [make_gpu()]
    run.recorder.counters.add_loss_tokens(1500)
    run.recorder.counters.validation_batches = 3
    run.state.rank = run.state.rank.model_copy(update={"num_gpus": 1, "unowned_gpus": 1})
    run.probed = {
        "energy_price": EnergyPricePart(amount_per_kwh="0.3", currency="USD", source="test"),
        "flops": FlopsPart(per_token=1e9, peak_flops_per_s=1e12, precision="bf16"),
        "findings": [
            FindingPart(
                name="storage_read",
                severity="warning",
                money_per_hour="1.2",
                currency="EUR",
                share=0.5,
                is_open=True,
            )
        ],
    }
    run.state.precision = PrecisionPart(
        requested="auto", effective="fp16", reason="test", skipped_s=0.5, loss_scale=32768.0
    )
    run.log(loss=2.5, val_loss=2.0, test_loss=1.0, grad_norm=0.5, learning_rate=1e-3, accuracy=0.7)
    run.host = busy_host()
    run.telemetry = TelemetryPart(
        faults={"pipeline.drain": 1},
        exports={"traces": ExportHealth(state="ok", exports_ok=2, items_dropped=5)},
    )
    return run


def make_gpu(uuid: str = "GPU-a", **changes: Any) -> GpuPart:
    """Return a device that tells everything; it drew 300 W at 40 % for 20 s."""
    told: dict[str, Any] = {
        "uuid": uuid,
        "name": "H1",
        "serial": "16",
        "pci_id": "17:00.0",
        "utilization": 0.4,
        "memory_used_bytes": 20,
        "memory_total_bytes": 80,
        "power_watts": 300,
        "power_limit_watts": 700,
        "temperature_celsius": 60,
        "memory_temperature_celsius": 70,
        "sm_clock_hertz": 1.9e9,
        "memory_clock_hertz": 2.6e9,
        "activity": {"sm": 0.4, "tensor": 0.2, "dram": 0.3},
        "sampled_s": 20,
        "busy_s": 8,
        "utilization_s": 20,
        "activity_busy_s": {"sm": 8, "tensor": 4, "dram": 6},
        "activity_s": 20,
        "energy_joules": 6000,
        "energy_source": "counter",
        "energy_s": 20,
        "throttle_s": {**dict.fromkeys(THROTTLE_REASONS, 0), "power_cap": 2},
        "io_bytes": dict.fromkeys(COUNTERS["io"], 1000),
        "errors": {**dict.fromkeys(COUNTERS["errors"], 0), "xid": 1},
    }
    return GpuPart.model_validate(told | changes)


def busy_host(seconds: int = 60) -> HostPart:
    """Return a host after some seconds: every number is its rate times them."""
    return HostPart(
        sampled_s=seconds,
        process=ProcessPart(
            cpu_user_s=1.5 * seconds,
            cpu_system_s=0.5 * seconds,
            memory_bytes=7_000,
            disk_read_bytes=11 * seconds,
            disk_write_bytes=12 * seconds,
        ),
        loader=LoaderPart(num_alive=3, num_died=1, cpu_s=2.5 * seconds, memory_bytes=900),
        reads=ReadsPart(
            num_reads=4 * seconds,
            num_bytes=4_000 * seconds,
            num_errors=seconds,
            read_s=0.25 * seconds,
            max_s=1.5,
            bounds_s=list(READ_BOUNDS_S),
            buckets=[0, 0, 4 * seconds, 0, 0, 0, 0],
        ),
        node=NodePart(
            id="a",
            num_cpus=8,
            cpu_s={
                "user": 4.0 * seconds,
                "system": 1.0 * seconds,
                "iowait": 0.5 * seconds,
                "steal": 0.5 * seconds,
                "idle": 2.0 * seconds,
            },
            memory_bytes=100_000,
            memory_used_bytes=60_000,
            memory_available_bytes=40_000,
            disk_read_bytes=21 * seconds,
            disk_write_bytes=22 * seconds,
            network_receive_bytes=31 * seconds,
            network_transmit_bytes=32 * seconds,
            infiniband_receive_bytes=41 * seconds,
            infiniband_transmit_bytes=42 * seconds,
        ),
        container=ContainerPart(
            cpu_s=3.0 * seconds,
            cpu_limit=4.0,
            num_periods=10 * seconds,
            num_throttled=2 * seconds,
            throttled_s=0.1 * seconds,
            memory_used_bytes=49_000,
            memory_limit_bytes=50_000,
            memory_available_bytes=1_000,
        ),
    )


class Outbox:
    """Takes batches in the place of the export workers."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, object, int]] = []

    def submit(self, signal: str, batch: object, num_items: int) -> bool:
        """Keep a batch."""
        self.batches.append((signal, batch, num_items))
        return True
