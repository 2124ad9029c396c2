"""The loader a rank trains from: how it was set up, and what its passes begin with.

Watched loaders and Trainers show each iterator once a pass, on the training thread, where only
attributes are read; the probe puts what is known into the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from costlens.core.clock import NS_PER_S
from costlens.core.loading_records import LoadingPart
from costlens.core.pass_waits import PassWaits
from costlens.observe.collate_timer import CollateTimer
from costlens.observe.looks import Looks

__all__ = ["LoadingProbe", "TrainingLoader"]

# Of torch's iterators: they take these over from their loader when they are made.
_SETTINGS = {
    "num_workers": int,
    "prefetch_factor": int,
    "pin_memory": bool,
    "persistent_workers": bool,
}


class TrainingLoader:
    """What is known of the loader that is trained from: the first that is shown.

    Attributes:
        waits: Takes the passes.
        collate: The loader's collate_fn; None before one was seen.
    """

    def __init__(self) -> None:
        self.waits = PassWaits()
        self._timer = CollateTimer()
        self.collate: object = None
        self._settings: dict[str, Any] = {}
        self._data: int | None = None

    @property
    def is_known(self) -> bool:
        """Return whether an iterator has told how the loader was set up."""
        return self._data is not None

    def see(self, iterator: Any, number: int) -> None:  # noqa: ANN401 - torch's own, or anything else
        """Take an iterator at the beginning of its pass; training thread, about 3 µs.

        Args:
            iterator: What a loader iterates with; others than torch's tell nothing.
            number: Number of the iteration its first batch is for.
        """
        if self.note(iterator):
            self.waits.begin(number)

    def note(self, iterator: Any) -> bool:  # noqa: ANN401 - torch's own, or anything else
        """Return whether an iterator is the training's; the first tells how it was set up."""
        if not hasattr(iterator, "_num_workers"):
            return False
        data = id(getattr(iterator, "_dataset", None))
        if self._data is None:
            self._data = data
            self.collate = getattr(iterator, "_collate_fn", None)
            for name, kind in _SETTINGS.items():
                value = getattr(iterator, "_" + name, None)
                self._settings[name] = kind(value) if isinstance(value, (int, bool)) else None
            size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None)
            self._settings["batch_size"] = size if isinstance(size, int) else None
        return data == self._data

    def around(self, loader: object) -> AbstractContextManager[None]:
        """Return what stands around the making of a loader's iterator; training thread.

        Args:
            loader: The loader; one of other data than is trained on is left alone.
        """
        if self._data not in (None, id(getattr(loader, "dataset", None))):
            return nullcontext()
        return self._timer.around(loader)

    def part(self) -> LoadingPart | None:
        """Return what is known, None before a loader was seen; pipeline thread."""
        if self._data is None:
            return None
        return LoadingPart(
            **self._settings,
            num_passes=self.waits.num_passes,
            first_wait_s=self.waits.wait_ns / NS_PER_S,
            collate_s=self._timer.read_s(),
        )


class LoadingProbe:
    """Puts the loader, and where the training thread was seen, into the record.

    Args:
        loader: The loader.
        looks: What was seen.
    """

    name = "loading"

    def __init__(self, loader: TrainingLoader, looks: Looks) -> None:
        self._loader = loader
        self._looks = looks

    def load(self) -> None:
        """Do nothing: there is nothing to import."""

    def start(self) -> None:
        """Do nothing: nothing is opened."""

    def sample(self, now_ns: int) -> None:
        """Do nothing: both are told of what happens."""

    def contribute(self) -> Mapping[str, object]:
        """Return what is known so far."""
        fields = {"loading": self._loader.part(), "looks": self._looks.part()}
        return {name: part for name, part in fields.items() if part is not None}

    def stop(self) -> None:
        """Do nothing: nothing was opened."""
