"""Price books: dated prices per accelerator or instance type, from a site's TOML or SkyPilot's CSV.

Pure: bytes in, entries out; ``observe/pricing.py`` reads the bytes, ``price_choice.py`` picks an
entry. An entry is a fact with a date: a new price is a new entry, none is changed in place.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal, DecimalException
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from costlens.errors import ConfigError
from costlens.setting_values import CapacityType, HourPrice

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "BUNDLED",
    "MAX_BOOK_BYTES",
    "BookEntry",
    "PriceBook",
    "parse_price_book",
    "read_bundled",
]

BUNDLED = "bundled"
"""The name that asks for the list prices which come with costlens."""

MAX_BOOK_BYTES = 32 * 1024 * 1024
"""Largest book that is read; the longest of SkyPilot's catalogs has a sixth of it."""

_LIST_PRICES = Path(__file__).parent / "data" / "prices.toml"
_MAX_ENTRIES = 200_000
_MAX_AMOUNT = Decimal(1_000_000_000)
_AMOUNT_GRAIN = Decimal("1e-12")
# The host application may have changed the process's decimal context.
_AMOUNTS = Context(prec=40)
# What SkyPilot's names leave out.
_SKYPILOT_NAMES = {"A100": "A100-40GB", "V100": "V100-16GB"}
_SKYPILOT_COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price")

_SKYPILOT_READ = (*_SKYPILOT_COLUMNS, "SpotPrice", "Region", "AvailabilityZone")

