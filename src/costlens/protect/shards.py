"""How the shards of several ranks become one checkpoint: collected by rank 0, told to all.

Runs on the writers' threads. What was written is told through the store itself, beside the data;
what became of the save through the board of the process group, which costs no request to the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from pydantic import ValidationError

from costlens.core.clock import NS_PER_S, Clock
from costlens.errors import CheckpointError, StorageError
from costlens.protect.agreement import UNREACHABLE, Board
from costlens.protect.commit import folder_of, shard_key
from costlens.protect.manifest import CheckpointName, Shard
from costlens.storage.store import Store

__all__ = ["COLLECT_S", "ShardExchange"]

COLLECT_S = 120.0
"""How long rank 0 waits for the shards of the others, beyond what writing took itself."""

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0
_NUM_NAMED = 8
_SAVED, _FAILED, _UNSURE = "saved", "failed", "unsure"


@dataclass(slots=True)
class ShardExchange:
    """Shards on their way into one manifest.

    Args:
        store: Where they are.
        run_id: Whose they are.
        board: What all ranks of the launch see.
        rank: This rank; rank 0 collects.
        world_size: Ranks of the job.
        patience_s: Most seconds that rank 0 waits for the others, and they for it.
        clock: Monotonic nanoseconds.
        sleep: Waits between two looks.
    """

    store: Store
    run_id: str
    board: Board
    rank: int
    world_size: int
    patience_s: float = COLLECT_S
    clock: Clock = time.perf_counter_ns
    sleep: Callable[[float], None] = time.sleep
    _deadline_ns: int = field(default=0, init=False)

    def collect(self, name: CheckpointName, own: Shard, write_s: float) -> list[Shard]:
        """Return the shards of all ranks, in their order; rank 0, blocks until they are there.

        Args:
            name: The checkpoint.
            own: What rank 0 has written.
            write_s: Seconds that took; the others may need several times as long.

        Raises:
            CheckpointError: If a rank says that it failed, or says nothing in time.
        """
        shards = {own.rank: own}
        self._begin(self.patience_s + 4 * write_s)
        for _ in self._looks():
            shards |= self._read(name, [r for r in range(self.world_size) if r not in shards])
            if len(shards) == self.world_size:
                return [shards[rank] for rank in range(self.world_size)]
            if (reason := self._ask(f"{name}/failed")) is not None:
                raise CheckpointError(reason)
        missing = [rank for rank in range(self.world_size) if rank not in shards]
        named = ", ".join(str(rank) for rank in missing[:_NUM_NAMED])
        more = "" if len(missing) <= _NUM_NAMED else f" and {len(missing) - _NUM_NAMED} more"
        raise CheckpointError(
            f"rank {named}{more} of {self.world_size} told of no shard within"
            f" {self.patience_s + 4 * write_s:.0f} s; is {self.store.shown_url} one place for all"
            " ranks, and are all of them alive?"
        )

    def tell_failure(self, name: CheckpointName, reason: str) -> None:
        """Tell rank 0 that this rank has no shard, so that it need not wait."""
        self._say(f"{name}/failed", f"rank {self.rank}: {reason}")

    def tell_saved(self, name: CheckpointName) -> None:
        """Tell the other ranks that the checkpoint exists."""
        self._say(f"{name}/outcome", _SAVED)

    def tell_failed(self, name: CheckpointName, reason: str, *, is_sure: bool) -> None:
        """Tell the other ranks why it does not exist; where that is sure, their shards can go."""
        self._say(f"{name}/outcome", f"{_FAILED if is_sure else _UNSURE}\n{reason}")

    def wait_outcome(self, name: CheckpointName, write_s: float) -> tuple[str | None, bool]:
        """Return why the save failed, None where it is saved, and whether the shard can go.

        Any rank but 0; blocks until rank 0 has told, or has been given up.

        Args:
            name: The checkpoint.
            write_s: Seconds that this rank took to write; rank 0 may need several times as long.
        """
        self._begin(2 * self.patience_s + 8 * write_s)
        for _ in self._looks():
            try:
                outcome = self.board.read(f"{name}/outcome")
            except UNREACHABLE:
                return "rank 0 has gone", False
            if outcome is not None:
                kind, _, reason = outcome.partition("\n")
                return (None, False) if kind == _SAVED else (reason, kind == _FAILED)
        return "rank 0 has not told what became of it", False

    def _begin(self, timeout_s: float) -> None:
        self._deadline_ns = self.clock() + int(timeout_s * NS_PER_S)

    def _looks(self) -> Iterator[None]:
        pause_s = _FIRST_PAUSE_S
        yield
        while self.clock() < self._deadline_ns:
            self.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)
            yield

    def _read(self, name: CheckpointName, ranks: list[int]) -> dict[int, Shard]:
        """Return the shards that are told by now and are there, as far as this rank can see."""
        keys = {shard_key(self.run_id, name, rank): rank for rank in ranks}
        folder = folder_of(self.run_id, name)
        found: dict[int, Shard] = {}
        with suppress(StorageError):  # it may answer at the next look
            sizes = {f"{folder}/{key}": size for key, size in self.store.sizes(folder).items()}
            told = self.store.read_many([key for key in keys if key in sizes])
            for key, data in told.items():
                shard = None if isinstance(data, StorageError) else _parse(data)
                if shard is not None and shard.rank == keys[key] and _is_there(shard, sizes):
                    found[shard.rank] = shard
        return found

    def _ask(self, key: str) -> str | None:
        try:
            return self.board.read(key)
        except UNREACHABLE:
            return None  # the store alone tells then

    def _say(self, key: str, text: str) -> None:
        with suppress(*UNREACHABLE):
            self.board.replace(key, "", text)


def _parse(data: bytes) -> Shard | None:
    try:
        return Shard.model_validate_json(data)
    except ValidationError:  # it is just being written
        return None


def _is_there(shard: Shard, sizes: dict[str, int]) -> bool:
    return all(sizes.get(each.key) == each.num_bytes for each in (shard.skeleton, *shard.data))
