"""The README's measured blocks are there, filled, and replaced without touching the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.readme import README, replace_block

BLOCKS = ("demo", "planted", "overhead", "interval", "checkpoint", "diagnosis")


@pytest.mark.parametrize("name", BLOCKS)
def test_the_readme_shows_what_was_measured(name: str) -> None:
    """Each block has one pair of markers with something between them."""
    text = README.read_text(encoding="utf-8")
    found = re.findall(f"<!-- {name}:begin -->\n(.*?)<!-- {name}:end -->", text, flags=re.DOTALL)
    assert len(found) == 1
    assert found[0].strip(), f"the block {name!r} is empty: see benchmarks/ for what fills it"


def test_a_block_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    """New lines take the place of the old ones, as often as one likes, whatever they contain."""
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- demo:begin -->\nold\n<!-- demo:end -->\nb\n")
    for lines in (["x", r"\1 \g<0>"], ["y"]):
        replace_block("demo", lines, page)
        text = "\n".join(lines)
        assert page.read_text() == f"a\n<!-- demo:begin -->\n{text}\n<!-- demo:end -->\nb\n"


def test_a_missing_block_is_loud(tmp_path: Path) -> None:
    """Without its markers nothing is written and the error names the block."""
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(ValueError, match="planted"):
        replace_block("planted", ["x"], page)
    assert page.read_text() == "nothing here\n"
