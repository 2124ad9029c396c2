"""Where code stands: file, line and function of frames, and nothing of what they hold.

Used for the stack of a training thread that does not move, and for the place an error came from.
Neither local variables nor source lines are looked at, for they may hold secrets, and a path is cut
down to what tells one module from another.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType

__all__ = ["locate_error", "locate_thread"]

_MAX_FRAMES = 40
_MAX_BYTES = 8192
_NUM_OWN_PARTS = 2
_ROOTS = ("site-packages", "dist-packages")


def locate_thread(ident: int) -> list[str]:
    """Return where a thread stands, innermost first, from any thread; empty if there is none.

    Args:
        ident: The thread's identity.
    """
    frame: FrameType | None = sys._current_frames().get(ident)  # noqa: SLF001 - documented
    places: list[str] = []
    while frame is not None and len(places) < _MAX_FRAMES:
        places.append(_describe(frame, frame.f_lineno))
        frame = frame.f_back
    return _fit(places)


def locate_error(error: BaseException) -> list[str]:
    """Return where an error was raised, innermost first."""
    trace: TracebackType | None = error.__traceback__
    places: list[str] = []
    while trace is not None:
        places.append(_describe(trace.tb_frame, trace.tb_lineno))
        del places[:-_MAX_FRAMES]
        trace = trace.tb_next
    return _fit(places[::-1])


def _describe(frame: FrameType, line: int | None) -> str:
    code = frame.f_code
    function = getattr(code, "co_qualname", code.co_name)
    return f"{_shorten(code.co_filename)}:{line or 0} {function}"


def _shorten(path: str) -> str:
    # The part above the packages is the machine's business, and may hold a person's name.
    parts = path.replace("\\", "/").split("/")
    for root in _ROOTS:
        if root in parts:
            return "/".join(parts[parts.index(root) + 1 :])
    library = next((at for at, part in enumerate(parts) if part.startswith("python3.")), None)
    if library is not None and library + 1 < len(parts):
        return "/".join(parts[library + 1 :])
    return "/".join(parts[-_NUM_OWN_PARTS:])


def _fit(places: list[str]) -> list[str]:
    num_bytes = 0
    for index, place in enumerate(places):
        num_bytes += len(place.encode("utf-8", "replace"))
        if num_bytes > _MAX_BYTES:
            return places[:index]
    return places
