"""What a run ran on and with, in a few words each, so that two runs can be told apart by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from costlens.core.records import RankRecord
from costlens.core.run_record import RunRecord

__all__ = ["describe_setting"]

_MAX_TEXT = 300


def describe_setting(record: RunRecord, ranks: Sequence[RankRecord]) -> dict[str, str]:
    """Return what is known of a run's setting by name; what is not known is not there.

    Args:
        record: The merged record.
        ranks: The records it was merged from.
    """
    newest = record.attempts[-1].number
    present = [each for each in ranks if each.attempt.number == newest]
    precision = record.precision
    values = {
        "model": record.run.model,
        "dataset_version": record.run.dataset_version,
        "hardware": _together(_name_device(each) for each in present),
        "gpus": _count_gpus(present),
        "ranks": str(record.attempts[-1].world_size),
        "precision": None if precision is None else precision.effective,
        "price": _together(_name_price(each) for each in present),
        "framework": record.run.framework,
        "costlens": record.run.costlens_version,
    }
    return {name: value[:_MAX_TEXT] for name, value in values.items() if value}


def _name_device(record: RankRecord) -> str:
    names = {gpu.name for gpu in record.gpus if gpu.name}
    if record.rank.accelerator:
        return record.rank.accelerator
    return " and ".join(sorted(names)) if names and record.rank.num_gpus else record.rank.device


def _count_gpus(present: Sequence[RankRecord]) -> str | None:
    num_gpus = sum(each.rank.num_gpus for each in present)
    return str(num_gpus) if num_gpus else None


def _name_price(record: RankRecord) -> str | None:
    price = record.price
    return None if price is None else f"{price.amount} {price.currency} per {price.unit} and hour"


def _together(names: Iterable[str | None]) -> str | None:
    return ", ".join(sorted({name for name in names if name})) or None
