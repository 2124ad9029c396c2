"""The manager of checkpoints: due saves, one at a time, honest results, and a resume."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import NS_PER_S, Anchor
from costlens.core.phases import Phase
from costlens.core.recorder import Recorder
from costlens.core.records import RankPart, RunPart
from costlens.core.timeline import Timeline
from costlens.errors import StorageError
from costlens.protect.cadence import Cadence, Carried
from costlens.protect.commit import Committer
from costlens.protect.interval import Rails
from costlens.protect.keeper import Keeper
from costlens.protect.manager import CheckpointManager
from costlens.protect.shelf import Shelf
from costlens.storage.store import Store
from costlens.testing import FakeClock

RUN = "gpt-small"


class Weights:
    """A training state that is a row of numbers and a step; half a second to take, 3 to load."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.weight = torch.zeros(100)
        self.step = 0

    def train(self) -> int:
        """Do one step."""
        self.step += 1
        self.weight += self.step
        return self.step

    def gather(self, step: int) -> Any:
        self.clock.advance(0.5)
        return {"weight": self.weight, "step": step}

    def restore(self, tree: Any) -> list[str]:
        self.clock.advance(3.0)
        self.weight.copy_(tree["weight"])
        self.step = tree["step"]
        return ["the weather"]


class Gate(Store):
    """A store whose writes wait until they are let through, or fail as told, as do removals."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.is_open = threading.Event()
        self.is_open.set()
        self.error: Exception | None = None
        self.keeps_all = False

    def delete(self, key: str) -> None:
        if self.keeps_all:
            raise StorageError(13, "Permission denied", key)
        super().delete(key)

    def put_many(self, objects: Any, *, durable: bool = False) -> None:
        assert self.is_open.wait(30)
        if self.error is not None:
            raise self.error
        super().put_many(objects, durable=durable)


class Bench:
    """A manager over a fake clock and a store with a gate."""

    def __init__(self, root: Path, rails: Rails, carried: Carried | None = None) -> None:
        self.clock = FakeClock()
        self.store = Gate(str(root))
        self.state = AttemptState(
            run=RunPart(id=RUN, name=RUN, costlens_version="0"),
            rank=RankPart(rank=0, host_name="host", pid=1),
            anchor=Anchor(mono_ns=0, wall_ns=1_790_000_000 * NS_PER_S),
            start_ns=0,
        )
        self.timeline = Timeline(self.clock, 0)
        self.recorder = Recorder(self.timeline)
        self.weights = Weights(self.clock)
        self.shelf = Shelf(self.store, RUN)
        facts = {"run_id": RUN, "costlens_version": "0"}
        self.keeper = Keeper(
            Committer(self.store, RUN, sleep=lambda _: None), self.shelf, 2, lambda: facts
        )
        self.cadence = Cadence(rails, lambda: 1 / 14_400.0, carried=carried)
        self.manager = CheckpointManager(
            self.state, self.timeline, self.clock, self.keeper, self.cadence, self.weights
        )

    def train(self, num_steps: int, step_s: float = 1.0) -> None:
        """Do some steps, each as long as told, and let every write end before the next."""
        for _ in range(num_steps):
            self.clock.advance(step_s)
            self.manager.step(self.weights.train())
            if self.store.is_open.is_set():
                assert self.manager._writer.wait(30)

    def close(self, *, is_clean: bool = True) -> bool:
        return self.manager.close(self.weights.step, 30.0, is_clean=is_clean)


@pytest.fixture(name="bench")
def _bench(tmp_path: Path) -> Any:
    bench = Bench(tmp_path / "checkpoints", Rails())
    yield bench
    bench.store.is_open.set()
    bench.close(is_clean=False)


def test_the_first_save_comes_within_a_minute_of_the_first_step(bench: Bench) -> None:
    """It proves the store and measures the stall; until then there is no interval."""
    bench.train(60)
    assert bench.shelf.names() == []
    bench.train(1)
    assert [name.step for name in bench.shelf.names()] == [61]
    bench.train(1)
    part = bench.state.checkpoints
    assert part is not None
    assert (part.num_saved, part.last_step, part.num_skipped) == (1, 61, 0)


def test_a_state_comes_back_in_another_process(bench: Bench, tmp_path: Path) -> None:
    """What is resumed is the state of that step, whatever happened after; and says what is not."""
    bench.train(70)
    after = Bench(tmp_path / "checkpoints", Rails())
    assert after.manager.resume() == 61
    assert after.weights.step == 61
    assert torch.equal(after.weights.weight, torch.full((100,), float(sum(range(62)))))
    part = after.state.checkpoints
    assert part is not None
    assert (part.resumed_step, part.inexact) == (61, ["the weather"])
    assert after.state.start_step == 61
    after.close(is_clean=False)


def test_a_slow_store_skips_saves_and_queues_none(bench: Bench) -> None:
    """While one write lasts, due saves are counted once each, and training goes on."""
    bench.store.is_open.clear()
    bench.train(61)
    bench.train(1000)
    part = bench.state.checkpoints
    assert part is not None
    assert (part.num_saved, part.num_skipped) == (0, 1)
    bench.store.is_open.set()
    assert bench.manager._writer.wait(30)
    bench.train(1)
    assert [name.step for name in bench.shelf.names()] == [1062, 61]


def test_a_failed_save_is_told_and_never_shown_as_saved(bench: Bench) -> None:
    """C041: the error is counted with its type; the checkpoint before it stands."""
    bench.train(61)
    bench.store.error = StorageError("no space")
    bench.train(1000, step_s=10.0)
    part = bench.state.checkpoints
    assert part is not None
    assert part.num_failed > 0
    assert (part.num_saved, part.last_step, part.last_error_type) == (1, 61, "StorageError")
    assert [name.step for name in bench.shelf.names()] == [61]


def test_the_end_saves_what_is_not_saved_yet(bench: Bench) -> None:
    """A clean end is a checkpoint at its last step; an unclean one is not."""
    bench.train(65)
    assert bench.close()
    assert [name.step for name in bench.shelf.names()] == [65, 61]


def test_the_end_waits_for_a_slow_write(bench: Bench) -> None:
    """C041: a save that is still being written at the last step is there once the end returns."""
    bench.train(60)
    bench.store.is_open.clear()
    bench.train(1)
    opening = threading.Timer(0.2, bench.store.is_open.set)
    opening.start()
    assert bench.close()
    assert [name.step for name in bench.shelf.names()] == [61]
    part = bench.state.checkpoints
    assert part is not None
    assert (part.num_saved, part.num_failed, part.last_step) == (1, 0, 61)
    opening.join()


def test_an_unclean_end_saves_nothing(bench: Bench) -> None:
    """In the middle of a step the state is half of two."""
    bench.train(65)
    assert bench.close(is_clean=False)
    assert [name.step for name in bench.shelf.names()] == [61]


def test_the_end_does_not_wait_for_ever(bench: Bench) -> None:
    """A store that hangs costs what was allowed, and the exit goes on."""
    bench.store.is_open.clear()
    bench.train(62)
    assert not bench.manager.close(62, 0.05, is_clean=True)
    assert bench.shelf.names() == []


def test_the_interval_keeps_the_tolerated_loss(tmp_path: Path) -> None:
    """Saves are never further apart than the loss that is tolerated, and the rail is named."""
    bench = Bench(tmp_path, Rails(max_loss_s=100.0), Carried(stall_s=0.5, write_s=2.0))
    bench.train(1000)
    assert bench.close(is_clean=False)
    part = bench.state.checkpoints
    assert part is not None
    assert part.interval is not None
    assert part.interval.rail == "tolerable_loss"
    assert part.num_saved >= 9
    assert len(bench.shelf.names()) == 2


def test_the_stall_is_booked_as_checkpoint(bench: Bench) -> None:
    """What the snapshot took is the phase checkpoint, and the resume restore; nothing else is."""
    bench.train(62)
    bench.manager.resume()
    spent = bench.timeline.read().until(bench.clock())
    assert spent[Phase.CHECKPOINT] == NS_PER_S // 2
    assert spent[Phase.RESTORE] == 3 * NS_PER_S
    part = bench.state.checkpoints
    assert part is not None
    assert part.stall_s == 0.5


def test_a_save_is_one_although_older_ones_cannot_be_removed(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store that only adds: every save counts, all stay, and that is said once."""
    bench.store.keeps_all = True
    bench.train(4000)
    part = bench.state.checkpoints
    assert part is not None
    assert part.num_failed == 0
    assert part.num_saved == len(bench.shelf.names()) > 3
    assert part.last_step == bench.shelf.names()[0].step
    said = [line for line in capsys.readouterr().err.splitlines() if "could not be removed" in line]
    assert len(said) == 1


