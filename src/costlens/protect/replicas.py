"""What ranks hold alike is written once: by rank 0, and by the others only where they differ.

Nobody says which state is replicated (a DDP module, its buffers, a user's own loop): after each
snapshot rank 0 tells the digests of its tensors, and every other rank compares. What is equal to
the bit is left out. The writers' threads; goes through the board of the process group.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import xxhash

from costlens.core.clock import NS_PER_S, Clock
from costlens.protect.agreement import UNREACHABLE, Board
from costlens.protect.manifest import MAX_RUNS, CheckpointName
from costlens.protect.packing import Slot
from costlens.protect.sharded import has_parts
from costlens.protect.snapshot import Snapshot

__all__ = ["Replicas", "Run"]

Run = tuple[int, int]
"""Offset and length of bytes in a buffer."""

_MAX_BLOCKS = MAX_RUNS
_DIGEST_BYTES = 16
# More of its own than that would be copied together in memory that a save is not to take.
_MAX_OWN_SHARE = 1 / 8
_PATIENCE_S = 30.0
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5


@dataclass(slots=True)
class Replicas:
    """Finds what a rank need not write.

    Args:
        board: What all ranks of the launch see.
        rank: This rank; rank 0 tells.
        clock: Monotonic nanoseconds.
        sleep: Waits between two looks.
    """

    board: Board
    rank: int
    clock: Clock = time.perf_counter_ns
    sleep: Callable[[float], None] = time.sleep
    _told: str = field(default="", init=False)

    def tell(self, name: CheckpointName, snapshot: Snapshot) -> None:
        """Tell the others what rank 0 has, at most 22 kB that the next save replaces; about 5 GB/s.

        Args:
            name: The checkpoint.
            snapshot: What rank 0 writes, all of it.
        """
        told = "nothing" if has_parts(snapshot.skeleton) else _describe(snapshot)
        text = f"{name} {told}"
        with suppress(*UNREACHABLE):
            self.board.replace("replicas", self._told, text)
            self._told = text
            self.board.replace(f"{name}/replicas", "", "told")

    def find_own(self, name: CheckpointName, snapshot: Snapshot) -> list[Run] | None:
        """Return the bytes that rank 0 does not write, None where this rank writes everything.

        Any rank but 0; waits for what it tells, at most 30 s.

        Args:
            name: The checkpoint.
            snapshot: What this rank would write.
        """
        # Tensors that are spread over the ranks are what each alone has.
        found = None if has_parts(snapshot.skeleton) else self._wait(name)
        if found is None:
            return None
        layout, _, digests = found.partition(" ")
        blocks = _cut(snapshot.slots)
        if layout != _digest_layout(snapshot, blocks):
            return None
        theirs, ours = base64.b64decode(digests), _digest_blocks(snapshot, blocks)
        runs = [
            _range_of(block)
            for index, block in enumerate(blocks)
            if theirs[index * _DIGEST_BYTES : (index + 1) * _DIGEST_BYTES] != ours[index]
        ]
        num_own = sum(length for _, length in runs)
        return runs if num_own <= _MAX_OWN_SHARE * snapshot.num_bytes else None

    def _wait(self, name: CheckpointName) -> str | None:
        deadline_ns, pause_s = self.clock() + int(_PATIENCE_S * NS_PER_S), _FIRST_PAUSE_S
        with suppress(*UNREACHABLE):
            while self.board.read(f"{name}/replicas") is None:
                # Rank 0 has failed before it told.
                if self.board.read(f"{name}/outcome") or self.clock() >= deadline_ns:
                    return None
                self.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.5)
            of_name, _, text = (self.board.read("replicas") or "").partition(" ")
            return text if of_name == str(name) else None
        return None


def _describe(snapshot: Snapshot) -> str:
    blocks = _cut(snapshot.slots)
    digests = base64.b64encode(b"".join(_digest_blocks(snapshot, blocks))).decode()
    return f"{_digest_layout(snapshot, blocks)} {digests}"


def _cut(slots: Sequence[Slot]) -> list[Sequence[Slot]]:
    """Return neighbouring tensors together, so that there are not too many blocks."""
    width = max(1, -(-len(slots) // _MAX_BLOCKS))
    return [slots[start : start + width] for start in range(0, len(slots), width)]


def _range_of(block: Sequence[Slot]) -> Run:
    begin, last = block[0].offset, block[-1]
    return begin, last.offset + last.num_bytes - begin


def _digest_layout(snapshot: Snapshot, blocks: Sequence[Sequence[Slot]]) -> str:
    text = f"{snapshot.num_bytes} {[(s.offset, s.num_bytes) for block in blocks for s in block]}"
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _digest_blocks(snapshot: Snapshot, blocks: Sequence[Sequence[Slot]]) -> list[bytes]:
    return [*_iterate_digests(snapshot.view(), blocks)]


def _iterate_digests(view: memoryview, blocks: Sequence[Sequence[Slot]]) -> Iterator[bytes]:
    for block in blocks:
        found = xxhash.xxh3_128()
        for slot in block:  # not what lies between two of them
            found.update(view[slot.offset : slot.offset + slot.num_bytes])
        yield found.digest()
