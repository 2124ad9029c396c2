"""The place of a plain DataLoader over a data set with indices, exact to the sample.

The state of all that a sampler can draw from is kept as it was before a pass was made, and before
its first index was asked for: between the two, a loader draws the seed of its workers. With the
number of batches used since, that is the place. A resume sets those states again, lets the sampler
make the same permutation, and skips the indices that were used. No sample of theirs is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from costlens.protect.packing import own_tensors
from costlens.protect.position import Position, Report, State
from costlens.protect.rng import capture_host_rng, restore_rng
from costlens.protect.sources import name_other_sources, read_sources, write_sources
from costlens.protect.walk import SamplerTap, Walk

__all__ = ["IndexPosition"]


class IndexPosition(Position):
    """Follows a plain DataLoader through its sampler.

    Costs about 5 µs a batch and 0.5 ms a pass on the training thread.

    Args:
        loader: A ``torch.utils.data.DataLoader`` over a map-style data set.
        report: Takes what turns out inexact after :meth:`restore` has returned.
    """

    kind = "indices"

    def __init__(self, loader: Any, report: Report) -> None:  # noqa: ANN401 - no base class
        self._walk: Walk | None = None
        self._has_iterator_to_spare = False
        self._before_making: State = {}
        super().__init__(loader, report)
        iterator = getattr(loader, "_iterator", None)
        if iterator is not None:
            iterator._index_sampler = SamplerTap(iterator._index_sampler, self._walk_over)  # noqa: SLF001

    def state(self, num_ahead: int = 0) -> State:
        """Return the position after the batches used so far; training thread, about 20 µs.

        Between two passes it also reads the generators of the samplers.

        Args:
            num_ahead: Batches that the loop has fetched and not trained on yet, 0 to 8.
        """
        if self._restored is not None:
            return self._restored
        loader, walk = self._loader(), self._walk
        state = self._facts()
        state["has_iterator"] = getattr(loader, "_iterator", None) is not None
        if walk is None or not self.is_in_pass:
            return state | {"is_in_pass": False, "made": read_sources(loader)}
        mark = walk.mark(num_ahead)
        return state | {
            "made": walk.made,
            "begun": walk.begun,
            "num_batches": mark.num_batches,
            "num_samples": mark.num_samples,
            "digest": mark.digest,
        }

    def restore(self, state: State, on_started: Callable[[], object]) -> list[str]:
        """Put the loader where it was and return what cannot be exact, a sentence each.

        See :meth:`Position.restore`.
        """
        self._forget(state["num_passes"])
        if state["kind"] != self.kind:
            return [f"{self._name}: the checkpoint is of another kind of loader"]
        inexact = self._compare(state) + name_other_sources(self._loader(), state["made"])
        if state["is_in_pass"]:
            self._restored, self._on_started = own_tensors(state), on_started
        else:
            write_sources(self._loader(), state["made"])
            self._has_iterator_to_spare = state["has_iterator"]
        return inexact

    def inexact(self) -> list[str]:
        """Return what a resume from a save made now cannot restore, a sentence each."""
        found = self._name_draws()
        if self._num_workers and not getattr(self._loader(), "in_order", True):
            text = "in_order=False gives batches out in no order to come back to"
            found.append(f"{self._name}: {text}")
        if type(self._loader()).__iter__ is not DataLoader.__iter__:
            text = "its class iterates in a way of its own, and may fetch ahead of what is used"
            found.append(f"{self._name}: {text}")
        return found

    def _before(self) -> None:
        # The pass that was to follow had its iterator, and its workers, already: what making
        # another one draws is to be taken back.
        if self._has_iterator_to_spare:
            self._before_making = self._capture()
            self._has_iterator_to_spare = False

    def _create(self, loader: Any, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:  # noqa: ANN401
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        sampler = vars(loader)[name]
        # The iterator keeps the tap; the loader has its own sampler back before anyone looks.
        vars(loader)[name] = SamplerTap(sampler, self._walk_over)
        try:
            return make()
        finally:
            vars(loader)[name] = sampler

    def _walk_over(self, sampler: Any) -> Walk:  # noqa: ANN401 - a sampler
        restored = self._restored
        made = self._before_making if restored is None else restored["made"]
        if made:
            self._draw_from(made)
        else:
            made = self._capture()
        self._walk = Walk(iter(sampler), made, self._begin)
        return self._walk

    def _after(self) -> None:
        restored = self._restored
        if restored is not None and restored["begun"] is not None and self._walk is not None:
            # Without workers nothing has been asked for yet.
            self._walk.begin()
        self._before_making = {}

    def _before_batch(self) -> None:
        self._restored = None

    def _on_batch(self) -> None:
        if self._walk is not None:
            self._walk.note_batch()

    def _begin(self, walk: Walk) -> None:
        state = self._restored
        if state is None or state["begun"] is None:
            walk.begun = self._capture()
            return
        walk.begun = state["begun"]
        self._draw_from(walk.begun)
        num_skipped, is_same = self._count_skipped(state)
        mark = walk.skip(num_skipped)
        if is_same and (mark.num_batches, mark.digest) != (num_skipped, state["digest"]):
            self._report(
                f"{self._name}: its sampler did not give the indices that it gave before, so some"
                " samples may be seen twice and others not at all"
            )

    def _capture(self) -> State:
        return {"rng": capture_host_rng(), **read_sources(self._loader())}

    def _draw_from(self, start: State) -> None:
        restore_rng(start["rng"])
        write_sources(self._loader(), start)

    def _count_skipped(self, state: State) -> tuple[int, bool]:
        here = self._facts()
        if all(state[key] == here[key] for key in ("batch_size", "world_size")):
            return state["num_batches"], True
        if not here["batch_size"]:
            return state["num_batches"] * state["world_size"] // here["world_size"], False
        num_samples = state["num_samples"] * state["world_size"] // here["world_size"]
        return num_samples // here["batch_size"], False
