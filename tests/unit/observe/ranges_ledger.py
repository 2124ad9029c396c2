"""A profiler that only keeps the books: which ranges were open when, on which thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from costlens.core.clock import Clock


@dataclass
class Book:
    """A range."""

    name: str
    above: Book | None
    start_ns: int
    end_ns: int | None = None
    own_ns: int = 0


@dataclass
class Ledger:
    """Ranges on a clock; a range that is not the innermost of its thread cannot be closed.

    Args:
        clock: Nanoseconds.
    """

    clock: Clock
    books: list[Book] = field(default_factory=list)
    stacks: dict[int, list[Book]] = field(default_factory=dict)

    def open(self, name: str, *, is_elsewhere: bool) -> Callable[[], None]:
        """Open a range on this thread."""
        stack = self.stacks.setdefault(threading.get_ident(), [])
        book = Book(name, stack[-1] if stack else None, self.clock())
        self.books.append(book)
        stack.append(book)

        def close() -> None:
            assert stack.pop() is book
            book.end_ns = self.clock()
            took_ns = book.end_ns - book.start_ns
            book.own_ns += took_ns
            if book.above is not None:
                book.above.own_ns -= took_ns

        return close

    @property
    def open_names(self) -> list[str]:
        """Return the names of the open ranges of all threads, outermost first."""
        return [book.name for stack in self.stacks.values() for book in stack]

    def own_ns(self) -> Counter[str]:
        """Return nanoseconds by name, without those of ranges inside."""
        total: Counter[str] = Counter()
        for book in self.books:
            total[book.name] += book.own_ns
        return total
