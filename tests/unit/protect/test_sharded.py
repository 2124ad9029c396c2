"""Tensors that are spread over ranks: the part is saved like any other, the rest beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from costlens.errors import CheckpointError
from costlens.protect.packing import pack, unpack
from costlens.protect.sharded import describe_sharding
from costlens.protect.snapshot import HostBuffer, load_tree
from costlens.protect.state_checks import check_model


@pytest.fixture(name="mesh")
def _mesh() -> Iterator[DeviceMesh]:
    """Return the mesh of a process group of one."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def test_a_part_goes_through_the_buffer(mesh: DeviceMesh) -> None:
    """Its bytes are in the buffer, not in the skeleton; mesh, placement and shape come back."""
    values = torch.arange(5000.0).reshape(50, 100)
    tensor = distribute_tensor(values, mesh, [Shard(0)])
    snapshot = HostBuffer().take({"weight": tensor, "again": tensor})
    with torch.no_grad():
        tensor.to_local().zero_()
    assert values.nbytes <= snapshot.num_bytes < values.nbytes + 64, "one copy"
    assert len(snapshot.skeleton) < 8000
    loaded = load_tree(snapshot.skeleton, snapshot.buffer)
    for found in loaded.values():
        assert isinstance(found, DTensor)
        assert (found.placements, found.device_mesh) == ((Shard(0),), mesh)
        assert torch.equal(found.to_local(), values)


def test_what_imitates_a_part_is_refused(mesh: DeviceMesh) -> None:
    """A skeleton that somebody else wrote makes no tensor out of anything."""
    packing = pack({"weight": distribute_tensor(torch.ones(4), mesh, [Shard(0)])})
    mark, _ = packing.skeleton["weight"]
    for content in ("weight", [1], [torch.ones(3), torch.ones(3)]):
        with pytest.raises(CheckpointError, match="without what it is a part of"):
            unpack({"weight": (mark, content)}, packing.slots, torch.zeros(64, dtype=torch.uint8))


def test_another_sharding_is_refused(mesh: DeviceMesh) -> None:
    """A whole model cannot take parts, nor the other way round; the message names both."""
    model = torch.nn.Linear(4, 4)
    saved = {
        name: distribute_tensor(value, mesh, [Shard(0)])
        for name, value in model.state_dict().items()
    }
    with pytest.raises(CheckpointError, match=r"'weight' is whole and \(Shard\(dim=0\),\) over"):
        check_model("0", model, saved)
    replicated = distribute_tensor(torch.ones(2), mesh, [Replicate()])
    assert describe_sharding(replicated) == "(Replicate(),) over (1,) ranks"
