"""Puts what a benchmark prints between two markers of the README."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def replace_block(name: str, lines: Sequence[str], path: Path = README) -> None:
    """Replace the lines between ``<!-- name:begin -->`` and ``<!-- name:end -->``.

    Args:
        name: Of the markers.
        lines: What stands between them from now on.
        path: The file.

    Raises:
        ValueError: If the file has not exactly one such pair.
    """
    begin, end = f"<!-- {name}:begin -->\n", f"<!-- {name}:end -->"
    text = path.read_text(encoding="utf-8")
    block = "".join(f"{line}\n" for line in lines)
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    replaced, num = re.subn(pattern, lambda _: begin + block + end, text, flags=re.DOTALL)
    if num != 1:
        raise ValueError(f"{path.name} has {num} blocks named {name!r}; exactly one is needed")
    path.write_text(replaced, encoding="utf-8")
