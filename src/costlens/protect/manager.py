"""Saves and resumes one run: snapshot here, publish there, and learn from both.

Lives on the training thread, between two optimizer steps; only the writer's thread and the
start-up touch the store. Doors give it the state to save and call :meth:`CheckpointManager.step`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

from costlens.core.checkpoint_records import CheckpointsPart, IntervalPart, SaveNote
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.log import Logger
from costlens.core.phases import Phase
from costlens.core.scopes import PhaseScope
from costlens.core.snapshot_builder import AttemptState
from costlens.core.timeline import Timeline
from costlens.errors import CheckpointError
from costlens.protect.cadence import Cadence
from costlens.protect.group_save import GroupSave
from costlens.protect.keeper import Keeper
from costlens.protect.manifest import CheckpointName, Kind
from costlens.protect.preemption import Preemption
from costlens.protect.shelf import Loaded
from costlens.protect.snapshot import HostBuffer, load_tree
from costlens.protect.writer import SaveJob, SaveResult, Writer

__all__ = ["CheckpointManager", "StatePort"]


class StatePort(Protocol):
    """What is saved; doors know how to gather and restore it.

    Attributes:
        report: Takes a sentence on what turns out inexact after :meth:`restore`; the manager's.
    """

    report: Callable[[str], object]

    def gather(self, step: int) -> Any:  # noqa: ANN401 - any tree that packs
        """Return the state as a tree; training thread, copies nothing."""

    def restore(self, tree: Any) -> list[str]:  # noqa: ANN401 - the same
        """Put a state back and return what could not be restored exactly, a sentence each."""


class CheckpointManager:
    """Decides, snapshots, hands over, and takes the results.

    Args:
        state: The attempt; gets the part of the record.
        timeline: Books the stall as ``checkpoint`` and the resume as ``restore``.
        clock: Monotonic nanoseconds.
        keeper: Where checkpoints are kept.
        cadence: When saves are due.
        source: What is saved.
        group: How several ranks save at one step; None for a single one.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - all that it is put together of
        self,
        state: AttemptState,
        timeline: Timeline,
        clock: Clock,
        keeper: Keeper,
        cadence: Cadence,
        source: StatePort,
        group: GroupSave | None = None,
    ) -> None:
        self._state = state
        self._timeline = timeline
        self._clock = clock
        self._keeper = keeper
        self._cadence = cadence
        self._source = source
        source.report = self.tell_inexact
        self._group = group
        self.preemption: Preemption | None = None
        self._decides = group is None or group.leads
        self._buffer = HostBuffer()
        self._writer = Writer(clock, self._tell)
        self._is_overdue = False
        self._last_step: int | None = None
        self._part = CheckpointsPart(url=keeper.shelf.store.shown_url)
        state.checkpoints = self._part

    @property
    def last_step(self) -> int | None:
        """Return the step of the newest snapshot, durable or not; None before the first."""
        return self._last_step

    @property
    def estimate_s(self) -> float | None:
        """Return the seconds from the start of a save until it is durable, once measured."""
        costs = self._cadence.costs
        return None if costs is None else costs.stall_s + costs.write_s

    @property
    def log(self) -> Logger:
        """Return the log of the run."""
        return self._state.log

    @property
    def place(self) -> str:
        """Return where the newest checkpoint is kept, for people; no credentials in it."""
        return f"{self._part.url}/{self._part.last_name or ''}".rstrip("/")

    def resume_as(self, wish: str) -> int | None:
        """Resume as the user wishes; return the step, or None for a fresh start.

        Args:
            wish: ``auto``, ``never`` or ``must``.

        Raises:
            StorageError: If the store cannot be listed.
            CheckpointError: If the state does not fit what is to be restored, or there is none and
                one must be.
        """
        step = None if wish == "never" else self.resume()
        if step is None and wish == "must":
            raise CheckpointError(
                "there is no checkpoint to resume from, and COSTLENS_RESUME is must; set it to auto"
                " to start afresh"
            )
        return step

    def resume(self) -> int | None:
        """Restore the newest checkpoint that verifies; return its step, or None for a fresh start.

        Start-up; reads and hashes the whole state.

        Raises:
            StorageError: If the store cannot be listed.
            CheckpointError: If the state does not fit what is to be restored, or the ranks cannot
                all go on from one checkpoint.
        """
        with PhaseScope(self._timeline, Phase.RESTORE):
            loaded = self._keeper.load()
            inexact = (
                []
                if loaded is None
                else self._keeper.restore(functools.partial(self._restore, loaded))
            )
        rejected = [f"{each.name}: {each.reason}" for each in self._keeper.shelf.rejections]
        for each in self._keeper.shelf.rejections:
            self.log.warning(
                "costlens.checkpoint.rejected", name=str(each.name), reason=each.reason
            )
        if loaded is None:
            self._state.start_step = 0
            self._update(rejected=rejected)
            return None
        manifest, name = loaded.found.manifest, loaded.found.name
        self._keeper.resumed = name
        self._last_step = manifest.step
        self._state.start_step = self._state.saved_step = manifest.step
        self._update(
            rejected=rejected,
            inexact=[*manifest.inexact, *inexact],
            resumed_from=str(name),
            resumed_step=manifest.step,
            resumed_attempt=manifest.attempt,
            last_step=manifest.step,
            last_time=manifest.created_time,
            last_name=str(name),
        )
        self.log.info(
            "costlens.checkpoint.resumed",
            step=manifest.step,
            name=str(name),
            inexact=[*manifest.inexact, *inexact],
            message=f"resumed at step {manifest.step}",
        )
        return manifest.step

    def step(self, step: int) -> None:
        """Note that an optimizer step is done, and save if it is time to; about 1 µs if it is not.

        Args:
            step: Optimizer steps done, over all attempts.
        """
        if self.note_step(step):
            self.save_due(step)

    def note_step(self, step: int) -> bool:
        """Note that an optimizer step is done; return whether :meth:`save_due` has something to do.

        Args:
            step: Optimizer steps done, over all attempts.
        """
        self._state.end_step = step
        is_writing = self._writer.is_busy
        is_due = self._decides and self._cadence.note_step(
            step, self._clock(), is_writing=is_writing
        )
        if not is_due and not is_writing:
            self._settle()
        return is_due or (self._group is not None and self._group.has_agreed)

    def save_due(self, step: int) -> None:
        """Save if a save is due, or agreed on: where the state is whole, at the latest step noted.

        Args:
            step: Optimizer steps done, over all attempts.
        """
        if self._save_agreed(step) or step <= (self._last_step or 0):
            return
        if self._decides and self._cadence.is_due(self._clock()):
            self._save_if_free(step)

    def save_last(self, step: int, timeout_s: float) -> None:
        """Save what is not saved yet, once the writer is free: the loop takes no more steps.

        Args:
            step: Optimizer steps done, over all attempts.
            timeout_s: Most seconds to wait for the writer.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        deadline_ns = self._clock() + int(timeout_s * NS_PER_S)
        is_needed = self._group is not None or step > (self._last_step or 0)
        if is_needed:
            self._save_last(step, deadline_ns, is_whole=self._writer.wait(timeout_s))

    def tell_inexact(self, sentence: str) -> None:
        """Note in log and record what a resume turned out not to restore exactly; once each."""
        if sentence not in self._part.inexact:
            self._update(inexact=[*self._part.inexact, sentence])
            self.log.warning("costlens.checkpoint.inexact", message=sentence)

    def save(self, step: int, kind: Kind) -> bool:
        """Take a snapshot and hand it over; return whether it was taken, or is on its way.

        Several ranks take theirs some steps later, at the one they agree on.

        Args:
            step: Optimizer steps done, over all attempts.
            kind: What asks for it.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        if self._group is not None:
            self._settle()
            return self._group.ask(kind)
        wall_s = self._state.anchor.to_wall_ns(self._clock()) / NS_PER_S
        return self._take_snapshot(step, kind, CheckpointName.new(step, self._state.number, wall_s))

    @property
    def agrees(self) -> bool:
        """Return whether several ranks have to save together."""
        return self._group is not None

    def save_together(self, step: int, kind: Kind, stamp: str) -> bool:
        """Take a snapshot on a rank of several; return whether it was taken.

        Args:
            step: Optimizer steps done, the same on every rank.
            kind: What asks for it.
            stamp: A moment, the same on every rank.

        Raises:
            CheckpointError: If a part of the state would not load again; names it.
        """
        if self._group is None:
            return self.save(step, kind)
        return self._take_snapshot(step, kind, self._group.name(step, stamp))

    def _take_snapshot(self, step: int, kind: Kind, name: CheckpointName) -> bool:
        self._settle()
        if self._writer.is_busy:
            self._skip()
            return False
        self._is_overdue = False
        start_ns = self._clock()
        with PhaseScope(self._timeline, Phase.CHECKPOINT):
            snapshot = self._buffer.take(self._source.gather(step))
            # Here and not at each door: a plain loop has no place of ours before its next change.
            self._buffer.hold()
        end_ns = self._clock()
        wall_s = self._state.anchor.to_wall_ns(start_ns) / NS_PER_S
        job = SaveJob(
            name=name,
            kind=kind,
            stall_ns=end_ns - start_ns,
            taken_ns=end_ns,
            num_bytes=snapshot.num_bytes,
            publish=lambda: self._keeper.publish(name, kind, snapshot, wall_s),
        )
        self._cadence.note_stall(step, job.stall_ns / NS_PER_S, end_ns)
        if not self._writer.submit(job):  # closed, or a fork of the process
            return False
        self._last_step = step
        self._update(stall_s=self._part.stall_s + job.stall_ns / NS_PER_S)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Return whether nothing is in flight any more, after waiting at most ``timeout_s``."""
        is_idle = self._writer.wait(timeout_s)
        self._settle()
        return is_idle

    def hold(self) -> None:
        """Let the device wait, before the state changes, for copies that are under way."""
        self._buffer.hold()

    def close(self, step: int, timeout_s: float, *, is_clean: bool) -> bool:
        """End: save what is not saved yet, and wait for the writer; return whether all is durable.

        Args:
            step: Optimizer steps done.
            timeout_s: Most seconds to wait.
            is_clean: Whether the loop ended between two steps, so that the state is whole.
        """
        deadline_ns = self._clock() + int(timeout_s * NS_PER_S)
        is_idle = self._writer.wait(timeout_s)
        self._save_last(step, deadline_ns, is_whole=is_clean and is_idle)
        left_s = max(0.0, (deadline_ns - self._clock()) / NS_PER_S)
        is_done = self._writer.close(left_s)
        self._settle()
        if not is_done:
            self.log.warning(
                "costlens.checkpoint.abandoned",
                step=self._last_step,
                message="the last save did not become durable in time; the one before it stands",
            )
        return is_done

    def _save_last(self, step: int, deadline_ns: int, *, is_whole: bool) -> None:
        last_step = self._last_step or 0
        if self._group is None:
            if is_whole and step > last_step:
                self.save(step, "final")
            return
        refusal = None if is_whole else "it did not end between two steps, with its saves written"
        left_s = max(0.0, (deadline_ns - self._clock()) / NS_PER_S)
        try:
            name = self._group.agree_on_end(step, last_step, refusal, left_s)
        except CheckpointError as error:
            self._count_failure(error)
            self._tell_failure(step, error)
            return
        if name is not None:
            self._take_snapshot(step, "final", name)

    def _save_agreed(self, step: int) -> bool:
        """Take the snapshot that all ranks have agreed to take here, if they have."""
        agreed = None if self._group is None else self._group.take(step)
        if agreed is None:
            return False
        self._take_snapshot(step, *agreed)
        return True

    def _restore(self, loaded: Loaded) -> list[str]:
        return self._source.restore(load_tree(loaded.skeleton, loaded.buffer))

    def _save_if_free(self, step: int) -> None:
        if self._writer.is_busy:
            self._skip()
        else:
            self.save(step, "interval")

    def _skip(self) -> None:
        if not self._is_overdue:  # once, not once a step
            self._is_overdue = True
            self._update(num_skipped=self._part.num_skipped + 1)

    def _settle(self) -> None:
        for result in self._writer.take_results():
            self._take(result)

    def _take(self, result: SaveResult) -> None:
        part, job = self._part, result.job
        write_s = result.write_ns / NS_PER_S
        self._state.saves.append(_note(result))
        if result.error is not None:
            self._count_failure(result.error)
            return
        self._cadence.note_durable(write_s)
        self._state.saved_step = job.name.step
        self._state.num_saves = (self._state.num_saves or 0) + 1
        self._update(
            num_saved=part.num_saved + 1,
            num_retries=part.num_retries + result.num_retries,
            num_bytes=job.num_bytes,
            write_s=part.write_s + write_s,
            last_step=job.name.step,
            last_time=self._state.anchor.to_wall_ns(job.taken_ns) / NS_PER_S,
            last_name=str(job.name),
        )

    def _tell(self, result: SaveResult) -> None:
        """Log how a save went; the writer's thread."""
        job = result.job
        if result.error is not None:
            self._tell_failure(job.name.step, result.error)
            return
        self.log.info(
            "costlens.checkpoint.saved",
            step=job.name.step,
            kind=job.kind,
            num_bytes=job.num_bytes,
            stall_s=round(job.stall_ns / NS_PER_S, 6),
            write_s=round(result.write_ns / NS_PER_S, 6),
            message=f"step {job.name.step} is safe",
        )

    def _tell_failure(self, step: int, error: BaseException) -> None:
        self.log.error(
            "costlens.checkpoint.failed",
            step=step,
            error_type=type(error).__name__,
            reason=str(error),
            message=f"the save at step {step} failed: {error}",
        )

    def _count_failure(self, error: BaseException) -> None:
        kind = type(error).__name__
        self._update(num_failed=self._part.num_failed + 1, last_error_type=kind)

    def _update(self, **fields: Any) -> None:
        plan, costs = self._cadence.plan, self._cadence.costs
        if plan is not None:
            fields["next_step"] = plan.step
            if plan.decision is not None and costs is not None:
                fields["interval"] = IntervalPart(
                    interval_s=plan.decision.interval_s,
                    optimum_s=plan.decision.optimum_s,
                    rail=plan.decision.rail,
                    worst_loss_s=plan.decision.worst_loss_s,
                    is_loss_kept=plan.decision.is_loss_kept,
                    failure_rate_per_s=plan.failure_rate_per_s,
                    stall_s=costs.stall_s,
                    write_s=costs.write_s,
                    slowdown=costs.slowdown,
                )
        self._part = self._part.model_copy(update=fields)
        self._state.checkpoints = self._part


def _note(result: SaveResult) -> SaveNote:
    job = result.job
    return SaveNote(
        name=str(job.name),
        step=job.name.step,
        kind=job.kind,
        start_ns=job.taken_ns - job.stall_ns,
        stall_ns=job.stall_ns,
        write_ns=result.write_ns,
        num_bytes=job.num_bytes,
        error_type=None if result.error is None else type(result.error).__name__,
    )
