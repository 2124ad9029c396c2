"""The profiler that takes the place of ``trainer.profiler`` while a run watches a Trainer.

Lightning brackets all that it does with ``trainer.profiler``; the name of a bracket finds its scope
in a table, and the scope moves the timeline. The user's own profiler goes on working behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from costlens.observe.trainer.given import Profiler, Trainer

__all__ = ["BracketProfiler", "Scope", "ScopeTable", "give_back"]

Scope = AbstractContextManager[Any]
"""A context manager that may be entered again, and inside itself."""

_T = TypeVar("_T")
_OWN = frozenset({"_is_real", "_once", "_scopes", "_usual", "profile", "start", "stop", "wrapped"})
# Lightning's own default; a profiler of the user is anything else.
_PLACEHOLDER = "PassThroughProfiler"


class ScopeTable(dict[str, Scope]):
    """Scopes by bracket name; one that is missing is made once and kept.

    A look-up that hits runs without a line of Python. Names come from the code of Lightning and of
    the user, so their number is bounded.

    Args:
        make: Returns the scope of a name.
    """

    def __init__(self, make: Callable[[str], Scope]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Scope:
        scope = self[name] = self._make(name)
        return scope

    def start(self, name: str) -> None:
        """Enter a scope."""
        self[name].__enter__()

    def stop(self, name: str) -> None:
        """Leave a scope."""
        self[name].__exit__(None, None, None)


class BracketProfiler:
    """Stands before the user's profiler: the same brackets, start and stop move a timeline.

    Everything else (``summary``, ``describe``, ``setup``, attributes, ``isinstance``) reaches the
    profiler behind it. A copy of this object is a copy of that profiler alone.

    Args:
        wrapped: The profiler that was there.
        scopes: Scopes by bracket name.
    """

    __slots__ = tuple(_OWN)

    profile: Callable[[str], Scope]
    start: Callable[[str], None]
    stop: Callable[[str], None]
    wrapped: Profiler

    def __init__(self, wrapped: Profiler, scopes: ScopeTable) -> None:
        self._scopes = scopes
        self._once: Callable[[], None] | None = None
        self.rewrap(wrapped)

    # What Lightning calls are attributes: where no profiler of the user has to hear of it,
    # `profile` is a look-up in a dictionary and nothing else.
    def rewrap(self, wrapped: Profiler) -> None:
        """Stand before another profiler from now on."""
        self.wrapped = wrapped
        self._is_real = type(wrapped).__name__ != _PLACEHOLDER
        if not self._is_real:
            self._usual: Callable[[str], Scope] = self._scopes.__getitem__
        elif _profiles_by_start_and_stop(wrapped):
            self._usual = ScopeTable(self._pair).__getitem__
        else:
            self._usual = self._profile_both
        self.at_next_bracket(self._once)

    def at_next_bracket(self, call: Callable[[], None] | None) -> None:
        """Call ``call`` once, when the next bracket of any kind opens; None calls nothing."""
        self._once = call
        self.profile = self._usual if call is None else self._profile_once
        is_direct = call is None and not self._is_real
        self.start = self._scopes.start if is_direct else self._start
        self.stop = self._stop if self._is_real else self._scopes.stop

    def _start(self, name: str) -> None:
        if self._once is not None:
            self._call_once()
        if self._is_real:
            self.wrapped.start(name)
        self._scopes.start(name)

    def _stop(self, name: str) -> None:
        self._scopes.stop(name)
        if self._is_real:
            self.wrapped.stop(name)

    def _pair(self, name: str) -> Scope:
        return _StartStop(self.wrapped, name, self._scopes[name])

    def _profile_both(self, name: str) -> Scope:
        return _Both(self.wrapped.profile(name), self._scopes[name])

    def _profile_once(self, name: str) -> Scope:
        self._call_once()
        return self.profile(name)

    def _call_once(self) -> None:
        call = self._once
        self.at_next_bracket(None)
        if call is not None:
            call()

    # What Lightning or the user reads, sets or asks of the profiler concerns the one behind.
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever it holds
        return getattr(self.wrapped, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OWN:
            object.__setattr__(self, name, value)
        else:
            setattr(self.wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.wrapped, name)

    def __dir__(self) -> list[str]:
        return dir(self.wrapped)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        seen: type = self.wrapped.__class__
        return seen

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return (give_back, (self.wrapped,))

    # Where the wrapper hangs.

    @classmethod
    def install(cls, trainer: Trainer, scopes: ScopeTable) -> BracketProfiler:
        """Return a wrapper that is ``trainer.profiler`` from now on."""
        profiler = cls(trainer.profiler, scopes)
        trainer.profiler = profiler
        return profiler

    def remove(self, trainer: Trainer) -> None:
        """Put the profiler that was there back, also when another wrapper came in between."""
        if trainer.profiler is self:
            trainer.profiler = self.wrapped
            return
        outer = trainer.profiler
        while type(outer) is BracketProfiler:
            if outer.wrapped is self:
                outer.rewrap(self.wrapped)
                return
            outer = outer.wrapped


def _profiles_by_start_and_stop(profiler: Profiler) -> bool:
    """Return whether a profiler has Lightning's own ``profile``.

    That calls ``start`` and ``stop``; calling them directly costs half of what its generator does.
    """
    definer = next((kind for kind in type(profiler).__mro__ if "profile" in vars(kind)), None)
    return definer is not None and definer.__name__ == "Profiler"


class _StartStop:
    """The user's start and stop around our scope; may be entered again and inside itself."""

    __slots__ = ("_enter", "_exit", "_name", "_wrapped")

    def __init__(self, wrapped: Profiler, name: str, scope: Scope) -> None:
        self._wrapped = wrapped
        self._name = name
        self._enter, self._exit = scope.__enter__, scope.__exit__

    def __enter__(self) -> str:
        try:
            self._wrapped.start(self._name)
        except BaseException:
            # As Lightning's own generator does it: what could not start is stopped as well.
            self._wrapped.stop(self._name)
            raise
        self._enter()
        return self._name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._exit(kind, error, trace)
        self._wrapped.stop(self._name)


class _Both:
    """The user's bracket around ours, for a profiler with a ``profile`` of its own."""

    __slots__ = ("_ours", "_theirs")

    def __init__(self, theirs: Scope, ours: Scope) -> None:
        self._theirs = theirs
        self._ours = ours

    def __enter__(self) -> object:
        entered: object = self._theirs.__enter__()
        self._ours.__enter__()
        return entered

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        self._ours.__exit__(kind, error, trace)
        return self._theirs.__exit__(kind, error, trace)


def give_back(wrapped: _T) -> _T:
    """Return what is given: what a copy of a wrapper is made of."""
    return wrapped
