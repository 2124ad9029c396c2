"""Snapshots: every bit of a state, untouched by what happens after, in memory that is reused."""

from __future__ import annotations

import datetime as dt
import io
import random
import sys
from collections import Counter, OrderedDict, defaultdict
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from costlens.errors import CheckpointError
from costlens.protect.packing import Slot, pack, unpack
from costlens.protect.snapshot import HostBuffer, Snapshot, load_tree

DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn),
]


def round_trip(snapshot: Snapshot) -> Any:
    """Return the state as another process would load it: from copies of all bytes."""
    buffer = torch.empty(snapshot.num_bytes, dtype=torch.uint8)
    buffer.numpy().data[:] = bytes(snapshot.view())
    return load_tree(bytes(snapshot.skeleton), buffer)


def same(left: Any, right: Any) -> bool:
    """Return whether two trees are equal to the bit, types included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (left, right)]
        return (
            left.dtype is right.dtype
            and left.shape == right.shape
            and torch.equal(bits[0], bits[1])
        )
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def tensors() -> st.SearchStrategy[torch.Tensor]:
    """Return tensors of all types and shapes, empty ones and views included."""

    def make(dtype: torch.dtype, shape: tuple[int, ...], seed: int, turned: bool) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        # From a list of bytes: NaNs with payloads and subnormals are bits like any other.
        size = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
        high = 2 if dtype is torch.bool else 256
        raw = torch.randint(0, high, (size,), dtype=torch.uint8, generator=generator)
        tensor = raw.view(dtype).view(shape)
        return tensor.transpose(0, -1) if turned and tensor.dim() > 1 else tensor

    return st.builds(
        make,
        st.sampled_from(DTYPES),
        st.lists(st.integers(0, 5), max_size=3).map(tuple),
        st.integers(0, 10_000),
        st.booleans(),
    )


LEAVES = st.one_of(
    tensors(),
    *(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)),
    *(st.binary(max_size=5), st.complex_numbers(allow_nan=False), st.sampled_from(DTYPES)),
)
KEYS = st.one_of(st.text(max_size=3), st.integers(0, 9))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


@given(TREES)
def test_any_tree_comes_back_to_the_bit(tree: Any) -> None:
    """C058: types, shapes, bits, order and containers are those of the state, by weights_only."""
    assert same(round_trip(HostBuffer().take(tree)), tree)


def training_state() -> dict[str, Any]:
    """Return the state of a small training, as torch's own objects give it."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    scheduler.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "random": random.getstate(),
        "torch": torch.get_rng_state(),
    }


def test_a_training_state_comes_back() -> None:
    """What torch's objects give as their state needs no help."""
    state = training_state()
    loaded = round_trip(HostBuffer().take(state))
    assert same(loaded["model"], state["model"])
    assert same(loaded["optimizer"], state["optimizer"])
    assert loaded["random"] == state["random"]
    assert torch.equal(loaded["torch"], state["torch"])


def test_what_changes_afterwards_is_not_in_it() -> None:
    """A step right after the call changes tensors in place; the snapshot holds the state before."""
    state = {"weight": torch.ones(1000), "step": torch.tensor(1.0)}
    snapshot = HostBuffer().take(state)
    state["weight"].mul_(7.0)
    state["step"].add_(1)
    loaded = round_trip(snapshot)
    assert torch.equal(loaded["weight"], torch.ones(1000))
    assert loaded["step"] == 1.0


def test_tied_weights_are_stored_once_and_come_back_tied() -> None:
    """One tensor under two names takes its bytes once; a view of it is a tensor of its own."""
    weight = torch.randn(64, 64)
    snapshot = HostBuffer().take({"in": weight, "out": weight, "row": weight[3]})
    loaded = round_trip(snapshot)
    assert snapshot.num_bytes == 64 * 64 * 4 + 64 * 4
    assert loaded["in"] is loaded["out"]
    assert torch.equal(loaded["row"], weight[3])


