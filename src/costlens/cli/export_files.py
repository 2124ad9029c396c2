"""How exported rows become a file: CSV by the standard library, Parquet by pyarrow."""

from __future__ import annotations

import contextlib
import csv
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any

from costlens.account.focus import COLUMNS, Cell
from costlens.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["write_csv", "write_parquet"]

Row = Mapping[str, Cell]

_ROWS_AT_ONCE = 10_000
_MAX_DIGITS = 76


def write_csv(rows: Iterable[Row], path: str | None) -> None:
    """Write the rows with a line of titles; empty cells are null.

    Args:
        rows: The rows.
        path: A local file; None is standard output.

    Raises:
        ConfigError: If the file cannot be written.
    """
    with _opened(path) as file:
        writer = csv.DictWriter(file, [*COLUMNS], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _show(cell) for name, cell in row.items()} for row in rows)


def _opened(path: str | None) -> AbstractContextManager[IO[str]]:
    if path is None:
        return contextlib.nullcontext(sys.stdout)
    try:
        return open(path, "w", encoding="utf-8", newline="")  # noqa: PTH123 - the caller closes it
    except OSError as error:
        raise _refused(path, error) from error


def _show(cell: Cell) -> str | None:
    if isinstance(cell, datetime):
        text = cell.isoformat(timespec="microseconds" if cell.microsecond else "seconds")
        return text.replace("+00:00", "Z")
    return f"{cell:f}" if isinstance(cell, Decimal) else cell


def write_parquet(rows: Iterable[Row], path: str) -> None:
    """Write the rows as Parquet: exact decimals, and times in UTC to the microsecond.

    Args:
        rows: The rows.
        path: A local file.

    Raises:
        MissingExtraError: If pyarrow is not installed.
        ConfigError: If the file cannot be written.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(
            "Parquet needs pyarrow, which is not installed; install it with "
            "pip install 'costlens[parquet]', or write CSV"
        ) from error
    kept = [*rows]
    # One type a column: as many decimals as its finest amount has.
    schema = pa.schema([(name, _type(pa, name, kept)) for name in COLUMNS])
    try:
        with pq.ParquetWriter(path, schema) as writer:
            for start in range(0, max(1, len(kept)), _ROWS_AT_ONCE):
                part = kept[start : start + _ROWS_AT_ONCE]
                writer.write_table(pa.Table.from_pylist(part, schema=schema))
    except OSError as error:
        raise _refused(path, error) from error


def _type(pa: Any, name: str, rows: Iterable[Row]) -> Any:  # noqa: ANN401 - pyarrow ships no types
    kind = COLUMNS[name]
    if kind == "text":
        return pa.string()
    if kind == "time":
        return pa.timestamp("us", tz="UTC")
    amounts = [cell for row in rows if isinstance(cell := row[name], Decimal)]
    scale = max([2, *(-int(amount.as_tuple().exponent) for amount in amounts)])
    whole = max([1, *(amount.adjusted() + 1 for amount in amounts)])
    digits = min(_MAX_DIGITS, scale + whole)
    return pa.decimal128(38, scale) if digits <= 38 else pa.decimal256(_MAX_DIGITS, scale)


def _refused(path: str, error: OSError) -> ConfigError:
    why = error.strerror or type(error).__name__
    return ConfigError(f"--output cannot be {path!r}: {why}; name a file that can be written")
