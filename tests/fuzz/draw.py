"""Plans from seeds, and simpler ones from failing ones.

The draw depends on the seed and on nothing else, so a seed means the same training for ever; a run
goes on behind a failing plan.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz.plan import MANUAL, Plan

__all__ = ["draw_plan", "minimise"]

_REFUSED_BY_BAREBONES = ("profiler", "early_stopping")


def draw_plan(seed: int) -> Plan:
    """Return the plan of a seed, always the same."""
    rng = random.Random(seed)
    drawn = {}
    for each in dataclasses.fields(Plan):
        choices, odds = each.metadata["choices"], each.metadata["odds"]
        drawn[each.name] = rng.choice(choices) if rng.random() < odds else choices[0]
    return _reconcile(drawn)


def _reconcile(drawn: dict[str, Any]) -> Plan:
    """Return a plan that Lightning mostly accepts: what it refuses at once teaches little."""
    if drawn["fails"] is not None:
        _let_happen(drawn["fails"][0], drawn)
    for is_so, consequences in _consequences(drawn):
        if is_so:
            drawn.update(consequences)
    return Plan(**drawn)


def _consequences(drawn: dict[str, Any]) -> Iterator[tuple[bool, dict[str, Any]]]:
    interval = drawn["val_check_interval"]
    yield (
        drawn["check_val_every_n_epoch"] is None and isinstance(interval, float),
        {"val_check_interval": 3},
    )
    is_manual = drawn["optimization"] in MANUAL
    yield is_manual, {"accumulate": 1, "clip": None, "scheduled_accumulation": False}
    is_endless = drawn["max_epochs"] in (None, -1) and drawn["max_steps"] < 0
    yield is_endless, {"max_steps": 5}
    yield drawn["barebones"], dict.fromkeys(_REFUSED_BY_BAREBONES) | {
        "logger": "none", "num_sanity_val_steps": 0, "fast_dev_run": False,
        "checkpointing": False, "detect_anomaly": False, "log_every_n_steps": 50,
        "has_bar_and_summary": False,
    }  # fmt: skip
    yield drawn["logger"] == "none", {"lr_monitor": False}
    yield drawn["scheduled_accumulation"], {"accumulate": 1}
    yield drawn["averages_weights"], {"scheduler": None}
    yield drawn["optimization"] == "lbfgs", {"precision": "32-true"}
    yield drawn["num_workers"] == 0, {"is_persistent": False}


def _let_happen(event: str, drawn: dict[str, Any]) -> None:
    """Change what is drawn so that an event has a chance to happen."""
    source, _, name = event.partition(".")
    if source in ("logger", "profiler"):
        drawn[source] = "own"
        # Inside the generator of Lightning's bracket Python makes another error of it.
        if drawn["error"] == "StopIteration":
            drawn["error"] = "RuntimeError"
    elif "dataloader" in name:
        drawn["loaders_from"] = "module"
    elif source == "module":
        drawn["has_all_hooks"] = True
    if "predict" in name or "test" in name:
        drawn["calls"] = ("fit", "validate", "test", "predict")
    if "validation" in name:
        drawn["val_loaders"] = "one"
    if "save" in name and drawn["saves"] is None:
        drawn["saves"] = ("last.on_train_batch_end", 2)


def minimise(plan: Plan, is_failing: Callable[[Plan], bool], *, max_tries: int = 300) -> Plan:
    """Return a plan that fails as well and differs from the defaults in as few fields as possible.

    Args:
        plan: A failing plan.
        is_failing: Runs a plan.
        max_tries: Most plans to run, > 0.
    """
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for name, value in plan.differences():
            for simpler in _simpler(name, value):
                max_tries -= 1
                if max_tries < 0:
                    return plan
                candidate = dataclasses.replace(plan, **{name: simpler})
                if is_failing(candidate):
                    plan, is_smaller = candidate, True
                    break
    return plan


def _simpler(name: str, value: Any) -> list[Any]:
    """Return the choices before a value; for long lists only the first few and the near ones."""
    choices = Plan.__dataclass_fields__[name].metadata["choices"]
    kinds = [(type(each), each) for each in choices]
    if (type(value), value) not in kinds:
        return [choices[0]]
    before = choices[: kinds.index((type(value), value))]
    if isinstance(value, tuple) and len(before) > 8:
        same_event = [each for each in before[1:] if each[0] == value[0]]
        return [choices[0], *same_event]
    return list(before)
