"""Names from outside become parts of paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from costlens.storage.names import new_run_id, safe_name
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store

HOSTILE = [
    "",
    ".",
    "..",
    "../../x",
    "..\\..\\x",
    "/etc/passwd",
    "C:\\runs",
    "\\\\server\\share",
    "a\0b",
    ".costlens",
    "-rf",
    "a/b",
    "a b",
    "con",
    "NUL.txt",
    "com1.",
    "latest",
    "x" * 5000,
    "x" * 4999 + "y",
    "\ud800",
    "s3://bucket/x",
    "~",
    "*?[x]",
    "a\nb",
    "％2e％2e／x",
]
ANY_TEXT = st.text(st.characters(codec=None), max_size=300)


@pytest.mark.parametrize("name", ["gpt-small", "run_1.2", "Groesse", "42", "x" * 120])
def test_a_harmless_name_stays_as_it_is(name: str) -> None:
    """ASCII letters and digits, dots, underscores and dashes need no change."""
    assert safe_name(name) == name


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("scheme", ["local", "memory"])
def test_no_name_leaves_the_root(tmp_path: Path, name: str, scheme: str) -> None:
    """C153: a hostile run id writes inside the root only, locally and remotely."""
    root = tmp_path / "root"
    url = str(root) if scheme == "local" else f"memory://{tmp_path}/root"
    store = Store(url)

    RunFolder(store, name).write_record(1, 0, b"{}")

    [key] = store.list()
    folder, record = key.split("/")
    assert record == "record-1-0.json"
    assert folder not in {".", ".."}
    assert [path for path in tmp_path.rglob("*") if path != root and root not in path.parents] == []
    if scheme == "memory":
        assert Store(f"memory://{tmp_path}").list() == [f"root/{key}"]


@pytest.mark.parametrize(
    ("name", "beginning"), [("é", "e-"), ("größe", "gro-e-"), ("実験1", "1-"), ("हिन्दी", "run-")]
)
def test_other_scripts_become_ascii(name: str, beginning: str) -> None:
    """Ranks under different locales find one folder, and a file system in ASCII takes it."""
    assert re.fullmatch(f"{beginning}[0-9a-f]{{8}}", safe_name(name))


def test_hostile_names_do_not_become_one() -> None:
    """C153: each of the hostile names gets a place of its own."""
    assert len({safe_name(name) for name in HOSTILE}) == len(HOSTILE)


@given(ANY_TEXT)
@example("COM1")
@example("a" * 119 + "é")
def test_a_safe_name_is_one_harmless_part(text: str) -> None:
    """Whatever the text, the result is a visible, portable, bounded part of a path."""
    name = safe_name(text)
    assert 1 <= len(name) <= 120
    assert name.isascii()
    assert not re.search(r'[\x00-\x20\\/:*?"<>|@%#&~\x7f]', name)
    assert not name.startswith((".", "-"))
    assert not name.endswith(".")
    assert name.split(".")[0].upper() not in {"CON", "PRN", "AUX", "NUL", "COM1", "LPT1"}
    assert name != "latest"


@given(ANY_TEXT)
def test_making_a_name_safe_twice_changes_nothing(text: str) -> None:
    """An id read back from a folder finds that folder again."""
    assert safe_name(safe_name(text)) == safe_name(text)


@given(st.lists(ANY_TEXT, min_size=2, max_size=2, unique=True))
@example(["a/b", "a\\b"])
@example(["e\u0301", "é"])
def test_two_changed_names_stay_two(texts: list[str]) -> None:
    """Two texts share a safe name only where one of them already is that safe name."""
    first, second = map(safe_name, texts)
    assert first != second or first in texts


def test_a_new_run_id_says_name_and_time() -> None:
    """The id holds the name, the UTC second and eight hex digits; other entropy, another id."""
    at_ns = 1_700_000_000_999_999_999  # 2023-11-14 22:13:20 UTC
    first = new_run_id("gpt-small", at_ns, "host-1")
    assert re.fullmatch(r"gpt-small-20231114-221320-[0-9a-f]{8}", first)
    assert new_run_id("gpt-small", at_ns, "host-1") == first
    assert new_run_id("gpt-small", at_ns, "host-2") != first


@given(ANY_TEXT)
@example("x" * 120)
def test_a_new_run_id_is_safe(name: str) -> None:
    """A run id made from any name is a safe name already."""
    run_id = new_run_id(name, 1_700_000_000_000_000_000, "e")
    assert safe_name(run_id) == run_id
    assert re.search(r"-20231114-221320-[0-9a-f]{8}$", run_id)
