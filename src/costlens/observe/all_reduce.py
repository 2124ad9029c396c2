"""For how long the gradients' all-reduce holds a rank up, as DistributedDataParallel times it.

DDP times its own passes, the first ten and then every hundredth, on the device's clock where it
has one; here it is only asked. It answers under the lock of its reducer, which it keeps while it
waits for other ranks on the CPU: so a thread of its own asks, and one that is stuck asks no more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from costlens.core.clock import NS_PER_S
from costlens.core.errand import Errand
from costlens.core.torch_records import AllReducePart

__all__ = ["AllReduceWatch"]

Answer = Mapping[str, Any]
Reference = Callable[[], Any]

_METHOD = "_get_ddp_logging_data"

# Only the call that gets stuck waits for so long.
_PATIENCE_S = 0.1

# DDP's first passes set up connections and rebuild buckets.
_NUM_FIRST = 10


class AllReduceWatch:
    """Asks the DDP module that a rank trains; what is no DDP tells nothing."""

    def __init__(self) -> None:
        self._module: Reference = _nothing
        self._asked: Reference = _nothing
        self._errand: Errand[Answer | None] | None = None
        self._seen = _NUM_FIRST
        self._part: AllReducePart | None = None

    def see(self, module: object) -> None:
        """Take the module that is trained; training thread, once, about 2 µs."""
        module = _unwrap(module)
        if _is_ddp(module):
            self._module = weakref.ref(module)  # seen again, it is the same reference

    def take(self) -> AllReducePart | None:
        """Return what the passes so far have shown; pipeline thread, every 2 s, 0.1 ms."""
        seen = self._module
        if seen() is not None and (self._errand is None or self._errand.is_done):
            if seen is not self._asked:  # another module counts its passes from the first
                self._asked, self._seen = seen, _NUM_FIRST
            self._errand = Errand("all_reduce", partial(_ask, seen))
            self._errand.start()
            self._errand.wait(_PATIENCE_S)
        answer = None if self._errand is None else self._errand.result
        if answer is not None:
            self._add(answer)
        return self._part

    def _add(self, answer: Answer) -> None:
        number = answer.get("iteration", 0)
        whole_ns = answer.get("backward_comm_time")
        hidden_ns = answer.get("backward_compute_comm_overlap_time")
        # Passes within no_sync() reduce nothing and are not timed.
        if number <= self._seen or not whole_ns or hidden_ns is None:
            return
        self._seen = number
        exposed_s = max(0, whole_ns - hidden_ns) / NS_PER_S
        last = self._part
        self._part = AllReducePart(
            num_sampled=1 + (0 if last is None else last.num_sampled),
            exposed_s=exposed_s + (0.0 if last is None else last.exposed_s),
            least_exposed_s=exposed_s if last is None else min(exposed_s, last.least_exposed_s),
        )


def _nothing() -> None:
    pass


# A module of the user's answers to any name as it likes: only its class and its modules are asked.
def _unwrap(module: object) -> object:
    """Return the module behind one of torch.compile, or the module itself."""
    return _modules_of(module).get("_orig_mod", module)


def _modules_of(module: object) -> Mapping[str, object]:
    found = getattr(module, "__dict__", {}).get("_modules")
    return found if isinstance(found, dict) else {}


def _is_ddp(module: object) -> bool:
    return any(_METHOD in vars(kind) for kind in type(module).__mro__)


def _ask(reference: Reference) -> Answer | None:
    module = reference()
    # Documented, as a prototype; no other way leads to what DDP times.
    return None if module is None else getattr(module, _METHOD)()
