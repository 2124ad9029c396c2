"""The command line, a door: one file a command, put together in ``app.py``."""

from costlens.cli.app import main

__all__ = ["main"]
