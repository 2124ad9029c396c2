"""What an hour of a rank costs: the configured price and the rank's share, frozen at launch.

run.py calls this once and puts the answer into every record of the attempt; ``account/cost.py``
multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal

from costlens.config import ENV_PREFIX, Config
from costlens.core.records import PricePart, RankPart

__all__ = ["name_variable", "resolve_price"]

# The host application may have changed the process's decimal context.
_SHARES = Context(prec=28)


def name_variable(setting: str) -> str:
    """Return the environment variable of a setting, such as ``COSTLENS_GPU_HOUR_PRICE``."""
    return ENV_PREFIX + setting.upper()


def resolve_price(
    config: Config, rank: RankPart, source_of: Callable[[str], str] = name_variable
) -> PricePart | str:
    """Return the price this rank is charged at, or why there is none and what to set.

    A GPU price pays for the GPUs the rank drives; where it does not apply, a node price is shared
    evenly by the ranks of the node. A price of 0 is a price: it costs exactly nothing, which is
    not the same as unknown.

    Args:
        config: The settings of the run.
        rank: The rank, with the GPUs it drives and the ranks on its node.
        source_of: Names where a setting came from, such as ``argument gpu_hour_price``.
    """
    if rank.num_gpus > 0 and config.gpu_hour_price is not None:
        return PricePart(
            amount=f"{config.gpu_hour_price:f}",
            unit="gpu",
            share=str(rank.num_gpus),
            currency=config.currency,
            source=source_of("gpu_hour_price"),
        )
    if config.node_hour_price is not None:
        return PricePart(
            amount=f"{config.node_hour_price:f}",
            unit="node",
            share=f"{_SHARES.divide(Decimal(1), Decimal(rank.local_world_size)):f}",
            currency=config.currency,
            source=source_of("node_hour_price"),
        )
    if config.gpu_hour_price is not None:
        return (
            f"{source_of('gpu_hour_price')} does not apply to a rank that drives no GPU: "
            f"set {name_variable('node_hour_price')} to the money a node costs per hour"
        )
    if rank.num_gpus > 0:
        return f"no price: set {name_variable('gpu_hour_price')} to the money a GPU costs per hour"
    return f"no price: set {name_variable('node_hour_price')} to the money a node costs per hour"
