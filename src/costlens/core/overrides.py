"""One method of one object of the user, watched: the class and every other object stay untouched.

For what has no hooks of its own: a gradient scaler's ``step`` and a data loader's iterators.
Several may stand on one method; each takes the one before it for the plain method.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

__all__ = ["Override"]


class Override:
    """Stands in for a bound method in its owner's ``__dict__``.

    It refers to its owner weakly: data loader iterators stop their workers when the last reference
    goes. Copies and pickles of the owner get the plain method.

    Args:
        owner: The object whose method is watched.
        name: The method, defined by the owner's class.
        around: Called instead with the plain method bound to its owner, then the arguments.
    """

    def __init__(self, owner: Any, name: str, around: Callable[..., Any]) -> None:  # noqa: ANN401
        self._owner: weakref.ref[Any] = weakref.ref(owner)
        self._name = name
        self._around = around
        self.is_removed = False
        # Another tool may have replaced the method on this object before us.
        self.previous: Callable[..., Any] | None = vars(owner).get(name)
        vars(owner)[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passes anything on
        """Return what the plain method returns."""
        if self.is_removed:  # somebody kept it, or replaced it since
            return self._plain()(*args, **kwargs)
        return self._around(self._plain(), *args, **kwargs)

    @property
    def __self__(self) -> object:
        """Return the owner, as a bound method does, or None when it is gone."""
        return self._owner()

    def _plain(self) -> Callable[..., Any]:
        if self.previous is not None:
            return self.previous
        owner = self._owner()
        return MethodType(getattr(type(owner), self._name), owner)

    def remove(self) -> None:
        """Give the owner its own method back; what somebody else put over it stays.

        Another of ours that was put over this one gives back, later, what lies below both.
        """
        self.is_removed = True
        owner = self._owner()
        if owner is None or vars(owner).get(self._name) is not self:
            return
        previous = self.previous
        while isinstance(previous, Override) and previous.is_removed:
            previous = previous.previous
        if previous is None:
            del vars(owner)[self._name]
        else:
            vars(owner)[self._name] = previous

    def __deepcopy__(self, memo: dict[int, Any]) -> object:
        plain = self._plain()
        if isinstance(plain, MethodType):
            return MethodType(plain.__func__, copy.deepcopy(plain.__self__, memo))
        return copy.deepcopy(plain, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.previous is not None:
            return (_itself, (self.previous,))
        # The copy has no state yet when this runs for it, so it answers with its class's method.
        return (getattr, (self._owner(), self._name))


def _itself(plain: Callable[..., Any]) -> Callable[..., Any]:
    return plain
