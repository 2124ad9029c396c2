"""Runs to render: each is one that a report has to show well."""

from __future__ import annotations

from costlens.account.ledger import merge
from costlens.core.records import StartupPart
from costlens.core.run_record import RunRecord
from costlens.core.telemetry_records import ExportHealth, TelemetryPart
from costlens.core.training_records import QualityPart, RatesPart
from tests.unit.account.build import START, make_iteration_time, make_price, make_record

SPENT_S = {
    "startup": 4.1,
    "data_wait": 0.42,
    "transfer": 0.003,
    "forward": 8.93,
    "backward": 16.11,
    "optimizer": 1.31,
    "validation": 1.93,
    "callbacks": 0.02,
    "logging": 0.11,
    "shutdown": 0.08,
    "other": 0.25,
}
COUNTS = {
    "iterations": 400,
    "micro_batches": 400,
    "optimizer_steps": 200,
    "samples": 3200,
    "slots": 409_600,
    "tokens": 391_117,
    "validation_batches": 32,
    "total_steps": 200,
}


def make_demo(**changes: object) -> RunRecord:
    """Return a finished, priced run of one rank, as the demo makes it, with ``changes``."""
    record = make_record(
        **{
            "time_s": SPENT_S,
            "progress": COUNTS,
            "price": make_price("1.20"),
            "rates": RatesPart(
                iterations_per_s=14.7, steps_per_s=7.36, samples_per_s=117.8, tokens_per_s=14393.0
            ),
            "iteration_time": make_iteration_time(*[0.064] * 300, *[0.071] * 90, *[0.2] * 9),
            "startup": StartupPart(process_s=3.2, setup_s=0.7, first_iteration_s=0.2),
            "quality": {
                "loss": QualityPart(
                    last=2.3119,
                    best=2.2054,
                    best_iteration=390,
                    best_after_s=31.9,
                    num_values=400,
                ),
                "val_loss": QualityPart(
                    last=2.3555, best=2.3555, best_iteration=399, best_after_s=32.6, num_values=4
                ),
            },
            "telemetry": TelemetryPart(
                overhead_s=0.21,
                num_windows=4,
                exports={
                    "metrics": ExportHealth(state="ok", exports_ok=4),
                    "traces": ExportHealth(state="ok", exports_ok=5),
                },
            ),
            **changes,
        }
    )
    return merge([record], now=START + 60.0)


def make_job(num_ranks: int = 64) -> RunRecord:
    """Return a live job of many ranks in its third attempt, with losses of all kinds."""
    records = []
    for attempt, (outcome, begin, end) in enumerate(
        [("failed", 0, 4200), ("lost", 4000, 9100), ("running", 9000, 12_345)], start=1
    ):
        for rank in range(num_ranks):
            is_stuck = rank in {17, 40}
            records.append(
                make_record(
                    attempt,
                    rank,
                    outcome=outcome,
                    world_size=num_ranks,
                    start_time=START + 40_000 * (attempt - 1),
                    time_s={
                        "startup": 212.0,
                        "restore": 31.0 if attempt > 1 else 0.0,
                        "data_wait": 2400.0 + 10 * rank,
                        "forward": 9800.0,
                        "backward": 17_000.0,
                        "optimizer": 900.0,
                        "communication": 1900.0 - 10 * rank,
                        "checkpoint": 700.0,
                        "validation": 1200.0,
                    },
                    progress={
                        "iterations": (end - begin) * 4,
                        "optimizer_steps": end - begin,
                        "samples": (end - begin) * 32,
                        "tokens": (end - begin) * 32 * 4096,
                        "slots": (end - begin) * 32 * 4096,
                        "total_steps": 100_000,
                    },
                    price=make_price("2.49", unit="gpu"),
                    rates=RatesPart(
                        iterations_per_s=0.49, steps_per_s=0.122, tokens_per_s=16_000.0
                    ),
                    iteration_time=make_iteration_time(*[2.0 + rank / 300] * 50, 9.0),
                    startup=StartupPart(process_s=40.0, setup_s=120.0, first_iteration_s=52.0),
                    quality={"loss": QualityPart(last=1.9, best=1.8, best_after_s=30_000.0)},
                    open_phase="data_wait" if is_stuck else "communication",
                    open_phase_s=48.0 if is_stuck else 41.0,
                    attempt_error_type="OutOfMemoryError" if outcome == "failed" else None,
                    attempt_exit_code=1 if outcome == "failed" else None,
                    attempt_start_step=begin,
                    attempt_end_step=end,
                    telemetry=TelemetryPart(
                        overhead_s=40.0,
                        faults={"export.metrics": 2} if rank == 3 else {},
                        rows_dropped=12 if rank == 4 else 0,
                        exports={
                            "traces": ExportHealth(
                                state="open" if rank == 5 else "ok",
                                exports_ok=700,
                                exports_failed=9 if rank == 5 else 0,
                                items_dropped=120 if rank == 5 else 0,
                                last_error_type="http_503" if rank == 5 else None,
                            )
                        },
                    ),
                )
            )
    return merge(records, now=records[-1].attempt.heartbeat_time + 12.0)
