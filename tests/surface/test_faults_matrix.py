"""The fault matrix of docs/faults.md: behind each cell stands a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
# Cases of real jobs that the matrix has to answer.
CASES = (
    *("C025", "C026", "C063", "C064", "C065", "C066", "C067", "C088", "C091", "C092", "C096"),
    *("C101", "C102", "C103", "C112", "C122", "C132"),
)
TEXT = PAGE.read_text(encoding="utf-8")
TESTS = {
    label: (PAGE.parent / path, name)
    for label, path, name in re.findall(r'^\[([\w-]+)\]: (\S+) "(\w+)"$', TEXT, re.MULTILINE)
}
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| fault |"))
]


def links(text: str) -> list[str]:
    """Return the labels that a text refers to."""
    return re.findall(r"\[[^\]]+\]\[([\w-]+)\]", text)


@cache
def docstrings(path: Path) -> dict[str, str]:
    """Return the docstring of each test in a file."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].replace(" ", "-"))
def test_every_cell_has_a_test_behind_it(row: list[str]) -> None:
    """A row has six cells; what must hold names its test, and a case is named by one of them."""
    fault, *cells = row
    assert len(cells) == 5
    for cell in cells:
        assert cell == "–" or links(cell), f"{fault}: {cell!r} has no test"
    found = [TESTS[label] for cell in cells for label in links(cell)]
    assert found
    told = " ".join(docstrings(path)[name] for path, name in found)
    for case in re.findall(r"C\d{3}", fault):
        assert case in told, f"no test of {fault!r} names {case}"


@pytest.mark.parametrize("label", TESTS)
def test_every_test_of_the_matrix_exists_and_is_used(label: str) -> None:
    """A test that is renamed or removed takes its cells with it."""
    path, name = TESTS[label]
    assert name in docstrings(path), f"{path.name} has no {name}"
    assert label in links(TEXT)


def test_every_reference_is_defined_once() -> None:
    """A link that leads nowhere looks like any other in the text."""
    assert {*links(TEXT)} == TESTS.keys()
    assert len(TESTS) == len(re.findall(r"^\[[\w-]+\]:", TEXT, re.MULTILINE))


def test_every_case_is_in_the_matrix() -> None:
    """Cases that real jobs met are not forgotten."""
    named = {case for row in ROWS for case in re.findall(r"C\d{3}", row[0])}
    assert named == {*CASES}
