"""What must hold of a plan that ran with costlens and without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from costlens.core.guard import faults
from costlens.core.records import Outcome, RankRecord
from tests.fuzz.evidence import Ended, Evidence
from tests.fuzz.job import run_plan
from tests.fuzz.plan import Plan
from tests.fuzz.tally import Tally

__all__ = ["find_problems"]

_COUNTS = ("iterations", "micro_batches", "validation_batches", "test_batches")
_KNOWN = ("optimizer_steps", "skipped_steps", "samples", "slots", "tokens", "loss_tokens")


def find_problems(plan: Plan) -> list[str]:
    """Return what is wrong with a plan: one line a problem, none when all is well.

    A training that differs from itself without costlens proves nothing and has none.
    """
    plain = run_plan(plan, is_watched=False)
    faults.counts.clear()
    faults._logged.clear()
    watched = run_plan(plan, is_watched=True)
    problems = [*_compare(plain, watched), *_inspect(watched)]
    if problems and list(_compare(plain, run_plan(plan, is_watched=False))):
        return []
    return problems


# The same training.


def _compare(plain: Evidence, watched: Evidence) -> Iterator[str]:
    for at, (one, other) in enumerate(zip(plain.events, watched.events, strict=False)):
        if one != other:
            yield f"event {at}: without {_tell(one, other)}, with {_tell(other, one)}"
            break
    else:
        if len(plain.events) != len(watched.events):
            longer = max(plain.events, watched.events, key=len)
            at = min(len(plain.events), len(watched.events))
            yield f"{len(plain.events)} and {len(watched.events)} events; the next {longer[at][0]}"
    for one, other in zip(plain.ended, watched.ended, strict=True):
        for name in ("call", "raised", "code", "returned", "global_step", "should_stop"):
            if getattr(one, name) != getattr(other, name):
                yield (
                    f"{one.call}: {name} is {getattr(one, name)!r} without and"
                    f" {getattr(other, name)!r} with"
                )
    for name in plain.values.keys() | watched.values.keys():
        one, other = plain.values.get(name), watched.values.get(name)
        if repr(one) != repr(other):
            yield f"{name} without: {one!r:.300}; with: {other!r:.300}"


def _tell(event: tuple[Any, ...], other: tuple[Any, ...]) -> str:
    different = [each for each, twin in zip(event, other, strict=False) if each != twin]
    return f"{event[0]}: {different!r:.300}"


# Nothing left behind, and a record that tells the truth.


def _inspect(watched: Evidence) -> Iterator[str]:
    for each in watched.warnings:
        if "costlens" in each.split(":")[0]:
            yield f"warning {each}"
    if faults.counts:
        yield f"faults {faults.counts}"
    for ended in watched.ended:
        found = [*ended.leftovers]
        for record in ended.records:
            found += _inspect_counts(record, ended.tally)
            found += _inspect_loss(record, ended.tally)
            found += _inspect_attempt(record, ended.tally)
            if ended.call == "fit":
                found += _inspect_total(record, watched.plan)
            found += _inspect_time(record, ended)
        if ended.tally.is_seen and not ended.records:
            found.append("there is no record")
        for problem in found:
            yield f"after {ended.call}: {problem}"


def _inspect_counts(record: RankRecord, tally: Tally) -> Iterator[str]:
    if record.telemetry.faults:
        yield f"faults {record.telemetry.faults}"
    for name in _COUNTS:
        if getattr(record.progress, name) != getattr(tally, name):
            yield f"{name} {getattr(record.progress, name)}, counted {getattr(tally, name)}"
    for name in _KNOWN:
        expected = getattr(tally, name) if name in tally.known else None
        if getattr(record.progress, name) != expected:
            yield f"{name} {getattr(record.progress, name)}, counted {expected}"
    if record.iteration_time.count != tally.iterations - tally.num_fits:
        yield (
            f"{record.iteration_time.count} durations of {tally.iterations} iterations in"
            f" {tally.num_fits} fits"
        )


def _inspect_loss(record: RankRecord, tally: Tally) -> Iterator[str]:
    finite = [each for each in tally.losses if math.isfinite(each)]
    loss = record.quality.get("loss")
    seen = (0, 0) if loss is None else (loss.num_values, loss.num_nonfinite)
    if seen != (len(finite), len(tally.losses) - len(finite)):
        yield f"{seen} losses (finite, not), the training had {tally.losses}"
    elif loss is not None and finite:
        for name, value in (("last", finite[-1]), ("mean", sum(finite) / len(finite))):
            # Half of the digits of bfloat16, in which Lightning may have divided.
            if not math.isclose(getattr(loss, name), value, rel_tol=0.02):
                yield f"{name} loss {getattr(loss, name)}, the training had {value}"


def _inspect_attempt(record: RankRecord, tally: Tally) -> Iterator[str]:
    if tally.is_open:  # nobody has told us how it ended
        return
    for name, value in {
        "outcome": tally.outcome,
        "error_type": tally.error,
        "stage": tally.stage,
        "end_step": tally.end_step,
    }.items():
        if getattr(record.attempt, name) != value:
            yield f"{name} {getattr(record.attempt, name)}, expected {value}"


def _inspect_total(record: RankRecord, plan: Plan) -> Iterator[str]:
    """Look at the steps that a fit would make, where it made all of them."""
    is_regular = (
        record.attempt.outcome is Outcome.COMPLETED
        and plan.batch != "sometimes none"  # such a batch makes no step
        and plan.num_rows > 0
        and plan.train_loader not in ("unsized", "nested")  # may end before a limit of batches
        and plan.skips_epoch_at is None
        and not plan.takes_iterator  # it may take several batches a step
        and plan.error != "StopIteration"  # Lightning ends an epoch for it
        and not plan.optimization.startswith("manual ")  # several steps may pass a limit
    )
    total, reached = record.progress.total_steps, record.attempt.end_step
    if is_regular and total is not None and total != reached:
        yield f"total_steps {total}, and {reached} were made"


def _inspect_time(record: RankRecord, ended: Ended) -> Iterator[str]:
    if sum(record.time_ns.values()) != record.total_ns:
        yield f"phases sum to {sum(record.time_ns.values())} ns of {record.total_ns}"
    if min(record.time_ns.values()) < 0:
        yield f"a phase is negative: {record.time_ns}"
    if ended.planted_ns is None:
        return
    expected = dict(ended.planted_ns)
    if record.startup.process_s is not None:  # the first run of a process began with it
        before_ns = record.total_ns - sum(expected.values())
        expected["startup"] = expected.get("startup", 0) + before_ns
    seen = {phase: time_ns for phase, time_ns in record.time_ns.items() if time_ns}
    for phase in sorted(seen.keys() | expected.keys()):
        if seen.get(phase, 0) != expected.get(phase, 0):
            yield f"{phase} {seen.get(phase, 0)} ns, planted {expected.get(phase, 0)}"
