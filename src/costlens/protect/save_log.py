"""What the record and the log of a run learn of its saves, and of what it resumed from.

Belongs to the manager; the training thread's, but for :meth:`SaveLog.tell`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from costlens.core.attempt_state import AttemptState
from costlens.core.checkpoint_records import CheckpointsPart, IntervalPart, SaveNote
from costlens.core.clock import NS_PER_S
from costlens.core.records import RankPart
from costlens.protect.cadence import Cadence
from costlens.protect.manifest import Manifest
from costlens.protect.shelf import Found, Rejection
from costlens.protect.writer import SaveResult

__all__ = ["SaveLog"]


class SaveLog:
    """Keeps the attempt's part on checkpoints up to date, and says what happened.

    Args:
        state: The attempt; gets the part of the record.
        cadence: When saves are due, and why; learns how long writes take.
        url: Where they go, without credentials.
    """

    def __init__(self, state: AttemptState, cadence: Cadence, url: str) -> None:
        self._state = state
        self._cadence = cadence
        self._is_overdue = False
        self._is_left = False
        self._part = CheckpointsPart(url=url)
        state.checkpoints = self._part

    @property
    def place(self) -> str:
        """Return where the newest checkpoint is kept, for people; no credentials in it."""
        return f"{self._part.url}/{self._part.last_name or ''}".rstrip("/")

    # Resuming.

    def reject(self, rejections: Sequence[Rejection]) -> None:
        """Note what a resume has passed over."""
        for each in rejections:
            self._state.log.warning(
                "costlens.checkpoint.rejected", name=str(each.name), reason=each.reason
            )
        self._update(rejected=[f"{each.name}: {each.reason}" for each in rejections])

    def begin(self) -> None:
        """Note that a training begins: nothing of it is saved, and that is known."""
        if self._state.start_step is None:  # a second fit goes on from the first
            self._state.start_step = self._state.saved_step = 0

    def resume(self, found: Found, inexact: Sequence[str]) -> None:
        """Note where the attempt goes on, and what could not be restored exactly."""
        manifest, name, sentences = found.manifest, str(found.name), [*dict.fromkeys(inexact)]
        self._state.start_step = self._state.saved_step = manifest.step
        self._update(
            inexact=sentences,
            resumed_from=name,
            resumed_step=manifest.step,
            resumed_attempt=manifest.attempt,
            last_step=manifest.step,
            last_time=manifest.created_time,
            last_name=name,
            num_bytes=_share_of(manifest, self._state.rank),
        )
        self._state.log.info(
            "costlens.checkpoint.resumed",
            step=manifest.step,
            name=name,
            inexact=sentences,
            message=f"resumed at step {manifest.step}",
        )

    def add_inexact(self, sentence: str) -> None:
        """Note what a resume turned out not to restore exactly; once each."""
        if sentence not in self._part.inexact:
            self._update(inexact=[*self._part.inexact, sentence])
            self._state.log.warning("costlens.checkpoint.inexact", message=sentence)

    # Saving.

    def skip(self) -> None:
        """Note that a save is due while another is written; once, not once a step."""
        if not self._is_overdue:
            self._is_overdue = True
            self._update(num_skipped=self._part.num_skipped + 1)

    def note_snapshot(self, stall_ns: int) -> None:
        """Note that a snapshot was taken."""
        self._is_overdue = False
        self._update(stall_s=self._part.stall_s + stall_ns / NS_PER_S)

    def take(self, result: SaveResult) -> None:
        """Note how a save went."""
        part, job = self._part, result.job
        write_s = result.write_ns / NS_PER_S
        self._state.saves.append(_note(result))
        if result.error is not None or result.published is None:
            self.count_failure(result.error)
            return
        self._cadence.note_durable(write_s)
        self._state.saved_step = job.name.step
        self._state.num_saves = (self._state.num_saves or 0) + 1
        self._update(
            num_saved=part.num_saved + 1,
            num_retries=part.num_retries + result.published.num_retries,
            num_bytes=result.published.num_bytes,
            write_s=part.write_s + write_s,
            last_step=job.name.step,
            last_time=self._state.anchor.to_wall_ns(job.taken_ns) / NS_PER_S,
            last_name=str(job.name),
        )

    def count_failure(self, error: BaseException | None) -> None:
        """Note that a save failed."""
        kind = None if error is None else type(error).__name__
        self._update(num_failed=self._part.num_failed + 1, last_error_type=kind)

    def tell(self, result: SaveResult) -> None:
        """Log how a save went; the writer's thread."""
        job, published = result.job, result.published
        if result.error is not None:
            self.tell_failure(job.name.step, result.error)
        if published is None:
            return
        self._state.log.info(
            "costlens.checkpoint.saved",
            step=job.name.step,
            kind=job.kind,
            num_bytes=published.num_bytes,
            stall_s=round(job.stall_ns / NS_PER_S, 6),
            write_s=round(result.write_ns / NS_PER_S, 6),
            message=f"step {job.name.step} is safe",
        )
        if published.left is not None and not self._is_left:  # once until it works again
            self._state.log.warning(
                "costlens.checkpoint.unpruned",
                step=job.name.step,
                reason=published.left,
                message=f"older checkpoints could not be removed: {published.left}",
            )
        self._is_left = published.left is not None

    def tell_failure(self, step: int, error: BaseException) -> None:
        """Log that a save failed; any thread."""
        self._state.log.error(
            "costlens.checkpoint.failed",
            step=step,
            error_type=type(error).__name__,
            reason=str(error),
            message=f"the save at step {step} failed: {error}",
        )

    def tell_abandoned(self, step: int | None) -> None:
        """Log that the end did not wait for the last save."""
        self._state.log.warning(
            "costlens.checkpoint.abandoned",
            step=step,
            message="the last save did not become durable in time; the one before it stands",
        )

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
        num_bytes=None if result.published is None else result.published.num_bytes,
        error_type=None if result.error is None else type(result.error).__name__,
    )


def _share_of(manifest: Manifest, rank: RankPart) -> int:
    """Return the bytes of a checkpoint, divided among the ranks that go on from it."""
    own = [each for each in manifest.shards if each.rank % max(1, rank.world_size) == rank.rank]
    return sum(each.stored_bytes for each in own)
