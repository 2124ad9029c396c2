"""The all-reduce of gradients: DDP is asked for what it times, on a thread that may be stuck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from costlens.core.torch_records import AllReducePart
from costlens.observe.all_reduce import AllReduceWatch

MS = 1_000_000


class Reducer:
    """Answers as a DDP module does."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {"iteration": 0, "backend_name": "nccl"}

    def tell(self, iteration: int, whole_ms: int, hidden_ms: int) -> None:
        """Time a pass."""
        self.answer = {
            "iteration": iteration,
            "backward_comm_time": whole_ms * MS,
            "backward_compute_comm_overlap_time": hidden_ms * MS,
        }

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return self.answer


def take(watch: AllReduceWatch) -> AllReducePart | None:
    """Return what is known once the thread that asks has answered."""
    watch.take()
    assert watch._errand is None or watch._errand.wait(10)
    return watch.take()


def test_passes_add_up_and_each_counts_once() -> None:
    """30 of 50 ms and 10 of 20 ms are hidden: 20 and 10 ms are not, however often one asks."""
    reducer, watch = Reducer(), AllReduceWatch()
    watch.see(reducer)
    assert take(watch) is None
    reducer.tell(100, 50, 30)
    take(watch)
    assert take(watch) == AllReducePart(num_sampled=1, exposed_s=0.02, least_exposed_s=0.02)
    reducer.tell(200, 20, 10)
    assert take(watch) == AllReducePart(num_sampled=2, exposed_s=0.03, least_exposed_s=0.01)


def test_the_first_passes_are_start_up() -> None:
    """What connecting takes is in no sum, and neither is a pass that reduced nothing."""
    reducer, watch = Reducer(), AllReduceWatch()
    watch.see(reducer)
    reducer.tell(10, 5000, 0)
    assert take(watch) is None
    reducer.answer = {"iteration": 100}
    assert take(watch) is None


def test_a_module_that_is_no_ddp_is_not_asked() -> None:
    """Nor is one that is gone."""
    watch = AllReduceWatch()
    watch.see(torch.nn.Linear(2, 2))
    assert take(watch) is None
    watch.see(Reducer())
    assert take(watch) is None
    assert watch._errand is None


class Proxy(torch.nn.Module):
    """Answers to any name, as modules that stand for a remote one do."""

    def __getattr__(self, name: str) -> Any:
        return lambda: 17


class Refusing(torch.nn.Module):
    """Looks up what it lacks in a dictionary, and does not translate what that raises."""

    def __getattr__(self, name: str) -> Any:
        return {}[name]


@pytest.mark.parametrize("kind", [Proxy, Refusing])
def test_a_module_that_answers_to_any_name_is_no_ddp(kind: type[torch.nn.Module]) -> None:
    """What a user's ``__getattr__`` returns or raises reaches neither the loop nor the record."""
    watch, module = AllReduceWatch(), kind()
    watch.see(module)
    assert take(watch) is None
    assert watch._errand is None


def test_a_second_module_counts_from_its_own_first_pass() -> None:
    """After 900 passes of one, the 100th pass of the next counts, and its first ten do not."""
    first, second, watch = Reducer(), Reducer(), AllReduceWatch()
    watch.see(first)
    first.tell(900, 50, 30)
    take(watch)
    watch.see(first)
    take(watch)
    watch.see(second)
    second.tell(5, 5000, 0)
    take(watch)
    second.tell(100, 30, 20)
    assert take(watch) == AllReducePart(num_sampled=2, exposed_s=0.03, least_exposed_s=0.01)


def test_a_reducer_that_is_stuck_holds_nobody_up() -> None:
    """While it waits for another rank under its lock, the pipeline goes on and asks no more."""
    reducer, watch, lock, asked = Reducer(), AllReduceWatch(), threading.Lock(), []

    def stuck() -> dict[str, Any]:
        asked.append(1)
        with lock:
            return {"iteration": 100, "backward_comm_time": 9 * MS,
                    "backward_compute_comm_overlap_time": 0}  # fmt: skip

    reducer._get_ddp_logging_data = stuck  # type: ignore[method-assign]
    watch.see(reducer)
    with lock:
        assert [watch.take() for _ in range(5)] == [None] * 5
    assert len(asked) == 1
    assert watch._errand is not None
    assert watch._errand.wait(10)
    assert watch.take() == AllReducePart(num_sampled=1, exposed_s=0.009, least_exposed_s=0.009)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of one rank."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_compiled_ddp_module_is_asked(group: None) -> None:
    """torch.compile returns a module of its own around the one that reduces."""
    module, watch = DistributedDataParallel(torch.nn.Linear(4, 4)), AllReduceWatch()
    compiled = torch.compile(module, backend="eager")
    watch.see(compiled)
    assert watch._module() is module


def test_torch_times_its_hundredth_pass(group: None) -> None:
    """A real module names the fields that are read, and times no pass between 10 and 100."""
    module, watch = DistributedDataParallel(torch.nn.Linear(4, 4)), AllReduceWatch()
    watch.see(module)
    for _ in range(50):
        module(torch.ones(2, 4)).sum().backward()
    assert take(watch) is None
    for _ in range(60):
        module(torch.ones(2, 4)).sum().backward()
    part = take(watch)
    assert part is not None
    assert part.num_sampled == 1
    assert 0 <= part.least_exposed_s == part.exposed_s < 10
