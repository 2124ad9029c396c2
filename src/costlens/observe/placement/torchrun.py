"""torchrun / torchelastic, and every launcher that sets RANK, WORLD_SIZE and MASTER_*."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping

from costlens.observe.placement.place import Placement, read_int, read_master

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
    parts = [environ.get("TORCHELASTIC_RUN_ID", ""), read_master(environ)]
    # On one node the elastic run id is "none" and the port 29500 unless the user says otherwise,
    # launch after launch; the agent's process id tells two launches apart, and its restart count
    # two rounds of one launch. Over nodes neither is shared: each agent counts for itself
    # (pytorch/pytorch#108158), and there every rendezvous picks a new port.
    is_one_node = environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"]
    if is_one_node or "MASTER_PORT" not in environ:
        parts += [
            platform.node(),
            environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
            str(os.getppid()),
        ]
    return "/".join(parts)
