"""Saves and resumes one run: snapshot here, publish there, and learn from both.

Lives on the training thread, between two optimizer steps; only the writer's thread and the
start-up touch the store. Doors give it the state to save and call :meth:`CheckpointManager.step`.
"""

from __future__ import annotations

import functools
from typing import Any

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.log import Logger
from costlens.core.phases import Phase
from costlens.core.scopes import PhaseScope
from costlens.core.timeline import Timeline
from costlens.errors import CheckpointError
from costlens.protect.cadence import Cadence
from costlens.protect.group_save import GroupSave
from costlens.protect.keeper import Keeper, Resumable
from costlens.protect.manifest import CheckpointName, Kind
from costlens.protect.preemption import Preemption
from costlens.protect.save_log import SaveLog
from costlens.protect.snapshot import HostBuffer
from costlens.protect.state_port import StatePort
from costlens.protect.writer import SaveJob, Writer

__all__ = ["CheckpointManager"]


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
        self._log = SaveLog(state, cadence, keeper.shelf.store.shown_url)
        self._writer = Writer(clock, self._log.tell)
        self._last_step: int | None = None

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
        return self._log.place

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
        if wish == "never":
            self._begin_anew()
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
            loaded = self._keeper.load(self._source)
            inexact = [] if loaded is None else self._restore(loaded)
        self._log.reject(self._keeper.shelf.rejections)
        if loaded is None:
            self._begin_anew()
            return None
        self._keeper.go_on_from(loaded.found)
        self._last_step = step = loaded.found.manifest.step
        self._log.resume(loaded.found, inexact)
        return step

    def _restore(self, loaded: Resumable) -> list[str]:
        restored = self._keeper.restore(lambda: self._source.restore(loaded.tree))
        return [*loaded.found.manifest.inexact, *loaded.inexact, *restored]

    def _begin_anew(self) -> None:
        self._keeper.begin_anew()
        self._log.begin()

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
        self._log.add_inexact(sentence)

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
            self._log.skip()
            return False
        name = self._keeper.no_earlier(name)
        start_ns = self._clock()
        with PhaseScope(self._timeline, Phase.CHECKPOINT):
            tree = self._source.gather(step)
            snapshot = self._buffer.take(tree)
            # Here and not at each door: a plain loop has no place of ours before its next change.
            self._buffer.hold()
        end_ns = self._clock()
        wall_s = self._state.anchor.to_wall_ns(start_ns) / NS_PER_S
        job = SaveJob(
            name=name,
            kind=kind,
            stall_ns=end_ns - start_ns,
            taken_ns=end_ns,
            publish=functools.partial(
                self._keeper.publish, name, kind, snapshot, wall_s, _inexact(tree)
            ),
        )
        self._cadence.note_stall(step, job.stall_ns / NS_PER_S, end_ns)
        if not self._writer.submit(job):  # closed, or a fork of the process
            return False
        self._last_step = step
        self._log.note_snapshot(job.stall_ns)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Return whether nothing is in flight any more, after waiting at most ``timeout_s``."""
        is_idle = self._writer.wait(timeout_s)
        self._settle()
        return is_idle

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
            self._log.tell_abandoned(self._last_step)
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
            self._log.count_failure(error)
            self._log.tell_failure(step, error)
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

    def _save_if_free(self, step: int) -> None:
        if self._writer.is_busy:
            self._log.skip()
        else:
            self.save(step, "interval")

    def _settle(self) -> None:
        for result in self._writer.take_results():
            self._log.take(result)


def _inexact(tree: Any) -> list[str]:  # noqa: ANN401 - any tree
    return list(tree.get("inexact", ())) if isinstance(tree, dict) else []
