"""What one sample of 8 GPUs and the host takes of the pipeline thread's CPU.

    python -m benchmarks.device_sampling [--gpus 8] [--samples 200] [--pairs 150]

The real probes of a run read a stand-in driver, whose own time is part of what is measured; a real
driver adds its system calls. The first table is the CPU of a sample by probe, the second what
sampling the GPUs adds to the hooks of the training thread (see ``host_sampling``). Exits with 1
where the median sample takes more than 2 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time

from benchmarks.host_sampling import compare, describe
from costlens.cli.demo.fake_gpus.model import make_scenario
from costlens.cli.demo.fake_gpus.stand_in import load_stand_in
from costlens.config import resolve_config
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, anchor_now
from costlens.core.probe import SAMPLE_EVERY_NS
from costlens.core.records import RankPart, RunPart
from costlens.observe.host_probe import HostSources
from costlens.observe.nvml import NvmlProbe
from costlens.probes import make_probes
from costlens.run import Run

LIMIT_MS = 2.0


def measure(num_gpus: int, num_samples: int) -> dict[str, list[float]]:
    """Return the CPU milliseconds of each sample, by probe.

    Args:
        num_gpus: Devices of the stand-in driver, 1 to 16.
        num_samples: Samples, 2 s of the driver's time apart.
    """
    driver = load_stand_in()
    driver.load(make_scenario(num_gpus))
    state = AttemptState(
        run=RunPart(id="run", name="run", costlens_version="0"),
        rank=RankPart(rank=0, host_name="host", pid=1),
        anchor=anchor_now(time.perf_counter_ns),
        start_ns=0,
    )
    probes = make_probes(resolve_config(), state, HostSources())
    for probe in probes:
        probe.load()
        probe.start()
    took_ms: dict[str, list[float]] = {probe.name: [] for probe in probes}
    for number in range(num_samples):
        driver.set_time(number * SAMPLE_EVERY_NS / NS_PER_S)
        for probe in probes:
            begin_ns = time.thread_time_ns()
            probe.sample(number * SAMPLE_EVERY_NS)
            took_ms[probe.name].append((time.thread_time_ns() - begin_ns) / 1e6)
    for probe in probes:
        probe.stop()
    return took_ms


def compare_hooks(num_gpus: int, num_pairs: int) -> None:
    """Print what samples of the GPUs add to a pass through the hooks."""
    driver = load_stand_in()
    driver.load(make_scenario(num_gpus))
    driver.set_time(-1)
    with tempfile.TemporaryDirectory() as folder:
        config = resolve_config(summary=False, dir=folder)
        with Run(config, exporters=[]) as run:
            probe = NvmlProbe(run.parts.state)
            probe.load()
            probe.start()
            for kind, differences in compare(run, probe, num_pairs).items():
                print(describe(kind, differences))
            probe.stop()


def main() -> int:
    """Print the tables; return 1 where a sample takes too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=150)
    arguments = parser.parse_args()
    took_ms = measure(arguments.gpus, arguments.samples)
    took_ms["together"] = [sum(sample) for sample in zip(*took_ms.values(), strict=True)]
    print(f"CPU milliseconds of a sample, {arguments.gpus} GPUs, {arguments.samples} samples")
    print(f"{'probe':<12}{'first':>8}{'median':>8}{'p95':>8}{'max':>8}")
    for name, values in took_ms.items():
        ordered = sorted(values[1:])
        figures = (values[0], statistics.median(ordered), ordered[len(ordered) * 95 // 100])
        print(f"{name:<12}" + "".join(f"{x:8.3f}" for x in (*figures, ordered[-1])))
    median_ms = statistics.median(took_ms["together"])
    print(f"median {median_ms:.2f} ms, allowed {LIMIT_MS} ms\n")
    print("added to the hooks of the training thread by samples of the GPUs")
    compare_hooks(arguments.gpus, arguments.pairs)
    return int(median_ms > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
