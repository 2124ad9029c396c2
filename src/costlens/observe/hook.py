"""What torch keeps in the user's objects: callables that change nothing and copy to nothing.

``model_watch`` and ``optimizer_watch`` give them their reports; a fault of a report is contained
here, and dynamo is kept from looking at it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import eval_frame

from costlens.core.guard import faults

__all__ = ["Hook", "ModuleHook"]

_PLACE = "plain.hook"


class Hook:
    """A callable that torch keeps in the user's objects.

    A copy of such an object gets a stand-in from the standard library that returns None whatever it
    is called with, so a saved model loads where costlens is not installed.

    Args:
        report: What the hook is for; called with what torch hands over.
    """

    # torch warns when it saves a tensor whose hooks do not say that they may get lost.
    __torch_unserializable__ = True

    def __init__(self, report: Callable[..., None]) -> None:
        self._report = report

    def __call__(self, *args: Any) -> None:
        """Report; training thread, about 1 µs besides what the report costs."""
        if _is_compiling():
            self._meet_compiler(*args)
        elif _get_callback() is None:
            try:
                self._report(*args)
            except Exception as error:  # noqa: BLE001 - what `faults.call` does, without its call
                faults.absorb(_PLACE, error)
        else:
            self._run_apart(*args)

    def _meet_compiler(self, *args: Any) -> None:
        # Being inlined into a graph, this breaks it; an optimizer's step does so anyway.
        self._run_apart(*args)

    # Between compiled functions dynamo would look at these frames, too. The decorator costs 3 µs in
    # a real loop, so it stands only where dynamo is at work.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _run_apart(self, *args: Any) -> None:
        faults.call(_PLACE, self._report, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        return (getattr, (contextlib.nullcontext(), "__exit__"))


class ModuleHook(Hook):
    """A hook of a module; where a larger compiled function calls the module, it breaks no graph."""

    def _meet_compiler(self, *args: Any) -> None:
        return


def _no_callback() -> object:
    return Hook


_is_compiling = torch.compiler.is_compiling

# Older releases do not tell whether dynamo is at work: there, hooks always run apart.
_get_callback: Callable[[], object] = getattr(
    torch._C._dynamo.eval_frame,  # noqa: SLF001 - dynamo's own state has no public reader
    "get_eval_frame_callback",
    _no_callback,
)
# Dynamo runs this frame as it is, where it is one of its own, instead of compiling it.
eval_frame.skip_code(Hook.__call__.__code__)
