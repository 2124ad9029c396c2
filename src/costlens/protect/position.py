"""What is common to all that follow a data loader: the events of its iterators, and counting.

``loader_position.py`` chooses who follows which loader. Nothing is patched but methods of the one
loader and of its iterators.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils import data

from costlens.core.overrides import Override
from costlens.protect.walk import LateIterator

__all__ = ["Position", "Report", "State", "may_draw"]

State = dict[str, Any]
"""A position; loads with ``weights_only=True``."""

Report = Callable[[str], None]
"""Takes a sentence on what turned out inexact only when a pass began."""


class Position:
    """Follows one loader by counting; the base of those that know more.

    A *pass* is one iteration over the loader, mostly an epoch. The loader is not kept alive.

    Args:
        loader: Anything that is iterated for batches.
        report: Takes what turns out inexact after :meth:`restore` has returned.
    """

    kind = "count"

    def __init__(self, loader: Any, report: Report) -> None:  # noqa: ANN401 - no base class
        self._loader = _refer(loader)
        self._report = report
        self._overrides: list[Override] = []
        self._on_started: Callable[[], object] | None = None
        self._is_in_pass = False
        self._is_late = False
        self._late: LateIterator | None = None
        self._before_late: Callable[[], object] = lambda: None
        self._current: Callable[[], Any] = lambda: None  # the iterator of the newest pass
        self._num_resumed: int | None = None  # batches given out since, in the pass resumed
        self._restored: State | None = None  # until the pass that it is of begins
        self._is_followed = callable(getattr(loader, "_get_iterator", None))
        self._name = f"loader ({type(loader).__name__})"
        self._num_workers: int = getattr(loader, "num_workers", 0)
        self._batch_size = _batch_size(loader)
        self.num_passes = 0
        if self._is_followed:
            self._overrides.append(Override(loader, "_get_iterator", self._make))
            # Persistent workers: this iterator serves every pass to come.
            if getattr(loader, "_iterator", None) is not None:
                self._adopt(loader._iterator)  # noqa: SLF001 - see the class

    @property
    def is_waiting(self) -> bool:
        """Return whether a restored pass has yet to begin."""
        return self._on_started is not None

    @property
    def is_in_pass(self) -> bool:
        """Return whether a pass is under way: begun, and its end not seen by the loop."""
        return self._is_in_pass

    def state(self, num_ahead: int = 0) -> State:
        """Return the position after the batches used so far; training thread, about 20 µs.

        Args:
            num_ahead: Batches that the loop has fetched and not trained on yet, 0 to 8.
        """
        del num_ahead
        return self._facts()

    def restore(self, state: State, on_started: Callable[[], object]) -> list[str]:
        """Put the loader where it was and return what cannot be exact, a sentence each.

        Args:
            state: From :meth:`state`, in this process or another.
            on_started: Called once, before the first batch of a restored pass is fetched: the
                moment to restore what making its iterator has drawn from. Not called when the
                position is between two passes.
        """
        del on_started
        self._forget(state["num_passes"])
        if state["is_in_pass"] is False:
            return []
        return [f"{self._name}: its place is not known, so the pass begins again"]

    def end_pass(self) -> None:
        """Note that the loop takes no more batches of this pass, though it did not see its end.

        For a framework that counts to the length: the place is then between two passes.
        """
        self.num_passes += self._is_in_pass
        self._is_in_pass = False

    def delay_pass(self, before: Callable[[], object] = lambda: None) -> None:
        """Make the next iterator only when its first batch is asked for.

        For a framework that resumes between two passes, and then makes the iterator earlier than it
        would have: what hooks draw in between comes first again.

        Args:
            before: Called then; makes those of other loaders that come before this one.
        """
        self._is_late, self._before_late = True, before

    def make_late(self) -> None:
        """Make the iterator that was delayed, if there is one."""
        late, self._late = self._late, None
        if late is not None:
            late.make()

    def inexact(self) -> list[str]:
        """Return what a resume from a save made now cannot restore, a sentence each."""
        if self._is_followed and not self.is_in_pass:
            return []
        text = "it has neither indices nor a state of its own, so a resume begins its pass again"
        return [f"{self._name}: {text}; torchdata's StatefulDataLoader has one"]

    def remove(self) -> None:
        """Give the loader and its iterators their own methods back."""
        for override in self._overrides:
            override.remove()
        self._overrides.clear()

    # What subclasses do at the events of the loader.

    def _before(self) -> None:
        """A new iterator is about to be made."""

    def _create(self, loader: Any, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:  # noqa: ANN401
        del loader
        return make()

    def _after(self) -> None:
        """A pass is about to begin."""

    def _before_batch(self) -> None:
        """A batch is about to be fetched."""

    def _on_batch(self) -> None:
        """A batch is about to be given out."""

    # The events.

    def _make(self, make: Any) -> Iterator[Any]:  # noqa: ANN401 - a bound method
        if self._is_late and self._restored is None:
            self._is_late = False
            self._late = LateIterator(lambda: self._make(make), self._before_late)
            return self._late
        self._before()
        iterator = self._create(make.__self__, make)
        self._adopt(iterator)
        self._open(iterator)
        return iterator

    def _adopt(self, iterator: Any) -> None:  # noqa: ANN401 - torch's own
        # Of the iterators of earlier passes only the one that is still alive matters.
        del self._overrides[1:]
        for name, around in (("_next_data", self._next_data), ("_reset", self._reset)):
            if hasattr(type(iterator), name):
                self._overrides.append(Override(iterator, name, around))

    def _reset(self, reset: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        self._before()
        reset(*args, **kwargs)
        self._open(reset.__self__)

    def _open(self, iterator: Any) -> None:  # noqa: ANN401 - torch's own
        if self._num_resumed == 1 and self._is_in_pass:
            text = "the pass that was resumed was left after one batch"
            self._report(f"{self._name}: {text}; resume just before the loop, and look at no batch")
        self._num_resumed = None
        self._is_in_pass = True
        self._current = weakref.ref(iterator)
        self._after()

    def _next_data(self, take: Any) -> Any:  # noqa: ANN401 - a batch
        if self._current() is not take.__self__:
            return take()  # of a pass that a newer one, or a restore, has replaced
        self._before_batch()
        on_started, self._on_started = self._on_started, None
        if on_started is not None:
            self._num_resumed = 0
            on_started()
        try:
            batch = take()
        except StopIteration:
            self.end_pass()
            raise
        if self._num_resumed is not None:
            self._num_resumed += 1
        self._on_batch()
        return batch

    def _forget(self, num_passes: int) -> None:
        """Forget the pass under way; whoever still iterates it is not followed."""
        self.num_passes = num_passes
        self._is_in_pass = False
        self._on_started = self._restored = self._num_resumed = None
        self._current = lambda: None

    # What every position says of its loader.

    def _facts(self) -> State:
        return {
            "kind": self.kind,
            "num_passes": self.num_passes,
            "is_in_pass": self.is_in_pass if self._is_followed else None,
            "num_workers": self._num_workers,
            "batch_size": self._batch_size,
            "world_size": _world_size(),
        }

    def _compare(self, state: State) -> list[str]:
        here, name = self._facts(), self._name
        inexact = []
        if state["num_workers"] != here["num_workers"] and state["is_in_pass"]:
            inexact.append(
                f"{name}: {state['num_workers']} workers at the save and {here['num_workers']} now,"
                " so random draws inside them differ"
            )
        for what, text in (("batch_size", "batch size"), ("world_size", "world size")):
            if state[what] != here[what]:
                inexact.append(
                    f"{name}: {text} {state[what]} at the save and {here[what]} now, so batches"
                    " hold other samples"
                )
        return inexact

    def _name_draws(self) -> list[str]:
        loader = self._loader()
        if not self._num_workers or loader is None or not may_draw(loader):
            return []
        if not self.is_in_pass and not getattr(loader, "persistent_workers", False):
            return []  # the workers of the next pass begin with seeds from the process's stream
        text = "random draws inside its workers, if the data set makes any, do not go on"
        return [f"{self._name}: {text} where they were"]


def may_draw(loader: Any) -> bool:  # noqa: ANN401 - a DataLoader
    """Return whether making a batch may draw random numbers, as augmentation does.

    False only for data sets known to hand out what they hold.
    """
    if getattr(loader, "collate_fn", None) not in (data.default_collate, data.default_convert):
        return True
    datasets = [loader.dataset]
    while datasets:
        dataset = datasets.pop()
        if isinstance(dataset, data.Subset):
            datasets.append(dataset.dataset)
        elif isinstance(dataset, data.ConcatDataset):
            datasets.extend(dataset.datasets)
        elif type(dataset) not in {data.TensorDataset, list, tuple, range}:
            return True
    return False


def _refer(loader: Any) -> Callable[[], Any]:  # noqa: ANN401 - no base class
    try:
        return weakref.ref(loader)  # a loader stops its workers when its last reference goes
    except TypeError:
        return lambda: loader


def _batch_size(loader: object) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if type(size) is int else None


def _world_size() -> int:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())
