"""Which variables of launchers and schedulers are set, and which of them contradict one another.

A run takes what fits and goes on; whoever asks before a run (``costlens doctor``) is told. Only
names of variables and numbers are told, no other values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["Contradiction", "find_contradictions", "seen_variables"]

_LAUNCHERS = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
)
_SCHEDULERS = ("SLURM_", "TORCHELASTIC_", "RAY_", "JOBSET_", "POD_", "KUEUE_")
_SCHEDULER_NAMES = ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX", "NODE_NAME")
_MAX_SHOWN = 40
_COUNTED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS")


class Contradiction(NamedTuple):
    """What does not fit together, and what mends it."""

    text: str
    fix: str


def seen_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the variables that placement is read from, sorted.

    Args:
        environ: The environment to read; this process's own by default.
    """
    seen = os.environ if environ is None else environ
    known = {*_LAUNCHERS, *_SCHEDULER_NAMES}
    return sorted(name for name in seen if name in known or name.startswith(_SCHEDULERS))


def find_contradictions(environ: Mapping[str, str] | None = None) -> list[Contradiction]:
    """Return what does not fit together, and what mends it.

    Args:
        environ: The environment to read; this process's own by default.
    """
    seen = os.environ if environ is None else environ
    numbers = {name: int(seen[name]) for name in _COUNTED if seen.get(name, "").isdecimal()}
    return [*_unreadable(seen), *_incomplete(seen, numbers), *_against_slurm(seen, numbers)]


def _unreadable(seen: Mapping[str, str]) -> Iterator[Contradiction]:
    for name in _COUNTED:
        text = seen.get(name)
        if text is not None and not text.strip().isdecimal():
            yield Contradiction(
                f"{name} is {text[:_MAX_SHOWN]!r}, which is no number",
                f"unset {name}, or mend it",
            )


def _incomplete(seen: Mapping[str, str], numbers: Mapping[str, int]) -> Iterator[Contradiction]:
    for name, other in (("RANK", "WORLD_SIZE"), ("WORLD_SIZE", "RANK")):
        # Lightning's launcher sets WORLD_SIZE and LOCAL_RANK, and no RANK.
        if name in seen and other not in seen and "LOCAL_RANK" not in seen:
            yield Contradiction(
                f"{name} is set and {other} is not, so a run takes itself for the only rank",
                f"let torchrun set both, or unset {name}",
            )
    for rank, world in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        if rank in numbers and world in numbers and numbers[rank] >= numbers[world]:
            yield Contradiction(
                f"{rank} is {numbers[rank]} and {world} is {numbers[world]}: ranks count from 0",
                "let torchrun set them, or mend the launch script",
            )
    if numbers.get("WORLD_SIZE", 1) > 1 and "RANK" in seen:
        missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not seen.get(name)]
        if missing:
            yield Contradiction(
                f"WORLD_SIZE is {numbers['WORLD_SIZE']} and {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not set: the ranks cannot meet",
                "let torchrun set them, or export the address and a free port of rank 0's node",
            )
    yield from _too_few_devices(seen, numbers)


def _too_few_devices(
    seen: Mapping[str, str], numbers: Mapping[str, int]
) -> Iterator[Contradiction]:
    visible, needed = seen.get("CUDA_VISIBLE_DEVICES"), numbers.get("LOCAL_WORLD_SIZE", 1)
    if visible is None or needed <= 1:
        return
    num_visible = len([entry for entry in visible.split(",") if entry.strip()])
    # One each is how Slurm binds them; more than one and fewer than ranks is nobody's intent.
    if 1 < num_visible < needed:
        yield Contradiction(
            f"LOCAL_WORLD_SIZE is {needed} and CUDA_VISIBLE_DEVICES names {num_visible}: ranks "
            "share devices",
            "start as many ranks as there are devices",
        )


def _against_slurm(seen: Mapping[str, str], numbers: Mapping[str, int]) -> Iterator[Contradiction]:
    if "SLURM_JOB_ID" not in seen:
        return
    num_tasks = numbers.get("SLURM_NTASKS", 1)
    if num_tasks > 1 and "RANK" not in seen and not _is_step(seen):
        yield Contradiction(
            f"Slurm allocated {num_tasks} tasks and this process is none of them: it would train "
            "alone",
            "start it with srun",
        )
    # Inside torchrun a Slurm task is a node's agent, and its numbers are others.
    if "TORCHELASTIC_RUN_ID" in seen or not _is_step(seen):
        return
    for ours, theirs in (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS")):
        if ours in numbers and theirs in numbers and numbers[ours] != numbers[theirs]:
            yield Contradiction(
                f"{ours} is {numbers[ours]} and {theirs} is {numbers[theirs]}",
                f"unset {ours}, or set it from {theirs} in the launch script",
            )


def _is_step(seen: Mapping[str, str]) -> bool:
    return seen.get("SLURM_STEP_ID", "").isdecimal() and "SLURM_PROCID" in seen
