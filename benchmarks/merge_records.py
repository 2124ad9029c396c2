"""Time a record write, and the reading and merging of a run of 1,024 ranks.

`python -m benchmarks.merge_records [RANKS]` makes records as full as they get (60 windows, a filled
histogram and sketch, quality, telemetry), writes them into a run folder and reads them as
`costlens report` does. Limits: 5 ms a write, 5 s of CPU for the merge (one thread, so its
wall time on a calm machine); exit code 1 beyond them.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path

from costlens.core.records import RankRecord
from costlens.core.telemetry_records import ExportHealth, TelemetryPart
from costlens.core.training_records import QualityPart, WindowPart
from costlens.export.record import read_run
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.account.build import START, make_iteration_time, make_price, make_record

MAX_WRITE_S = 0.005
MAX_MERGE_S = 5.0
PHASES_S = {"startup": 30.0, "data_wait": 60.0, "forward": 200.0, "backward": 300.0, "other": 10.0}


def make_full_record(rank: int, num_ranks: int) -> RankRecord:
    """Return a record with everything a long run puts into one."""
    windows = [
        WindowPart(
            index=index,
            start_time=START + 10 * index,
            end_time=START + 10 * index + 10,
            phase_ns=dict.fromkeys(PHASES_S, 10**9),
            counts={"iterations": 100, "optimizer_steps": 100, "tokens": 10**6, "samples": 800},
            num_iterations=100,
            iteration_mean_s=0.1,
            iteration_max_s=0.2,
            quality={f"metric_{n}": 1.0 for n in range(8)},
        )
        for index in range(60)
    ]
    durations_s = [0.05 * 1.001**n for n in range(2000)]
    return make_record(
        1,
        rank,
        time_s=PHASES_S,
        world_size=num_ranks,
        progress={
            "iterations": 6000,
            "optimizer_steps": 6000,
            "tokens": 6 * 10**7,
            "samples": 48000,
            "micro_batches": 6000,
        },
        price=make_price("2.5", unit="gpu"),
        iteration_time=make_iteration_time(*durations_s),
        quality={
            f"metric_{n}": QualityPart(last=1.0, best=0.5, best_after_s=9.0, num_values=60)
            for n in range(16)
        },
        telemetry=TelemetryPart(
            exports={name: ExportHealth(state="ok") for name in ("traces", "metrics", "logs")}
        ),
        windows=windows,
        attempt_start_step=0,
        attempt_end_step=6000,
    )


def main(num_ranks: int) -> int:
    """Measure, print and return the exit code."""
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Store(Path(place)), "run")
        folder.claim_attempt("key", {"wall_ns": int(START * 1e9)})
        writes_s = []
        for rank in range(num_ranks):
            record = make_full_record(rank, num_ranks)
            began_s = time.perf_counter()
            data = record.model_dump_json(exclude_none=True).encode()
            folder.write_record(1, rank, data)
            writes_s.append(time.perf_counter() - began_s)
        write_s = statistics.median(writes_s)
        print(f"a record of {len(data) / 1024:.0f} KiB: {1e3 * write_s:.2f} ms a write (median)")
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        run = read_run(folder, START + 700)
        wall_s, merge_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    print(f"{num_ranks} records read and merged in {merge_s:.2f} s of CPU, {wall_s:.2f} s by wall")
    paid = num_ranks * Decimal("2.5") / 6  # 600 s of each
    assert abs(Decimal(run.cost.total or 0) - paid) < num_ranks * Decimal("1e-9")
    assert len(run.ranks) == num_ranks
    return int(write_s > MAX_WRITE_S or merge_s > MAX_MERGE_S)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1024))
