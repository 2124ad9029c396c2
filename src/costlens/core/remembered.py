"""A property that is worked out once; as ``functools.cached_property``, without its lock.

Before Python 3.12 that lock takes longer than most of what evidence works out. Where two threads
ask at once, both work it out, to the same end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["remembered"]

if TYPE_CHECKING:
    from functools import cached_property as remembered
else:

    class remembered:  # noqa: N801 - it is written as a decorator
        """Works a property out at the first access, and keeps it in the object's own dictionary.

        Args:
            work_out: The method.
        """

        def __init__(self, work_out: Callable[[Any], Any]) -> None:
            self._work_out = work_out
            self._name = work_out.__name__
            self.__doc__ = work_out.__doc__

        def __get__(self, instance: Any, owner: object = None) -> Any:  # noqa: ANN401 - any property
            """Return the property; of the class, this."""
            if instance is None:
                return self
            value = instance.__dict__[self._name] = self._work_out(instance)
            return value
