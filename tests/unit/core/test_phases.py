"""Which phase gets the time when two nest."""

from __future__ import annotations

import pytest

from costlens.core.phases import EFFECTIVE, ITERATION_PHASES, NAMES, NUM_PHASES, Phase

EVERY = frozenset(NAMES)

# What wins inside each phase, by hand from the words of the design; a phase not listed yields to
# everything. `idle_device` is nobody's to enter.
WINS: dict[str, frozenset[str]] = {
    "startup": frozenset({"restore", "checkpoint", "validation", "idle", "shutdown"}),
    "restore": frozenset({"checkpoint", "shutdown"}),
    "data_wait": frozenset({"restore", "checkpoint", "shutdown"}),
    "transfer": frozenset({"checkpoint", "shutdown"}),
    "backward": EVERY - {"forward", "compute", "other"},
    "checkpoint": frozenset({"shutdown"}),
    "validation": frozenset({"checkpoint", "restore", "shutdown"}),
    "callbacks": frozenset({"checkpoint", "restore", "validation", "shutdown"}),
    "logging": EVERY - {"compute", "other"},
    "shutdown": frozenset({"checkpoint"}),
}


def nest(outer: str, inner: str) -> str:
    """Return the phase that gets the time, by the table above."""
    if inner == "idle_device":
        return outer
    return inner if inner in WINS.get(outer, EVERY) else outer


def test_the_table_is_the_one_the_design_describes() -> None:
    """Every pair nests as the words of the design say."""
    for outer in Phase:
        for inner in Phase:
            expected = nest(NAMES[outer], NAMES[inner])
            assert NAMES[EFFECTIVE[outer][inner]] == expected, f"{inner!r} in {outer!r}"


@pytest.mark.parametrize("inner", ["data_wait", "transfer", "forward", "compute", "callbacks"])
def test_validation_keeps_its_own_fetches_and_compute(inner: str) -> None:
    """A validation's own fetch, transfer and compute are validation."""
    assert EFFECTIVE[Phase.VALIDATION][Phase[inner.upper()]] == Phase.VALIDATION


@pytest.mark.parametrize("outer", [phase for phase in Phase if phase is not Phase.CHECKPOINT])
def test_a_save_is_a_save_wherever_it_happens(outer: Phase) -> None:
    """A save inside validation, a data wait or anything else is checkpoint."""
    assert EFFECTIVE[outer][Phase.CHECKPOINT] == Phase.CHECKPOINT


def test_no_timeline_books_an_idle_device() -> None:
    """Only the ledger books devices that no rank drives."""
    for outer in Phase:
        if outer is not Phase.IDLE_DEVICE:
            assert EFFECTIVE[outer][Phase.IDLE_DEVICE] == outer


def test_values_are_indexes_and_names_are_theirs() -> None:
    """A phase's value indexes arrays of phases, and names stand in the same order."""
    assert [int(phase) for phase in Phase] == list(range(NUM_PHASES))
    assert NAMES[Phase.DATA_WAIT] == "data_wait"
    assert len(set(NAMES)) == NUM_PHASES


def test_saves_evaluation_and_start_up_are_not_training_speed() -> None:
    """The duration of an iteration leaves out what is not a step."""
    outside = {NAMES[phase] for phase in Phase} - {NAMES[phase] for phase in ITERATION_PHASES}
    assert outside == {
        "startup", "restore", "checkpoint", "validation", "idle", "idle_device", "shutdown"
    }  # fmt: skip
