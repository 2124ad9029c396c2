"""Lets a run that keeps checkpoints save before it leaves: who listens, for how long, and to whom.

Doors call :func:`listen_for_notices` once, with what saves; signals come through ``run_end.py``.
"""

from __future__ import annotations

from costlens.attempt import Parts
from costlens.config import Config
from costlens.core.clock import Clock
from costlens.protect.checkpoints import Checkpoints
from costlens.protect.grace import Grace
from costlens.protect.notices import make_source
from costlens.protect.preemption import Preemption
from costlens.protect.run_end import RunEnd

__all__ = ["listen_for_notices"]


def listen_for_notices(
    config: Config, parts: Parts, clock: Clock, end: RunEnd, checkpoints: Checkpoints
) -> None:
    """Let the run save before it leaves, when a signal or the cloud asks for that; start-up.

    Args:
        config: The settings.
        parts: The living parts of the run.
        clock: Monotonic nanoseconds.
        end: What hears of signals.
        checkpoints: What saves; the first of a run are those that it saves before it leaves.
    """
    if end.preemption is not None or checkpoints.manager is None:
        return
    grace = Grace(config.grace_s, end.end_timeout_s, config.preemption_exit_code)
    preemption = Preemption(
        parts.state, parts.timeline, parts.boundaries, clock, grace, checkpoints.manager
    )
    preemption.start()
    if config.cloud_notices != "off" and parts.state.rank.local_rank == 0:
        preemption.listen_to(make_source(config.cloud_notices))
    end.preemption = checkpoints.preemption = checkpoints.manager.preemption = preemption
