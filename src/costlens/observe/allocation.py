"""The allocation that a launch runs in: since when it is paid for, and by which launch.

An allocation may hold several launches one after the other; only the first of them carries its wait
and its start, so that no second is paid for twice. Rank 0 asks the scheduler and claims the
allocation in the store of the runs; the other ranks read the claim. Pipeline thread, with a small
request at a close of a window, ever more seldom, until it is settled.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable
from contextlib import suppress

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S
from costlens.core.job_records import JobPart
from costlens.errors import StorageError
from costlens.observe.placement.slurm_times import JobTimes, ask_times
from costlens.storage.store import Store

__all__ = ["AllocationWatch"]

_FOLDER = ".allocations"
_MAX_ASKS = 3
_MAX_LOOKS = 12
_FIRST_PAUSE_S = 0.5  # and twice as long after every look: the last one comes after 17 minutes
_SKEW_S = 2.0
_TIMES = ("submit_time", "eligible_time", "start_time")


class AllocationWatch:
    """Finds out about the allocation of an attempt, and writes it into the attempt's state.

    Args:
        state: The attempt; its job is completed here.
        store: Holds the folders of all runs.
        given: Times that the settings give, by the names of ``JobPart``; they go before what the
            scheduler tells.
        ask: Asks the scheduler; pipeline thread.
        wall_s: Unix time, for the comparison with the scheduler's clock.
        mono_s: Monotonic seconds, for the pauses.
    """

    def __init__(
        self,
        state: AttemptState,
        store: Store,
        given: dict[str, float] | None = None,
        *,
        ask: Callable[[], JobTimes | str] = ask_times,
        wall_s: Callable[[], float] = time.time,
        mono_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._store = store
        self._ask = ask
        self._wall_s = wall_s
        self._mono_s = mono_s
        self._next_s = -math.inf
        self._num_asks = 0
        self._num_looks = 0
        self._run_time: tuple[float, float] | None = None
        if given:
            job = state.job or JobPart(scheduler="other")
            state.job = job.model_copy(update={**given, "times_from": "settings"})
        self.is_settled = state.job is None or state.process_start_ns is None
        if state.job is not None and self.is_settled:
            # A later run of the process, or of a notebook: neither a start nor a wait is its own.
            state.job = state.job.model_copy(update={"is_allocation_owner": False})

    def look(self, *, is_last: bool = False) -> None:
        """Settle what can be settled by now; a store that refuses is asked again, a while.

        Args:
            is_last: Whether the attempt ends: a claim is read in any case, but nobody is asked who
                might keep the end waiting.
        """
        job, now_s = self._state.job, self._mono_s()
        if self.is_settled or job is None or not self._state.launch_key:
            return
        if now_s < self._next_s and not is_last:
            return
        self._next_s = now_s + _FIRST_PAUSE_S * 2**self._num_looks
        self._num_looks += 1
        # The record's exporter meets the same refusal, says so and counts it.
        with suppress(StorageError):
            self._settle(job, may_ask=not is_last)
        if self._num_looks >= _MAX_LOOKS:
            self.is_settled = True

    def _settle(self, job: JobPart, *, may_ask: bool) -> None:
        key = _key(job)
        if key is None:
            self._state.job = _explain(job)
            self.is_settled = True
            return
        claim = _decode(self._store.read(key))
        if claim is None and self._is_claimant(job) and (may_ask or _is_timed(job)):
            job = self._state.job = self._complete(job)
            if job.scheduler == "slurm" and not _is_timed(job) and self._num_asks < _MAX_ASKS:
                return  # once more in the next window
            told = {name: getattr(job, name) for name in _TIMES}
            data = json.dumps({"launch_key": self._state.launch_key, **told}).encode()
            self._store.create(key, data)
            claim = _decode(self._store.read(key))
        if claim is not None:
            self._take(job, claim)

    def _is_claimant(self, job: JobPart) -> bool:
        return self._state.rank.rank == 0 or job.scheduler != "slurm"

    def _complete(self, job: JobPart) -> JobPart:
        """Return the job with the times that only the scheduler knows."""
        if job.scheduler != "slurm" or _is_timed(job):
            return job
        self._num_asks += 1
        found = self._ask()
        if isinstance(found, str):
            return job.model_copy(update={"times_unknown": found})
        if found.run_time_s is not None:
            self._run_time = found.run_time_s, self._wall_s()
        told = found._asdict()
        update = {name: told[name] for name in _TIMES if getattr(job, name) is None}
        source = job.times_from or "scontrol"
        return job.model_copy(update={**update, "times_from": source, "times_unknown": None})

    def _take(self, job: JobPart, claim: dict[str, object]) -> None:
        told = {
            name: float(value)
            for name in _TIMES
            if getattr(job, name) is None and isinstance(value := claim.get(name), (int, float))
        }
        if told:
            source = job.times_from or "rank 0"
            told_by = {"times_from": source, "times_unknown": None}
            job = job.model_copy(update={**told, **told_by})
        self._finish(job, is_owner=claim.get("launch_key") == self._state.launch_key)

    def _finish(self, job: JobPart, *, is_owner: bool) -> None:
        state = self._state
        self.is_settled = True
        lead_s = None
        if job.start_time is not None and state.process_start_ns is not None:
            lead_s, skew_s = self._measure_lead(job.start_time)
            job = job.model_copy(update={"clock_skew_s": skew_s})
        state.job = job.model_copy(update={"is_allocation_owner": is_owner})
        if is_owner and lead_s is not None:
            state.lead_ns = int(lead_s * NS_PER_S)

    def _measure_lead(self, start_time: float) -> tuple[float, float | None]:
        """Return the seconds from the allocation to the process, and by how much clocks differ.

        Where the scheduler has told how long the job runs, its clock and this host's are compared;
        if they differ, durations decide that each of them measured alone.
        """
        state = self._state
        started_s = state.anchor.to_wall_ns(state.process_start_ns or 0) / NS_PER_S
        lead_s = started_s - start_time
        skew_s = max(0.0, -lead_s)
        if self._run_time is not None:
            run_time_s, asked_s = self._run_time
            skew_s = abs(asked_s - run_time_s - start_time)
            if skew_s > _SKEW_S:
                lead_s = run_time_s - (asked_s - started_s)
        return max(0.0, lead_s), skew_s if skew_s > _SKEW_S else None


def _is_timed(job: JobPart) -> bool:
    return job.submit_time is not None and job.start_time is not None


def _explain(job: JobPart) -> JobPart:
    """Return the job with the reason why it has no wait, where nobody tells its times."""
    reason = f"{job.scheduler} does not tell when the job was submitted and started"
    return job.model_copy(update={"times_unknown": reason})


def _key(job: JobPart) -> str | None:
    """Return where an allocation is claimed, or None where nothing would follow from a claim.

    The pods of a job are allocations of their own.
    """
    parts: tuple[object, ...] = ("slurm", job.cluster, job.job_id, job.restart_count)
    if job.scheduler != "slurm":
        if job.start_time is None:
            return None
        parts = (job.scheduler, job.pod_uid or job.job_id, job.start_time)
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
    return f"{_FOLDER}/{digest}.json"


def _decode(data: bytes | None) -> dict[str, object] | None:
    """Return a claim; None where there is none yet, empty where it cannot be understood."""
    if not data:
        return None
    with suppress(ValueError, RecursionError):
        claim = json.loads(data)
        if isinstance(claim, dict):
            return claim
    return {}
