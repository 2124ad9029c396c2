"""The phases: what a rank's time goes to, and the one table that says which phase wins when two nest.

Every nanosecond of a process belongs to exactly one phase (DESIGN law 2). A new phase is one member
here, one line of the table and one line in the glossary.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "EFFECTIVE",
    "NAMES",
    "NUM_PHASES",
    "STEP_PHASES",
    "Phase",
]


class Phase(IntEnum):
    """Where a nanosecond of a rank's time went; the value is the index into every array of phases."""

    STARTUP = 0
    """Process start to the end of the first iteration: imports, model, sanity check, first batch, warm-up."""
    RESTORE = 1
    """Loading state, and fast-forwarding through batches that were already consumed."""
    DATA_WAIT = 2
    """Waiting for the next batch, later starts of loader workers included."""
    TRANSFER = 3
    """Moving the batch to the device."""
    FORWARD = 4
    """The forward pass and the loss (in a plain loop: the watched model's call)."""
    BACKWARD = 5
    """The backward pass."""
    OPTIMIZER = 6
    """The optimizer update, gradient clipping and zeroing included where the framework brackets them."""
    COMPUTE = 7
    """Work of an iteration that nothing split further."""
    COMMUNICATION = 8
    """Blocked in a collective or a rendezvous, where it can be told apart."""
    CHECKPOINT = 9
    """Training stands still for a save."""
    VALIDATION = 10
    """Evaluation loops (validation, test, prediction) with their own fetches, transfers and compute."""
    CALLBACKS = 11
    """Hooks of other callbacks."""
    LOGGING = 12
    """From the end of a batch to the next fetch, less everything bracketed: loggers and progress bars."""
    IDLE = 13
    """Paid time in which the run does nothing, such as the time between two fits."""
    IDLE_DEVICE = 14
    """A device that is paid for and that no rank drives; booked by the ledger, never by a timeline."""
    SHUTDOWN = 15
    """From the end of training to the end of the run: flushing and closing."""
    OTHER = 16
    """Bookkeeping of the loop itself."""


NUM_PHASES = len(Phase)
NAMES: tuple[str, ...] = tuple(phase.name.lower() for phase in Phase)

STEP_PHASES: tuple[Phase, ...] = (
    Phase.DATA_WAIT,
    Phase.TRANSFER,
    Phase.FORWARD,
    Phase.BACKWARD,
    Phase.OPTIMIZER,
    Phase.COMPUTE,
    Phase.COMMUNICATION,
    Phase.CALLBACKS,
    Phase.LOGGING,
    Phase.OTHER,
)
"""The phases whose sum is the duration of an iteration: saves, evaluation and start-up are not training speed."""

# outer phase -> the inner phases that take the time over; None = every inner phase does.
_BREAKS_THROUGH: dict[Phase, frozenset[Phase] | None] = {
    Phase.STARTUP: frozenset(
        {Phase.RESTORE, Phase.CHECKPOINT, Phase.VALIDATION, Phase.IDLE, Phase.SHUTDOWN}
    ),
    Phase.RESTORE: frozenset({Phase.SHUTDOWN}),
    Phase.CHECKPOINT: frozenset({Phase.SHUTDOWN}),
    Phase.DATA_WAIT: frozenset({Phase.RESTORE, Phase.SHUTDOWN}),
    Phase.TRANSFER: frozenset({Phase.SHUTDOWN}),
    # Recomputation under activation checkpointing runs the model's forward inside the backward
    # pass.
    Phase.BACKWARD: frozenset(Phase) - {Phase.FORWARD, Phase.COMPUTE, Phase.OTHER},
    Phase.VALIDATION: frozenset({Phase.CHECKPOINT, Phase.RESTORE, Phase.SHUTDOWN}),
    Phase.CALLBACKS: frozenset({Phase.CHECKPOINT, Phase.RESTORE, Phase.VALIDATION, Phase.SHUTDOWN}),
    Phase.LOGGING: frozenset({Phase.CHECKPOINT, Phase.RESTORE, Phase.VALIDATION, Phase.SHUTDOWN}),
    Phase.SHUTDOWN: frozenset({Phase.CHECKPOINT}),
}


def _effective(outer: Phase, inner: Phase) -> int:
    breaks = _BREAKS_THROUGH.get(outer)
    return int(inner if breaks is None or inner in breaks else outer)


EFFECTIVE: tuple[tuple[int, ...], ...] = tuple(
    tuple(_effective(outer, inner) for inner in Phase) for outer in Phase
)
"""``EFFECTIVE[outer][inner]``: the phase that time belongs to when ``inner`` is entered inside ``outer``."""
