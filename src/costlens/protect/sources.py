"""What the samplers of a loader draw from besides the streams of the process.

Generators that a loader or one of its samplers holds, and the epoch that a distributed sampler is
told. Found by kind and not by name, so that a user's own sampler is no special case.
"""

from __future__ import annotations

from typing import Any

from costlens.protect.rng import is_generator, read_generator, write_generator

__all__ = ["list_samplers", "name_other_sources", "read_sources", "write_sources"]

_MAX_SAMPLERS = 8


def list_samplers(loader: Any) -> list[Any]:  # noqa: ANN401 - a DataLoader
    """Return the samplers of a loader, the one that it asks first."""
    return _owners(loader)[1:]


def read_sources(loader: Any) -> dict[str, Any]:  # noqa: ANN401 - a DataLoader
    """Return the state of what the samplers draw from; about 20 µs and 5 µs a generator."""
    owners = _owners(loader)
    return {
        "generators": [read_generator(each) for each in _generators(owners)],
        "epochs": [owner.epoch for owner in owners if _has_epoch(owner)],
    }


def write_sources(loader: Any, sources: dict[str, Any]) -> None:  # noqa: ANN401 - a DataLoader
    """Put the state back, in order, as far as both sides reach.

    Raises:
        CheckpointError: If a generator is of another kind than the one saved.
    """
    owners = _owners(loader)
    for generator, state in zip(_generators(owners), sources["generators"], strict=False):
        write_generator(generator, state)
    counting = [owner for owner in owners if _has_epoch(owner)]
    for owner, epoch in zip(counting, sources["epochs"], strict=False):
        owner.epoch = epoch


def name_other_sources(loader: Any, sources: dict[str, Any]) -> list[str]:  # noqa: ANN401
    """Return a sentence if the samplers hold another number of generators or epochs than saved."""
    here = read_sources(loader)
    if all(len(here[key]) == len(sources[key]) for key in here):
        return []
    name = type(loader).__name__
    return [f"loader ({name}): its samplers hold other random generators than at the save"]


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
