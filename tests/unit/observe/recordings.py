"""Reads what was recorded from real schedulers; each file says from which, and by what command."""

from __future__ import annotations

from pathlib import Path

__all__ = ["read_environment", "read_recorded"]

_FOLDER = Path(__file__).parent / "recorded"


def read_recorded(name: str) -> str:
    """Return a recorded text without the lines that say where it comes from."""
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def read_environment(name: str) -> dict[str, str]:
    """Return recorded variables by name."""
    pairs = (line.partition("=") for line in read_recorded(name).splitlines())
    return {key: value for key, _, value in pairs}
