"""What a command shows while it works for more than a second: a bar on a terminal's stderr."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["progress", "track"]

T = TypeVar("T")

SHOW_AFTER_S = 1.0


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Show a bar while the block runs, from its second second on; nothing where no terminal is.

    Standard output stays as it is: what the block prints there goes where it was sent.

    Args:
        what: What is done, such as ``reading runs``.
        total: How many things are done; None where that is not known.

    Yields:
        A function to call after each thing; any thread.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    bar = Progress(console=console, transient=True, redirect_stdout=False)
    task = bar.add_task(what, total=total)
    turn, is_over = threading.Lock(), threading.Event()

    def show() -> None:
        with turn:
            if not is_over.is_set():
                bar.start()

    timer = threading.Timer(SHOW_AFTER_S, show)
    timer.daemon = True
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        with turn:
            is_over.set()
        bar.stop()


def track(items: Sequence[T], what: str) -> Iterator[T]:
    """Yield the items; what takes longer than a second shows a bar on a terminal's stderr.

    Args:
        items: What is worked through.
        what: What is done with them, such as ``reading runs``.
    """
    with progress(what, len(items)) as advance:
        for item in items:
            yield item
            advance()