def test_the_memory_is_used_again() -> None:
    """A second snapshot lands at the addresses of the first, and so does a smaller one."""
    buffer, state = HostBuffer(), {"weight": torch.randn(5000)}
    first = buffer.take(state)
    address = first.buffer.data_ptr()
    state["weight"].add_(1)
    second = buffer.take(state)
    smaller = buffer.take({"weight": torch.zeros(10)})
    assert second.buffer.data_ptr() == smaller.buffer.data_ptr() == address
    assert torch.equal(round_trip(smaller)["weight"], torch.zeros(10))


def test_memory_that_grows_is_not_held_twice() -> None:
    """A state that outgrows the buffer gets a new one, with nothing left of the old views."""
    buffer = HostBuffer()
    buffer.take({"weight": torch.randn(10)})
    grown = buffer.take({"weight": torch.full((1000,), 5.0)})
    assert torch.equal(round_trip(grown)["weight"], torch.full((1000,), 5.0))


def test_odd_tensors_come_back_too() -> None:
    """Sparse and quantized tensors, and conjugate views, take the slow way but arrive."""
    sparse = torch.eye(3).to_sparse()
    conjugate = torch.tensor([1 + 2j]).conj()
    loaded = round_trip(HostBuffer().take({"sparse": sparse, "conjugate": conjugate}))
    assert torch.equal(loaded["sparse"].to_dense(), torch.eye(3))
    assert torch.equal(loaded["conjugate"].resolve_conj(), torch.tensor([1 - 2j]))


class Mode(IntEnum):
    """Looks like a number, and does not load as one."""

    ON = 1


@pytest.mark.parametrize(
    "culprit",
    [
        *(np.float64(1), np.zeros(3), Path("x"), dt.timedelta(1), Mode.ON),
        *(defaultdict(int, a=1), {1, 2}.__iter__(), lambda: 0),
    ],
    ids=lambda culprit: type(culprit).__name__,
)
def test_what_would_not_load_is_refused_by_name(culprit: Any) -> None:
    """C058: the error names the place and the type, before anything is written."""
    with pytest.raises(CheckpointError, match=r"state\['callbacks'\]\['mine'\]\[1\]") as caught:
        HostBuffer().take({"callbacks": {"mine": [0, culprit]}})
    assert type(culprit).__qualname__ in str(caught.value)


def test_a_tree_that_imitates_a_mark_is_refused() -> None:
    """What a skeleton uses for itself cannot be a user's value."""
    with pytest.raises(CheckpointError, match="reserved"):
        pack({"mine": ("costlens.slot", 0)})


def test_containers_of_all_kinds() -> None:
    """Counters, sets and sizes are what they were."""
    tree = {"counter": Counter("aab"), "set": {1, "x"}, "size": torch.Size([2, 3])}
    assert round_trip(HostBuffer().take(tree)) == tree


@pytest.mark.parametrize(
    "slot",
    [
        Slot("float32", (4,), 0, 12),
        Slot("float32", (4,), 8, 16),
        Slot("float32", (4,), 64, 16),
        Slot("float32", (4,), -64, 16),
        Slot("nonsense", (4,), 0, 16),
        Slot("load", (4,), 0, 16),
    ],
    ids=["too short", "misaligned", "outside", "before", "no type", "a function"],
)
def test_a_slot_that_lies_is_refused(slot: Slot) -> None:
    """A damaged or hostile description never reads beside the buffer."""
    skeleton = pack({"weight": torch.zeros(4)}).skeleton
    with pytest.raises(CheckpointError):
        unpack(skeleton, (slot,), torch.zeros(64, dtype=torch.uint8))


def test_a_mark_without_its_slot_is_refused() -> None:
    """A skeleton that names more tensors than there are is no state."""
    skeleton = pack({"weight": torch.zeros(4)}).skeleton
    with pytest.raises(CheckpointError, match="that it lacks"):
        unpack(skeleton, (), torch.zeros(64, dtype=torch.uint8))


def test_a_skeleton_never_runs_code() -> None:
    """C152: a pickle that would call something is refused, not run."""

    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return (sys.setrecursionlimit, (12_345,))

    before, target = sys.getrecursionlimit(), io.BytesIO()
    torch.save({"slots": [], "tree": {"weight": Hostile()}}, target)
    with pytest.raises(CheckpointError, match="cannot be loaded safely"):
        load_tree(target.getvalue(), torch.empty(0, dtype=torch.uint8))
    assert sys.getrecursionlimit() == before
