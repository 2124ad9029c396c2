"""The run: what a doorway or a plain loop talks to on the training thread.

``start`` makes a run; its timeline and recorder take what happens; ``assembly.py`` turns that into
windows, records and telemetry on the pipeline thread. Once a run has started, nothing here raises
into the training loop.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from costlens.agreeing import check_can_agree
from costlens.assembly import Session
from costlens.attempt import Drives, Parts, build_parts
from costlens.config import Config, resolve_config
from costlens.core import lifetime
from costlens.core.clock import Clock
from costlens.core.code_locations import locate_error
from costlens.core.exits import exit_code_of
from costlens.core.guard import faults, is_inert_process
from costlens.core.log import configure_log
from costlens.core.phases import Phase
from costlens.core.records import Outcome, RankRecord
from costlens.core.scopes import IterationScope
from costlens.core.snapshot import Exporter
from costlens.errors import ConfigError
from costlens.observe.gang_wait import gang_waits
from costlens.observe.placement import detect_placement
from costlens.observe.placement.place import Placement
from costlens.observe.placement.slurm_requeue import requeue_job
from costlens.protect.checkpoints import Checkpoints
from costlens.run_loop import RunLoop

if TYPE_CHECKING:
    from costlens.protect.plain_precision import PlainPrecision
    from costlens.storage.read_counts import ReadCounts

__all__ = ["Run", "start"]

_IDENTITY_WAIT_S = 5.0


class Run(RunLoop):
    """One attempt of a run, as seen from the training thread.

    Methods are called on the thread that opened the run and cost a few microseconds at most; disk
    and network belong to the pipeline thread. In a loader worker, in a forked child and with
    ``COSTLENS_ENABLED=0`` every method is a no-op.

    Args:
        config: The settings; resolved from the environment when not given.
        placement: Where this process stands in its job; detected when not given.
        framework: What drives the loop, such as ``lightning 2.6.6``.
        clock: Monotonic nanoseconds; a fake one in tests.
        exporters: Replaces the exporters that the settings ask for.

    Raises:
        ConfigError: If a setting is not usable.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        placement: Placement | None = None,
        framework: str | None = None,
        clock: Clock = time.perf_counter_ns,
        exporters: Sequence[Exporter] | None = None,
    ) -> None:
        self.config = resolve_config() if config is None else config
        self.clock = clock
        self.is_active = False
        self.is_started_here = False
        self._began_ns: int | None = None
        self._is_off = not self.config.enabled or is_inert_process()
        self._framework = framework or f"torch {_torch_version()}".strip()
        self._placement = placement
        self._given_exporters = exporters
        self._parts: Parts | None = None
        self._session: Session | None = None
        self._watches: list[Any] = []
        self._checkpoints: list[Checkpoints] = []
        self._iteration: IterationScope | None = None
        self._record: RankRecord | None = None
        self._read_counts: ReadCounts | None = None
        self._precision: PlainPrecision | None = None
        self._checkpoint_config: Config | None = None

    # Opening and closing.

    def open(self, *, has_device: bool = False, num_gpus: int = 0, device: str = "cpu") -> Run:
        """Start watching and return the run; a finished run goes on, the time between is idle.

        Args:
            has_device: Whether device events will say how long the device waited, so that host
                phases are shown but not priced.
            num_gpus: GPUs that this rank drives itself, >= 0.
            device: Kind of device, such as ``cpu`` or ``cuda``.
        """
        if self._is_off or self.is_active:
            return self
        configure_log(self.config.log_level, self.config.log_format)
        if self._parts is None:
            self._build(has_device=has_device, num_gpus=num_gpus, device=device)
        else:
            self._parts.recorder.start_ns = self._parts.timeline.rebase(Phase.STARTUP)
            self._parts.state.reopen()
        self.is_active = True
        self._record = None
        lifetime.register(self)
        faults.call("run.gang_wait", gang_waits.listen, self)
        if self._session is not None:
            self._session.open()
        return self

    def _build(self, *, has_device: bool, num_gpus: int, device: str) -> None:
        placement = self._placement or detect_placement()
        check_can_agree(self.config, placement.world_size)
        self._parts, launch_key = build_parts(
            self.config,
            self.clock,
            placement,
            framework=self._framework,
            drives=Drives(device=device, num_gpus=num_gpus, has_events=has_device),
            began_ns=self._began_ns,
        )
        if self._read_counts is not None:
            self._parts.host.read_counts = self._read_counts.read
        self._session = Session(
            self.config, self._parts, self.clock, launch_key, self._given_exporters
        )
        self._iteration = IterationScope(
            self._parts.recorder,
            self._parts.values,
            self._parts.state.log,
            self._parts.boundaries,
        )

    def finish(
        self,
        outcome: Outcome | str | None = None,
        *,
        error: BaseException | None = None,
        exit_code: int | None = None,
    ) -> RankRecord | None:
        """End the attempt and return this rank's record; a second call returns it again.

        Takes up to ``flush_timeout_s`` plus one second when a back-end or the run folder does not
        answer.

        Args:
            outcome: How the attempt ended; by default ``completed``, unless an error or a signal
                that asked for the end says otherwise.
            error: What ended it, if anything.
            exit_code: The exit code the process will have, where it is known.

        Raises:
            ConfigError: If the outcome is none of the outcomes, or the exit code no number; the
                run goes on.
        """
        _check_ending(outcome, exit_code)
        if not self.is_active or self._parts is None or self._session is None:
            return self._record
        for checkpoints in self._checkpoints:
            checkpoints.finish(self.config.checkpoint_exit_timeout_s, is_clean=error is None)
        self._checkpoints.clear()
        self.is_active = False
        for watch in reversed(self._watches):
            faults.call("run.unwatch", watch.remove)
        self._watches.clear()
        faults.call("run.gang_wait", gang_waits.ignore, self)
        timeline, state = self._parts.timeline, self._parts.state
        timeline.unwind(0)
        timeline.rebase(Phase.SHUTDOWN)
        self._session.end.settle(outcome, error, exit_code)
        if error is not None:
            places = faults.call("run.locate", locate_error, error)
            state.error_stack = tuple(places or ())
        self._session.close()
        timeline.rebase(Phase.IDLE)
        lifetime.unregister(self)
        snapshot = self._session.snapshot
        self._record = None if snapshot is None else snapshot.record
        if self.config.summary and state.rank.rank == 0:
            faults.call("run.summary", self._session.print_summary)
        if self.config.slurm_requeue and state.preemption is not None and state.rank.rank == 0:
            state.log.info("costlens.requeue", message=faults.call("run.requeue", requeue_job))
        self._session.end.pass_on(error)
        return self._record

    def close_at_exit(self) -> None:
        """End the attempt because the interpreter is about to exit."""
        error = None if self._session is None else self._session.end.take_cause()
        self.finish(error=error, exit_code=None if error is None else exit_code_of(error))

    def silence(self) -> None:
        """Become inert in a forked child: no thread came along, and the parent goes on counting."""
        self.is_active = False
        self._is_off = True
        self._watches.clear()
        self._checkpoints.clear()
        gang_waits.ignore(self)
        if self._session is not None:
            self._session.silence()

    def __enter__(self) -> Run:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish(error=error)

    # A run holds threads and open files: its copies know the settings and nothing else.
    def __reduce__(self) -> tuple[Any, ...]:
        return (_inert_copy, (self.config,))

    def __deepcopy__(self, memo: dict[int, Any]) -> Run:
        return _inert_copy(self.config)

    # Facts.

    @property
    def id(self) -> str | None:
        """Return the identity of the run, None before ``open``; waits up to 5 s for the store."""
        if self._session is None:
            return None
        identity = self._session.wait_identity(_IDENTITY_WAIT_S)
        return self._session.proposed_run_id if identity is None else identity.run_id

    @property
    def attempt(self) -> int | None:
        """Return the attempt's number, from 1; None before ``open``; waits as ``id`` does."""
        if self._session is None:
            return None
        identity = self._session.wait_identity(_IDENTITY_WAIT_S)
        return None if identity is None else identity.attempt

    @property
    def should_stop(self) -> bool:
        """Return whether all ranks have agreed to end the training here, as at a spent budget.

        ``run.batches`` ends by itself then; a loop without it asks after each step.
        """
        return self._parts is not None and self._parts.boundaries.should_stop


