"""How the entries of the metric catalogue read a snapshot: attributes and value of every point.

Pure functions; they run on the pipeline thread, once a window. What a snapshot does not know
yields no point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from costlens.account.cost import NS_PER_HOUR, charge_rank
from costlens.account.energy_cost import charge_energy
from costlens.account.money import add
from costlens.core.clock import NS_PER_S
from costlens.core.phases import NAMES, Phase
from costlens.core.records import LABELS, Outcome, RankRecord, RunPart
from costlens.core.snapshot import Snapshot
from costlens.core.window import Histogram
from costlens.export.job_attributes import JOB_ATTRIBUTES, job_attributes

__all__ = [
    "DROP_PLACES",
    "FAULT_PLACES",
    "INFO",
    "LABEL_ATTRIBUTES",
    "NONFINITE_SOURCES",
    "OWN_PHASES",
    "SIGNALS",
    "STATES",
    "Attributes",
    "Point",
    "Read",
    "Value",
]

Attributes = Mapping[str, str | int]
Value = int | float | Histogram
Point = tuple[Attributes, Value]
Read = Callable[[Snapshot], Iterable[Point]]

# Attribute values: closed lists, so that the number of series is known beforehand.

_IDLE_DEVICE = Phase.IDLE_DEVICE.name.lower()

OWN_PHASES = tuple(name for name in NAMES if name != _IDLE_DEVICE)
"""Phases of a rank; ``idle_device`` belongs to the ledger, and 0 would claim to know it."""

STATES = (
    *("starting", "running", "evaluating", "checkpoint", "idle", "stopping"),
    *(o.value for o in Outcome if o not in {Outcome.RUNNING, Outcome.LOST}),
)
"""States of a live rank, then the outcomes of an attempt that the rank itself can tell."""

SIGNALS = ("traces", "metrics", "logs")
NONFINITE_SOURCES = ("loss", "gradient", "metric")
FAULT_PLACES = (
    *("pipeline", "session", "run", "lifetime", "observe", "account", "diagnose", "protect"),
    *("storage", "export", "lightning", "other"),
)
DROP_PLACES = (
    *("recorder", "span_limit", "quality_limit", "device_values"),
    *(*SIGNALS, "files"),
)

LABEL_ATTRIBUTES = {name: f"costlens.{name.replace('_', '.')}" for name in LABELS}
"""Attributes that say what a run's money was spent on, by the field of the record."""

INFO = (
    *("costlens.run.name", "costlens.framework", "costlens.version", "costlens.device"),
    *("costlens.attempt", "costlens.precision", "host.name"),
    *LABEL_ATTRIBUTES.values(),
    *("hw.id", "hw.name", "hw.serial_number", "costlens.gpu.pci_id", "costlens.gpu.driver"),
    *JOB_ATTRIBUTES,
)

_STATE_OF_PHASE = {
    Phase.STARTUP: "starting",
    Phase.RESTORE: "starting",
    Phase.VALIDATION: "evaluating",
    Phase.CHECKPOINT: "checkpoint",
    Phase.IDLE: "idle",
    Phase.SHUTDOWN: "stopping",
}
_MAX_VALUE_LENGTH = 100
_MAX_LIST_LENGTH = 400

_LOSS = re.compile(r"(^|[^a-z])loss([^a-z]|$)")
_VALIDATION = re.compile(r"(^|[^a-z])(val|valid|validation|eval)([^a-z]|$)")
_TEST = re.compile(r"(^|[^a-z])test([^a-z]|$)")
_GRADIENT = re.compile(r"grad(ient)?[^a-z].*norm")
_LEARNING_RATE = re.compile(r"(^|[^a-z])(lr|learning[^a-z]rate)([^a-z]|$)")


# Builders of the usual readers: one number of the snapshot, or one per value of an attribute.


def one(get: Callable[[Snapshot], float | None]) -> Read:
    """Return a reader of a single number; None yields no point."""

    def read(snapshot: Snapshot) -> Iterable[Point]:
        value = get(snapshot)
        return () if value is None else (({}, value),)

    return read


def each(attribute: str, get: Callable[[Snapshot], Mapping[str, float | None]]) -> Read:
    """Return a reader of one number per value of an attribute; None yields no point."""

    def read(snapshot: Snapshot) -> Iterable[Point]:
        values = get(snapshot)
        return [({attribute: key}, value) for key, value in values.items() if value is not None]

    return read


# The run.


