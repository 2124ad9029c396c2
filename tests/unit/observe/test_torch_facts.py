"""What torch counts by itself: asked for off the training thread, without waking CUDA up."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from costlens.observe.torch_facts import TorchProbe

STATE: Any = SimpleNamespace(gpu_ordinals=(1,))


def contribute(probe: TorchProbe) -> dict[str, Any]:
    """Return what the probe says after a sample."""
    probe.load()
    probe.start()
    probe.sample(0)
    return dict(probe.contribute())


def test_c080_cuda_is_not_initialised_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """C080: where CUDA sleeps nothing is asked, and the record says nothing of memory."""

    def refuse(*_: object) -> None:
        raise AssertionError("CUDA was woken up")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "memory_stats", refuse)
    assert "allocator" not in contribute(TorchProbe(STATE))


def test_the_allocator_of_the_ranks_own_device_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes, retries and failures as torch counts them, of the device this rank trains on."""
    asked = []

    def stats(device: int | None) -> dict[str, int]:
        asked.append(device)
        return {
            "allocated_bytes.all.current": 5,
            "allocated_bytes.all.peak": 7,
            "reserved_bytes.all.current": 9,
            "inactive_split_bytes.all.current": 2,
            "num_alloc_retries": 3,
            "num_ooms": 1,
        }

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", stats)
    part = contribute(TorchProbe(STATE))["allocator"]
    assert asked == [1]
    assert part.model_dump() == {
        "allocated_bytes": 5,
        "reserved_bytes": 9,
        "peak_allocated_bytes": 7,
        "inactive_split_bytes": 2,
        "num_alloc_retries": 3,
        "num_ooms": 1,
    }


def test_compilations_after_start_up_are_told_from_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is there at the first look after it is its own; what a reset forgets stays counted."""
    times: dict[str, list[float]] = {"_compile.compile_inner": [2.0]}
    monkeypatch.setitem(
        sys.modules, "torch._dynamo.utils", SimpleNamespace(compilation_time_metrics=times)
    )
    has_started = False
    probe = TorchProbe(STATE, lambda: has_started)
    part = contribute(probe)["compiler"]
    assert (part.num_compilations, part.compile_s, part.startup_s) == (1, 2.0, 2.0)
    has_started = True
    times["_compile.compile_inner"].append(3.0)
    part = contribute(probe)["compiler"]
    assert (part.num_compilations, part.compile_s, part.startup_s) == (2, 5.0, 5.0)
    times["_compile.compile_inner"] = [1.0]
    part = contribute(probe)["compiler"]
    assert (part.num_compilations, part.compile_s) == (3, 6.0)
    assert (part.num_startup, part.startup_s) == (2, 5.0)


def test_what_is_compiled_long_after_the_first_iteration_is_no_start_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where nothing was compiled by then, the first compilation is a later one like any other."""
    times: dict[str, list[float]] = {"_compile.compile_inner": []}
    monkeypatch.setitem(
        sys.modules, "torch._dynamo.utils", SimpleNamespace(compilation_time_metrics=times)
    )
    probe = TorchProbe(STATE, lambda: True)
    assert "compiler" not in contribute(probe)
    times["_compile.compile_inner"].append(3.0)
    part = contribute(probe)["compiler"]
    assert (part.num_compilations, part.compile_s) == (1, 3.0)
    assert (part.num_startup, part.startup_s) == (0, 0.0)


def test_nothing_compiled_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that never loaded the compiler says nothing of it."""
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    assert "compiler" not in contribute(TorchProbe(STATE))
