"""What the energy of a run's GPUs cost: a line of its own, in no other price and no other total.

Energy comes from the devices' parts of the ranks' records, the price of a kilowatt-hour was frozen
in them at launch. A device that several ranks share is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

from costlens.account.money import EXACT, add, format_ratio
from costlens.core.device_records import GpuPart
from costlens.core.records import RankRecord
from costlens.core.run_record import EnergyCostPart

__all__ = ["charge_energy", "price_energy"]

JOULES_PER_KWH = 3_600_000


def charge_energy(record: RankRecord, gpu: GpuPart) -> Decimal | None:
    """Return what the energy of one device cost by one rank's price; None when unknown."""
    if record.energy_price is None or gpu.energy_joules is None:
        return None
    with localcontext(EXACT):
        price = Decimal(record.energy_price.amount_per_kwh)
        # A float's shortest text is what was measured; its exact binary value is noise.
        return price * Decimal(repr(gpu.energy_joules)) / JOULES_PER_KWH


def price_energy(records: Sequence[RankRecord]) -> EnergyCostPart | None:
    """Return the money that went into energy; None where no price of energy is set.

    Args:
        records: One record per attempt and rank.
    """
    priced = [record for record in records if record.energy_price is not None]
    if not priced:
        return None
    devices: dict[tuple[int, str], tuple[RankRecord, GpuPart]] = {}
    num_silent = 0
    for record in priced:
        num_silent += record.rank.num_gpus > len(record.gpus)
        for gpu in record.gpus:
            key = (record.attempt.number, gpu.uuid)
            held = devices.get(key)
            # Ranks that share a device look at it at different moments: the last look has it all.
            if held is None or (gpu.energy_joules or 0) > (held[1].energy_joules or 0):
                devices[key] = (record, gpu)
    charged = [(record, gpu, charge_energy(record, gpu)) for record, gpu in devices.values()]
    known = [(record, gpu, money) for record, gpu, money in charged if money is not None]
    currencies = {record.energy_price.currency for record in priced if record.energy_price}
    is_partial = len(known) < len(charged) or num_silent > 0 or len(priced) < len(records)
    if not known:
        return EnergyCostPart(unknown="no device of the run could tell its energy")
    if len(currencies) > 1:
        return EnergyCostPart(unknown=f"prices in {' and '.join(sorted(currencies))} are not added")
    joules = add(Decimal(repr(gpu.energy_joules)) for _, gpu, _ in known)
    return EnergyCostPart(
        currency=currencies.pop(),
        total=format_ratio(add(money for _, _, money in known)),
        energy_kwh=float(joules) / JOULES_PER_KWH,
        is_partial=is_partial,
    )
