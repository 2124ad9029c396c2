"""How exported rows become a file: CSV by the standard library, Parquet by pyarrow."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import IO, Any

from costlens.account.focus import COLUMNS, Cell
from costlens.cli.progress import progress
from costlens.errors import ConfigError, MissingExtraError, StorageError
from costlens.storage import files

__all__ = ["write_csv", "write_parquet"]

Row = Mapping[str, Cell]

_ROWS_AT_ONCE = 10_000
_MAX_DIGITS = 76


def write_csv(rows: Iterable[Row], path: str | None) -> None:
    """Write the rows with a line of titles; empty cells are null.

    Args:
        rows: The rows.
        path: A path or an fsspec URL; None is standard output.

    Raises:
        ConfigError: If the file cannot be written.
        StorageError: If the store refuses it.
    """
    with _opened(path) as file:
        writer = csv.DictWriter(file, [*COLUMNS], lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _show(cell) for name, cell in row.items()} for row in rows)


@contextlib.contextmanager
def _opened(path: str | None) -> Iterator[IO[str]]:
    if path is None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # as in a file: names are data
        yield sys.stdout
        return
    with _opened_binary(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield text
        text.detach()


@contextlib.contextmanager
def _opened_binary(path: str) -> Iterator[IO[bytes]]:
    """Open a local file, or a temporary one that goes to its store as a whole at the end."""
    local = files.local_path(path)
    if local is None:
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with progress("writing"):
                files.write_whole(path, file.read())
        return
    try:
        opened = local.open("wb")
    except OSError as error:
        raise _refused(path, error) from error
    with opened:
        yield opened


def _show(cell: Cell) -> str | None:
    if isinstance(cell, datetime):
        text = cell.isoformat(timespec="microseconds" if cell.microsecond else "seconds")
        return text.replace("+00:00", "Z")
    return f"{cell:f}" if isinstance(cell, Decimal) else cell


def write_parquet(rows: Iterable[Row], path: str) -> None:
    """Write the rows as Parquet: exact decimals, and times in UTC to the microsecond.

    Args:
        rows: The rows.
        path: A path or an fsspec URL.

    Raises:
        MissingExtraError: If pyarrow is not installed.
        ConfigError: If the file cannot be written.
        StorageError: If the store refuses it.
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
        with _opened_binary(path) as file, pq.ParquetWriter(file, schema) as writer:
            for start in range(0, max(1, len(kept)), _ROWS_AT_ONCE):
                part = kept[start : start + _ROWS_AT_ONCE]
                writer.write_table(pa.Table.from_pylist(part, schema=schema))
    except StorageError:
        raise  # it says what to do itself
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
