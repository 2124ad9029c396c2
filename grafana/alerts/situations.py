"""What a back-end holds in promtool tests: ranks that train, start, evaluate, save or are over.

Times are minutes from the start of the test, at which Unix time is 0 as well.
"""

from __future__ import annotations

from collections.abc import Mapping

from grafana.alerts.model import Case, Series

__all__ = ["QUIET", "counter", "gauge", "rank", "series"]

MINUTES = 60
HEALTHY = {"data_wait": 0.02, "forward": 0.3, "backward": 0.6, "optimizer": 0.06, "logging": 0.02}
"""Seconds a second in each phase; together 1."""

_STATES = ("starting", "running", "evaluating", "checkpoint", "completed", "failed")
_PHASES = ("startup", "validation", "checkpoint", *HEALTHY)


def series(name: str, values: str, *, run: str = "r", rank: str = "0", **labels: str) -> Series:
    """Return a series of a rank with promtool's notation of its values, one a minute."""
    known = {"costlens_run_id": run, "costlens_rank": rank, **labels}
    matchers = ",".join(f'{key}="{value}"' for key, value in known.items())
    return f"{name}{{{matchers}}}", values


def gauge(name: str, value: float, **labels: str) -> Series:
    """Return a series that keeps one value for an hour."""
    return series(name, f"{value:g}x{MINUTES}", **labels)


def counter(name: str, per_minute: float, **labels: str) -> Series:
    """Return a counter that grows for an hour."""
    return series(name, f"0+{per_minute:g}x{MINUTES}", **labels)


def rank(
    number: int = 0,
    *,
    run: str = "r",
    state: str = "running",
    phases: Mapping[str, float] | None = None,
    iterations_per_minute: float = 60,
    tokens_per_minute: float = 6000,
    cost_per_minute: float | None = None,
    until: int = MINUTES,
    then: str | None = None,
) -> tuple[Series, ...]:
    """Return the series of one rank that does the same all the time.

    Args:
        number: The rank.
        run: The run.
        state: The state it is in.
        phases: Seconds a second in each phase; those of a healthy rank by default.
        iterations_per_minute: How fast it is.
        tokens_per_minute: The same in tokens.
        cost_per_minute: Money, if a price is known.
        until: Minute of its last export.
        then: State that its last export told, if another.
    """
    of = {"run": run, "rank": str(number)}
    spent = dict.fromkeys(_PHASES, 0.0) | (HEALTHY if phases is None else dict(phases))
    growing, iterations = f"x{until}", f"0+{iterations_per_minute:g}x{until}"
    tokens = f"0+{tokens_per_minute:g}{growing}"
    return (
        series("costlens_heartbeat_time_seconds", f"0+60{growing}", **of),
        series("costlens_run_info", f"1{growing}", host_name=f"node-{number}", **of),
        series("costlens_iterations_total", iterations, **of),
        series("costlens_steps_total", iterations, costlens_step_outcome="real", **of),
        series("costlens_steps_total", f"0{growing}", costlens_step_outcome="skipped", **of),
        series("costlens_tokens_total", tokens, costlens_token_kind="tokens", **of),
        series("costlens_stall_age_seconds", f"0{growing}", **of),
        *_spend(spent, cost_per_minute, until, of),
        *_stand(state, until, then, of),
    )


def _spend(
    spent: Mapping[str, float], cost_per_minute: float | None, until: int, of: Mapping[str, str]
) -> list[Series]:
    """Return the time of a rank by phase, and its money where a price is known."""
    found = []
    for phase, share in spent.items():
        found.append(
            series(
                "costlens_phase_time_seconds_total",
                f"0+{60 * share:g}x{until}",
                costlens_phase=phase,
                **of,
            )
        )
        if cost_per_minute is not None:
            found.append(
                series(
                    "costlens_cost_total",
                    f"0+{cost_per_minute * share:g}x{until}",
                    costlens_phase=phase,
                    costlens_cost_currency="USD",
                    **of,
                )
            )
    return found


def _stand(state: str, until: int, then: str | None, of: Mapping[str, str]) -> list[Series]:
    """Return the state of a rank, told up to a minute."""
    found = []
    for name in _STATES:
        before = int(name == state)
        last = before if then is None else int(name == then)
        found.append(
            series("costlens_run_state", f"{before}x{until - 1} {last}", costlens_state=name, **of)
        )
    return found


def _busy(phase: str, state: str) -> tuple[Series, ...]:
    """Return a rank that does nothing but one thing, on a full price, beside no checkpoint."""
    return (
        *rank(state=state, phases={phase: 1.0}, iterations_per_minute=0, cost_per_minute=1),
        series("costlens_phase_open_age_seconds", f"0+60x{MINUTES}", costlens_phase=phase),
        gauge("hw_gpu_utilization_ratio", 0, hw_id="GPU-1"),
        gauge("costlens_run_ranks", 2),
        gauge("costlens_run_ranks_reporting", 1),
        series("costlens_unsaved_time_seconds", f"0+60x{MINUTES}"),
        gauge("costlens_checkpoint_interval_seconds", 600),
    )


QUIET: tuple[Case, ...] = (
    Case("a run that trains well", (*rank(0, cost_per_minute=1), *rank(1, cost_per_minute=1))),
    Case("start-up takes an hour", _busy("startup", "starting")),
    Case("a validation takes an hour", _busy("validation", "evaluating")),
    Case(
        "the state between two fits",
        rank(state="running", phases={"idle": 1.0}, iterations_per_minute=0),
    ),
    Case(
        "a save of a few minutes",
        (
            *rank(state="checkpoint", phases={"forward": 0.95, "checkpoint": 0.05}),
            series(
                "costlens_phase_open_age_seconds", "0x44 0+60x5 0x10", costlens_phase="checkpoint"
            ),
        ),
    ),
    Case("a run that is over for a while", rank(until=20, then="completed")),
    Case("a run that failed, which tells itself", rank(until=20, then="failed")),
    Case("nothing at all", ()),
    Case("a run that exports nothing but its heartbeat", (rank()[0],)),
    Case(
        "every rare counter is born at 1",
        (
            *rank(),
            *(
                series(name, "_x40 1x20", **labels)
                for name, labels in (
                    ("hw_errors_total", {"hw_id": "GPU-1", "error_type": "uncorrected"}),
                    ("costlens_nonfinite_events_total", {"costlens_nonfinite_source": "loss"}),
                    ("costlens_checkpoint_saves_total", {"costlens_checkpoint_outcome": "failed"}),
                    ("costlens_telemetry_dropped_total", {"costlens_drop_place": "traces"}),
                )
            ),
        ),
    ),
)
"""What no alert may fire at; the tests look at every alert in each of them."""
