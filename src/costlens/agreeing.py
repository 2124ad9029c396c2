"""How the ranks of a run agree: made where a setting or a call asks for it, shared by all who do.

A budget that stops the training and checkpoints of several ranks propose on one
:class:`~costlens.protect.agreement.Agreement`; the pipeline thread polls it, boundaries of the
training tell what came of it (``core/boundaries.py``).
"""

from __future__ import annotations

from costlens.attempt import Parts
from costlens.config import Config
from costlens.core.boundaries import Agreeing
from costlens.core.clock import Clock
from costlens.errors import ConfigError
from costlens.observe.placement.process_group import find_board
from costlens.protect.agreement import Agreement, LocalBoard

__all__ = ["check_can_agree", "let_ranks_agree", "must_agree"]


def must_agree(config: Config) -> bool:
    """Return whether a setting asks for something that all ranks have to do together."""
    return config.enabled and config.budget is not None and config.budget_action == "stop"


def check_can_agree(config: Config, world_size: int) -> None:
    """Raise where the ranks must agree and cannot.

    Raises:
        ConfigError: If a job of several ranks has no process group yet.
    """
    if must_agree(config) and world_size > 1 and find_board("") is None:
        raise ConfigError(
            f"budget_action cannot be 'stop' (from {config.source_of('budget_action')}) in a job "
            f"of {world_size} ranks without a process group, for one rank alone would stop; open "
            "the run after torch.distributed.init_process_group, or set "
            "COSTLENS_BUDGET_ACTION=warn"
        )


def let_ranks_agree(parts: Parts, clock: Clock, launch_key: str) -> Agreeing | None:
    """Return how the ranks agree, made if nothing has asked for it yet; None without a group.

    Calling thread, between the same two boundaries on every rank: from there on they are counted.

    Args:
        parts: The living parts of the run.
        clock: Monotonic nanoseconds.
        launch_key: What all ranks of the launch share, and no other launch.
    """
    rank, boundaries = parts.state.rank, parts.boundaries
    if boundaries.agreement is None:
        board = LocalBoard() if rank.world_size == 1 else find_board(launch_key)
        if board is not None:
            boundaries.agreement = Agreement(
                board, rank.rank, rank.world_size, clock=clock, logger=parts.state.log
            )
    return boundaries.agreement
