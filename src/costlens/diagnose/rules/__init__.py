"""The rules about one rank, in one table; a new rule is one file here and one line in it."""

from __future__ import annotations

from costlens.diagnose.finding import Rule

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = ()
