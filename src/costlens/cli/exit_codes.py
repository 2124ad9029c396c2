"""What the exit codes of the commands mean; 0 is done."""

from __future__ import annotations

__all__ = ["EXIT_FAILED", "EXIT_USAGE", "EXIT_WORSE"]

EXIT_FAILED = 1
"""It failed, or found what has to be mended."""

EXIT_USAGE = 2
"""It was asked for something that does not exist, or a setting is not usable."""

EXIT_WORSE = 3
"""``costlens compare --fail-above``: a figure is worse than was allowed."""
