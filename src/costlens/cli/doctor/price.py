"""Would a run here know what it costs?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from costlens.cli.doctor.answer import Answer, ok, problem, warning
from costlens.config import Config
from costlens.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from costlens.observe.gpu_survey import GpuSurvey

__all__ = ["check_price"]


def check_price(config: Config, find: Callable[[], GpuSurvey]) -> Iterator[Answer]:
    """Yield the price that one rank would be charged at, and where it is from.

    Args:
        config: The settings.
        find: Asks the driver for the GPUs.
    """
    from costlens.cli.prices import find_price
    from costlens.core.records import RankPart

    devices = find().selection.devices
    names = {device.model for device in devices if device.model}
    rank = RankPart(
        rank=0,
        host_name="here",
        pid=1,
        num_gpus=int(bool(devices)),
        accelerator=names.pop() if len(names) == 1 else None,
    )
    try:
        answer = find_price(config, rank)
    except (ConfigError, StorageError) as error:
        what, _, fix = str(error).removeprefix("price_book: ").rpartition("; ")
        yield problem(
            f"costs would stay unknown: COSTLENS_PRICE_BOOK: {what or fix}",
            fix if what else "mend it, or name another one; docs/prices.md has the format",
        )
        return
    price = answer["price"]
    if price is None:
        what, _, fix = str(answer["unknown"]).rpartition(": ")
        yield warning(
            f"costs would stay unknown: {what or fix}",
            fix if what else "set COSTLENS_GPU_HOUR_PRICE or COSTLENS_NODE_HOUR_PRICE",
        )
        return
    told = f"{price['amount']} {price['currency']} per {price['unit']} and hour"
    dated = f", since {price['since']}" if price.get("since") else ""
    yield ok(f"{told}, from {price['source']}{dated}", price)
