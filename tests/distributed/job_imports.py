"""A run that tells what threads other than the main one import while it lasts."""

from __future__ import annotations

import sys
import threading
import time

import costlens

seen = set()


def note(event: str, args: tuple[object, ...]) -> None:
    """Note an import of a module that was not loaded."""
    thread = threading.current_thread()
    if event == "import" and thread is not threading.main_thread():
        seen.add(f"IMPORT {args[0]} by {thread.name}")


sys.addaudithook(note)
run = costlens.start("imports")
for _ in range(30):
    with run.iteration(samples=4):
        time.sleep(0.01)
run.log(loss=float("nan"))
run.finish()
print("FINISHED", *sorted(seen), sep="\n")
