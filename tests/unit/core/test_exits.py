"""`sys.exit` is listened to, and otherwise what it was."""

from __future__ import annotations

import contextlib
import sys
import threading

import pytest

from costlens.core import exits
from costlens.core.exits import exit_code_of


@pytest.fixture
def heard():
    """Return what is heard while a test listens."""
    seen: list[object] = []
    before = sys.exit
    exits.listen(seen.append)
    yield seen
    exits.hush(seen.append)
    assert sys.exit is before


def test_the_status_is_heard_and_the_exit_happens(heard) -> None:
    """As it was given, before the exception is raised."""
    for status in (3, "text", None):
        with pytest.raises(SystemExit) as ended:
            sys.exit(status)
        assert ended.value.code == status
    with pytest.raises(SystemExit) as ended:
        sys.exit()
    assert ended.value.code is None
    assert heard == [3, "text", None, None]
    assert sys.exit.__name__ == "exit"


def test_a_thread_that_exits_ends_no_process(heard) -> None:
    """`sys.exit` off the main thread ends that thread only."""

    def leave() -> None:
        with contextlib.suppress(SystemExit):
            sys.exit(3)

    thread = threading.Thread(target=leave)
    thread.start()
    thread.join()
    assert heard == []


def test_several_listeners_and_a_replacement(heard) -> None:
    """Each hears once; who has replaced `sys.exit` meanwhile keeps it."""
    others: list[object] = []
    exits.listen(others.append)
    exits.listen(others.append)
    ours = sys.exit

    def theirs(status: object = None) -> None:
        ours(status)  # type: ignore[arg-type]

    sys.exit = theirs  # type: ignore[assignment]
    with pytest.raises(SystemExit):
        sys.exit(4)
    exits.hush(others.append)
    assert (heard, others) == ([4], [4])
    assert sys.exit is theirs
    sys.exit = ours


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SystemExit(), 0),
        (SystemExit(0), 0),
        (SystemExit(3), 3),
        (SystemExit(-1), 255),
        (SystemExit(256), 0),
        (SystemExit("text"), 1),
        (SystemExit(True), 1),
        (ValueError(), 1),
        (KeyboardInterrupt(), None),
    ],
)
def test_the_exit_code_of_what_ends_the_interpreter(error, code) -> None:
    """As the shell sees it; an interrupt that nobody handles is a signal, not a code."""
    assert exit_code_of(error) == code
