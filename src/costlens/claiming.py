"""Which run and attempt a rank belongs to: proposed at once, settled when the store answers.

``assembly.py`` asks on the pipeline thread and again with each window until there is an answer; a
checkpoint, which cannot do without one, asks for as long as it takes.
"""

from __future__ import annotations

from costlens.attempt import describe_claimant
from costlens.config import Config
from costlens.core.attempt_state import AttemptState
from costlens.core.guard import faults
from costlens.errors import StorageError
from costlens.storage.identity import Identity, propose_run_id, settle_identity
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store

__all__ = ["Claim"]


class Claim:
    """A rank's claim to its run and attempt; names the run in the state as it does so.

    Args:
        config: The settings.
        state: The attempt.
        launch_key: What all ranks of the launch share.
    """

    def __init__(self, config: Config, state: AttemptState, launch_key: str) -> None:
        self.identity: Identity | None = None
        self.store = Store(config.run_dir)
        self._config = config
        self._state = state
        self._launch_key = launch_key
        self._refusal: StorageError | None = None
        url = config.checkpoint_url
        # An id that was given goes before what stands at the checkpoints, a scheduler's does not.
        self._checkpoint_store = Store(url) if url and not config.run_id else None
        self.proposed_run_id = propose_run_id(
            run_id=config.run_id,
            job_id=_identify_job(state),
            name=state.run.name,
            launch_key=launch_key,
            shared=state.rank.world_size > 1,
            wall_ns=state.anchor.wall_ns,
        )
        state.run = state.run.model_copy(update={"id": self.proposed_run_id})

    def load(self) -> None:
        """Import what the stores need; calling thread, before the first step."""
        faults.call("session.load", self.store.load)
        if self._checkpoint_store is not None:
            faults.call("session.load", self._checkpoint_store.load)

    def settle(self) -> None:
        """Ask the store for the identity, unless there is one; pipeline thread."""
        if self.identity is not None:
            return
        # A store that refuses is no fault of ours: the record's exporter meets the same refusal,
        # says so and counts it, and the next window tries again.
        try:
            self._settle()
        except StorageError as error:
            self._refusal = error

    def _settle(self) -> None:
        state, config = self._state, self._config
        self.identity = settle_identity(
            self.store,
            self._checkpoint_store,
            self.proposed_run_id,
            self._launch_key,
            describe_claimant(state, config.window_s, is_named_by_job=config.run_id is None),
        )
        state.run = state.run.model_copy(update={"id": self.identity.run_id})
        state.number = self.identity.attempt
        state.launch_key = self.identity.launch_key

    def settled_folder(self) -> RunFolder | None:
        """Return the run's folder, None while the identity is not settled."""
        return None if self.identity is None else self.identity.folder

    def find_folder(self) -> RunFolder | None:
        """Return the run's folder, None while the store has not answered.

        Raises:
            StorageError: If the store refused.
        """
        if self.identity is None and self._refusal is not None:
            raise self._refusal
        return self.settled_folder()

    def explain(self, waited_s: float) -> StorageError:
        """Return why there is no identity after ``waited_s`` seconds."""
        return self._refusal or StorageError(
            f"{self.store.shown_url} did not answer within {waited_s:.0f} s, and a run"
            " without an identity cannot keep checkpoints; check that the place is reachable"
        )


def _identify_job(state: AttemptState) -> str | None:
    # One job may hold several trainings of a process, and repeats them in this order.
    job_id, turn = state.rank.job_id, state.turn
    return job_id if job_id is None or turn == 0 else f"{job_id}.{turn}"
