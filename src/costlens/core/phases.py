"""The phases: what a rank's time goes to, and the one table that says which wins when two nest.

Every nanosecond of a process belongs to exactly one phase (CONTRIBUTING.md, law 2). A new phase is
one member here, one line of the table and one line in the glossary.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "EFFECTIVE",
    "ITERATION_PHASES",
    "NAMES",
    "NUM_PHASES",
    "Phase",
]


class Phase(IntEnum):
    """Where a nanosecond of a rank's time went; the value is its index in arrays of phases."""

    STARTUP = 0
    """Process start to the end of the first iteration: imports, model, sanity check, warm-up."""
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
    """The optimizer update; clipping and zeroing, too, where the framework brackets them."""
    COMPUTE = 7
    """Work of an iteration that nothing split further."""
    COMMUNICATION = 8
    """Blocked in a collective or a rendezvous, where it can be told apart."""
    CHECKPOINT = 9
    """Training stands still for a save."""
    VALIDATION = 10
    """Evaluation (validation, test, prediction) with its own fetches, transfers and compute."""
    CALLBACKS = 11
    """Hooks of other callbacks."""
    LOGGING = 12
    """From the end of a batch to the next fetch, less everything bracketed: loggers, bars."""
    IDLE = 13
    """Paid time in which the run does nothing, such as the time between two fits."""
    IDLE_DEVICE = 14
    """A device that is paid for and that no rank drives; only the ledger books it."""
    SHUTDOWN = 15
    """From the end of training to the end of the run: flushing and closing."""
    OTHER = 16
    """Bookkeeping of the loop itself; in a plain loop, all outside of iterations and fetches."""


NUM_PHASES = len(Phase)
NAMES: tuple[str, ...] = tuple(phase.name.lower() for phase in Phase)

ITERATION_PHASES: tuple[Phase, ...] = (
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
"""The phases that sum to the duration of an iteration: saves and evaluation are not its speed."""

_ALL = frozenset(Phase)

# A save stops the training wherever it happens, and nothing after the end of training is training.
_ALWAYS = frozenset({Phase.CHECKPOINT, Phase.SHUTDOWN})

# outer phase -> the inner phases that take the time over, besides `_ALWAYS`; inside a phase that is
# not listed every inner phase does.
_BREAKS_THROUGH: dict[Phase, frozenset[Phase]] = {
    # The first fetch, the sanity check and the first iteration with its compilation are start-up.
    Phase.STARTUP: frozenset({Phase.RESTORE, Phase.VALIDATION, Phase.IDLE}),
    # Fast-forwarding fetches batches, and verifying a save reads it back.
    Phase.RESTORE: frozenset(),
    Phase.CHECKPOINT: frozenset(),
    # A fetch may find that the loader has to be fast-forwarded.
    Phase.DATA_WAIT: frozenset({Phase.RESTORE}),
    Phase.TRANSFER: frozenset(),
    # Under activation checkpointing the model's forward runs again inside the backward pass.
    Phase.BACKWARD: _ALL - {Phase.FORWARD, Phase.COMPUTE, Phase.OTHER},
    Phase.VALIDATION: frozenset({Phase.RESTORE}),
    # What a callback computes or fetches is its own doing, unless it evaluates the model.
    Phase.CALLBACKS: frozenset({Phase.RESTORE, Phase.VALIDATION}),
    # The gap between a batch and the next fetch holds brackets of its own.
    Phase.LOGGING: _ALL - {Phase.COMPUTE, Phase.OTHER},
    Phase.SHUTDOWN: frozenset(),
}


def _effective(outer: Phase, inner: Phase) -> int:
    if inner is Phase.IDLE_DEVICE:
        return int(outer)
    is_winner = inner in _ALWAYS or inner in _BREAKS_THROUGH.get(outer, _ALL)
    return int(inner if is_winner else outer)


EFFECTIVE: tuple[tuple[int, ...], ...] = tuple(
    tuple(_effective(outer, inner) for inner in Phase) for outer in Phase
)
"""``EFFECTIVE[outer][inner]``: the phase that gets the time when ``inner`` opens in ``outer``."""
