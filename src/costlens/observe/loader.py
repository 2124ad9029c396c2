"""Watched loaders: the time the training waits for its next batch, and where an iteration begins.

``Run.batches`` wraps any iterable; ``Run.watch(loader=)`` watches the iterators that one DataLoader
makes, so that the user's loop stays as it is. Both report to ``PlainLoop``; used together, the
outer one is counted.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from costlens.core.guard import faults
from costlens.core.overrides import Override
from costlens.errors import ConfigError
from costlens.observe.plain_loop import PlainLoop

__all__ = [
    "LoaderWatch",
    "SizedWatchedLoader",
    "WatchedLoader",
    "is_data_loader",
    "unwatch",
    "watch_batches",
    "watch_loader",
]

T = TypeVar("T")

_PLACE = "plain.loop"

LoopSource = Callable[[], "PlainLoop | None"]
"""Returns the loop of the run at the moment, or None while the run is off."""


class WatchedIterator(Generic[T]):
    """One pass over a watched loader.

    Args:
        loop: Takes the reports; None passes batches through unwatched.
        iterator: The loader's own iterator.
        transfer: Moves a batch to a device, or None.
    """

    __slots__ = ("_iterator", "_loop", "_next", "_transfer")

    def __init__(
        self,
        loop: PlainLoop | None,
        iterator: Iterator[T],
        transfer: Callable[[T], T] | None = None,
    ) -> None:
        self._loop = loop
        self._iterator = iterator
        self._next = iterator.__next__
        self._transfer = transfer

    def __iter__(self) -> WatchedIterator[T]:
        return self

    def __next__(self) -> T:
        loop = self._loop
        if loop is not None and loop.must_stop():
            raise StopIteration
        # What `fetch` does, without a call of it, and as few as can be: between two fetches the
        # training empties the caches, and every function that runs has to come from memory.
        is_watched = False
        if loop is not None:
            try:
                is_watched = loop.begin_fetch(self._iterator)
            except Exception as error:  # noqa: BLE001 - what `faults.call` does
                faults.absorb(_PLACE, error)
        if not is_watched or loop is None:
            batch = self._next()
        else:
            has_batch = False
            try:
                batch = self._next()
                has_batch = True
            finally:
                try:
                    loop.end_fetch(has_batch)
                except Exception as error:  # noqa: BLE001 - what `faults.call` does
                    faults.absorb(_PLACE, error)
        transfer = self._transfer
        if transfer is None:
            return batch
        if loop is None or not loop.begin_transfer():
            return transfer(batch)
        try:
            return transfer(batch)
        finally:
            loop.end_transfer()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the iterator has
        return getattr(self._iterator, name)


def fetch(loop: PlainLoop, take: Callable[[], T], taker: object, *, is_batch: bool = True) -> T:
    """Return what ``take`` returns, its time booked as a wait for data; training thread, 2 µs.

    Args:
        loop: Takes the report.
        take: Asks the iterator.
        taker: The iterator.
        is_batch: Whether a batch comes of it, rather than an iterator and its workers.
    """
    if not faults.call(_PLACE, loop.begin_fetch, taker):
        return take()
    has_batch = False
    try:
        taken = take()
        has_batch = is_batch
        return taken
    finally:
        faults.call(_PLACE, loop.end_fetch, has_batch)


class WatchedLoader(Generic[T]):
    """A loader, watched: every pass over it books its waits; everything else is the loader's own.

    Attributes (``dataset``, ``sampler``, ``batch_sampler``, ``set_epoch``, …) are read from and
    written to the loader. Copies and pickles are copies of the loader.

    Args:
        source: Returns the loop to report to.
        loader: Any iterable of batches.
        transfer: Moves a batch to a device, or None.
    """

    __slots__ = ("_loader", "_source", "_transfer")

    def __init__(
        self,
        source: LoopSource,
        loader: Iterable[T],
        transfer: Callable[[T], T] | None = None,
    ) -> None:
        object.__setattr__(self, "_source", source)
        object.__setattr__(self, "_loader", loader)
        object.__setattr__(self, "_transfer", transfer)

    def __iter__(self) -> WatchedIterator[T]:
        loader, loop = self._loader, self._source()
        if loop is None:
            return WatchedIterator(None, iter(loader), self._transfer)
        # Starting the workers is a wait for data, too.
        with loop.around_iterator(loader):
            iterator = fetch(loop, lambda: iter(loader), loader, is_batch=False)
        with loop.contained:
            loop.on_iterator(iterator)
        return WatchedIterator(loop, iterator, self._transfer)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the loader has
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._loader, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._loader!r})"

    def __copy__(self) -> Iterable[T]:
        return copy.copy(self._loader)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_itself, (self._loader,))


class SizedWatchedLoader(WatchedLoader[T]):
    """A watched loader of a kind that may know its length."""

    __slots__ = ()

    def __len__(self) -> int:
        """Return the loader's length.

        Raises:
            TypeError: If this loader does not know it, as the loader itself would.
        """
        return len(self._loader)


def _itself(loader: T) -> T:
    return loader


def unwatch(loader: Any) -> Any:  # noqa: ANN401 - no base class
    """Return the loader inside a watched one, or the loader itself."""
    return loader._loader if isinstance(loader, WatchedLoader) else loader  # noqa: SLF001 - ours


def watch_batches(
    source: LoopSource, loader: Iterable[T], device: object = None
) -> WatchedLoader[T]:
    """Return the loader, watched, with a length where its kind has one.

    Args:
        source: Returns the loop to report to.
        loader: Any iterable of batches; a watched one is watched anew, not twice.
        device: Where batches are moved to (anything that ``torch.device`` takes), or None.

    Raises:
        ConfigError: If the loader cannot be iterated.
    """
    loader = unwatch(loader)
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise ConfigError(f"batches() takes an iterable of batches, not {type(loader).__name__}")
    transfer: Callable[[T], T] | None = None
    if device is not None:
        import torch

        from costlens.observe.transfer import move

        target = torch.device(device)  # type: ignore[call-overload]

        def transfer(batch: T) -> T:
            moved: T = move(batch, target)
            return moved

    kind = SizedWatchedLoader if hasattr(loader, "__len__") else WatchedLoader
    return kind(source, loader, transfer)


class LoaderWatch:
    """Watches the iterators that a DataLoader makes; its class and the user's loop stay untouched.

    Args:
        loop: Takes the reports.
        loader: Makes its iterators in ``_get_iterator``, as torch's DataLoader and its kin do.
    """

    def __init__(self, loop: PlainLoop, loader: Any) -> None:  # noqa: ANN401 - no base class
        self._loop = loop
        self._loader: weakref.ref[Any] = weakref.ref(loader)
        self._overrides = [Override(loader, "_get_iterator", self._get_iterator)]
        # Persistent workers: this iterator serves every epoch to come.
        if getattr(loader, "_iterator", None) is not None:
            self._watch_iterator(loader._iterator)  # noqa: SLF001 - see the class

    def target(self) -> object:
        """Return the loader, or None when it is gone."""
        return self._loader()

    def remove(self) -> None:
        """Give the loader and its iterators their own methods back."""
        for override in self._overrides:
            override.remove()

    def _get_iterator(self, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        with self._loop.around_iterator(self._loader()):
            iterator = fetch(self._loop, make, self, is_batch=False)
        with self._loop.contained:
            self._watch_iterator(iterator)
        return iterator

    def _watch_iterator(self, iterator: Iterator[Any]) -> None:
        self._loop.on_iterator(iterator)
        # Of the iterators of earlier epochs only the one that is still alive matters.
        del self._overrides[1:]
        for name, around in (("_next_data", self._next_data), ("_reset", self._reset)):
            if hasattr(type(iterator), name):
                self._overrides.append(Override(iterator, name, around))

    def _next_data(self, take: Callable[[], Any]) -> Any:  # noqa: ANN401 - a batch
        return fetch(self._loop, take, take.__self__)  # type: ignore[attr-defined]

    def _reset(self, reset: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        fetch(self._loop, lambda: reset(*args, **kwargs), self, is_batch=False)
        with self._loop.contained:
            self._loop.on_iterator(reset.__self__)  # type: ignore[attr-defined]


def is_data_loader(candidate: object) -> bool:
    """Return whether an object makes its iterators as torch's DataLoader does, or is watched."""
    return isinstance(candidate, WatchedLoader) or callable(
        getattr(candidate, "_get_iterator", None)
    )


def watch_loader(loop: PlainLoop, loader: object) -> None:
    """Watch the iterators of a DataLoader, once however often this is called.

    Raises:
        ConfigError: If the loader is not of that kind.
    """
    if isinstance(loader, WatchedLoader) or loop.find(loader) is not None:
        return
    if not is_data_loader(loader):
        raise ConfigError(
            f"watch(loader=) takes a torch DataLoader, not {type(loader).__name__}; for any other "
            "iterable write `for batch in run.batches(loader)`"
        )
    loop.watches.append(LoaderWatch(loop, loader))
