"""What an hour of a rank costs: the price and the rank's share, frozen at launch.

A variable's price goes first, then the price book's entry, else it is unknown, with what to set.
The answer stands in every record of the attempt; ``account/cost.py`` multiplies.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import ROUND_CEILING, Context, Decimal

from costlens.account.price_book import BookEntry
from costlens.account.price_choice import Choice, PriceQuery
from costlens.config import ENV_PREFIX, Config
from costlens.core.job_records import JobPart
from costlens.core.price_records import EnergyPricePart, PricePart
from costlens.core.records import RankPart
from costlens.setting_values import CapacityType

__all__ = ["ask_price", "count_unowned", "name_variable", "resolve_energy_price", "resolve_price"]

# The host application may have changed the process's decimal context.
_SHARES = Context(prec=28)
_MAX_TEXT = 200
_CAPACITY_TYPES: dict[str, CapacityType] = {
    "on_demand": "on_demand",
    "spot": "spot",
    "reserved": "reserved",
}

SourceOf = Callable[[str], str]


def name_variable(setting: str) -> str:
    """Return the environment variable of a setting, such as ``COSTLENS_GPU_HOUR_PRICE``."""
    return ENV_PREFIX + setting.upper()


def resolve_price(
    config: Config,
    rank: RankPart,
    source_of: SourceOf = name_variable,
    listed: Choice | None = None,
) -> PricePart | str:
    """Return the price this rank is charged at, or why there is none and what to set.

    A GPU price pays for the GPUs the rank drives; where it does not apply, a node price is shared
    evenly by the ranks of the node. A price of 0 is a price: it costs exactly nothing, which is
    not the same as unknown.

    Args:
        config: The settings of the run.
        rank: The rank, with the GPUs it drives and the ranks on its node.
        source_of: Names where a setting came from, such as ``argument gpu_hour_price``.
        listed: What the price book has; None while it has not been read.
    """
    if rank.num_gpus > 0 and config.gpu_hour_price is not None:
        return _part(config, rank, "gpu", config.gpu_hour_price, source_of("gpu_hour_price"))
    if config.node_hour_price is not None:
        return _part(config, rank, "node", config.node_hour_price, source_of("node_hour_price"))
    if config.price_book is not None:
        if listed is None:
            return f"{source_of('price_book')} has not been read yet"
        if listed.entry is None:
            return listed.rule
        return _listed_part(config, rank, listed.entry, listed.book)
    return _explain_none(config, rank, source_of)


def resolve_energy_price(
    config: Config, source_of: SourceOf = name_variable
) -> EnergyPricePart | None:
    """Return the price of electricity, or None where none is set."""
    if config.energy_kwh_price is None:
        return None
    return EnergyPricePart(
        amount_per_kwh=f"{config.energy_kwh_price:f}",
        currency=config.currency,
        source=source_of("energy_kwh_price"),
    )


def ask_price(config: Config, rank: RankPart, day: date, job: JobPart | None = None) -> PriceQuery:
    """Return what a price book is asked for.

    Args:
        config: The settings of the run; what they say goes first.
        rank: The rank, with the name of its GPUs where it is known.
        day: The day of the launch, UTC.
        job: What the scheduler says of the machine.
    """
    told = job or JobPart(scheduler="none")
    return PriceQuery(
        day=day,
        accelerator=rank.accelerator,
        drives_gpu=rank.num_gpus > 0,
        instance_type=config.instance_type or told.instance_type,
        provider=config.cloud_provider or told.provider,
        region=config.region or told.region,
        capacity_type=config.capacity_type or _CAPACITY_TYPES.get(told.capacity_type or ""),
    )


def count_unowned(rank: RankPart, job: JobPart | None) -> int | None:
    """Return the node's allocated GPUs that no rank drives, for its local rank 0; None if unknown.

    The node's other ranks are taken to drive as many as this one.

    Args:
        rank: The rank.
        job: What the scheduler allocated on this node.
    """
    if job is None or job.num_gpus is None or rank.local_rank != 0 or rank.num_gpus == 0:
        return None
    each = Decimal(rank.gpu_share or rank.num_gpus)
    driven = _SHARES.multiply(each, Decimal(rank.local_world_size))
    return max(0, job.num_gpus - int(driven.to_integral_value(ROUND_CEILING)))


def _part(
    config: Config, rank: RankPart, unit: str, amount: Decimal, source: str, currency: str = ""
) -> PricePart:
    share = rank.gpu_share or str(rank.num_gpus)
    if unit == "node":
        share = f"{_SHARES.divide(Decimal(1), Decimal(rank.local_world_size)):f}"
    return PricePart.model_validate(
        {
            "amount": f"{amount:f}",
            "unit": unit,
            "share": share,
            "currency": currency or config.currency,
            "source": source,
            "capacity_type": config.capacity_type,
            "discount": None if config.price_discount is None else f"{config.price_discount:f}",
        }
    )


def _listed_part(config: Config, rank: RankPart, entry: BookEntry, source: str) -> PricePart:
    amount = _SHARES.normalize(entry.amount)
    part = _part(config, rank, entry.unit, amount, source, entry.currency)
    return part.model_copy(
        update={
            "capacity_type": entry.capacity_type or part.capacity_type,
            "entry": entry.subject[:_MAX_TEXT],
            "entry_source": entry.source,
            "since": None if entry.since is None else entry.since.isoformat(),
        }
    )


def _explain_none(config: Config, rank: RankPart, source_of: SourceOf) -> str:
    if config.gpu_hour_price is not None:
        return (
            f"{source_of('gpu_hour_price')} does not apply to a rank that drives no GPU: "
            f"set {name_variable('node_hour_price')} to the money a node costs per hour"
        )
    if rank.num_gpus > 0:
        return f"no price: set {name_variable('gpu_hour_price')} to the money a GPU costs per hour"
    return f"no price: set {name_variable('node_hour_price')} to the money a node costs per hour"
