"""The place of a loader that knows its own state, as torchdata's StatefulDataLoader does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

from costlens.protect.packing import own_tensors
from costlens.protect.position import Position, Report, State
from costlens.protect.rng import capture_host_rng, is_generator, restore_rng
from costlens.protect.sources import list_samplers, name_other_sources, read_sources, write_sources

__all__ = ["OwnPosition"]

_STEADY = frozenset({BatchSampler, SequentialSampler, DistributedSampler})
_IS_FINISHED = "_iterator_finished"
"""Where torchdata says that the state is that of a pass that has ended."""


class OwnPosition(Position):
    """Asks a loader for its state, and sets the random numbers right around its restore.

    Args:
        loader: Has ``state_dict`` and ``load_state_dict``.
        report: Takes what turns out inexact after :meth:`restore` has returned.
        can_look_back: Whether the loop fetches one batch ahead of the one it trains on, so that
            the state before each fetch has to be kept; costs a ``state_dict()`` a batch.
    """

    kind = "own"

    def __init__(self, loader: Any, report: Report, *, can_look_back: bool = False) -> None:  # noqa: ANN401
        self._can_look_back = can_look_back
        self._previous: State | None = None
        self._start: State = {}
        self._before_making: State = {}
        super().__init__(loader, report)

    def state(self, num_ahead: int = 0) -> State:
        """Return the position after the batches used so far; costs what the loader's takes.

        Args:
            num_ahead: 1 if the loop has fetched one batch that it has not trained on yet.
        """
        if self._restored is not None:
            return self._restored
        loader, state = self._loader(), self._facts()
        if num_ahead and self._previous is not None:
            return state | {"is_in_pass": True, "start": self._start, **self._previous}
        # Asked before its first pass, it would make an iterator and draw random numbers for it.
        is_fresh = self._is_followed and getattr(loader, "_iterator", None) is None
        own = {} if is_fresh or loader is None else loader.state_dict()
        if not self.is_in_pass and _IS_FINISHED in own:
            own = {**own, _IS_FINISHED: True}  # see end_pass
        return state | {"start": self._start, "own": own, "now": read_sources(loader)}

    def restore(self, state: State, on_started: Callable[[], object]) -> list[str]:
        """Put the loader where it was and return what cannot be exact, a sentence each.

        See :meth:`Position.restore`.
        """
        self._forget(state["num_passes"])
        if state["kind"] != self.kind:
            return [f"{self._name}: the checkpoint is of another kind of loader"]
        inexact = self._compare(state)
        if state["num_workers"] != self._num_workers:
            # It refuses such a state.
            inexact.append(f"{self._name}: for the same reason its pass begins again")
            return inexact
        loader, state = self._loader(), own_tensors(state)
        inexact += name_other_sources(loader, state["now"])
        if not state["is_in_pass"]:
            write_sources(loader, state["now"])
        if state["own"]:
            loader.load_state_dict(state["own"])
            if self._is_followed:
                self._restored = state
                self._on_started = on_started if state["is_in_pass"] else None
        return inexact

    def inexact(self) -> list[str]:
        """Return what a resume from a save made now cannot restore, a sentence each."""
        return self._name_draws() + (self._name_samplers() if self.is_in_pass else [])

    def _before(self) -> None:
        here = {"rng": capture_host_rng(), **read_sources(self._loader())}
        restored = self._restored
        if restored is None:
            self._start = here
        elif restored["is_in_pass"]:
            # Samplers without a state of their own are played from the start to the place.
            self._start = restored["start"]
            self._draw_from(self._start)
        else:
            self._before_making = here

    def _after(self) -> None:
        state, self._restored = self._restored, None
        self._previous = None
        if state is None:
            return
        if state["is_in_pass"]:
            # torchdata's samplers draw otherwise on the way to the place; those played again from
            # the start have their generators right, and may have a draw of the place before them.
            if all(_is_torchdatas(each) for each in list_samplers(self._loader())):
                write_sources(self._loader(), state["now"])
        else:
            # The state was of a pass that had ended. What its iterator drew nobody else drew; the
            # loader makes another one now, or resets it, for the pass that follows.
            self._is_in_pass = False
            self._draw_from(self._before_making)

    def _before_batch(self) -> None:
        if self._can_look_back:
            loader = self._loader()
            self._previous = {"own": loader.state_dict(), "now": read_sources(loader)}

    def _draw_from(self, start: State) -> None:
        restore_rng(start["rng"])
        write_sources(self._loader(), start)

    def _name_samplers(self) -> list[str]:
        unknown = [
            type(each).__name__ for each in list_samplers(self._loader()) if not _plays(each)
        ]
        if not unknown:
            return []
        text = f"its {unknown[0]} has no state of its own, so other samples may follow"
        return [f"{self._name}: {text}"]


def _is_torchdatas(sampler: object) -> bool:
    return type(sampler).__module__.startswith("torchdata.") or type(sampler) in _STEADY


def _plays(sampler: object) -> bool:
    """Return whether a sampler comes to the same place when it is asked for indices anew."""
    if _is_torchdatas(sampler) or callable(getattr(sampler, "load_state_dict", None)):
        return True
    if type(sampler).__name__ == "_InfiniteConstantSampler":  # of a stream: gives nothing but None
        return True
    # What torch's own draw from a generator that they hold is set back; the process's stream may
    # have been drawn from between the making of the iterator and the first batch.
    is_torchs = type(sampler).__module__.startswith("torch.utils.data.")
    return is_torchs and is_generator(getattr(sampler, "generator", None))
