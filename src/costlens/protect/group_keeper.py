"""Where the ranks of one job keep their checkpoints: each its shard, and rank 0 the manifest.

A checkpoint exists for all ranks or for none: rank 0 commits once it has seen every shard, and a
resume takes the newest one of which every rank has verified its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from costlens.core.clock import NS_PER_S
from costlens.errors import CheckpointError, CostlensError, StorageError
from costlens.protect.keeper import Keeper, Resumable
from costlens.protect.manifest import CheckpointName, Kind, Manifest, MisfitError, Shard
from costlens.protect.meeting import Meeting
from costlens.protect.regroup import open_tree
from costlens.protect.replicas import Replicas, Run
from costlens.protect.shards import ShardExchange
from costlens.protect.shelf import Rejection
from costlens.protect.snapshot import Snapshot
from costlens.protect.state_port import StatePort
from costlens.protect.writer import Published
from costlens.storage.names import safe_name

__all__ = ["GroupKeeper"]

_MAX_CANDIDATES = 64
_PROBE_TRIES = 10


@dataclass
class GroupKeeper(Keeper):
    """A :class:`Keeper` of several ranks; every rank makes the same calls.

    Args:
        meeting: Where the ranks meet at the start.
        exchange: How shards come together.
        replicas: Finds what ranks hold alike.
    """

    meeting: Meeting = field(kw_only=True)
    exchange: ShardExchange = field(kw_only=True)
    replicas: Replicas = field(kw_only=True)

    def check_place(self, facts: dict[str, object]) -> None:
        """Prove that all ranks keep the same run in the same place; start-up, waits for all.

        Args:
            facts: What has to be equal on all ranks, by name.

        Raises:
            CheckpointError: If they do not, or a rank does not come.
            StorageError: If this rank cannot write there.
        """
        try:
            self.committer.check()
        except StorageError as error:
            self.meeting.refuse("settings", str(error))
            raise
        key = f"{safe_name(self.shelf.run_id)}/probe-{CheckpointName.new(0, 1, time.time())}"
        store, text = self.shelf.store, json.dumps(facts, sort_keys=True)

        def compare(answers: Sequence[str]) -> str:
            for rank, answer in enumerate(answers):
                if answer != text:
                    raise CheckpointError(_describe_difference(rank, json.loads(answer), facts))
            store.create(key, b"costlens")
            return key

        probe = self.meeting.hold("settings", text, compare)
        is_seen = self._sees(probe)
        try:
            self.meeting.hold("place", str(is_seen), _check_seen(store.shown_url))
        finally:
            if self.meeting.rank == 0:
                store.delete(probe)

    def publish(
        self,
        name: CheckpointName,
        kind: Kind,
        snapshot: Snapshot,
        time_s: float,
        inexact: Sequence[str] = (),
    ) -> Published:
        """Write this rank's shard, and commit with the others; see :meth:`Keeper.publish`.

        Raises:
            StorageError: If the store refused.
            CheckpointError: If another rank has no shard, or the store kept something else.
        """
        before, rank = self.committer.num_retries, self.meeting.rank
        start_ns = self.exchange.clock()
        try:
            runs = self._find_own(name, snapshot)
            shard = self.committer.write_shard(name, rank, snapshot.skeleton, snapshot.view(), runs)
            if rank != 0:
                self.committer.announce(name, shard)
        except (CostlensError, OSError, MemoryError) as error:
            if rank == 0:
                self.exchange.tell_failed(name, f"rank 0: {error}", is_sure=True)
            else:
                self.exchange.tell_failure(name, str(error))
            raise
        write_s, left = (self.exchange.clock() - start_ns) / NS_PER_S, None
        if rank == 0:
            shards = self._collect(name, shard, write_s)
            self._commit(name, self._manifest(name, kind, time_s, shards, inexact))
            left = self._prune()
        else:
            self._follow(name, shard, write_s)
        return Published(shard.stored_bytes, self.committer.num_retries - before, left)

    def _find_own(self, name: CheckpointName, snapshot: Snapshot) -> list[Run] | None:
        """Return what this rank alone has to write, None for everything."""
        if self.meeting.rank != 0:
            return self.replicas.find_own(name, snapshot)
        self.replicas.tell(name, snapshot)
        return None

    def load(self, source: StatePort) -> Resumable | None:
        """Return the newest checkpoint of which every rank has verified its shard, or None.

        Args:
            source: What is to be restored.

        Raises:
            CheckpointError: If other ranks have saved it and these cannot take it, a rank does not
                come, or the store cannot be listed.
        """
        self.shelf.rejections.clear()
        for name in self._candidates():
            loaded, reason = self._try(name, source)
            verdict = self.meeting.hold(f"load {name}", reason, _first_reason)
            if not verdict:
                return loaded
            loaded = None  # its memory goes before the next one comes
            self.shelf.rejections.append(Rejection(name, verdict, is_final=bool(reason)))
        return None

    def restore(self, put_back: Callable[[], list[str]]) -> list[str]:
        """Return what putting a state back returns, once every rank has done so.

        Raises:
            CheckpointError: If it fits not on every rank.
        """
        try:
            inexact = put_back()
        except Exception as error:
            self.meeting.refuse("restored", str(error))
            raise
        self.meeting.hold("restored", "", _first_reason)
        return inexact

    def begin_anew(self) -> None:
        """Note that all ranks begin a training; they meet, for they name it alike."""
        lineage = self.meeting.hold("begin", "", lambda _: self._next_lineage())
        self.resumed, self.lineage = None, lineage

    def _collect(self, name: CheckpointName, own: Shard, write_s: float) -> list[Shard]:
        try:
            return self.exchange.collect(name, own, write_s)
        except CheckpointError as error:
            self.committer.discard(name, own)
            self.exchange.tell_failed(name, str(error), is_sure=True)
            raise

    def _commit(self, name: CheckpointName, manifest: Manifest) -> None:
        try:
            self.committer.commit(name, manifest)
        except (StorageError, CheckpointError) as error:
            # It may exist although its writer was told otherwise: nobody removes what it names.
            self.exchange.tell_failed(name, str(error), is_sure=False)
            raise
        self.exchange.tell_saved(name)

    def _follow(self, name: CheckpointName, shard: Shard, write_s: float) -> None:
        reason, can_go = self.exchange.wait_outcome(name, write_s)
        if reason is None:
            return
        if can_go:
            self.committer.discard(name, shard)
        elif name in self.shelf.names():  # the store knows better than who has gone
            return
        raise CheckpointError(reason)

    def _candidates(self) -> list[CheckpointName]:
        """Return what rank 0 sees: listings of other ranks may lag."""

        def choose(_: Sequence[str]) -> str:
            return json.dumps([str(name) for name in self.shelf.current()[:_MAX_CANDIDATES]])

        texts = json.loads(self.meeting.hold("names", "", choose))
        return [name for text in texts if (name := CheckpointName.parse(text)) is not None]

    def _try(self, name: CheckpointName, source: StatePort) -> tuple[Resumable | None, str]:
        try:
            found = self.shelf.read(name)
        except CheckpointError as error:
            if self.meeting.rank == 0:  # which listed it; elsewhere it may not have arrived yet
                self.shelf.reject(name, str(error))
            return None, str(error)
        except StorageError as error:
            return None, str(error)
        rank, world_size = self.meeting.rank, self.meeting.world_size
        number = rank % found.manifest.world_size
        try:
            loaded = self.shelf.load(found, number)
        except CheckpointError as error:
            self.shelf.reject(name, f"of rank {number}, {error}")
            return None, str(error)
        except StorageError as error:
            return None, str(error)
        try:
            tree, inexact = open_tree(self.shelf, loaded, rank, world_size, source)
        except MisfitError as error:
            self.meeting.refuse(f"load {name}", str(error))
            raise
        except (CheckpointError, StorageError) as error:
            return None, str(error)
        return Resumable(found, tree, inexact), ""

    def _sees(self, key: str) -> bool:
        pause_s = 0.05
        for _ in range(_PROBE_TRIES):
            if self.shelf.store.read(key) is not None:
                return True
            self.exchange.sleep(pause_s)
            pause_s *= 1.5
        return False


def _first_reason(answers: Sequence[str]) -> str:
    return next((f"rank {rank}: {text}" for rank, text in enumerate(answers) if text), "")


def _check_seen(url: str) -> Callable[[Sequence[str]], str]:
    def check(answers: Sequence[str]) -> str:
        blind = [str(rank) for rank, text in enumerate(answers) if text != "True"]
        if blind:
            raise CheckpointError(
                f"{url} is not one place for all ranks: what rank 0 writes there is not seen by"
                f" rank {', '.join(blind[:8])}; checkpoints of several ranks need a store that all"
                " of them share"
            )
        return ""

    return check


def _describe_difference(rank: int, there: dict[str, object], here: dict[str, object]) -> str:
    name = next(name for name in here if here[name] != there.get(name))
    return (
        f"{name} is {there.get(name)!r} on rank {rank} and {here[name]!r} on rank 0; checkpoints"
        " of one job need the same settings on every rank"
    )
