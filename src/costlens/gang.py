"""What a rank learns of the others: how long it waited for them to come.

``assembly.py`` drives it on the pipeline thread; what it learns goes into the state of the attempt,
and from there into record, telemetry and report.
"""

from __future__ import annotations

from costlens.core.snapshot_builder import AttemptState
from costlens.observe.gang_wait import explain_unseen, gang_waits

__all__ = ["Gang"]


class Gang:
    """Looks at the other ranks for this one.

    Args:
        state: The attempt of this rank; takes what is learned.
    """

    def __init__(self, state: AttemptState) -> None:
        self._state = state

    def look(self) -> None:
        """Take the gang wait so far; pipeline thread, about 2 µs."""
        state = self._state
        state.gang_wait_ns = gang_waits.total_ns(state.start_ns)
        is_known = state.gang_wait_ns is not None
        state.gang_wait_unknown = None if is_known else explain_unseen(state.rank.world_size)
