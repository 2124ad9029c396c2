"""The user's side of a random training: callbacks, loggers, profilers and optimizers that note.

Each exists for both Lightning packages, so classes are made when they are asked for.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import torch

from tests.fuzz.plan import MANUAL, Plan
from tests.fuzz.witness import Witness

__all__ = [
    "make_loggers",
    "make_optimizers",
    "make_profiler",
    "make_recorder",
    "make_scaler",
    "noting",
]

_OURS = "CostLensCallback"


def noting(witness: Witness, source: str, name: str, plain: Any) -> Any:
    """Return a method that notes its call before the one it stands for."""

    def call(self, *args: Any, **kwargs: Any) -> Any:
        witness.note(f"{source}.{name}", *args, *kwargs.values())
        return plain(self, *args, **kwargs)

    call.__name__ = name
    return call


def make_recorder(pl: ModuleType, witness: Witness, source: str) -> Any:
    """Return a callback that notes every hook; ``source`` is its name in the notes."""
    names = [name for name in dir(pl.Callback) if name.startswith("on_")]
    names += ["setup", "teardown", "load_state_dict"]
    hooks = {name: noting(witness, source, name, getattr(pl.Callback, name)) for name in names}
    hooks["state_dict"] = lambda self: {"source": source}
    hooks["__deepcopy__"] = lambda self, memo: pl.Callback()
    return type(source.capitalize(), (pl.Callback,), hooks)()


def make_loggers(pl: ModuleType, witness: Witness, plan: Plan, folder: Path) -> Any:
    """Return what ``Trainer(logger=...)`` gets."""
    loggers = importlib.import_module(f"{pl.__name__}.loggers")

    class Own(loggers.Logger):
        name, version, save_dir = "own", 0, str(folder / "own")

    for name in ("log_metrics", "log_hyperparams", "save", "finalize", "after_save_checkpoint"):
        setattr(Own, name, noting(witness, "logger", name, lambda *_, **__: None))
    Own.__abstractmethods__ = frozenset()
    if plan.logger == "none":
        return None if plan.barebones else False
    csv = loggers.CSVLogger(str(folder), name="csv", version=0)
    return {"csv": csv, "own": Own(), "two": [csv, Own()]}[plan.logger]


def make_profiler(pl: ModuleType, witness: Witness, plan: Plan) -> Any:
    """Return what ``Trainer(profiler=...)`` gets."""
    profilers = importlib.import_module(f"{pl.__name__}.profilers")
    if plan.profiler is None:
        return None
    if not plan.profiler.startswith("own"):
        kinds = {"simple": profilers.SimpleProfiler, "advanced": profilers.AdvancedProfiler}
        return kinds[plan.profiler]()

    def note(event: str, action: str) -> None:
        # Ours is the one bracket that a training without us does not have.
        if _OURS not in action:
            witness.note(f"profiler.{event}", action)

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        note("profile", action_name)
        yield action_name
        note("profiled", action_name)

    hooks = {
        "start": lambda self, action_name: note("start", action_name),
        "stop": lambda self, action_name: note("stop", action_name),
        "summary": lambda self: "",
        "__deepcopy__": lambda self, memo: profilers.PassThroughProfiler(),
    }
    if plan.profiler == "own profile":  # one that brackets in its own way
        hooks["profile"] = profile
    return type("Own", (profilers.Profiler,), hooks)()


def make_optimizers(witness: Witness, plan: Plan, groups: list[list[Any]]) -> list[Any]:
    """Return one optimizer per group of parameters; each counts its own steps.

    They count in a replaced method, as learning rate schedulers do.
    """
    made = [_make_optimizer(plan, parameters) for parameters in groups]
    for optimizer in made:

        def step(self: Any, *args: Any, plain: Any = optimizer.step, **kwargs: Any) -> Any:
            witness.note("optimizer.step")
            found_inf = getattr(self, "found_inf", None)
            result = plain(*args, **kwargs)
            # A fused optimizer decides by itself whether it leaves an update out.
            is_skipped = found_inf is not None and bool(found_inf)
            witness.tally.skipped_steps += is_skipped
            witness.tally.optimizer_steps += not is_skipped
            return result

        optimizer.step = MethodType(step, optimizer)
    return made


class Layered(torch.optim.SGD):
    """A user's optimizer whose step calls that of its base, which torch hooks as well."""

    def step(self, closure: Any = None) -> Any:
        """Make the step of the base."""
        return super().step(closure)


def _make_optimizer(plan: Plan, parameters: list[Any]) -> Any:
    if plan.optimization in ("adam", "fused"):
        return torch.optim.Adam(parameters, lr=0.01, fused=plan.optimization == "fused")
    if plan.optimization == "lbfgs":
        return torch.optim.LBFGS(parameters, lr=0.01, max_iter=3)
    if plan.optimization == "subclass":
        torch.optim.SGD(parameters, lr=0.01)  # from now on torch calls hooks at the base's step
        return Layered(parameters, lr=0.01)
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.5)


def make_scaler(witness: Witness) -> Any:
    """Return a gradient scaler that counts the updates it left out."""

    class Scaler(torch.amp.GradScaler):
        def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = witness.tally.optimizer_steps + witness.tally.skipped_steps
            result = super().step(optimizer, *args, **kwargs)
            after = witness.tally.optimizer_steps + witness.tally.skipped_steps
            witness.tally.skipped_steps += after == before
            return result

        def __deepcopy__(self, memo: Any) -> Any:
            return torch.amp.GradScaler("cpu", init_scale=4.0)

    return Scaler("cpu", init_scale=4.0)


def num_optimizers(plan: Plan) -> int:
    """Return how many optimizers a plan has; automatic optimization has one."""
    return MANUAL.get(plan.optimization, 1)


def try_copy(given: Any) -> None:
    """Copy an object as user code may; it is thrown away."""
    copy.deepcopy(given)
