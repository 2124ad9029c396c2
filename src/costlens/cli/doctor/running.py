"""Runs the checks side by side, none longer than the time limit.

A check that does not come back is left on its thread: a connection into nowhere cannot be ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from costlens.cli.doctor.answer import Answer, Check, Status, problem, worst
from costlens.config import Config
from costlens.core.errand import Errand

__all__ = ["LIMIT_S", "LOADING_LIMIT_S", "Outcome", "run_checks"]

LIMIT_S = 6.0
"""Seconds that a check may take; they run at the same time, so all together hardly more."""

LOADING_LIMIT_S = 60.0
"""Seconds that loading packages may take before the checks begin, whose time it is not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check with its answers."""

    name: str
    answers: tuple[Answer, ...]

    @property
    def status(self) -> Status:
        """Return the worst of its answers'."""
        return worst(answer.status for answer in self.answers)


def run_checks(
    checks: Sequence[Check],
    config: Config,
    *,
    limit_s: float = LIMIT_S,
    load: Callable[[], None] = lambda: None,
    loading_limit_s: float = LOADING_LIMIT_S,
    on_done: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Return what each check says, in their order.

    Args:
        checks: What to look at.
        config: The settings of a run that would start here.
        limit_s: Seconds that each may take, > 0.
        load: Imports what they need; one that hangs is told, and they are tried all the same.
        loading_limit_s: Seconds that it may take, > 0.
        on_done: Called after each.
    """
    outcomes = _load(load, loading_limit_s)
    errands = [_make_errand(check, config) for check in checks]
    for errand in errands:
        errand.start()
    deadline = time.monotonic() + limit_s
    for check, errand in zip(checks, errands, strict=True):
        errand.wait(max(0.0, deadline - time.monotonic()))
        outcomes.append(Outcome(check.name, tuple(_answers(check, errand, limit_s))))
        on_done()
    return outcomes


def _load(load: Callable[[], None], limit_s: float) -> list[Outcome]:
    loading = Errand("doctor-load", load)
    loading.start()
    if loading.wait(limit_s):
        return []
    told = problem(
        f"packages are not loaded after {limit_s:g} s, and each launch would wait for them",
        "look at the file system that this environment lies on, or copy it to a local disk",
    )
    return [Outcome("loading", (told,))]


def _make_errand(check: Check, config: Config) -> Errand[list[Answer]]:
    return Errand(f"doctor-{check.name.replace(' ', '-')}", lambda: [*check.look(config)])


def _answers(check: Check, errand: Errand[list[Answer]], limit_s: float) -> Sequence[Answer]:
    if not errand.is_done:
        return [problem(f"no answer within {limit_s:g} s", check.if_late)]
    if errand.error is not None:
        return [problem(str(errand.error))]
    if errand.result is None:
        return [problem("the check itself failed, which is a fault of costlens; the log has it")]
    return errand.result
