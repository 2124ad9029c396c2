"""Where this process stands in its job, as the launcher tells it; one file a launcher.

They are tried in the order of ``DETECTORS``; run.py asks once, when a run opens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from costlens.observe.placement import lightning, single, torchrun
from costlens.observe.placement.place import Placement
from costlens.observe.placement.process_group import refine_placement

__all__ = ["DETECTORS", "detect_placement"]

DETECTORS: tuple[Callable[[Mapping[str, str]], Placement | None], ...] = (
    torchrun.detect,
    lightning.detect,
    single.detect,
)


def detect_placement(environ: Mapping[str, str] | None = None) -> Placement:
    """Return the placement of this process, from the first launcher that knows the environment.

    In this process's own environment a process group of torch.distributed has the last word.

    Args:
        environ: The environment to read; this process's own by default.
    """
    if environ is None:
        return refine_placement(_from_environ(os.environ))
    return _from_environ(environ)


def _from_environ(seen: Mapping[str, str]) -> Placement:
    for detect in DETECTORS:
        placement = detect(seen)
        if placement is not None:
            return placement
    return Placement()