def start(
    name: str | None = None,
    *,
    config: Config | None = None,
    framework: str | None = None,
    **settings: Any,
) -> Run:
    """Start a run in a plain torch loop and return it; ``with`` works too.

    Calling it again with the same name while that run is open returns that run, so a notebook cell
    can be run again; another name ends the open run and starts a new one. In a job of several ranks
    call it before ``init_process_group`` where a launcher sets ``RANK`` and ``WORLD_SIZE``, so that
    the wait for the other ranks is seen, and after it elsewhere: there the group alone tells ranks
    and launches apart. No rank is waited for.

    Args:
        name: Name of the run, for people.
        config: Ready settings; ``settings`` override its fields.
        framework: What drives the loop, where it is not torch itself.
        **settings: Fields of :class:`Config`.

    Raises:
        ConfigError: If a setting is not usable.
    """
    began_ns = time.perf_counter_ns()  # what starting takes is the run's, too
    resolved = resolve_config(config, name=name, **settings)
    for open_run in lifetime.live():
        if isinstance(open_run, Run) and open_run.is_started_here:
            if open_run.config.name == resolved.name:
                return open_run
            open_run.parts.state.log.info(
                "costlens.run.replaced",
                message=f"run {open_run.config.name!r} ends: another was started",
            )
            open_run.finish()
    run = Run(resolved, framework=framework)
    run.is_started_here = True
    run._began_ns = began_ns  # noqa: SLF001 - its own module
    return run.open()


def _inert_copy(config: Config) -> Run:
    run = Run(config)
    run.silence()
    return run


def _torch_version() -> str:
    torch = sys.modules.get("torch")
    return "" if torch is None else str(torch.__version__)


def _check_ending(outcome: Outcome | str | None, exit_code: object) -> None:
    known = [known.value for known in Outcome]
    if outcome is not None and outcome not in known:
        raise ConfigError(f"outcome cannot be {outcome!r}; the outcomes are {', '.join(known)}")
    if exit_code is not None and type(exit_code) is not int:
        raise ConfigError(f"exit_code cannot be {exit_code!r}; it is a whole number")
