"""What a window brought of trouble, as events of the log: numbers that are none, and a bad end."""

from __future__ import annotations

from costlens.core.log import Logger
from costlens.core.records import Outcome
from costlens.core.snapshot import Snapshot

__all__ = ["tell_trouble"]


def tell_trouble(snapshot: Snapshot, log: Logger) -> None:
    """Log each metric that has turned non-finite and how the attempt failed, where it did.

    Pipeline thread; may wait for whoever reads standard error.

    Args:
        snapshot: The close of the window.
        log: The log of the run.
    """
    for seen in snapshot.alarms:
        log.error(
            "costlens.nonfinite",
            metric=seen.name,
            value=str(seen.value),
            iteration=seen.iteration,
            message=f"{seen.name} of iteration {seen.iteration} is not a finite number",
        )
    words, outcome = snapshot.record.last_words, snapshot.record.attempt.outcome
    if words is None or outcome is Outcome.INTERRUPTED:
        return
    tell = log.error if outcome is Outcome.FAILED else log.warning
    told = words.model_dump(exclude_none=True)
    # The word alone means traces, metrics or logs.
    told["process_signal"] = told.pop("signal", None)
    tell(
        "costlens.run.failed",
        outcome=outcome.value,
        **{name: value for name, value in told.items() if value is not None},
        message=f"the run ended as {outcome.value}",
    )
