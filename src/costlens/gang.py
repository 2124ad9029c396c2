"""What a rank learns of the others: the wait for them, which report, and the attempts before.

``assembly.py`` drives it on the pipeline thread; what it learns goes into the state of the attempt,
and from there into record, telemetry and report. Rank 0 alone looks at others, in the run folder;
it never takes more than a hundredth of the time for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costlens.account.ledger import merge_readable, parse_records
from costlens.account.restarts import is_past
from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.gang_records import MAX_NAMED, GangPart, RestartLoopPart
from costlens.core.records import Outcome, RankRecord
from costlens.core.reporting import Reporting, ReportingWatch
from costlens.core.trouble_records import LastWordsPart
from costlens.errors import StorageError
from costlens.observe.gang_wait import explain_unseen, gang_waits
from costlens.storage.run_folder import RunFolder

__all__ = ["Gang"]

PATIENCE_S = 60.0
"""How long a rank may leave its record as it is; tests put a shorter time in its place."""

_PATIENCE_WINDOWS = 6
_MAX_HISTORY = 16
_MAX_ASKED = 16
_PAUSES_PER_LOOK = 100


class Gang:
    """Looks at the other ranks for this one.

    Args:
        state: The attempt of this rank; takes what is learned.
        clock: Monotonic nanoseconds.
        window_s: Seconds between two heartbeats of a rank.
        find_folder: Returns the run's folder, or None while its identity is not settled.
        counts: Returns what this rank has counted, by the names of ``ProgressPart``.
    """

    def __init__(
        self,
        state: AttemptState,
        clock: Clock,
        window_s: float,
        find_folder: Callable[[], RunFolder | None],
        counts: Callable[[], Mapping[str, int]],
    ) -> None:
        self._state = state
        self._clock = clock
        self._patience_s = max(PATIENCE_S, _PATIENCE_WINDOWS * window_s)
        self._find_folder = find_folder
        self._counts = counts
        self._has_history = False
        self._loop: RestartLoopPart | None = None
        self._loop_length: int | None = None
        self._watch: ReportingWatch | None = None
        self._next_look_ns = 0
        self._is_blind = False
        self._asked: set[int] = set()
        self._reporting: Reporting | None = None

    def look(self, *, is_last: bool = False) -> None:
        """Take what is known now; on rank 0 a listing of the run folder, where time allows it.

        Args:
            is_last: Whether the attempt ends: nothing of others is read any more.
        """
        state = self._state
        state.gang_wait_ns = gang_waits.total_ns(state.start_ns)
        is_known = state.gang_wait_ns is not None
        state.gang_wait_unknown = None if is_known else explain_unseen(state.rank.world_size)
        folder = self._find_folder() if state.rank.rank == 0 else None
        if folder is None or is_last:
            return
        self._look_back(folder)
        self._look_around(folder)
        missing = () if self._reporting is None else self._reporting.missing
        state.gang = GangPart(
            num_reporting=None if self._reporting is None else self._reporting.num_reporting,
            missing_ranks=list(missing[:MAX_NAMED]),
            num_restarts=state.number - 1,
            restart_loop=self._loop_length,
        )

    # The attempts before this one.

    def _look_back(self, folder: RunFolder) -> None:
        if not self._has_history:
            self._has_history = True
            self._loop_length = self._find_loop(folder)
        loop, state = self._loop, self._state
        if loop is None:
            return
        counts = self._counts()
        made = counts.get("optimizer_steps", counts["iterations"])
        reached = state.end_step
        if reached is None and state.start_step is not None:
            reached = state.start_step + made
        if is_past(loop, reached, made):
            self._loop, self._loop_length = None, 0

    def _find_loop(self, folder: RunFolder) -> int | None:
        """Return the length of the loop this attempt begins in, None when unknown."""
        number = self._state.number
        earlier = range(max(1, number - _MAX_HISTORY), number)
        if not earlier:
            return 0
        try:
            documents, _ = folder.read_some_records((attempt, 0) for attempt in earlier)
        except StorageError:
            return None
        records, _ = parse_records(documents)
        if not records:
            return None
        # This attempt has begun, so those before it are over, whatever they could still say.
        ends = {(record.attempt.number, 0): LastWordsPart() for record in records.values()}
        now = self._state.anchor.to_wall_ns(self._clock()) / NS_PER_S
        self._loop = merge_readable(records, now=now, ends=ends).restart_loop
        if self._loop is None:
            return 0
        self._tell_of_loop(self._loop)
        return self._loop.num_attempts

    def _tell_of_loop(self, loop: RestartLoopPart) -> None:
        self._state.log.warning(
            "costlens.restart_loop",
            num_attempts=loop.num_attempts,
            loop_step=loop.step,
            error_type=loop.error_type,
            message=f"the {loop.num_attempts} attempts before this one ended badly and got no "
            "further than each other",
        )

    # The other ranks of this attempt.

    def _look_around(self, folder: RunFolder) -> None:
        rank = self._state.rank
        if rank.world_size == 1:
            self._reporting = Reporting(1, (), ())
            return
        began_ns = self._clock()
        if began_ns < self._next_look_ns:
            return
        if self._watch is None:
            self._watch = ReportingWatch(rank.world_size, began_ns, self._patience_s)
        try:
            reporting = self._judge(folder, self._watch, began_ns)
        except StorageError:
            reporting = None
        self._is_blind = reporting is None
        if reporting is not None:
            self._tell_of_missing(reporting)
        self._reporting = reporting
        ended_ns = self._clock()
        self._next_look_ns = ended_ns + _PAUSES_PER_LOOK * (ended_ns - began_ns)

    def _judge(self, folder: RunFolder, watch: ReportingWatch, now_ns: int) -> Reporting | None:
        versions = folder.record_versions(self._state.number)
        if "" in versions.values():
            return None  # the store does not tell what changes
        # The others may have been kept from writing by the same store, or the whole job have stood
        # still: they are not silent before they could have spoken.
        if self._is_blind or now_ns - self._next_look_ns > self._patience_s * NS_PER_S:
            watch.begin_again(now_ns)
        # Its own is written after this look, if the disk takes it.
        versions[self._state.rank.rank] = str(now_ns)
        reporting = watch.judge(versions, now_ns)
        if self._ask(folder, reporting.silent, watch):
            return watch.judge(versions, now_ns)
        return reporting

    def _ask(self, folder: RunFolder, silent: tuple[int, ...], watch: ReportingWatch) -> bool:
        """Read the last word of ranks that fell silent, each once; return whether any had ended."""
        self._asked.intersection_update(silent)
        to_ask = [rank for rank in silent if rank not in self._asked][:_MAX_ASKED]
        if not to_ask:
            return False
        documents, _ = folder.read_some_records((self._state.number, rank) for rank in to_ask)
        self._asked.update(to_ask)
        ended = [
            record.rank.rank for record in parse_records(documents)[0].values() if _ended(record)
        ]
        watch.note_ended(ended)
        return bool(ended)

    def _tell_of_missing(self, now: Reporting) -> None:
        before = () if self._reporting is None else self._reporting.missing
        if now.missing == before:
            return
        log, world_size = self._state.log, self._state.rank.world_size
        if now.missing:
            log.warning(
                "costlens.ranks.missing",
                ranks=list(now.missing[:MAX_NAMED]),
                num_missing=len(now.missing),
                message=f"{len(now.missing)} of {world_size} ranks write no record any more, or "
                "never did",
            )
        else:
            log.info("costlens.ranks.back", message=f"all {world_size} ranks report")


def _ended(record: RankRecord) -> bool:
    return record.attempt.outcome is not Outcome.RUNNING
