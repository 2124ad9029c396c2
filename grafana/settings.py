"""What dashboards and alerts share: names, selectors, windows and thresholds, each in one place.

A panel draws the line at which an alert fires because both read it here. Ratios lie between 0 and
1, times are seconds, money is in whatever currency a run is paid in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from costlens.account.restarts import MIN_LOOP
from costlens.cli.grafana import GRAFANA_URL, RUNBOOK_URL

__all__ = [
    "SETTINGS",
    "Dashboards",
    "DataSources",
    "Links",
    "Settings",
    "Thresholds",
    "Windows",
    "promql_duration",
]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where good ends: the lines of the panels and the conditions of the alerts.

    Attributes:
        heartbeat_age_s: A rank whose newest values are older has lost its telemetry, or its life.
        data_wait_ratio: Share of a run's time in which it waits for data.
        transfer_ratio: Share of a run's time in which it waits for copies to the device.
        gpu_utilization_ratio: A GPU busy for less of the time is under-used.
        straggler_ratio: A rank's own time a step over the median of the ranks.
        stale_intervals: Age of the newest checkpoint in intervals that the policy decided on.
        stall_ratio: Share of a run's time in which it stands still for snapshots.
        unsaved_cost: Money that a crash now would lose.
        memory_ratio: GPU memory in use over what there is.
        throttle_ratio: Share of the time in which heat or the board held the clocks down.
        power_cap_ratio: Share of the time in which the power limit held the clocks down.
        skipped_steps_ratio: Optimizer steps that a gradient scaler skipped over all.
        queue_wait_s: A job that waited for longer before it began.
        read_s: 99th percentile of the durations of reads of the data set.
        failed_runs_ratio: Share of the runs of a day that ended badly.
        restart_loop: Attempts in a row that ended badly without getting further.
        cost_per_token_ratio: Money per token now over what it was before.
        budget_hour_ratio: Share of its budget that a run spends in an hour.
        budget_left_s: Time after which the budget is gone at the present rate.
        overhead_ratio: Time of our own thread over the time of the run.
        live_s: A rank that was heard of more recently is alive.
        training_ratio: A rank that is in iterations for less of the time is not judged.
        straggler_loss_ratio: Share of an iteration that a slow rank costs the others.
        task_slowdown_ratio: Time of an iteration now over what it was before.
        failed_runs: Fewer runs that failed say nothing.
        free_memory_ratio: Share of the job's memory that is left before the kernel kills.
        no_checkpoint_s: A run that saves should have saved once by then.
        budget_slow_hour_ratio: Share of its budget that a run spends in an hour, over a long time.
    """

    heartbeat_age_s: float = 300
    data_wait_ratio: float = 0.2
    transfer_ratio: float = 0.1
    gpu_utilization_ratio: float = 0.6
    straggler_ratio: float = 1.2
    stale_intervals: float = 2
    stall_ratio: float = 0.1
    unsaved_cost: float = 500
    memory_ratio: float = 0.95
    throttle_ratio: float = 0.1
    power_cap_ratio: float = 0.5
    skipped_steps_ratio: float = 0.05
    queue_wait_s: float = 4 * 3600
    read_s: float = 1
    failed_runs_ratio: float = 0.2
    restart_loop: float = MIN_LOOP
    cost_per_token_ratio: float = 1.25
    budget_hour_ratio: float = 0.05
    budget_left_s: float = 6 * 3600
    overhead_ratio: float = 0.01
    live_s: float = 120
    training_ratio: float = 0.2
    straggler_loss_ratio: float = 0.05
    task_slowdown_ratio: float = 1.5
    failed_runs: float = 3
    free_memory_ratio: float = 0.05
    no_checkpoint_s: float = 1800
    budget_slow_hour_ratio: float = 0.02


@dataclass(frozen=True, slots=True)
class Windows:
    """Over how long alerts look, and for how long a condition must hold, in seconds.

    Attributes:
        evaluation_s: How often rules are evaluated.
        rate_s: What rates are taken over.
        rare_s: What is counted that happens seldom.
        hour_s: The longer window of what burns slowly.
        day_s: What "as it was before" means.
        brief_s: One export that is late is no longer than that.
        soon_s: A condition that holds for as long is no blip.
        steady_s: The same where short dips are usual.
        half_hour_s: What is compared with a day, or burns slowly.
        quarter_day_s: The longest window of a burn rate, and of runs that ended.
    """

    evaluation_s: float = 30
    rate_s: float = 300
    rare_s: float = 900
    hour_s: float = 3600
    day_s: float = 86400
    brief_s: float = 120
    soon_s: float = 300
    steady_s: float = 900
    half_hour_s: float = 1800
    quarter_day_s: float = 21600

    def scaled(self, factor: float) -> Windows:
        """Return all windows times a factor, so that a test need not wait for minutes."""
        return replace(self, **{f.name: getattr(self, f.name) * factor for f in fields(self)})


@dataclass(frozen=True, slots=True)
class DataSources:
    """Uids of the data sources that are provisioned; dashboards use variables and no uid."""

    prometheus: str = "costlens-prometheus"
    tempo: str = "costlens-tempo"
    loki: str = "costlens-loki"


@dataclass(frozen=True, slots=True)
class Dashboards:
    """Uids of the dashboards: links and alerts name them, so they never change."""

    runs: str = "costlens-runs"
    run: str = "costlens-run"
    bottleneck: str = "costlens-bottleneck"
    hardware: str = "costlens-hardware"
    cost: str = "costlens-cost"
    reliability: str = "costlens-reliability"


@dataclass(frozen=True, slots=True)
class Links:
    """Where people are sent; ``costlens grafana export`` puts a site's own addresses in place.

    Attributes:
        grafana_url: Grafana's address; the default is that of integrations/local-stack.
        runbook_url: Where runbook.md is served; an alert's section is ``#`` and its name in lower
            case. The default is a name that can never exist.
    """

    grafana_url: str = GRAFANA_URL
    runbook_url: str = RUNBOOK_URL


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it.

    Attributes:
        run: Selector of one run in a dashboard.
        ranks: Selector of the chosen ranks of one run in a dashboard.
        runs: Selector of the chosen runs in a dashboard.
        team: Selector of the chosen teams, on ``costlens_run_info`` alone.
        own_phases: What a rank does before it meets the others. In data-parallel training a slow
            rank makes the others wait in `backward` and `communication`, so these tell nothing
            of its own speed.
        export_s: How often a rank exports: what a scrape interval and ``$__interval`` start from.
    """

    thresholds: Thresholds = field(default_factory=Thresholds)
    windows: Windows = field(default_factory=Windows)
    sources: DataSources = field(default_factory=DataSources)
    dashboards: Dashboards = field(default_factory=Dashboards)
    links: Links = field(default_factory=Links)
    run: str = 'costlens_run_id="$run"'
    ranks: str = 'costlens_run_id="$run",costlens_rank=~"$rank"'
    runs: str = 'costlens_run_id=~"$run"'
    team: str = 'costlens_team=~"$team"'
    own_phases: tuple[str, ...] = (
        *("data_wait", "transfer", "forward", "optimizer", "callbacks", "logging", "other"),
    )
    export_s: float = 10


SETTINGS = Settings()


def promql_duration(seconds: float) -> str:
    """Return a time as PromQL writes it; 300 is ``5m``, 1.5 is ``1500ms``."""
    for unit, size_s in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= size_s and seconds % size_s == 0:
            return f"{seconds / size_s:.0f}{unit}"
    return f"{max(1, round(seconds * 1000))}ms"
