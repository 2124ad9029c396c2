"""Recording rules: what is judged in more than one place, worked out once.

Everything is aggregated by run or rank first: the attempts of a run, and the two paths of metrics
(OTLP and scrape), are different series for some back-ends. A rule may use those above it.
"""

from __future__ import annotations

from grafana.alerts.model import Recording

__all__ = ["RECORDINGS"]

RECORDINGS: tuple[Recording, ...] = (
    # Who is there.
    Recording(
        "rank:costlens_heartbeat:last_time",
        """max by (costlens_run_id, costlens_rank) (
  last_over_time(costlens_heartbeat_time_seconds[$hour])
)""",
        "When a rank was last heard of: of its newest attempt, and of ranks that are silent.",
    ),
    Recording(
        "rank:costlens_ended:last_time",
        """max by (costlens_run_id, costlens_rank) (
  last_over_time(costlens_heartbeat_time_seconds[$hour])
  and ignoring (costlens_state)
  last_over_time(costlens_run_state{costlens_state=~"$ended"}[$hour]) == 1
)""",
        "When a rank said that its attempt was over; a rank that only fell silent has none.",
    ),
    Recording(
        "rank:costlens_live:last_time",
        """rank:costlens_heartbeat:last_time > time() - $live_s
unless on (costlens_run_id, costlens_rank)
rank:costlens_ended:last_time >= rank:costlens_heartbeat:last_time""",
        "Ranks that are heard of and have not said that they are over.",
    ),
    Recording(
        "rank:costlens_host:info",
        """topk by (costlens_run_id, costlens_rank) (1,
  max by (costlens_run_id, costlens_rank, host_name) (costlens_run_info)
)""",
        "The host of a rank; one, while an attempt on another host still lingers.",
    ),
    # Where the time of a training goes. A run that starts, evaluates, saves, waits for its job
    # script or is over has no series here, and so nothing below judges it.
    Recording(
        "rank:costlens_training:ratio_rate5m",
        """sum by (costlens_run_id, costlens_rank) (
  rate(costlens_phase_time_seconds_total{costlens_phase=~"$iteration_phases"}[$rate])
) > $training_ratio
and on (costlens_run_id, costlens_rank) rank:costlens_live:last_time""",
        "Share of the time in iterations, of ranks that are in iterations at all now.",
    ),
    Recording(
        "rank:costlens_phase_time:ratio_rate5m",
        """sum by (costlens_run_id, costlens_rank, costlens_phase) (
  rate(costlens_phase_time_seconds_total{costlens_phase=~"$iteration_phases"}[$rate])
)
/ on (costlens_run_id, costlens_rank) group_left ()
rank:costlens_training:ratio_rate5m""",
        "Share of its iterations that a rank spends in each phase.",
    ),
    Recording(
        "run:costlens_phase_time:ratio_rate5m",
        """avg by (costlens_run_id, costlens_phase) (
  rank:costlens_phase_time:ratio_rate5m
)""",
        "The same of the run: the mean of its ranks.",
    ),
    Recording(
        "rank:costlens_iteration_time:mean_rate5m",
        """rank:costlens_training:ratio_rate5m
/ on (costlens_run_id, costlens_rank)
(sum by (costlens_run_id, costlens_rank) (rate(costlens_iterations_total[$rate])) > 0)""",
        "Seconds of an iteration.",
    ),
    Recording(
        "run:costlens_iteration_time:mean_rate5m",
        "avg by (costlens_run_id) (rank:costlens_iteration_time:mean_rate5m)",
        "Seconds of an iteration, the mean of the ranks.",
    ),
    Recording(
        "rank:costlens_phase_iteration_time:mean_rate5m",
        """rank:costlens_phase_time:ratio_rate5m
* on (costlens_run_id, costlens_rank) group_left ()
rank:costlens_iteration_time:mean_rate5m""",
        "Seconds of an iteration that a rank spends in each phase.",
    ),
    Recording(
        "rank:costlens_own_time:mean_rate5m",
        """sum by (costlens_run_id, costlens_rank) (
  rank:costlens_phase_iteration_time:mean_rate5m{costlens_phase=~"$own_phases"}
)""",
        "Seconds of an iteration before a rank meets the others: a slow rank makes the others "
        "wait in backward and communication, so those say nothing of a rank's own speed.",
    ),
    # Progress and money.
    Recording(
        "run:costlens_steps:rate5m",
        """max by (costlens_run_id) (
  sum by (costlens_run_id, costlens_rank) (
    rate(costlens_steps_total{costlens_step_outcome="real"}[$rate])
  )
)""",
        "Optimizer steps a second; all ranks make the same ones.",
    ),
    Recording(
        "run:costlens_time_left:seconds",
        """(max by (costlens_run_id) (costlens_step_planned)
  - max by (costlens_run_id) (costlens_step_current))
/ (run:costlens_steps:rate5m > 0)""",
        "Time until the last planned step at the present speed.",
    ),
    Recording(
        "run:costlens_tokens:rate1h",
        """sum by (costlens_run_id) (
  rate(costlens_tokens_total{costlens_token_kind="tokens"}[$hour])
)""",
        "Non-padding tokens a second.",
    ),
    Recording(
        "run:costlens_training_cost:rate1h",
        """sum by (costlens_run_id, costlens_cost_currency) (
  rate(costlens_cost_total{costlens_phase!~"startup|restore|idle_device|shutdown"}[$hour])
)""",
        "Money a second without start-up, which comes once and would look like a regression.",
    ),
    Recording(
        "run:costlens_cost_per_token:ratio_rate1h",
        """run:costlens_training_cost:rate1h
/ on (costlens_run_id) group_left ()
(run:costlens_tokens:rate1h > 0)""",
        "Money per non-padding token.",
    ),
    Recording(
        "run:costlens_run_cost:total",
        "max by (costlens_run_id, costlens_cost_currency) (costlens_run_cost)",
        "Money of the run over all attempts and ranks, as one series over restarts.",
    ),
    Recording(
        "run:costlens_budget:amount",
        "max by (costlens_run_id, costlens_cost_currency) (costlens_budget_amount)",
        "What the run may cost.",
    ),
    Recording(
        "run:costlens_budget_left:amount",
        """run:costlens_budget:amount
- on (costlens_run_id, costlens_cost_currency)
run:costlens_run_cost:total > 0""",
        "What is left of it; nothing where it is gone.",
    ),
    Recording(
        "run:costlens_budget_left:seconds",
        """run:costlens_budget_left:amount
/ on (costlens_run_id, costlens_cost_currency)
(delta(run:costlens_run_cost:total[$hour]) > 0)
* $hour_s""",
        "Time until the budget is gone, at the rate of the last hour.",
    ),
    # The hardware, by whatever path its numbers come.
    Recording(
        "gpu:hw_gpu_utilization:ratio",
        """max by (costlens_run_id, costlens_rank, hw_id) (
  hw_gpu_utilization_ratio or hw_gpu_utilization
)
or on (hw_id) gpu:dcgm_utilization:ratio""",
        "One name for OTLP (with _ratio), scrape (without) and dcgm-exporter.",
    ),
    Recording(
        "run:hw_gpu_utilization:ratio_avg5m",
        "avg by (costlens_run_id) (avg_over_time(gpu:hw_gpu_utilization:ratio[$rate]))",
        "Share of the time in which the GPUs of a run are busy.",
    ),
    Recording(
        "gpu:hw_gpu_memory:ratio",
        """max by (costlens_run_id, costlens_rank, hw_id) (hw_gpu_memory_usage_bytes)
/ on (costlens_run_id, costlens_rank, hw_id)
max by (costlens_run_id, costlens_rank, hw_id) (hw_gpu_memory_limit_bytes)
or on (hw_id) gpu:dcgm_memory:ratio""",
        "Share of a GPU's memory that is in use.",
    ),
    Recording(
        "gpu:hw_power:watts",
        """max by (costlens_run_id, costlens_rank, hw_id) (hw_power_watts)
or on (hw_id) gpu:dcgm_power:watts""",
        "Power of a GPU.",
    ),
    Recording(
        "gpu:hw_temperature:celsius",
        """max by (costlens_run_id, costlens_rank, hw_id) (
  hw_temperature_celsius{hw_sensor_location="gpu"}
)
or on (hw_id) gpu:dcgm_temperature:celsius""",
        "Temperature of a GPU's chip.",
    ),
    Recording(
        "gpu:hw_energy:joules",
        """max by (costlens_run_id, costlens_rank, hw_id) (hw_energy_joules_total)
or on (hw_id) gpu:dcgm_energy:joules""",
        "Energy of a GPU since some beginning: only differences mean anything.",
    ),
    Recording(
        "gpu:hw_errors:increase15m",
        """sum by (costlens_run_id, costlens_rank, hw_id, error_type) (
  increase(hw_errors_total{error_type=~"uncorrected|row_remap_(uncorrected|failure)|xid"}[$rare])
)
or on (hw_id) gpu:dcgm_xid:changes15m""",
        "Errors of a GPU that no retry repairs. Counters begin at 0: one born at 1 shows nothing.",
    ),
    # Ourselves.
    Recording(
        "run:costlens_overhead:ratio_rate5m",
        """max by (costlens_run_id) (
  sum by (costlens_run_id, costlens_rank) (
    rate(costlens_telemetry_overhead_time_seconds_total[$rate])
  )
  / on (costlens_run_id, costlens_rank)
  rank:costlens_training:ratio_rate5m
)""",
        "CPU time of costlens's own thread over the time of iterations, of the worst rank.",
    ),
)
"""In the order in which they are evaluated."""