def run_state(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return 1 for the state the rank is in and 0 for all others."""
    record = snapshot.record
    now = record.attempt.outcome.value
    if record.attempt.outcome is Outcome.RUNNING:
        phase = Phase[record.open_phase.upper()] if record.open_phase else Phase.IDLE
        now = _STATE_OF_PHASE.get(phase, "running")
    return {state: int(state == now) for state in STATES}


def run_info(snapshot: Snapshot) -> Iterable[Point]:
    """Return one point with what the run is as attributes."""
    record = snapshot.record
    run, rank = record.run, record.rank
    known = {
        "costlens.run.name": run.name,
        "costlens.framework": run.framework,
        "costlens.version": run.costlens_version,
        "costlens.device": rank.device,
        "costlens.attempt": str(record.attempt.number),
        "costlens.precision": record.precision.effective if record.precision else None,
        "host.name": rank.host_name,
        **label_attributes(run),
        **job_attributes(record.job),
    }
    shown = {key: value[:_MAX_VALUE_LENGTH] for key, value in known.items() if value}
    return [({**shown, **gpu_info(record)}, 1)]


def gpu_info(record: RankRecord) -> dict[str, str]:
    """Return which GPUs a rank has, as attributes: of several, all in the order of the record."""
    gpus, driver = record.gpus, record.gpu_driver
    known = {
        "hw.id": [gpu.uuid for gpu in gpus],
        "hw.name": sorted({gpu.name for gpu in gpus if gpu.name}),
        "hw.serial_number": [gpu.serial for gpu in gpus if gpu.serial],
        "costlens.gpu.pci_id": [gpu.pci_id for gpu in gpus if gpu.pci_id],
        "costlens.gpu.driver": [driver.driver_version] if driver and driver.driver_version else [],
    }
    return {key: ",".join(values)[:_MAX_LIST_LENGTH] for key, values in known.items() if values}


def label_attributes(run: RunPart) -> dict[str, str]:
    """Return what a run's money is allocated by, as attributes."""
    return {LABEL_ATTRIBUTES[name]: value for name, value in run.labels().items()}


def current_step(snapshot: Snapshot) -> float | None:
    """Return the optimizer step reached, on the run's scale where the loop knows it."""
    record = snapshot.record
    if record.attempt.end_step is not None:
        return record.attempt.end_step
    steps = record.progress.optimizer_steps
    return None if steps is None else (record.attempt.start_step or 0) + steps


def step_counts(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the optimizer updates that changed parameters, and those that were skipped."""
    progress = snapshot.record.progress
    return {"real": progress.optimizer_steps, "skipped": progress.skipped_steps}


def loss_scale(snapshot: Snapshot) -> float | None:
    """Return the newest scale of the gradients, where a scaler is watched."""
    part = snapshot.record.precision
    return None if part is None else part.loss_scale


def evaluation_counts(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the batches of evaluation loops by stage."""
    progress = snapshot.record.progress
    return {"validation": progress.validation_batches, "test": progress.test_batches}


def token_counts(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the tokens by kind."""
    progress = snapshot.record.progress
    return {"slots": progress.slots, "tokens": progress.tokens, "loss": progress.loss_tokens}


# Time and money.


def phase_seconds(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the settled seconds per phase, which never go back."""
    return {name: snapshot.settled_ns[Phase[name.upper()]] / NS_PER_S for name in OWN_PHASES}


def open_ages(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the seconds the open phase has been open, and 0 for every other.

    Zero, not absence: a back-end shows the last value of a series that just ends for five minutes.
    """
    record = snapshot.record
    age_s = record.open_phase_s or 0.0
    return {name: age_s if name == record.open_phase else 0.0 for name in OWN_PHASES}


def cost_by_phase(snapshot: Snapshot) -> Iterable[Point]:
    """Return the money per phase; nothing when no price is known."""
    charge = charge_rank(snapshot.record)
    if charge is None:
        return []
    # Not the charge's own amounts: they are rounded to add up, so that one of them may go back by
    # 1e-9, and a counter that goes back is a restart to whoever reads it.
    rate_per_ns = float(charge.own_rate_per_hour) / NS_PER_HOUR
    money = {name: snapshot.settled_ns[Phase[name.upper()]] * rate_per_ns for name in OWN_PHASES}
    price, unowned = snapshot.record.price, snapshot.record.rank.unowned_gpus
    if price is not None and price.unit == "gpu" and unowned is not None:
        idle_rate_per_ns = float(charge.idle_rate_per_hour) / NS_PER_HOUR
        money[_IDLE_DEVICE] = snapshot.record.total_ns * idle_rate_per_ns
    return [
        ({"costlens.phase": name, "costlens.cost.currency": charge.currency}, amount)
        for name, amount in money.items()
    ]


def cost_rate(snapshot: Snapshot) -> Iterable[Point]:
    """Return the money an hour of this rank costs; nothing when no price is known."""
    charge = charge_rank(snapshot.record)
    if charge is None:
        return []
    return [({"costlens.cost.currency": charge.currency}, float(charge.rate_per_hour))]


def energy_cost(snapshot: Snapshot) -> Iterable[Point]:
    """Return the money for the energy of the rank's own devices; its share where they are shared.

    Nothing where a device cannot tell its energy, for the sum would look like all of it.
    """
    record = snapshot.record
    charged = [charge_energy(record, gpu) for gpu in record.gpus]
    known = [money for money in charged if money is not None]
    if record.energy_price is None or not known or len(known) < len(charged):
        return []
    rank = record.rank
    share = float(rank.gpu_share or len(known)) / len(known)
    money = float(add(known)) * min(1.0, share)
    return [({"costlens.cost.currency": record.energy_price.currency}, money)]


# Quality of the model.


def quality_values(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the newest finite value of every quality metric."""
    seen = snapshot.quality.attempt
    return {name[:_MAX_VALUE_LENGTH]: summary.last for name, summary in seen.items()}


def loss_values(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the newest finite loss per stage.

    Several names may mean one stage (loss_step, loss_epoch): the one logged first speaks for it.
    """
    stages: dict[str, float | None] = {}
    for name, summary in snapshot.quality.attempt.items():
        stage = _loss_stage(name)
        if stage is not None:
            stages.setdefault(stage, summary.last)
    return stages


def gradient_norm(snapshot: Snapshot) -> float | None:
    """Return the newest finite norm of the gradients, if one was logged."""
    return _first_like(snapshot, _GRADIENT)


def learning_rate(snapshot: Snapshot) -> float | None:
    """Return the newest learning rate, if one was logged; of several, the one logged first."""
    return _first_like(snapshot, _LEARNING_RATE)


def nonfinite_counts(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return how many values were NaN or infinite, by what they measure."""
    counts = dict.fromkeys(NONFINITE_SOURCES, 0)
    for name, summary in snapshot.quality.attempt.items():
        is_gradient = _GRADIENT.search(name.lower())
        source = "loss" if _loss_stage(name) else "gradient" if is_gradient else "metric"
        counts[source] += summary.num_nonfinite
    return counts


def _loss_stage(name: str) -> str | None:
    lowered = name.lower()
    if not _LOSS.search(lowered):
        return None
    if _VALIDATION.search(lowered):
        return "validation"
    return "test" if _TEST.search(lowered) else "train"


def _first_like(snapshot: Snapshot, pattern: re.Pattern[str]) -> float | None:
    for name, summary in snapshot.quality.attempt.items():
        if pattern.search(name.lower()):
            return summary.last
    return None


# Watching itself.


def fault_counts(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return the contained faults by the part of costlens they happened in."""
    counts = dict.fromkeys(FAULT_PLACES, 0)
    for place, number in snapshot.record.telemetry.faults.items():
        part = place.partition(".")[0]
        counts[part if part in counts else "other"] += number
    return counts


def drop_counts(snapshot: Snapshot) -> Mapping[str, float | None]:
    """Return what was dropped by the limit or the signal that dropped it."""
    telemetry = snapshot.record.telemetry
    health = telemetry.exports
    return {
        "recorder": telemetry.rows_dropped,
        "span_limit": telemetry.spans_dropped,
        "quality_limit": telemetry.quality_dropped,
        "device_values": telemetry.values_dropped,
        **{
            place: health[place].items_dropped if place in health else 0
            for place in (*SIGNALS, "files")
        },
    }


def export_counts(snapshot: Snapshot) -> Iterable[Point]:
    """Return the exports of each signal by how they ended; 0 for a signal that is off."""
    for signal in SIGNALS:
        health = snapshot.record.telemetry.exports.get(signal)
        results = {
            "success": health.exports_ok if health else 0,
            "failure": health.exports_failed if health else 0,
        }
        for outcome, number in results.items():
            yield {"costlens.signal": signal, "costlens.export.outcome": outcome}, number