def test_what_is_saved_is_known_from_a_fresh_start_on(bench: Bench) -> None:
    """Nothing: an attempt that crashes before its first save has lost all its steps."""
    assert bench.manager.resume() is None
    bench.train(3)
    assert (bench.state.start_step, bench.state.saved_step, bench.state.end_step) == (0, 0, 3)


def test_a_training_begun_anew_leaves_the_old_one_alone(bench: Bench, tmp_path: Path) -> None:
    """COSTLENS_RESUME=never: what it saves is next, although its steps are fewer; none is removed.

    Until it has saved something, what was there before still counts.
    """
    bench.train(300)
    assert bench.close()
    old = [name.step for name in bench.shelf.names()]
    place = tmp_path / "checkpoints"
    idle = Bench(place, Rails())
    assert idle.manager.resume_as("never") is None
    idle.close(is_clean=False)
    again = Bench(place, Rails())
    assert again.manager.resume() == 300
    again.close(is_clean=False)

    anew = Bench(place, Rails(), Carried(0.5, 2.0))
    assert anew.manager.resume_as("never") is None
    anew.train(4)
    assert anew.close()
    assert [name.step for name in anew.shelf.names()] == [*old, 4]

    after = Bench(place, Rails(), Carried(0.5, 2.0))
    assert after.manager.resume() == 4
    for step in (10, 20, 30):
        after.weights.step = step - 1
        after.train(1)
        after.manager.save(step, "manual")
        assert after.manager.wait(30)
    assert [name.step for name in after.shelf.names()] == [*old, 30, 20, 4], "4 was resumed from"
    manifest = after.shelf.read(after.shelf.names()[2]).manifest
    assert manifest.parent == str(next(n for n in after.shelf.names() if n.step == 4))
    after.close(is_clean=False)


