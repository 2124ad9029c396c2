"""How long a rank stood in `init_process_group`, and what is left behind when nobody listens."""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch.distributed import device_mesh, distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from costlens.core.clock import NS_PER_S
from costlens.observe.gang_wait import GangWaits, explain_unseen
from costlens.testing import FakeClock


class Listener:
    """Somebody who wants to know."""


@pytest.fixture
def clock() -> FakeClock:
    """Return the clock of the waits."""
    return FakeClock(NS_PER_S)


@pytest.fixture
def waits(clock: FakeClock) -> Iterator[GangWaits]:
    """Return waits of their own, with nobody listening; afterwards torch is as it was."""
    plain = dist.init_process_group
    yield GangWaits(clock)
    gc.collect()
    assert dist.init_process_group is plain
    assert distributed_c10d.init_process_group is plain


def join() -> None:
    """Become the only rank of a group, and leave it again."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    dist.destroy_process_group()


def test_a_real_group_is_made_as_without_us_and_timed(waits: GangWaits) -> None:
    """However the name is looked up, torch makes the group, and the call counts."""
    real = GangWaits()
    listener = Listener()
    real.listen(listener)
    since_ns = 0
    assert real.total_ns(since_ns) is None
    join()
    once_ns = real.total_ns(since_ns)
    assert once_ns > 0
    dist.HashStore()
    device_mesh.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.is_initialized()
    dist.destroy_process_group()
    assert real.total_ns(since_ns) > once_ns
    real.ignore(listener)
    before_ns = real.total_ns(since_ns)
    join()
    assert real.total_ns(since_ns) == before_ns, "nobody listens any more"


def test_waits_add_up_and_one_under_way_counts_so_far(
    waits: GangWaits, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that stands in the rendezvous is seen doing so; earlier attempts' waits are not its.

    What the call returns or raises passes through.
    """
    during = []

    def init_process_group(seconds: float) -> str:
        clock.advance(seconds)
        during.append(waits.total_ns(0))
        clock.advance(seconds)
        if seconds > 2:
            raise TimeoutError("the others did not come")
        return "made"

    for home in (dist, distributed_c10d):
        monkeypatch.setattr(home, "init_process_group", init_process_group)
    listener = Listener()
    waits.listen(listener)
    waits.listen(listener)
    assert dist.init_process_group(1) == "made"
    later_ns = clock()
    with pytest.raises(TimeoutError):
        dist.init_process_group(seconds=3)
    assert during == [NS_PER_S, 5 * NS_PER_S]
    assert waits.total_ns(0) == 8 * NS_PER_S
    assert waits.total_ns(later_ns) == 6 * NS_PER_S
    assert waits.total_ns(clock()) is None
    waits.ignore(listener)
    assert dist.init_process_group is init_process_group
    monkeypatch.undo()


def test_the_wrapper_goes_with_the_last_listener(waits: GangWaits) -> None:
    """A callback that no fit ever used leaves nothing behind; a run that goes on keeps it."""
    plain = dist.init_process_group
    used, unused = Listener(), Listener()
    waits.listen(used)
    wrapped = dist.init_process_group
    waits.listen(unused)
    assert plain is not wrapped is dist.init_process_group
    assert pickle.loads(pickle.dumps(wrapped)) is wrapped
    waits.ignore(used)
    assert dist.init_process_group is wrapped
    del unused
    gc.collect()
    assert dist.init_process_group is plain
    waits.ignore(used)


def test_another_tools_wrapper_stays(waits: GangWaits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrapped the function after us keeps their wrapper, and it still works."""
    plain, listener = dist.init_process_group, Listener()
    waits.listen(listener)
    ours = dist.init_process_group

    def theirs(*args: object, **kwargs: object) -> object:
        return ours(*args, **kwargs)

    dist.init_process_group = theirs
    waits.ignore(listener)
    assert dist.init_process_group is theirs
    join()
    dist.init_process_group = plain


def test_the_reason_why_a_wait_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that nobody saw coming, no group, and a job of one rank are told apart."""
    assert explain_unseen(1) is None
    assert "joined no process group" in explain_unseen(2)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        assert "start the run first" in explain_unseen(2)
    finally:
        dist.destroy_process_group()
    monkeypatch.delitem(sys.modules, "torch.distributed")
    assert "joined no process group" in explain_unseen(2)
