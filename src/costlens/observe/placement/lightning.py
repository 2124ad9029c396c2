"""Lightning's own launcher: the main process is rank 0 and starts the rest with LOCAL_RANK set."""

from __future__ import annotations

from collections.abc import Mapping

from costlens.observe.placement.place import Placement, read_int, read_master

__all__ = ["detect"]


def detect(environ: Mapping[str, str]) -> Placement | None:
    """Return the placement of a process that Lightning's launchers started, or None.

    Rank and world are refined by the Lightning door, which asks the Trainer.
    """
    if "LOCAL_RANK" not in environ or "MASTER_PORT" not in environ or "RANK" in environ:
        return None
    world_size = max(1, read_int(environ, "WORLD_SIZE", 1))
    local_rank = read_int(environ, "LOCAL_RANK")
    return Placement(
        launcher="lightning",
        # The address is all that the ranks share: the main process is the parent of the others,
        # or their sibling where the user or multiprocessing started it. On one node Lightning picks
        # a free port for every launch.
        launch_key=read_master(environ),
        rank=read_int(environ, "GLOBAL_RANK", local_rank),
        local_rank=local_rank,
        node_rank=read_int(environ, "NODE_RANK"),
        world_size=world_size,
        local_world_size=world_size,
    )
