"""Good practice: what keeps a training affordable and safe, and whether a run does it. Pure.

A finding is a loss that was measured; a check says whether a run is prepared. What the merged
record does not tell is unknown, and the check says what would tell it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

from costlens.core.records import Outcome
from costlens.core.run_record import RunRecord

__all__ = ["CHECKS", "Check", "Standing", "check_practice"]

_HALF = ("bf16", "fp16", "16-mixed", "16-true", "fp8", "transformer-engine")
_SET_PRICE = "set COSTLENS_GPU_HOUR_PRICE or COSTLENS_NODE_HOUR_PRICE"
_ONE_CURRENCY = "give all attempts prices in one currency, which COSTLENS_CURRENCY names"
_LEFT_EARLY = frozenset({Outcome.INTERRUPTED, Outcome.PREEMPTED, Outcome.FAILED, Outcome.LOST})


class Standing(str, Enum):
    """How a run stands in one check."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of good practice.

    Args:
        name: The practice, snake_case.
        standing: How the run stands.
        why: What the standing follows from, a sentence.
        remedy: What to do, with the exact knob; None where nothing is to be done.
    """

    name: str
    standing: Standing
    why: str
    remedy: str | None = None


def check_practice(record: RunRecord) -> tuple[Check, ...]:
    """Return all checks of a run, in the order of ``CHECKS``."""
    return tuple(Check(name, *judge(record)) for name, judge in CHECKS.items())


_Judged: TypeAlias = "tuple[Standing, str, str | None]"


def _passes(why: str) -> _Judged:
    return Standing.PASS, why, None


def _fails(why: str, remedy: str) -> _Judged:
    return Standing.FAIL, why, remedy


def _is_unknown(why: str, remedy: str) -> _Judged:
    return Standing.UNKNOWN, why, remedy


def _judge_precision(record: RunRecord) -> _Judged:
    part = record.precision
    told = None if part is None else part.effective
    if told is not None and any(name in told for name in _HALF):
        return _passes(f"it computes in {told}")
    if all(rank.device == "cpu" for rank in record.ranks):
        return _is_unknown(
            "the run is on CPUs, where half precision saves nothing in general",
            "run on a GPU to have it judged",
        )
    remedy = "set COSTLENS_PRECISION=auto, or Trainer(precision='bf16-mixed')"
    if told is None:
        return _is_unknown("nobody tells what it computes in", remedy)
    return _fails(f"it computes in {told}", remedy)


def _judge_checkpoints(record: RunRecord) -> _Judged:
    part = record.checkpoints
    if part.num_failed and not part.num_saved:
        return _fails(
            f"{part.num_failed} saves failed and none succeeded",
            "run costlens checkpoints ls URL, and look at the store's space and rights",
        )
    if part.num_saved:
        failed = f", {part.num_failed} failed" if part.num_failed else ""
        return _passes(f"{part.num_saved} saves were written and verified{failed}")
    seen = [a for a in record.attempts if a.saved_step is not None]
    if any(a.saved_step > (a.start_step or 0) for a in seen if a.saved_step is not None):
        return _passes(f"the training saved itself, last at step {seen[-1].saved_step}")
    remedy = "set COSTLENS_CHECKPOINT_URL to a folder or a bucket"
    if part.time_s > 0:
        return _passes("time went into saves that the training made itself")
    if (record.run.framework or "").startswith("lightning") or part.url is not None:
        return _fails("no save was seen: a failure loses all of the run", remedy)
    return _is_unknown("in a plain loop only saves through costlens are seen", remedy)


def _judge_resume(record: RunRecord) -> _Judged:
    if record.checkpoints.resumed_from is not None:
        step = record.checkpoints.resumed_step
        return _passes(f"it went on from a verified checkpoint at step {step}")
    later = record.attempts[1:]
    resumed = [a for a in later if a.start_step]
    if resumed:
        return _passes(f"attempt {resumed[-1].number} went on at step {resumed[-1].start_step}")
    if not later:
        return _is_unknown(
            "there was one attempt, so nothing has been resumed yet",
            "end a short run early and launch it again, before the long one needs it",
        )
    if any(a.start_step == 0 for a in later):
        return _fails(
            "a later attempt began at step 0: the work before it was done again",
            "set COSTLENS_CHECKPOINT_URL, which resumes by itself",
        )
    return _is_unknown(
        "nobody tells at which step later attempts began",
        "use run.checkpoints(…).resume(), or COSTLENS_CHECKPOINT_URL with Lightning",
    )


def _judge_dataset(record: RunRecord) -> _Judged:
    version = record.run.dataset_version
    if version:
        return _passes(f"the data set is {version}")
    why = record.run.dataset_unknown or "nothing names the version of the data set"
    return _fails(why, "set COSTLENS_DATASET_VERSION, or COSTLENS_DATASET_FILES to fingerprint it")


def _judge_protection(record: RunRecord) -> _Judged:
    asked = [a for a in record.attempts if a.preemption is not None]
    bare = [a for a in asked if a.preemption is not None and not a.preemption.is_covered]
    remedy = "set COSTLENS_CHECKPOINT_URL: SIGTERM then saves the step under way"
    if bare:
        return _fails(
            f"attempt {bare[-1].number} was asked to leave and left steps behind",
            "raise COSTLENS_GRACE_S to what the machine gives, or save more often",
        )
    if asked:
        return _passes(f"attempt {asked[-1].number} was asked to leave and lost no step")
    if record.checkpoints.url is not None:
        return _passes("a signal saves the step under way before the process ends")
    if any(a.outcome in _LEFT_EARLY for a in record.attempts):
        return _fails("an attempt ended early and nothing was saved at its end", remedy)
    return _fails("nothing would be saved if the machine were taken away", remedy)


def _judge_price(record: RunRecord) -> _Judged:
    cost = record.cost
    if cost.by_currency:
        return _fails(cost.unknown or "its prices are in several currencies", _ONE_CURRENCY)
    if cost.total is None:
        return _fails(cost.unknown or "no price is known", _SET_PRICE)
    if cost.is_partial:
        return _fails("a part of the run has no price", _SET_PRICE)
    return _passes(f"the price is from {', '.join(cost.sources) or 'the record'}")


def _judge_telemetry(record: RunRecord) -> _Judged:
    seen = record.telemetry
    losses = {
        "contained faults": sum(seen.faults.values()),
        "rows dropped": seen.rows_dropped,
        "spans dropped": seen.spans_dropped,
        "failed record writes": seen.record_failures,
        "failed exports": sum(health.exports_failed for health in seen.exports.values()),
        "items dropped": sum(health.items_dropped for health in seen.exports.values()),
    }
    told = [f"{count} {what}" for what, count in losses.items() if count]
    if told:
        return _fails(", ".join(told), "read Watching in costlens report, and the log of the run")
    signals = ", ".join(sorted(seen.exports))
    return _passes(f"nothing was lost ({signals or 'only the record is written'})")


def _judge_unit_cost(record: RunRecord) -> _Judged:
    cost = record.cost
    units = {
        "million tokens": cost.per_million_tokens,
        "sample": cost.per_sample,
        "step": cost.per_step,
    }
    known = [name for name, money in units.items() if money is not None and Decimal(money) >= 0]
    if "million tokens" in known or "sample" in known:
        return _passes(f"it is known per {' and per '.join(known)}")
    if cost.total is None:
        remedy = _ONE_CURRENCY if cost.by_currency else _SET_PRICE
        return _is_unknown(cost.unknown or "no price is known", remedy)
    remedy = "count them: run.iteration(tokens=…, samples=…) or CostLensCallback(tokens=…)"
    return _fails("neither samples nor tokens are counted", remedy)


CHECKS: dict[str, Callable[[RunRecord], _Judged]] = {
    "mixed_precision": _judge_precision,
    "checkpoints": _judge_checkpoints,
    "resume_proven": _judge_resume,
    "dataset_version": _judge_dataset,
    "interruption_protection": _judge_protection,
    "price_set": _judge_price,
    "telemetry_healthy": _judge_telemetry,
    "unit_cost_tracked": _judge_unit_cost,
}
"""The checks by name; a new one is one function here and one line."""
