"""The causes that a finding can name: their words for people, and which of two is the cause.

One table, so that the report, telemetry and the judge know the same names. A rule may find what is
not in it yet; it is then told by its name.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CAUSES", "COMPUTE_BOUND", "Cause", "find_cause"]

COMPUTE_BOUND = "compute_bound"
"""The statement that there is nothing to mend, which stands only where nothing else does."""


@dataclass(frozen=True, slots=True)
class Cause:
    """What a finding of some name is.

    Args:
        title: What is wrong, a clause for people.
        family: Those of one family explain the same lost time; None where it has none.
        hidden_by: Findings that say why this one is there, so that it need not be told.
    """

    title: str
    family: str | None = None
    hidden_by: frozenset[str] = frozenset()


_STARVING = frozenset({"data_preprocessing", "storage_read", "too_few_workers", "slow_collate"})


def _starves(title: str, *, hidden_by: frozenset[str] = frozenset()) -> Cause:
    return Cause(title, family="starvation", hidden_by=hidden_by)


CAUSES: dict[str, Cause] = {
    "data_preprocessing": _starves("preparing the samples keeps the training waiting"),
    "storage_read": _starves("reading the data keeps the training waiting"),
    "too_few_workers": _starves("the data loader has too few workers"),
    # What passes begin with is another wait than that in their midst.
    "worker_startup": Cause("the loader's workers are started again and again"),
    "slow_collate": _starves("putting batches together keeps the training waiting"),
    "data_wait": _starves("the training waits for its data", hidden_by=_STARVING),
    "transfer": Cause("moving batches to the device takes long"),
    "sync_points": Cause("the loop waits for the device too often"),
    "small_batch": Cause("batches are too small for the device"),
    "communication": Cause(
        "the ranks spend long on communication",
        hidden_by=frozenset({"straggler", "faulty_node"}),
    ),
    "straggler": Cause(
        "one rank keeps the others waiting",
        hidden_by=frozenset({"faulty_node"}),
    ),
    "faulty_node": Cause("one node does worse than the others"),
    "checkpoint_overhead": Cause("saving takes too much of the time"),
    "frequent_validation": Cause("validation runs too often"),
    "memory_pressure": Cause(
        "the memory of the device is nearly full",
        hidden_by=frozenset({"fragmentation", "memory_creep"}),
    ),
    "fragmentation": Cause("the memory of the device is in pieces"),
    "memory_creep": Cause("memory in use grows and grows"),
    "throttling": Cause("the clocks of the device are held down"),
    "hardware_fault": Cause("a device reports faults"),
    "padding_waste": Cause("much of every batch is padding"),
    "overflow_skips": Cause("steps overflow and are left out"),
    "full_precision": Cause("the device could compute faster in mixed precision"),
    "idle_devices": Cause("devices are paid for that nobody uses"),
    "queue_wait": Cause("the job waited long in its queue"),
    "gang_wait": Cause("ranks wait for each other to start"),
    "epoch_boundary": Cause(
        "the turn of an epoch takes long",
        hidden_by=frozenset({"worker_startup"}),
    ),
    "recompilation": Cause("the model is compiled again and again"),
    "slow_logging": Cause("logging holds the training up"),
    "slow_callbacks": Cause("callbacks hold the training up"),
    "unprotected_spot": Cause("a machine that can be taken away runs without checkpoints"),
    COMPUTE_BOUND: Cause("the training is bound by what the device can compute"),
}


def find_cause(name: str) -> Cause:
    """Return what is known of a cause; its name in words where that is nothing."""
    return CAUSES.get(name) or Cause(name.replace("_", " "))
