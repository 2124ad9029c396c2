"""Lightning's own launcher: the main process is rank 0 and starts the others with LOCAL_RANK set."""

from __future__ import annotations

import os
from collections.abc import Mapping

from costlens.observe.placement.place import Placement, read_int

__all__ = ["detect"]


def detect(environ: Mapping[str, str]) -> Placement | None:
    """Return the placement of a process that Lightning's subprocess launcher started, or None.

    Rank and world are refined by the Lightning door, which asks the Trainer.
    """
    if "LOCAL_RANK" not in environ or "MASTER_PORT" not in environ or "RANK" in environ:
        return None
    world_size = max(1, read_int(environ, "WORLD_SIZE", 1))
    return Placement(
        launcher="lightning",
        launch_key="/".join(
            (environ.get("MASTER_ADDR", ""), environ["MASTER_PORT"], str(os.getppid()))
        ),
        rank=read_int(environ, "GLOBAL_RANK", read_int(environ, "LOCAL_RANK")),
        local_rank=read_int(environ, "LOCAL_RANK"),
        node_rank=read_int(environ, "NODE_RANK"),
        world_size=world_size,
        local_world_size=world_size,
    )
