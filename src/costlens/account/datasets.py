"""Whether the attempts of a run trained on the same data, as far as their records tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from costlens.core.records import RankRecord

__all__ = ["flag_datasets"]


def flag_datasets(records: Iterable[RankRecord]) -> list[str]:
    """Return a line for each attempt that trained on another dataset version than the one before.

    An attempt that does not know its version neither differs nor agrees.

    Args:
        records: One record per attempt and rank.
    """
    known: dict[int, str] = {}
    for record in sorted(records, key=lambda r: (r.attempt.number, r.rank.rank)):
        version = record.run.dataset_version
        if version is not None:
            known.setdefault(record.attempt.number, version)
    attempts = sorted(known)
    return [
        f"attempt {later} trains on dataset version {known[later]!r}, attempt {earlier} did on "
        f"{known[earlier]!r}"
        for earlier, later in pairwise(attempts)
        if known[earlier] != known[later]
    ]
