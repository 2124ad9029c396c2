"""The one place that swallows exceptions."""

from __future__ import annotations

import json
import os
import sys
import threading
import types

import pytest

from costlens.core.guard import Faults, is_inert_process, pid_guard
from costlens.core.log import taps


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """Return the events on standard error."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def fail(message: str = "no") -> None:
    """Raise."""
    raise OSError(message)


def test_under_pytest_a_fault_is_raised_again() -> None:
    """A fault cannot hide in a test: it is counted and comes out."""
    faults = Faults()
    with pytest.raises(OSError, match="no"):
        faults.call("somewhere", fail)
    assert faults.counts == {"somewhere": 1}


def test_elsewhere_a_fault_is_counted_and_swallowed(contained: Faults) -> None:
    """Training goes on; what was asked for is None."""
    assert contained.call("somewhere", fail) is None
    with contained.contain("elsewhere"):
        fail()
    with contained.contain("elsewhere"):
        fail()
    assert contained.counts == {"somewhere": 1, "elsewhere": 2}
    assert contained.num_total == 3


def test_a_shielded_function_fails_as_a_fault(contained: Faults) -> None:
    """It gets its arguments; what it raises is counted, what stops the process passes."""
    seen: list[str] = []
    contained.shield("iteration", seen.append)("batch")
    contained.shield("iteration", fail)("no")
    assert (seen, contained.counts) == (["batch"], {"iteration": 1})

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        contained.shield("iteration", stop)()


def test_strict_raises_even_outside_a_test(contained: Faults) -> None:
    """A debug session can ask for faults as well."""
    contained.strict = True
    with pytest.raises(OSError, match="no"), contained.contain("somewhere"):
        fail()


def test_a_fault_is_logged_once_per_cause(
    contained: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same place and type is one line; another type or place is another."""
    for _ in range(3):
        contained.call("somewhere", fail)
    contained.call("somewhere", int, "x")
    contained.call("elsewhere", fail)
    lines = events(capsys)
    assert [(line["place"], line["error_type"]) for line in lines] == [
        ("somewhere", "OSError"),
        ("somewhere", "ValueError"),
        ("elsewhere", "OSError"),
    ]
    assert {line["event"] for line in lines} == {"costlens.fault"}


def test_a_fault_is_told_by_type_and_place_not_by_its_text(
    contained: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """What an error says may be a user's data: it reaches neither the line nor a tap.

    Where it was raised does, innermost first.
    """
    seen: list[object] = []
    taps.append(seen.append)
    contained.call("somewhere", fail, "patient 4711")
    (line,) = events(capsys)
    assert line["error_type"] == "OSError"
    stack = line["stack"]
    assert isinstance(stack, list)
    assert stack[0].startswith("core/test_guard.py:")
    assert stack[0].endswith(" fail")
    assert "4711" not in f"{line} {seen}"
    assert "exception" not in line
    assert len(seen) == 1


def test_causes_that_keep_changing_do_not_flood_the_log(
    contained: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """After 64 causes faults are still counted, but no more lines are written."""
    for index in range(70):
        contained.call(f"place_{index}", fail)
    assert contained.num_total == 70
    assert len(events(capsys)) == 64


def test_a_fault_that_cannot_be_logged_is_contained_as_well(contained: Faults) -> None:
    """An error whose text cannot be made does not get out through the log."""

    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    def speak() -> None:
        raise UnspeakableError

    contained.call("somewhere", speak)
    assert contained.counts["somewhere"] == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_fault_passes(contained: Faults, kind: type[BaseException]) -> None:
    """An interrupt of the user is the user's."""
    with pytest.raises(kind), contained.contain("somewhere"):
        raise kind
    assert contained.counts == {}


def test_call_returns_what_the_function_returns() -> None:
    """Arguments go in, the result comes out."""
    assert Faults().call("somewhere", int, "12", base=3) == 5


def test_counts_of_many_threads_are_exact(contained: Faults) -> None:
    """No fault is lost when threads fail at once."""
    threads = [
        threading.Thread(target=lambda: [contained.call("x", fail) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert contained.counts == {"x": 800}


def test_a_fork_has_another_process_id() -> None:
    """The guard is true here and false in a child."""
    is_ours = pid_guard()
    assert is_ours()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if not is_ours() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_only_a_loader_worker_is_inert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch says who is a worker; without torch, or while it is being imported, nobody is."""
    monkeypatch.delitem(sys.modules, "torch.utils.data", raising=False)
    assert not is_inert_process()
    data = types.ModuleType("torch.utils.data")
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)
    assert not is_inert_process()
    data.get_worker_info = lambda: None  # type: ignore[attr-defined]
    assert not is_inert_process()
    data.get_worker_info = lambda: "worker 3 of 4"  # type: ignore[attr-defined]
    assert is_inert_process()
