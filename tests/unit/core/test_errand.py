"""Errands: one blocking call on a thread of its own."""

from __future__ import annotations

import threading

import pytest

from costlens.core.errand import Errand
from costlens.core.guard import faults
from costlens.errors import StorageError


def test_the_result_is_there_when_it_is_done() -> None:
    """Nobody waits longer than they choose to."""
    may_go = threading.Event()
    errand = Errand("test", lambda: may_go.wait(20))
    errand.start()
    assert not errand.wait(0.01)
    assert (errand.is_done, errand.result) == (False, None)
    may_go.set()
    assert errand.wait(20)
    assert (errand.is_done, errand.result, errand.error) == (True, True, None)


def test_what_costlens_raises_is_the_reason_there_is_no_result() -> None:
    """An unreachable store is no fault of ours: it is told where the result would be."""

    def refuse() -> None:
        raise StorageError("closed")

    errand: Errand[None] = Errand("test", refuse)
    errand.start()
    assert errand.wait(20)
    assert str(errand.error) == "closed"


def test_anything_else_is_a_contained_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and the errand counts as done."""
    monkeypatch.setattr(faults, "strict", False)
    monkeypatch.setattr("costlens.core.guard.is_under_test", lambda: False)
    monkeypatch.setattr(faults, "counts", {})

    def fail() -> None:
        raise KeyError("x")

    errand: Errand[None] = Errand("test", fail)
    errand.start()
    assert errand.wait(20)
    assert faults.counts == {"observe.test": 1}
    assert errand.error is None
