"""What rank 0 knows of the run's money while it runs, and how a spent budget ends the training.

``assembly.py`` drives it on the pipeline thread: at each heartbeat the records of the other ranks
and attempts are read (``export/job_view.py``) and added up, the budget is compared, and where it is
spent and shall stop the training, the ranks agree on the step (``protect/agreement.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from costlens.account.run_totals import total_run
from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.boundaries import STOP, Boundaries
from costlens.core.budget_records import RunTotalsPart
from costlens.core.clock import NS_PER_S, Clock
from costlens.core.records import RankRecord
from costlens.core.snapshot import Snapshot
from costlens.export.job_view import JobView
from costlens.protect.budget import BudgetWatch
from costlens.storage.run_folder import RunFolder

__all__ = ["BUDGET_SPENT", "Spending"]

BUDGET_SPENT = f"{STOP}budget"
"""What all ranks agree on when the budget is spent."""

_MAX_PROPOSALS = 3
_PAUSE_WINDOWS = 30


class Spending:
    """Totals and budget of a run; pipeline thread.

    Args:
        config: The settings.
        state: The attempt of this rank.
        clock: Monotonic nanoseconds.
        find_folder: Returns the run's folder, or None while its identity is not settled.
        boundaries: Have what the ranks agree by, where they can and something asks for it.
    """

    def __init__(
        self,
        config: Config,
        state: AttemptState,
        clock: Clock,
        find_folder: Callable[[], RunFolder | None],
        boundaries: Boundaries,
    ) -> None:
        self._state = state
        self._clock = clock
        self._find_folder = find_folder
        self._boundaries = boundaries
        self._view = JobView(clock)
        self._totals: RunTotalsPart | None = None
        self._has_recalled = False
        self._num_proposals = 0
        self._next_proposal_ns = 0
        # Checkpoints agree as well, where the budget only warns.
        self._may_stop = config.budget_action == "stop"
        self._pause_ns = _PAUSE_WINDOWS * config.window_ns
        self._budget = (
            None
            if config.budget is None
            else BudgetWatch(config.budget, config.currency, config.budget_action, state.log)
        )

    def poll(self) -> None:
        """Let the ranks agree; every second."""
        if (agreement := self._boundaries.agreement) is not None:
            agreement.poll()

    def close(self) -> None:
        """Agree on nothing any more."""
        if (agreement := self._boundaries.agreement) is not None:
            agreement.close()

    def complete(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with totals and budget in its record; on rank 0 only.

        Reads other ranks' records, at most a hundredth of the time.
        """
        record = snapshot.record
        folder = self._find_folder() if record.rank.rank == 0 else None
        if folder is None:
            return snapshot
        self._look(folder, record, is_last=snapshot.is_last)
        if self._totals is None:
            return snapshot
        update: dict[str, object] = {"run_totals": self._totals}
        if self._budget is not None:
            update["budget"] = self._budget.part
        return replace(snapshot, record=record.model_copy(update=update))

    def _look(self, folder: RunFolder, record: RankRecord, *, is_last: bool) -> None:
        if not self._view.look(folder, record, is_last=is_last) or not self._view.is_ready:
            return
        began_ns = self._clock()
        records = self._view.records(record)
        now = self._state.anchor.to_wall_ns(began_ns) / NS_PER_S
        self._totals = total_run(records, now, is_complete=self._view.is_complete)
        if self._budget is not None:
            if not self._has_recalled:
                self._has_recalled = True
                self._budget.recall(other.budget for other in records)
            self._budget.look(self._totals)
            self._stop_if_spent(self._budget)
        self._view.note_cost(self._clock() - began_ns)

    def _stop_if_spent(self, budget: BudgetWatch) -> None:
        agreement, now_ns = self._boundaries.agreement, self._clock()
        if agreement is None or not self._may_stop:
            return
        if not budget.is_spent or self._state.end_reason is not None:
            return
        if agreement.is_pending(BUDGET_SPENT) or now_ns < self._next_proposal_ns:
            return
        # A rank that is not watched never answers, and every round that is called off has let the
        # others wait.
        if self._num_proposals < _MAX_PROPOSALS:
            agreement.propose(BUDGET_SPENT)
        elif self._num_proposals == _MAX_PROPOSALS:
            self._state.log.error(
                "costlens.budget.unenforced",
                message="the budget is spent and the ranks could not agree to stop: is every one "
                "of them watched?",
            )
        self._num_proposals += 1
        self._next_proposal_ns = now_ns + self._pause_ns
