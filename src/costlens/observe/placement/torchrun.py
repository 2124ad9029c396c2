"""torchrun / torchelastic, and every launcher that speaks its variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""

from __future__ import annotations

import os
from collections.abc import Mapping

from costlens.observe.placement.place import Placement, read_int

__all__ = ["detect"]


def detect(environ: Mapping[str, str]) -> Placement | None:
    """Return the placement that torchrun's variables describe, or None where there are none."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return None
    world_size = max(1, read_int(environ, "WORLD_SIZE", 1))
    local_world_size = max(1, read_int(environ, "LOCAL_WORLD_SIZE", 1))
    return Placement(
        launcher="torchrun",
        launch_key=_launch_key(environ),
        rank=read_int(environ, "RANK"),
        local_rank=read_int(environ, "LOCAL_RANK"),
        node_rank=read_int(environ, "GROUP_RANK", read_int(environ, "NODE_RANK")),
        world_size=world_size,
        local_world_size=min(local_world_size, world_size),
    )


def _launch_key(environ: Mapping[str, str]) -> str:
    # The elastic run id is "none" unless the user gave one, and the restart count is not dependable
    # across workers (pytorch/pytorch#108158). On one node the agent's process id tells two launches
    # apart; over nodes the rendezvous does.
    restart = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    elastic_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    is_one_node = environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE")
    parts = [elastic_id, restart, environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")]
    if is_one_node:
        parts.append(str(os.getppid()))
    return "/".join(parts)
