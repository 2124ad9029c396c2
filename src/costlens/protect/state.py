"""The whole state of a training loop as one tree, and back into the objects it came from.

Gathering copies nothing: the tree refers to the tensors of model and optimizer, and ``snapshot.py``
copies them. Restoring looks at everything first: a state that does not fit raises before any object
has changed. What comes back otherwise than it was is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from costlens.errors import CheckpointError
from costlens.protect.loader_position import Position, follow
from costlens.protect.packing import own_tensors
from costlens.protect.rng import (
    capture_rng,
    is_generator,
    read_generator,
    restore_rng,
    write_generator,
)
from costlens.protect.setting import compare_settings, describe_setting
from costlens.protect.state_checks import check_model, check_optimizer, unwrap
from costlens.protect.state_port import Layout, Path

__all__ = ["TrainingState"]

_FORMAT = 1
_SECTIONS = ("model", "optimizer", "scheduler", "scaler")


class TrainingState:
    """What a plain loop trains, gathered and restored; a ``StatePort``.

    Each of the arguments may be one object, a list of them, or a mapping of names to them.

    Args:
        model: Modules; a DDP or compiled one is saved as the module inside it.
        optimizer: Optimizers.
        scheduler: Learning rate schedulers.
        scaler: Gradient scalers.
        loader: The loaders that are trained on, themselves and not wrappers around them.
        extra: Anything else by name: objects with ``state_dict`` and ``load_state_dict``, random
            generators, and dicts of plain values, which are restored in place.
        counters: Returns the counts of the run that a resume goes on from.
        precision: How the loop computes, such as ``bf16``; a resume in another one is named.
        report: Takes a sentence on what turns out inexact when a restored pass begins.

    Attributes:
        report: As above; a manager puts its own here.
        step: Optimizer steps of the state that was restored, None before.
        counters: Its counts.

    Raises:
        CheckpointError: If one of them has no state.
    """

    def __init__(  # noqa: PLR0913 - keyword-only, and each is one thing to save
        self,
        *,
        model: Any,  # noqa: ANN401 - see Args
        optimizer: Any = None,  # noqa: ANN401
        scheduler: Any = None,  # noqa: ANN401
        scaler: Any = None,  # noqa: ANN401
        loader: Any = None,  # noqa: ANN401
        extra: Mapping[str, Any] | None = None,
        counters: Callable[[], Mapping[str, int]] = dict,
        precision: str | None = None,
        report: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.report: Callable[[str], object] = report
        given = (model, optimizer, scheduler, scaler)
        self._parts = {
            section: _name_each(objects) for section, objects in zip(_SECTIONS, given, strict=True)
        }
        self._parts["model"] = {name: unwrap(each) for name, each in self._parts["model"].items()}
        self._extra = dict(extra or {})
        _check_kinds(self._parts, self._extra)
        self._loaders = _name_each(loader)  # positions do not keep them
        self._positions: dict[str, Position] = {
            name: follow(each, self._tell) for name, each in self._loaders.items()
        }
        self._count = counters
        self._precision = precision
        self._rng: dict[str, Any] = {}
        self.step: int | None = None
        self.counters: dict[str, int] = {}

    @property
    def num_passes(self) -> int:
        """Return how many passes over the (first) loader are complete: the epoch, from 0."""
        return next((each.num_passes for each in self._positions.values()), 0)

    def gather(self, step: int) -> dict[str, Any]:
        """Return the state as a tree; training thread, 1 ms and what ``state_dict()`` takes.

        Between two steps only. An enabled scaler on CUDA waits for the device.

        Args:
            step: Optimizer steps done, >= 0.
        """
        is_waiting = any(each.is_waiting for each in self._positions.values())
        return {
            "format": _FORMAT,
            "step": step,
            "counters": dict(self._count()),
            "inexact": self.inexact(),
            "setting": self._setting(),
            "kinds": {
                section: {name: type(each).__name__ for name, each in objects.items()}
                for section, objects in self._parts.items()
            },
            "parts": {
                section: {name: each.state_dict() for name, each in objects.items()}
                for section, objects in self._parts.items()
            },
            "extra": {name: _read_extra(each) for name, each in self._extra.items()},
            "loader": {name: each.state() for name, each in self._positions.items()},
            # A restored pass that has not begun has yet to set them.
            "rng": self._rng if is_waiting else capture_rng(),
        }

    def inexact(self) -> list[str]:
        """Return what a resume from a save made now cannot restore exactly, a sentence each."""
        if not self._positions:
            return ["loader: none was given, so the position in the data is not saved"]
        return [line for each in self._positions.values() for line in each.inexact()]

    def restore(self, tree: Any) -> list[str]:  # noqa: ANN401 - any tree
        """Put a state back and return what could not be restored exactly, a sentence each.

        Random numbers are restored now, and once more when a pass that was under way begins.

        Args:
            tree: From :meth:`gather`, in this process or another; its tensors are copied.

        Raises:
            CheckpointError: If it does not fit what is to be restored; nothing has changed then.
        """
        if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
            raise CheckpointError("the checkpoint holds no training state of this version")
        inexact = [*tree["inexact"], *self._check(tree)]
        for section, objects in self._parts.items():
            for name, each in objects.items():
                if name in tree["parts"][section]:
                    inexact += _load(section, name, each, tree["parts"][section][name])
        for name, each in self._extra.items():
            if name in tree["extra"]:
                _write_extra(each, tree["extra"][name])
        self.step, self.counters = tree["step"], dict(tree["counters"])
        inexact += self._restore_order(tree)
        return list(dict.fromkeys(inexact))

    def layout(self) -> Layout:
        """Return what tells how tensors lie here, for a state that other ranks have saved."""
        models = {name: each.state_dict() for name, each in self._parts["model"].items()}
        parameters = {
            name: [p for group in each.param_groups for p in group["params"]]
            for name, each in self._parts["optimizer"].items()
            if hasattr(each, "param_groups")
        }
        extra = {name: _read_extra(each) for name, each in self._extra.items()}

        def find(path: Path) -> Any:  # noqa: ANN401 - a tensor, or None
            section, *rest = path
            if section == "parts" and rest[0] == "model":
                return _walk(models, rest[1:])
            if section == "parts" and rest[0] == "optimizer" and rest[2] == "state":
                # It has none before its first step; what is spread is as its parameter is.
                return _walk(parameters, [rest[1], rest[3]])
            return _walk(extra, rest) if section == "extra" else None

        return find

    def renew(self, tree: Any) -> None:  # noqa: ANN401 - any tree
        """Let a rank that was not there at the save go on with random numbers of its own.

        What samplers hold themselves stays: the same on every rank, it decides who reads what.
        """
        own = capture_rng()

        def replace(state: Any) -> None:  # noqa: ANN401 - any tree
            for key, value in state.items():
                if key == "rng":
                    state[key] = own
                elif key != "own" and isinstance(value, dict):  # what a loader keeps itself
                    replace(value)

        tree["rng"] = own
        for position in tree["loader"].values():
            replace(position)

    def _restore_order(self, tree: dict[str, Any]) -> list[str]:
        # The loaders' own generators first: one of them may be a stream of the process.
        inexact: list[str] = []
        self._rng = own_tensors(tree["rng"])
        for name, position in self._positions.items():
            if name in tree["loader"]:
                inexact += position.restore(tree["loader"][name], self._on_started)
        return inexact + restore_rng(self._rng)

    def _tell(self, sentence: str) -> None:
        self.report(sentence)

    def _on_started(self) -> None:
        if not any(each.is_waiting for each in self._positions.values()):
            restore_rng(self._rng)

    def _check(self, tree: dict[str, Any]) -> list[str]:
        """Return what differs and may; raise for what may not."""
        inexact: list[str] = []
        for section, objects in self._parts.items():
            saved, kinds = tree["parts"][section], tree["kinds"][section]
            inexact += _compare_names(section, set(objects), set(saved))
            for name, each in objects.items():
                if name not in saved:
                    continue
                if section == "model":
                    inexact += check_model(name, each, saved[name])
                elif kinds[name] != type(each).__name__ and section != "scaler":
                    raise CheckpointError(
                        f"{section} {name!r} is a {type(each).__name__} and the checkpoint has the"
                        f" state of a {kinds[name]}; build that one, or do not give it"
                    )
                elif section == "optimizer":
                    check_optimizer(name, each, saved[name], self._parts["model"])
        inexact += _compare_names("extra", set(self._extra), set(tree["extra"]))
        inexact += _compare_names("loader", set(self._positions), set(tree["loader"]))
        return inexact + compare_settings(tree["setting"], self._setting())

    def _setting(self) -> dict[str, Any]:
        parameters = (p for model in self._parts["model"].values() for p in model.parameters())
        first = next(parameters, None)
        return describe_setting(None if first is None else first.device.type, self._precision)


def _name_each(objects: Any) -> dict[str, Any]:  # noqa: ANN401 - one, several, or named
    if objects is None:
        return {}
    if isinstance(objects, Mapping):
        return {str(name): each for name, each in objects.items()}
    if isinstance(objects, (list, tuple)):
        return {str(index): each for index, each in enumerate(objects)}
    return {"0": objects}


def _has_state(candidate: object) -> bool:
    return all(callable(getattr(candidate, n, None)) for n in ("state_dict", "load_state_dict"))


def _check_kinds(parts: Mapping[str, Mapping[str, Any]], extra: Mapping[str, Any]) -> None:
    for section, objects in parts.items():
        for name, each in objects.items():
            if not _has_state(each):
                raise CheckpointError(
                    f"{section} {name!r} is a {type(each).__name__}, which has no state_dict and"
                    " load_state_dict"
                )
    for name, each in extra.items():
        if not (_has_state(each) or is_generator(each) or isinstance(each, dict)):
            raise CheckpointError(
                f"extra {name!r} is a {type(each).__name__}; allowed are objects with state_dict"
                " and load_state_dict, random generators, and dicts, which are restored in place"
            )


def _compare_names(section: str, here: set[str], saved: set[str]) -> list[str]:
    anew, left = (
        "the checkpoint has none, so it starts anew",
        "in the checkpoint, and not given now",
    )
    return [
        *(f"{section} {name!r}: {anew}" for name in sorted(here - saved)),
        *(f"{section} {name!r}: {left}" for name in sorted(saved - here)),
    ]


def _load(section: str, name: str, target: Any, state: Any) -> list[str]:  # noqa: ANN401
    if section == "model":
        # It copies tensors; what a module saves besides them it may keep.
        kept = {
            key: own_tensors(value) if key.endswith("_extra_state") else value
            for key, value in state.items()
        }
        target.load_state_dict(kept)
        return []
    if section == "scaler" and bool(state) is not target.is_enabled():
        here, saved = ("on", "off") if target.is_enabled() else ("off", "on")
        return [f"scaler {name!r}: {saved} at the save and {here} now, so the loss scale is lost"]
    target.load_state_dict(own_tensors(state))
    return []


def _read_extra(value: Any) -> Any:  # noqa: ANN401 - see TrainingState
    if is_generator(value):
        return read_generator(value)
    return dict(value) if isinstance(value, dict) else value.state_dict()


def _write_extra(target: Any, state: Any) -> None:  # noqa: ANN401 - see TrainingState
    if is_generator(target):
        write_generator(target, state)
    elif isinstance(target, dict):
        target.clear()
        target.update(own_tensors(state))
    else:
        target.load_state_dict(own_tensors(state))


def _walk(tree: Any, path: Sequence[Any]) -> Any:  # noqa: ANN401 - any tree
    """Return what is at a place, None where there is none."""
    for key in path:
        try:
            tree = tree[key]
        except (KeyError, IndexError, TypeError):
            return None
    return tree if isinstance(tree, torch.Tensor) else None
