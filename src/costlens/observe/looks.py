"""Looks at where the training thread stands, from the pipeline thread, and counts what it sees.

A look takes a few microseconds and costs the training thread nothing but the interpreter's lock for
that long. Only the code of frames is looked at: which file, which function, which call is under
way; no variable of the user. What is kept are counts, and the names of a few callbacks' hooks.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType

from costlens.core.loading_records import MAX_HOOK, MAX_HOOKS, LooksPart
from costlens.core.phases import ITERATION_PHASES, Phase
from costlens.core.timeline import Timeline

__all__ = ["Looks"]

_DATA_WAIT = int(Phase.DATA_WAIT)
_CALLBACKS = int(Phase.CALLBACKS)
_ITERATING = frozenset(int(phase) for phase in ITERATION_PHASES) - {_DATA_WAIT}
_MAX_FRAMES = 60
_MAX_KNOWN = 512

# Files that tell what is waited for, by how their path ends.
_FETCHER = "torch/utils/data/_utils/fetch.py"
_LOADER = "torch/utils/data/dataloader.py"
_CALLER = "/trainer/call.py"  # Lightning's, of either package: it calls all hooks
_READERS = ("/fsspec/", "/s3fs/", "/gcsfs/", "/adlfs/", "costlens/storage/counted_filesystem.py")
# Methods of the multi-process iterator in which it waits for a worker's batch.
_QUEUE_CALLS = frozenset({"_get_data", "_try_get_data"})
# Calls in which the host waits for what a device computes.
_SYNC_CALLS = frozenset({"item", "cpu", "tolist", "numpy", "synchronize", "nonzero"})


class Looks:
    """Counts where a thread stands.

    Args:
        timeline: Knows the thread and its phase.
        collate: Returns the loader's collate_fn, None while none is known.
        take: Returns the frame of a thread by its identity.
    """

    def __init__(
        self,
        timeline: Timeline,
        collate: Callable[[], object],
        take: Callable[[int], FrameType | None] | None = None,
    ) -> None:
        self._timeline = timeline
        self._collate = collate
        self._take = take or (lambda ident: sys._current_frames().get(ident))  # noqa: SLF001 - documented
        self._counts = dict.fromkeys(LooksPart.model_fields, 0)
        del self._counts["hooks"]
        self._hooks: dict[str, int] = {}
        self._weights: dict[str, int] = {}  # of the same names
        self._kinds: dict[CodeType, str] = {}
        self._calls: dict[tuple[CodeType, int], str] = {}

    @property
    def has_started(self) -> bool:
        """Return whether start-up is over."""
        return self._timeline.base != Phase.STARTUP

    def look(self) -> None:
        """Look once; pipeline thread, about 5 µs, at a hook 10 µs."""
        phase = self._timeline.phase
        is_waiting = phase == _DATA_WAIT
        if not is_waiting and phase not in _ITERATING:
            return
        frame = self._take(self._timeline.owner)
        if frame is None:
            return
        if is_waiting:
            self._counts["num_waiting"] += 1
            self._counts[self._find_wait(frame)] += 1
        else:
            self._counts["num_iterating"] += 1
            self._counts["in_sync"] += self._find_call(frame) in _SYNC_CALLS
            if phase == _CALLBACKS:
                self._counts["in_callbacks"] += 1
                self._count_hook(self._find_hook(frame))

    def part(self) -> LooksPart | None:
        """Return the counts, None where nothing was seen in an iteration yet."""
        if not self._counts["num_waiting"] and not self._counts["num_iterating"]:
            return None
        return LooksPart(hooks=dict(self._hooks), **self._counts)

    def _count_hook(self, name: str) -> None:
        if not name:
            return
        # The space-saving algorithm of Metwally et al. (2005): a new name takes the place of the
        # lightest and its weight, so one that begins late and is met often stays. What is told are
        # not weights, which are too high, but looks.
        weight = self._weights.get(name)
        if weight is None:
            weight = 0
            if len(self._hooks) >= MAX_HOOKS:
                lightest = min(self._weights, key=self._weights.__getitem__)
                weight = self._weights.pop(lightest)
                del self._hooks[lightest]
        self._weights[name] = weight + 1
        self._hooks[name] = self._hooks.get(name, 0) + 1

    def _find_hook(self, frame: FrameType) -> str:
        """Return the hook that Lightning has called, by class and name; empty where none is."""
        inside = ""
        current: FrameType | None = frame
        for _ in range(_MAX_FRAMES):
            if current is None:
                break
            if self._kind_of(current.f_code) == "caller":
                return inside
            # The outermost that is a method: decorators stand between it and who calls it.
            inside = _name_method(current.f_code) or inside
            current = current.f_back
        return ""

    def _find_wait(self, frame: FrameType) -> str:
        """Return the field that a wait for a batch counts in, by the frames from the inside out."""
        collate = _code_of(self._collate())
        current: FrameType | None = frame
        is_collating = False
        for _ in range(_MAX_FRAMES):
            if current is None:
                break
            code = current.f_code
            kind = self._kind_of(code)
            if kind in ("read", "queue"):
                return f"in_{kind}"
            is_collating |= code is collate
            if kind == "fetcher":
                is_collating |= "collate_fn(" in linecache.getline(
                    code.co_filename, current.f_lineno or 0
                )
                break
            current = current.f_back
        return "in_collate" if is_collating else "in_dataset"

    def _kind_of(self, code: CodeType) -> str:
        kind = self._kinds.get(code)
        if kind is None:
            kind = _classify(code)
            if len(self._kinds) < _MAX_KNOWN:
                self._kinds[code] = kind
        return kind

    def _find_call(self, frame: FrameType) -> str:
        """Return the name of the method that a frame is in the midst of calling; else empty."""
        key = (frame.f_code, frame.f_lasti)
        name = self._calls.get(key)
        if name is None:
            name = _name_call(*key)
            if len(self._calls) < _MAX_KNOWN:
                self._calls[key] = name
        return name


def _classify(code: CodeType) -> str:
    path = code.co_filename.replace("\\", "/")
    if path.endswith(_FETCHER):
        return "fetcher"
    if path.endswith(_LOADER) and code.co_name in _QUEUE_CALLS:
        return "queue"
    if path.endswith(_CALLER):
        return "caller"
    return "read" if any(part in path for part in _READERS) else ""


def _name_method(code: CodeType) -> str:
    """Return the class and name of a method; before Python 3.11 a hook's name alone, else empty."""
    name: str = getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]
    return name[:MAX_HOOK] if "." in name or name.startswith("on_") else ""


def _code_of(function: object) -> CodeType | None:
    while isinstance(function, partial):  # any other object may have a `func` without end
        function = function.func
    if not hasattr(function, "__code__"):
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _name_call(code: CodeType, at: int) -> str:
    """Return the attribute that was loaded last before an instruction, which is what it calls.

    Of a method without arguments, which all that wait for a device may be.
    """
    name = ""
    for instruction in dis.get_instructions(code):
        if instruction.offset > at:
            break
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            name = str(instruction.argval)
        elif instruction.offset == at and not instruction.opname.startswith("CALL"):
            return ""
    return name
