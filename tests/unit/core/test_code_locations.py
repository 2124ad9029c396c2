"""Where code stands, and nothing of what it holds."""

from __future__ import annotations

import threading

import pytest

from costlens.core.code_locations import _shorten, locate_error, locate_thread


def _deep(levels: int, inside) -> None:
    secret = "hunter2"  # noqa: F841 - must not be seen
    if levels:
        _deep(levels - 1, inside)
    else:
        inside()


def test_a_thread_is_located_from_another_innermost_first() -> None:
    """File, line and function of what it executes; no value of a variable."""
    reached, leave = threading.Event(), threading.Event()

    def wait_here() -> None:
        reached.set()
        leave.wait(20)

    thread = threading.Thread(target=_deep, args=(3, wait_here))
    thread.start()
    assert reached.wait(20)
    assert thread.ident is not None
    places = locate_thread(thread.ident)
    leave.set()
    thread.join()
    own = [place for place in places if "core/test_code_locations.py:" in place]
    assert len(own) == 5
    assert own[0].endswith("wait_here")
    assert own[1].split()[-1] == "_deep"
    assert "hunter2" not in "".join(places)
    assert places[0].startswith("threading.py:"), "the standard library without its path"


def test_a_thread_that_is_gone_is_nowhere() -> None:
    """It may end between the question and the look."""
    assert locate_thread(-1) == []


def test_an_error_is_located_where_it_was_raised() -> None:
    """Innermost first; its message stays where it is."""

    def fail() -> None:
        raise ValueError("hunter2")

    with pytest.raises(ValueError, match="hunter2") as caught:
        _deep(2, fail)
    places = locate_error(caught.value)
    assert places[0].split()[-1].endswith("fail")
    assert [place.split()[-1] for place in places[1:4]] == ["_deep"] * 3
    assert "hunter2" not in "".join(places)
    assert locate_error(ValueError()) == []


def test_deep_stacks_keep_their_innermost_part_within_bounds() -> None:
    """Forty frames and 8 KiB, whatever recursion has done."""

    def fail() -> None:
        raise LookupError

    with pytest.raises(LookupError) as caught:
        _deep(300, fail)
    places = locate_error(caught.value)
    assert 0 < len(places) <= 40
    assert sum(map(len, places)) <= 8192
    assert places[0].split()[-1].endswith("fail")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/home/user/env/lib/python3.11/site-packages/torch/nn/linear.py", "torch/nn/linear.py"),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", "yaml/reader.py"),
        ("/usr/lib/python3.11/threading.py", "threading.py"),
        ("/home/user/work/model/train.py", "model/train.py"),
        ("train.py", "train.py"),
        ("<string>", "<string>"),
    ],
)
def test_a_path_is_cut_down_to_what_names_the_module(path: str, shown: str) -> None:
    """Where packages are installed and whose home it is stays with the machine."""
    assert _shorten(path) == shown