Text = Annotated[str, Field(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class BookEntry:
    """One price, and what it is the price of; None means that the entry does not say.

    Args:
        amount: Money per hour and unit.
        unit: What the hour is of: one GPU, or a whole node.
        currency: ISO 4217 code.
        since: The first day it holds; None for a book without dates.
        accelerator: Product name; always there for a GPU's price.
        instance_type: The provider's name of the machine; always there for a node's price.
        provider: Who rents it out.
        region: Where.
        zone: Where, more exactly.
        capacity_type: on_demand, spot or reserved.
        source: Where the price was found.
    """

    amount: Decimal
    unit: Literal["gpu", "node"]
    currency: str
    since: date | None = None
    accelerator: str | None = None
    instance_type: str | None = None
    provider: str | None = None
    region: str | None = None
    zone: str | None = None
    capacity_type: CapacityType | None = None
    source: str | None = None

    @property
    def subject(self) -> str:
        """Return what it is the price of, such as ``H100-SXM lambda on_demand``."""
        marks = (self.accelerator, self.instance_type, self.provider, self.zone or self.region)
        return " ".join(mark for mark in (*marks, self.capacity_type) if mark)


@dataclass(frozen=True, slots=True)
class PriceBook:
    """The entries of one book.

    Args:
        name: Its place as it may be shown, or ``bundled``.
        entries: In the book's order.
        is_list: Whether these are public list prices and not what somebody was billed.
    """

    name: str
    entries: tuple[BookEntry, ...]
    is_list: bool = False

    @property
    def label(self) -> str:
        """Return what records and reports call it."""
        return f"price book {self.name}" + (" (list prices)" if self.is_list else "")


def parse_price_book(data: bytes, name: str) -> PriceBook:
    """Return a book in either format; SkyPilot's is known by its header line.

    Args:
        data: The file.
        name: Its place, for messages and records; must hold no secret.

    Raises:
        ConfigError: If it is neither format or an entry is not usable; names book, entry and field.
    """
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ConfigError(f"price book {name}: it is not UTF-8 text") from error
    header = {column.strip() for column in text.partition("\n")[0].split(",")}
    is_skypilot = header >= {*_SKYPILOT_COLUMNS}
    found = _skypilot_entries(text, name) if is_skypilot else _toml_entries(text, name)
    entries: list[BookEntry] = []
    for entry in found:
        if len(entries) == _MAX_ENTRIES:
            raise ConfigError(f"price book {name}: it has more than {_MAX_ENTRIES} prices")
        entries.append(entry)
    return PriceBook(name, tuple(entries))


def read_bundled() -> PriceBook:
    """Return the list prices that come with costlens; a small file of the package."""
    text = _LIST_PRICES.read_text(encoding="utf-8")
    entries = tuple(_toml_entries(text, BUNDLED))
    return PriceBook(BUNDLED, entries, is_list=True)


# Our own format.


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Price(_Strict):
    """One ``[[price]]`` table."""

    since: date
    per_gpu_hour: HourPrice | None = None
    per_node_hour: HourPrice | None = None
    accelerator: Text | None = None
    instance_type: Text | None = None
    provider: Text | None = None
    region: Text | None = None
    capacity_type: CapacityType | None = None
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")] | None = None
    source: Text | None = None

    @model_validator(mode="after")
    def _name_the_thing(self) -> _Price:
        if (self.per_gpu_hour is None) == (self.per_node_hour is None):
            raise ValueError("give either per_gpu_hour or per_node_hour")
        if self.per_gpu_hour is not None and self.accelerator is None:
            raise ValueError("per_gpu_hour needs the name of the accelerator")
        if self.per_node_hour is not None and self.instance_type is None:
            raise ValueError("per_node_hour needs the instance_type")
        return self


class _Book(_Strict):
    """The whole file."""

    version: Literal[1]
    currency: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    provider: Text | None = None
    source: Text | None = None
    price: list[_Price]


def _toml_entries(text: str, name: str) -> Iterator[BookEntry]:
    try:
        book = _Book.model_validate(tomllib.loads(text, parse_float=Decimal))
    except ValidationError as error:
        raise ConfigError(f"price book {name}: {_explain(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"price book {name} is neither TOML nor a SkyPilot catalog "
            f"({type(error).__name__}); see docs/prices.md for the format"
        ) from None
    for price in book.price:
        amount = price.per_node_hour if price.per_gpu_hour is None else price.per_gpu_hour
        yield BookEntry(
            amount=amount or Decimal(0),
            unit="node" if price.per_gpu_hour is None else "gpu",
            currency=price.currency or book.currency,
            since=price.since,
            accelerator=price.accelerator,
            instance_type=price.instance_type,
            provider=price.provider or book.provider,
            region=price.region,
            capacity_type=price.capacity_type,
            source=price.source or book.source,
        )


def _explain(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = list(problem["loc"])
    if place[:1] == ["price"] and len(place) > 1:
        place[:2] = [f"price {int(place[1]) + 1}"]
    where = ", ".join(str(part) for part in place)
    return f"{where or 'the file'}: {problem['msg'].removeprefix('Value error, ')}"


# SkyPilot's catalogs: the price of a whole machine, in USD and without a date.


def _skypilot_entries(text: str, name: str) -> Iterator[BookEntry]:
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        columns = {column.strip(): index for index, column in enumerate(next(rows))}
        wanted = {name: columns[name] for name in _SKYPILOT_READ if name in columns}
        for row in rows:
            if row:
                # A hundred thousand entries have a few hundred names between them.
                yield from _skypilot_row(
                    {name: sys.intern(row[index].strip()) for name, index in wanted.items()}
                )
    except (csv.Error, DecimalException, ValueError, IndexError) as error:
        raise ConfigError(
            f"price book {name}, line {rows.line_num}: not a row of a SkyPilot catalog "
            f"({type(error).__name__})"
        ) from None


def _skypilot_row(row: Mapping[str, str]) -> Iterable[BookEntry]:
    count = _number(row["AcceleratorCount"]) or Decimal(0)
    accelerator = row["AcceleratorName"] if count > 0 else ""
    if not (accelerator or row["InstanceType"]):
        return
    columns: tuple[tuple[str, CapacityType], ...] = (("Price", "on_demand"), ("SpotPrice", "spot"))
    for column, capacity_type in columns:
        price = _number(row.get(column, ""))
        # Catalogs write 0 for capacity that is not offered.
        if price is None or price <= 0:
            continue
        yield BookEntry(
            amount=_divide(price, count) if accelerator else price,
            unit="gpu" if accelerator else "node",
            currency="USD",
            accelerator=_SKYPILOT_NAMES.get(accelerator, accelerator) or None,
            instance_type=row["InstanceType"] or None,
            region=row.get("Region") or None,
            zone=row.get("AvailabilityZone") or None,
            capacity_type=capacity_type,
            source="SkyPilot catalog",
        )


def _number(text: str) -> Decimal | None:
    value = Decimal(text) if text else None
    if value is None or value.is_nan():
        return None
    if not 0 <= value < _MAX_AMOUNT:
        raise ValueError("the number is out of bounds")
    return value


def _divide(price: Decimal, count: Decimal) -> Decimal:
    return _AMOUNTS.quantize(_AMOUNTS.divide(price, count), _AMOUNT_GRAIN)


def shown_entries(entries: Iterable[BookEntry]) -> list[Mapping[str, Any]]:
    """Return entries as plain values for people and JSON; amounts are decimal strings."""
    return [
        {
            "amount": f"{_AMOUNTS.normalize(entry.amount):f}",
            "unit": entry.unit,
            "currency": entry.currency,
            "since": None if entry.since is None else entry.since.isoformat(),
            "accelerator": entry.accelerator,
            "instance_type": entry.instance_type,
            "provider": entry.provider,
            "region": entry.zone or entry.region,
            "capacity_type": entry.capacity_type,
            "source": entry.source,
        }
        for entry in entries
    ]
