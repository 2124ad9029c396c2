"""The exceptions a user of costlens can meet.

::

    CostlensError
    ├── ConfigError       (ValueError)   a setting or an argument is not usable
    ├── RunStateError     (RuntimeError) a call does not fit the state of the run
    ├── StorageError      (OSError)      the run folder or a store refused an operation
    ├── RunNotFoundError  (LookupError)  no run matches what was asked for
    ├── RecordError       (ValueError)   a record on disk cannot be read as one
    ├── CheckpointError   (ValueError)   a state cannot be saved, or a checkpoint cannot be used
    └── MissingExtraError (ImportError)  an optional package is needed for this call

Watching never raises on the training thread (``core/guard.py``); these come from calls the user
made.
"""

from __future__ import annotations

__all__ = [
    "CheckpointError",
    "ConfigError",
    "CostlensError",
    "MissingExtraError",
    "RecordError",
    "RunNotFoundError",
    "RunStateError",
    "StorageError",
]


class CostlensError(Exception):
    """Base of every exception that costlens raises on purpose."""


class ConfigError(CostlensError, ValueError):
    """A setting or an argument has a value that is not allowed."""


class RunStateError(CostlensError, RuntimeError):
    """A call does not fit the state of the run, such as an iteration after ``finish``."""


class StorageError(CostlensError, OSError):
    """The run folder, or a store, refused an operation."""


class RunNotFoundError(CostlensError, LookupError):
    """No run matches the name or id that was asked for."""


class RecordError(CostlensError, ValueError):
    """A file in a run folder is not a readable record."""


class CheckpointError(CostlensError, ValueError):
    """A state cannot be saved as it is, or a checkpoint is not whole and cannot be used."""


class MissingExtraError(CostlensError, ImportError):
    """A package that this call needs is missing; the message says how to install it."""