def test_names_follow_their_past_whatever_the_clock_says(bench: Bench, tmp_path: Path) -> None:
    """Another host's clock is an hour behind: its checkpoints still belong to the same training."""
    bench.train(65)
    assert bench.close()
    behind = Bench(tmp_path / "checkpoints", Rails())
    behind.state.anchor = Anchor(mono_ns=0, wall_ns=1_789_996_400 * NS_PER_S)
    assert behind.manager.resume() == 65
    behind.train(10)
    assert behind.close()
    after = Bench(tmp_path / "checkpoints", Rails())
    assert after.manager.resume() == 75
    after.close(is_clean=False)


def test_the_manifest_says_where_it_comes_from(bench: Bench) -> None:
    """What a resume cannot restore, the counts and the training it belongs to."""
    assert bench.manager.resume() is None
    gather = bench.weights.gather
    bench.weights.gather = lambda step: {**gather(step), "inexact": ["the weather"]}  # type: ignore[method-assign]
    bench.train(61)
    (name,) = bench.shelf.names()
    manifest = bench.shelf.read(name).manifest
    assert (manifest.inexact, manifest.parent) == (["the weather"], None)
    assert manifest.lineage <= name.stamp
    assert bench.manager.wait(30)
    part = bench.state.checkpoints
    assert part is not None
    assert part.num_bytes == manifest.num_bytes, "what `costlens checkpoints ls` shows"
