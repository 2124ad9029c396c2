"""What makes a checkpoint valid: one small manifest, written last, that names every byte of it.

``commit.py`` writes it, ``shelf.py`` reads it. A checkpoint whose manifest is missing, or whose
objects do not have the sizes and digests that it names, does not exist.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from costlens.core.part import UnixTime
from costlens.errors import CheckpointError

__all__ = [
    "MANIFEST_SCHEMA",
    "MAX_RUNS",
    "CheckpointName",
    "DataObject",
    "Kind",
    "Manifest",
    "MisfitError",
    "Shard",
    "digest",
    "next_stamp",
]

MANIFEST_SCHEMA: Literal["costlens.checkpoint/1"] = "costlens.checkpoint/1"

MAX_RUNS = 1024
"""Most runs of bytes in which the buffer of a rank may differ from its base."""

Kind = Literal["interval", "final", "preemption", "manual"]
"""What asked for a save: the interval, the end of the run, a preemption, or the user."""

_NAME = re.compile(r"(\d{12})-a(\d{4})-(\d{8}T\d{6})Z-([0-9a-f]{8})")
_STAMP = "%Y%m%dT%H%M%S"


class MisfitError(CheckpointError):
    """A checkpoint is whole and does not fit this job: nothing older is tried in its place."""


@dataclass(frozen=True, slots=True, order=True)
class CheckpointName:
    """Names one checkpoint; sorts by step, then by attempt and time.

    Args:
        step: Optimizer steps done, >= 0.
        attempt: The attempt that saved it, from 1.
        stamp: When it was begun, UTC, such as ``20260729T101500``.
        nonce: Tells two writers of the same second apart.
    """

    step: int
    attempt: int
    stamp: str
    nonce: str

    @classmethod
    def new(cls, step: int, attempt: int, wall_s: float) -> CheckpointName:
        """Return a name that no other writer has.

        Args:
            step: Optimizer steps done, >= 0.
            attempt: The attempt that saves, from 1.
            wall_s: Unix time.
        """
        return cls(step, attempt, cls.stamp_of(wall_s), secrets.token_hex(4))

    @staticmethod
    def stamp_of(wall_s: float) -> str:
        """Return the UTC time of a name, such as ``20260729T101500``."""
        return time.strftime(_STAMP, time.gmtime(wall_s))

    @classmethod
    def parse(cls, text: str) -> CheckpointName | None:
        """Return the name in a text such as ``000000000200-a0001-20260729T101500Z-1f2e3d4c``."""
        found = _NAME.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]), found[3], found[4])

    @property
    def wall_s(self) -> float:
        """Return the Unix time at which it was begun, by its writer's clock; -inf if it is none."""
        import calendar

        try:
            return float(calendar.timegm(time.strptime(self.stamp, _STAMP)))
        except ValueError:
            return float("-inf")

    def no_earlier(self, stamp: str) -> CheckpointName:
        """Return the name with this stamp where its own is earlier: clocks of hosts differ."""
        return self if self.stamp >= stamp else replace(self, stamp=stamp)

    def __str__(self) -> str:
        return f"{self.step:012d}-a{self.attempt:04d}-{self.stamp}Z-{self.nonce}"


Word = Annotated[str, Field(max_length=200)]


class _Part(BaseModel):
    # A newer costlens may have written fields that this one does not know.
    model_config = ConfigDict(extra="ignore", frozen=True)


class DataObject(_Part):
    """One object of a checkpoint."""

    key: str = Field(min_length=1, max_length=500)
    num_bytes: int = Field(ge=0)
    xxh3: str = Field(pattern=r"^[0-9a-f]{32}$", description="xxh3-128 of its bytes.")


class Shard(_Part):
    """What one rank saved."""

    rank: int = Field(ge=0)
    skeleton: DataObject
    data: list[DataObject] = Field(description="The flat buffer, cut into parts, in order.")
    num_bytes: int = Field(ge=0, description="Bytes of the flat buffer.")
    base: int | None = Field(
        None, ge=0, description="The rank whose buffer this one is like, but for ``runs``."
    )
    runs: list[tuple[int, int]] = Field(
        default_factory=list,
        max_length=MAX_RUNS,
        description="Offset and length of what is its own, in the order of ``data``.",
    )

    @property
    def stored_bytes(self) -> int:
        """Return the bytes of its objects."""
        return sum(each.num_bytes for each in (self.skeleton, *self.data))

    @property
    def own_bytes(self) -> int:
        """Return the bytes that its data objects should have together."""
        return self.num_bytes if self.base is None else sum(length for _, length in self.runs)


class Manifest(_Part):
    """A checkpoint."""

    schema_version: Literal["costlens.checkpoint/1"] = MANIFEST_SCHEMA
    run_id: str
    attempt: int = Field(ge=1)
    step: int = Field(ge=0, description="Optimizer steps done.")
    kind: Kind
    created_time: UnixTime = Field(description="Unix time of the snapshot, by its writer's clock.")
    world_size: int = Field(ge=1)
    shards: list[Shard] = Field(min_length=1, max_length=100_000)
    parent: Word | None = Field(
        None, description="Name of the checkpoint the attempt resumed from."
    )
    lineage: Word = Field(
        "", description="When the training began that it belongs to: the least stamp of its names."
    )
    inexact: list[str] = Field(
        default_factory=list, description="What a resume from it cannot restore exactly."
    )
    counts: dict[str, int] = Field(
        default_factory=dict, description="Counters of the run at the snapshot, by name."
    )
    precision: Word | None = None
    costlens_version: Word
    torch_version: Word
    ledger_copy: dict[str, str] = Field(
        default_factory=dict,
        description="What the run's records said of its cost; they are the truth where they exist.",
    )

    @property
    def num_bytes(self) -> int:
        """Return the bytes of all its objects."""
        return sum(each.num_bytes for each in self.objects)

    @property
    def objects(self) -> list[DataObject]:
        """Return all its objects, rank by rank."""
        return [each for shard in self.shards for each in (shard.skeleton, *shard.data)]

    def find_shard(self, rank: int) -> Shard:
        """Return what a rank saved.

        Raises:
            CheckpointError: If the checkpoint has no such rank.
        """
        for shard in self.shards:
            if shard.rank == rank:
                return shard
        raise CheckpointError(
            f"the checkpoint at step {self.step} was saved by {self.world_size} ranks and has none"
            f" for rank {rank}"
        )

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Return the manifest in these bytes.

        Raises:
            CheckpointError: If they are none, or not all ranks are in it.
        """
        try:
            manifest = cls.model_validate_json(data)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in fault["loc"]) or "it"
            raise CheckpointError(f"it is no manifest: {place}: {fault['msg']}") from None
        ranks = sorted(shard.rank for shard in manifest.shards)
        if len(ranks) != manifest.world_size or ranks != [*range(len(ranks))]:
            raise CheckpointError("it is no manifest: not every rank has one shard in it")
        return manifest


def next_stamp(stamp: str) -> str:
    """Return the stamp of a second later; the same where it is none."""
    wall_s = CheckpointName(0, 1, stamp, "").wall_s
    return stamp if math.isinf(wall_s) else CheckpointName.stamp_of(wall_s + 1)


def digest(data: bytes | memoryview) -> str:
    """Return the xxh3-128 of some bytes as 32 hex digits; about 5 GB/s, without the GIL."""
    import xxhash

    return xxhash.xxh3_128_hexdigest(data)
