"""What a new attempt is made of: timeline, recorder, totals, state, price and launch key.

``run.py`` makes the parts on the calling thread when a run opens for the first time;
``assembly.py`` drives the pipeline over them.
"""

from __future__ import annotations

import os
import platform
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version

import costlens
from costlens.config import Config
from costlens.core import lifetime
from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import Boundaries
from costlens.core.clock import NS_PER_S, Clock, anchor_now
from costlens.core.quality import QualityBook
from costlens.core.recorder import Recorder
from costlens.core.records import LABELS, RankPart, RunPart
from costlens.core.timeline import Timeline
from costlens.core.window import KeepPolicy, Totals
from costlens.errors import MissingExtraError
from costlens.observe.device_values import DeviceValues
from costlens.observe.host_probe import HostSources
from costlens.observe.placement.place import Placement
from costlens.observe.placement.process_group import share_launch_key
from costlens.observe.process import (
    is_alive,
    is_interactive,
    pid_space,
    process_age_ns,
    start_ticks,
)
from costlens.storage.identity import Claimant

__all__ = ["Drives", "Parts", "build_parts", "describe_claimant"]

# Beside the pid: what tells a process from others that have had or will have its number.
_PROCESS = ("pid_start_ticks", "pid_space")

# A rank that has been silent for so long has gone, wherever its clock stands.
_PATIENCE_S = 60.0
_PATIENCE_WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Parts:
    """The living parts of a run that both threads share."""

    timeline: Timeline
    recorder: Recorder
    totals: Totals
    quality: QualityBook
    values: DeviceValues
    state: AttemptState
    boundaries: Boundaries
    host: HostSources

    def see_iterator(self, iterator: object) -> None:
        """Take an iterator at the beginning of its pass; training thread, about 5 µs."""
        self.host.workers.add(iterator)
        self.host.loader.see(iterator, self.recorder.counters.iterations)


@dataclass(frozen=True, slots=True)
class Drives:
    """What a rank drives.

    Args:
        device: Kind of device, such as ``cpu`` or ``cuda``.
        num_gpus: GPUs that this rank drives itself, >= 0.
        has_events: Whether device events will tell how long the device waited.
    """

    device: str = "cpu"
    num_gpus: int = 0
    has_events: bool = False


def build_parts(
    config: Config,
    clock: Clock,
    placement: Placement,
    *,
    framework: str,
    drives: Drives,
    began_ns: int | None = None,
) -> tuple[Parts, str]:
    """Return the living parts of a new attempt and the key of its launch; calling thread.

    The first run of a process that nobody types into begins with the process; any other begins now.
    """
    now_ns = clock() if began_ns is None else began_ns
    ordinal = lifetime.claim_ordinal()
    age_ns = None if ordinal or is_interactive() else process_age_ns()
    start_ns = now_ns if age_ns is None else clock() - age_ns
    recorder = _recorder(config, clock, start_ns)
    # A later run of the same process is a launch of its own.
    turn = lifetime.claim_turn(config.name)
    state = AttemptState(
        run=_run_part(config, framework),
        rank=_rank_part(placement, drives),
        anchor=anchor_now(clock),
        start_ns=start_ns,
        process_start_ns=None if age_ns is None else start_ns,
        watch_start_ns=now_ns,
        import_ns=None if age_ns is None else _find_import(clock, start_ns),
        turn=turn,
        job=placement.job,
    )
    sources = HostSources()
    parts = Parts(
        timeline=recorder.timeline,
        recorder=recorder,
        totals=_totals(config, drives, sources),
        quality=QualityBook(),
        values=DeviceValues(clock),
        state=state,
        host=sources,
        boundaries=Boundaries(state, recorder.counters),
    )
    return parts, _launch_key(placement, f"{config.name}#{turn}")


def _find_import(clock: Clock, start_ns: int) -> int | None:
    """Return when costlens was imported on the run's clock; None if a parent process did it."""
    import_ns = clock() - (time.perf_counter_ns() - costlens._import_ns)  # noqa: SLF001 - its own
    return import_ns if import_ns >= start_ns else None


def _launch_key(placement: Placement, purpose: str) -> str:
    launch = share_launch_key(purpose) or placement.launch_key or uuid.uuid4().hex
    return f"{launch}/{purpose}"


def _recorder(config: Config, clock: Clock, start_ns: int) -> Recorder:
    if config.ranges == "off":
        return Recorder(Timeline(clock, start_ns))
    try:  # only now, for it loads torch
        from costlens.observe.ranges import RangedRecorder, RangedTimeline
        from costlens.observe.torch_ranges import make_ranges
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"ranges={config.ranges} (from {config.source_of('ranges')}) needs torch, which is not "
            "installed: pip install 'costlens[torch]', or leave ranges off"
        ) from error

    return RangedRecorder(RangedTimeline(clock, start_ns, make_ranges(config.ranges)))


def _totals(config: Config, drives: Drives, sources: HostSources) -> Totals:
    return Totals(
        KeepPolicy(every=config.iteration_span_every),
        has_device=drives.has_events,
        pass_waits=sources.loader.waits,
    )


def _run_part(config: Config, framework: str) -> RunPart:
    return RunPart(
        id=config.run_id or config.name,
        name=config.name,
        framework=framework,
        costlens_version=version("costlens"),
        **{name: getattr(config, name) for name in LABELS},
    )


def _rank_part(placement: Placement, drives: Drives) -> RankPart:
    return RankPart(
        rank=placement.rank,
        local_rank=placement.local_rank,
        node_rank=placement.node_rank,
        world_size=placement.world_size,
        local_world_size=placement.local_world_size,
        host_name=platform.node() or "unknown",
        pid=os.getpid(),
        pid_space=pid_space(),
        pid_start_ticks=start_ticks(),
        job_id=placement.job_id,
        device=drives.device,
        num_gpus=drives.num_gpus,
    )


def describe_claimant(
    state: AttemptState, window_s: float, *, is_named_by_job: bool = False
) -> Claimant:
    """Return this process as it claims its attempt; asks the system when the process started.

    Args:
        state: The attempt.
        window_s: Seconds between two heartbeats of a rank.
        is_named_by_job: Whether the run has its id from the scheduler's job.
    """
    rank, age_ns = state.rank, process_age_ns()
    job_start = _describe_start(state) if is_named_by_job else None
    return Claimant(
        rank=rank.rank,
        host_name=rank.host_name,
        pid=rank.pid,
        wall_ns=state.anchor.wall_ns,
        born_s=None if age_ns is None else time.time() - age_ns / NS_PER_S,
        patience_s=max(_PATIENCE_S, _PATIENCE_WINDOWS * window_s),
        job_start=job_start,
        process={name: value for name in _PROCESS if (value := getattr(rank, name)) is not None},
        lives=_lives if job_start is not None and rank.world_size == 1 else None,
    )


def _lives(claim: Mapping[str, object]) -> bool:
    """Return whether another process of this machine made a claim, and still lives."""
    pid, ticks, space = (claim.get(name) for name in ("pid", *_PROCESS))
    if not isinstance(pid, int) or not isinstance(ticks, int) or pid == os.getpid():
        return False
    return space == pid_space() is not None and is_alive(pid, ticks)


def _describe_start(state: AttemptState) -> str | None:
    if state.job is None or state.rank.job_id is None:
        return None
    return "" if state.job.restart_count is None else str(state.job.restart_count)
