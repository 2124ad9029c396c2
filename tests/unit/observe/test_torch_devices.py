"""What torch says of its devices, and that asking it never initialises CUDA."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from costlens.observe.torch_devices import ask_torch
from costlens.observe.trainer.facts import device_ordinals


def _install(monkeypatch: pytest.MonkeyPatch, **cuda: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(**cuda)))


def test_without_torch_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that never loaded torch is not made to."""
    monkeypatch.delitem(sys.modules, "torch")
    assert ask_torch() is None
    assert "torch" not in sys.modules


def test_cuda_that_sleeps_is_left_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """C080: before CUDA is initialised, nothing but that is asked."""
    _install(monkeypatch, is_initialized=lambda: False)
    assert ask_torch() is None
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # while it is being imported
    assert ask_torch() is None


def test_every_device_is_named_as_the_driver_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """UUID and PCI id in the driver's spelling, each where this torch has it."""
    new = SimpleNamespace(uuid="C-1", pci_domain_id=0, pci_bus_id=0x9A, pci_device_id=0)
    devices = [new, SimpleNamespace(uuid="a-2"), SimpleNamespace(name="an old torch")]
    _install(
        monkeypatch,
        is_initialized=lambda: True,
        device_count=lambda: len(devices),
        get_device_properties=devices.__getitem__,
    )
    told = ask_torch()
    assert told is not None
    assert [(device.uuid, device.pci_id) for device in told] == [
        ("C-1", "00000000:9A:00.0"),
        ("a-2", None),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("device", "ordinals"), [("cuda:3", (3,)), ("cuda", None), ("cpu", None), ("cpu:0", None)]
)
def test_a_trainer_names_its_device(device: str, ordinals: tuple[int, ...] | None) -> None:
    """The strategy's root device says which of torch's devices the rank drives."""
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(device)))
    assert device_ordinals(trainer) == ordinals  # type: ignore[arg-type]
