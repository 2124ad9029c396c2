"""A thread that waits for a loader's worker, looked at from elsewhere; prints what was seen."""

from __future__ import annotations

import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset

from costlens.core.phases import Phase
from costlens.core.timeline import Timeline
from costlens.observe.looks import Looks
from costlens.testing import FakeClock


class _Stuck(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.5)
        return torch.zeros(1)


def main() -> None:
    """Wait in a thread, look from this one."""
    entered, ready = threading.Event(), threading.Event()
    timeline = Timeline(FakeClock(), 0, Phase.OTHER)

    def train() -> None:
        timeline.owner = threading.get_ident()
        timeline.enter(Phase.DATA_WAIT)
        entered.set()
        for _ in DataLoader(_Stuck(), num_workers=1):
            pass
        ready.set()

    looks = Looks(timeline, lambda: None)
    thread = threading.Thread(target=train)
    thread.start()
    entered.wait()
    while not ready.wait(0.05):
        looks.look()
    thread.join()
    part = looks.part()
    assert part is not None
    print(part.model_dump_json())


if __name__ == "__main__":
    main()
