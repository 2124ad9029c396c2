"""A method of one object, bracketed by a scope: for what Lightning itself does not bracket.

``watch.py`` puts these on loops and on the strategy in ``setup`` and takes them off at the end. The
classes of Lightning are never touched.
"""

from __future__ import annotations

from typing import Any

from costlens.observe.trainer.brackets import Scope, give_back

__all__ = ["ScopedMethod"]


class ScopedMethod:
    """Replaces ``owner.name`` on that one object and runs it inside a scope.

    A copy of the owner gets the owner's own method: the watching does not come along.

    Args:
        owner: The object.
        name: Name of the method.
        scope: Entered around every call.
    """

    __slots__ = ("_name", "_owner", "_scope", "inner", "was_on_object")

    def __init__(self, owner: object, name: str, scope: Scope) -> None:
        self._owner = owner
        self._name = name
        self._scope = scope
        self.was_on_object = name in vars(owner)
        self.inner = getattr(owner, name)
        setattr(owner, name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passes anything on
        """Return what the method returns."""
        with self._scope:
            return self.inner(*args, **kwargs)

    def remove(self) -> None:
        """Put back what was there, also when another wrapper came in between."""
        outer = vars(self._owner).get(self._name)
        if outer is self:
            if self.was_on_object:
                setattr(self._owner, self._name, self.inner)
            else:
                delattr(self._owner, self._name)
            return
        while isinstance(outer, ScopedMethod):
            if outer.inner is self:
                outer.inner = self.inner
                outer.was_on_object = self.was_on_object
                return
            outer = outer.inner

    # While a copy is made, the new owner has no attributes yet: the name finds its class's method.
    def __reduce__(self) -> tuple[Any, ...]:
        if self.was_on_object:
            return (give_back, (self.inner,))
        return (getattr, (self._owner, self._name))
