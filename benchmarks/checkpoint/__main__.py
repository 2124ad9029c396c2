"""``python -m benchmarks.checkpoint``: stall, durable write, memory and resume of one state.

Each subject runs in a process of its own, one after the other; a subject whose saved state changes
when the training goes on right after the call is not qualified.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from benchmarks.checkpoint.subjects import SUBJECTS, Subject, Tree
from benchmarks.readme import replace_block

MIB = 2**20
NUM_SAVES = 5
# Two checkpoints are kept, so the fourth save is the first that finds memory which the page cache
# has had before; a virtual machine takes seconds for what it touches for the first time.
NUM_FIRST_SAVES = 3


def make_tree(mib: int) -> Tree:
    """Return a state of weights and two moments, in tensors of 1 to 64 MiB."""
    generator = torch.Generator().manual_seed(0)
    sizes = [64] * (mib // 128) + [8] * (mib // 32)
    sizes += [1] * (mib - sum(sizes))
    return {
        f"layer{number}": torch.randn(size * MIB // 4, generator=generator)
        for number, size in enumerate(sizes)
    }


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def rss_mib() -> float:
    """Return the most memory this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, folder: Path, mib: int) -> dict[str, float | bool]:
    """Return the figures of one subject, in this process."""
    tree = make_tree(mib)
    subject, before_mib = SUBJECTS[name](folder), rss_mib()
    stalls_s, writes_s = [], []
    for _ in range(NUM_FIRST_SAVES + NUM_SAVES):
        start_s = time.perf_counter()
        wait = subject.save(tree)
        stalls_s.append(time.perf_counter() - start_s)
        wait()
        writes_s.append(time.perf_counter() - start_s)
        subject.settle()
    memory_mib = rss_mib() - before_mib  # before a load takes its own
    is_qualified = keeps_what_it_was_given(subject, tree)
    loads_s = [timed(subject.load) for _ in range(3)]
    subject.close()
    return {
        "first_s": stalls_s[0],  # takes new memory
        "stall_s": median(stalls_s[NUM_FIRST_SAVES:]),
        "durable_s": median(writes_s[NUM_FIRST_SAVES:]),
        "memory": memory_mib / mib,
        "load_s": median(loads_s),
        "is_qualified": is_qualified,
        **measure_floor(tree, folder),
    }


def keeps_what_it_was_given(subject: Subject, tree: Tree) -> bool:
    """Return whether a save holds the state of its call, although training changes it at once."""
    expected = {key: each[:8].clone() for key, each in tree.items()}
    wait = subject.save(tree)
    for each in tree.values():
        each.add_(1)
    wait()
    subject.settle()
    loaded = subject.load()
    return all(torch.equal(loaded[key][:8], expected[key]) for key in expected)


def measure_floor(tree: Tree, folder: Path) -> dict[str, float]:
    """Return what the machine can do now: a warm copy of the state, a plain write with fsync."""
    targets = [torch.zeros_like(each) for each in tree.values()]

    def copy() -> None:
        for target, each in zip(targets, tree.values(), strict=True):
            target.copy_(each)

    data = torch.cat(list(tree.values())).numpy().data.cast("B")

    def write() -> None:
        with (folder / "plain").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    copy()
    write()
    return {
        "copy_s": median(timed(copy) for _ in range(NUM_SAVES)),
        "write_s": median(timed(write) for _ in range(NUM_SAVES)),
    }


def run_apart(name: str, mib: int) -> dict[str, float]:
    """Return what a process of its own measures."""
    folder = Path(tempfile.mkdtemp(prefix="costlens-bench-"))
    command = [sys.executable, "-m", "benchmarks.checkpoint", "--one", name, str(folder)]
    try:
        done = subprocess.run(
            [*command, "--mib", str(mib)], capture_output=True, text=True, check=True
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def make_table(mib: int) -> list[str]:
    """Return the lines of the table."""
    about = (
        f"{mib} MiB of weights and moments on the CPU, torch {torch.__version__}, "
        f"{os.cpu_count()} cores; median of {NUM_SAVES} saves after the first {NUM_FIRST_SAVES}. "
        "In brackets: the stall as a multiple of a warm copy of the state, and the time until the "
        "state is durable as a multiple of a plain write with fsync, both in the same process."
    )
    titles = ("", "stall", "first stall", "durable after", "memory", "load", "saved as it was")
    lines = [about, "", f"| {' | '.join(titles)} |", "| --- |" + " ---: |" * 5 + " --- |"]
    for name in SUBJECTS:
        found = run_apart(name, mib)
        title = f"**{name}**" if name == "costlens" else name
        lines.append(
            f"| {title} "
            f"| {1000 * found['stall_s']:.0f} ms ({found['stall_s'] / found['copy_s']:.2f}x) "
            f"| {1000 * found['first_s']:.0f} ms "
            f"| {found['durable_s']:.2f} s ({found['durable_s'] / found['write_s']:.2f}x) "
            f"| {found['memory']:.2f}x | {found['load_s']:.2f} s "
            f"| {'yes' if found['is_qualified'] else 'no'} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print the table, or put it into the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("SUBJECT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, folder = options.one[0], Path(options.one[1])
        print(json.dumps(measure(name, folder, options.mib)))
        return
    lines = make_table(options.mib)
    print("\n".join(lines))
    if options.write_readme:
        replace_block("checkpoint", lines)


if __name__ == "__main__":
    main()
