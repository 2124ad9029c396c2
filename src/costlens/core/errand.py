"""An errand: one blocking call on a thread of its own, whose result the pipeline picks up later.

For what may take long and must hold nothing up: a price book on the network, the hash of a data
set. What costlens raises on purpose is kept as the result's reason; anything else is a fault.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from costlens.core.guard import faults
from costlens.errors import CostlensError

__all__ = ["Errand"]

T = TypeVar("T")


class Errand(Generic[T]):
    """Runs a function once on a daemon thread; a fork does not take it along.

    Args:
        name: A short constant name of what is done; it names thread and faults.
        function: Blocks as it likes; must import nothing that is not loaded.

    Attributes:
        result: What the function returned, once it has.
        error: What costlens raised instead.
    """

    def __init__(self, name: str, function: Callable[[], T]) -> None:
        self._name = name
        self._function = function
        self._done = threading.Event()
        self.result: T | None = None
        self.error: CostlensError | None = None
        self.thread = threading.Thread(target=self._main, name=f"costlens-{name}", daemon=True)

    @property
    def is_done(self) -> bool:
        """Return whether there is a result, or none to come."""
        return self._done.is_set()

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Return whether it is done, after waiting for at most so many seconds."""
        return self._done.wait(timeout_s)

    def _main(self) -> None:
        faults.call(f"observe.{self._name}", self._run)
        self._done.set()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except CostlensError as error:
            self.error = error
