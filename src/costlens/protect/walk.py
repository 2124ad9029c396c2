"""One pass over a sampler, so that its place can be told, and found again in another process.

A data loader asks its sampler for indices ahead of the batches that it gives out. A :class:`Walk`
stands between the two: it remembers, for each batch asked for, how far the pass will be once that
batch has been used, and can skip to such a place without loading a sample.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

__all__ = ["MAX_AHEAD", "LateIterator", "Mark", "SamplerTap", "Walk"]

MAX_AHEAD = 8
"""Most batches that a framework may fetch before it trains on them."""

# Enough to tell one permutation from another, whatever the size of a batch.
_NUM_DIGESTED = 16


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a pass.

    Args:
        num_batches: Batches before it.
        num_samples: Samples before it.
        digest: CRC-32 over the first indices of each batch before it; None if they are no numbers.
    """

    num_batches: int = 0
    num_samples: int = 0
    digest: int | None = 0

    def after(self, batch: Any) -> Mark:  # noqa: ANN401 - an index or a list of them
        """Return the place after a batch of indices; about 3 µs."""
        indices = batch if isinstance(batch, (list, tuple)) else (batch,)
        digest = self.digest
        if digest is not None:
            try:
                digest = zlib.crc32(array("q", indices[:_NUM_DIGESTED]), digest)
            except (TypeError, OverflowError):
                digest = None
        return Mark(self.num_batches + 1, self.num_samples + len(indices), digest)


class Walk:
    """An iterator over the indices of a pass that knows its place.

    Args:
        indices: The sampler's own iterator.
        made: What the sampler draws from, as it was before that iterator was made.
        begin: Called with the walk before the first index is asked for; sets ``begun``.

    Attributes:
        begun: What the sampler draws from, as it was before the first index; None before.
    """

    def __init__(
        self, indices: Iterator[Any], made: dict[str, Any], begin: Callable[[Walk], None]
    ) -> None:
        self._indices = indices
        self._begin = begin
        self._asked: deque[Mark] = deque()  # as long as the loader looks ahead
        self._used: deque[Mark] = deque([Mark()], maxlen=MAX_AHEAD + 1)
        self.made = made
        self.begun: dict[str, Any] | None = None

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - an index or a list of them
        self.begin()
        batch = next(self._indices)
        last = self._asked[-1] if self._asked else self._used[-1]
        self._asked.append(last.after(batch))
        return batch

    def begin(self) -> None:
        """Begin, unless it has begun."""
        if self.begun is None:
            self._begin(self)

    def skip(self, num_batches: int) -> Mark:
        """Leave batches out and return the place after them; fewer where the pass is shorter."""
        mark = Mark()
        for batch in islice(self._indices, num_batches):
            mark = mark.after(batch)
        self._used.append(mark)
        return mark

    def note_batch(self) -> None:
        """Note that the next of the batches asked for has been given out."""
        if self._asked:
            self._used.append(self._asked.popleft())

    def mark(self, num_ahead: int = 0) -> Mark:
        """Return the place after the batches used.

        Args:
            num_ahead: Batches given out and not used yet, 0 to 8.
        """
        return self._used[max(-len(self._used), -1 - num_ahead)]


class SamplerTap:
    """Stands in for a sampler while a loader makes an iterator; each pass over it is a walk.

    Args:
        sampler: The sampler; every attribute is its own.
        walk: Returns a walk over it.
    """

    def __init__(self, sampler: Any, walk: Callable[[Any], Walk]) -> None:  # noqa: ANN401
        self._sampler = sampler
        self._walk = walk

    def __iter__(self) -> Walk:
        return self._walk(self._sampler)

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the sampler has
        return getattr(self._sampler, name)


# What somebody asks an iterator for who only looks whether it has workers, and how many.
_LOOKS = ("_workers", "_num_workers")


class LateIterator:
    """Makes an iterator when its first batch is asked for, and is that iterator from then on.

    Args:
        make: Returns the iterator.
        before: Called before a batch is asked for: what others do before this one is made.
    """

    def __init__(self, make: Callable[[], Iterator[Any]], before: Callable[[], object]) -> None:
        self._make = make
        self._before = before
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> LateIterator:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - a batch
        if self._iterator is None:
            self._before()
        return next(self.make())

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the iterator has
        if self._iterator is None and name.startswith(_LOOKS):
            raise AttributeError(name)  # who only looks for workers makes none
        return getattr(self.make(), name)

    def make(self) -> Iterator[Any]:
        """Return the iterator, made if it has not been."""
        if self._iterator is None:
            self._iterator = self._make()
        return self._iterator
