"""The place of a plain DataLoader over a data set with indices, exact to the sample.

At the first index of a pass the state of all that a sampler can draw from is kept; with the number
of batches used since, that is the place. A resume sets that state again, lets the sampler make the
same permutation, and skips the indices that were used. No sample of theirs is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from costlens.protect.position import Position, Report, State
from costlens.protect.rng import (
    capture_host_rng,
    is_generator,
    read_generator,
    restore_rng,
    write_generator,
)
from costlens.protect.walk import SamplerTap, Walk

__all__ = ["IndexPosition"]

_MAX_SAMPLERS = 8


class IndexPosition(Position):
    """Follows a plain DataLoader through its sampler.

    Costs about 3 µs a batch and 0.2 ms a pass on the training thread.

    Args:
        loader: A ``torch.utils.data.DataLoader`` over a map-style data set.
        report: Takes what turns out inexact after :meth:`restore` has returned.
    """

    kind = "indices"

    def __init__(self, loader: Any, report: Report) -> None:  # noqa: ANN401 - no base class
        self._walk: Walk | None = None
        self._restored: State | None = None
        self._has_iterator_to_spare = False
        self._before_making: State | None = None
        super().__init__(loader, report)
        iterator = getattr(loader, "_iterator", None)
        if iterator is not None:
            iterator._index_sampler = SamplerTap(iterator._index_sampler, self._begin)  # noqa: SLF001

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
            state |= {"is_in_pass": False, "start": self._sources(loader)}
            return state
        mark = walk.mark(num_ahead)
        return state | {
            "start": walk.start,
            "num_batches": mark.num_batches,
            "num_samples": mark.num_samples,
            "digest": mark.digest,
        }

    def restore(self, state: State, on_started: Callable[[], object]) -> list[str]:
        """Put the loader where it was and return what cannot be exact, a sentence each.

        See :meth:`Position.restore`.
        """
        if state["kind"] != self.kind:
            self.num_passes = state["num_passes"]
            return [f"{self._name()}: the checkpoint is of another kind of loader"]
        self.num_passes = state["num_passes"]
        inexact = self._compare(state)
        if state["is_in_pass"]:
            self._restored, self._on_started = state, on_started
        else:
            inexact += self._set_sources(state["start"])
            self._has_iterator_to_spare = state["has_iterator"]
        return inexact

    def inexact(self) -> list[str]:
        """Return what a resume from a save made now cannot restore, a sentence each."""
        found = self._name_draws()
        loader = self._loader()
        if loader.num_workers and not getattr(loader, "in_order", True):
            text = "in_order=False gives batches out in no order to come back to"
            found.append(f"{self._name()}: {text}")
        return found

    def _before(self) -> None:
        # The pass that was to follow had its iterator, and its workers, already: what making
        # another one draws is to be taken back.
        if self._has_iterator_to_spare:
            self._before_making = capture_host_rng()
            self._has_iterator_to_spare = False

    def _create(self, loader: Any, make: Callable[[], Iterator[Any]]) -> Iterator[Any]:  # noqa: ANN401
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        sampler = vars(loader)[name]
        # The iterator keeps the tap; the loader has its own sampler back before anyone looks.
        vars(loader)[name] = SamplerTap(sampler, self._begin)
        try:
            return make()
        finally:
            vars(loader)[name] = sampler

    def _after(self, iterator: Any) -> None:  # noqa: ANN401 - torch's own
        if self._restored is not None:
            # Without workers nothing has been asked for yet.
            iterator._sampler_iter.begin()  # noqa: SLF001 - a Walk
        self._started()

    def _on_batch(self, iterator: Any) -> None:  # noqa: ANN401 - torch's own
        walk = iterator._sampler_iter  # noqa: SLF001 - a Walk, unless it was made before us
        if isinstance(walk, Walk):
            walk.note_batch()

    def _begin(self, walk: Walk) -> None:
        state, self._restored = self._restored, None
        self._walk = walk
        if state is None:
            if self._before_making is not None:
                restore_rng(self._before_making)
                self._before_making = None
            walk.open({"rng": capture_host_rng(), **self._sources(self._loader())})
            return
        start = state["start"]
        restore_rng(start["rng"])
        for sentence in self._set_sources(start):
            self._report(sentence)
        num_skipped, is_same = self._count_skipped(state)
        mark = walk.open(start, num_skipped)
        if is_same and (mark.num_batches, mark.digest) != (num_skipped, state["digest"]):
            self._report(
                f"{self._name()}: its sampler did not give the indices that it gave before, so some"
                " samples may be seen twice and others not at all"
            )

    def _count_skipped(self, state: State) -> tuple[int, bool]:
        here = self._facts()
        if all(state[key] == here[key] for key in ("batch_size", "world_size")):
            return state["num_batches"], True
        if not here["batch_size"]:
            return state["num_batches"] * state["world_size"] // here["world_size"], False
        num_samples = state["num_samples"] * state["world_size"] // here["world_size"]
        return num_samples // here["batch_size"], False

    # What samplers draw from besides the streams of the process.

    def _sources(self, loader: Any) -> State:  # noqa: ANN401 - a DataLoader
        owners = _owners(loader)
        return {
            "generators": [read_generator(each) for each in _generators(owners)],
            "epochs": [owner.epoch for owner in owners if _has_epoch(owner)],
        }

    def _set_sources(self, sources: State) -> list[str]:
        owners = _owners(self._loader())
        generators = _generators(owners)
        counting = [owner for owner in owners if _has_epoch(owner)]
        saved, epochs = sources["generators"], sources["epochs"]
        for generator, state in zip(generators, saved, strict=False):
            write_generator(generator, state)
        for owner, epoch in zip(counting, epochs, strict=False):
            owner.epoch = epoch
        if (len(generators), len(counting)) == (len(saved), len(epochs)):
            return []
        return [f"{self._name()}: its samplers hold other random generators than at the save"]


def _owners(loader: Any) -> list[Any]:  # noqa: ANN401 - a DataLoader
    found: list[Any] = []
    queue = [loader]
    while queue and len(found) < _MAX_SAMPLERS:
        owner = queue.pop(0)
        if owner is None or any(owner is each for each in found):
            continue
        found.append(owner)
        queue += [getattr(owner, name, None) for name in ("batch_sampler", "sampler")]
    return found


def _generators(owners: list[Any]) -> list[Any]:
    held = [value for owner in owners for value in _attributes(owner).values()]
    found: list[Any] = []
    for value in held:
        if is_generator(value) and not any(value is each for each in found):
            found.append(value)
    return found


def _attributes(owner: object) -> dict[str, Any]:
    return getattr(owner, "__dict__", {})


def _has_epoch(owner: object) -> bool:
    return type(_attributes(owner).get("epoch")) is int
