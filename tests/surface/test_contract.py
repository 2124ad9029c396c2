"""What users and their scripts rely on by name: record keys, outcomes, phases, settings, commands.

A name that goes or changes breaks somebody; a new one is added here on purpose.
"""

from __future__ import annotations

import typer.main

from costlens.cli.app import app
from costlens.config import Config
from costlens.core.phases import NAMES
from costlens.core.records import Outcome
from costlens.core.run_record import CostPart, FindingPart, RunProgress, RunRecord

RECORD_KEYS = {
    *("run", "attempts", "ranks", "progress", "time_s", "rates", "queue", "gpu", "cost"),
    *("checkpoints", "precision", "quality", "findings", "telemetry"),
    *("schema_version", "iteration_time", "startup", "problems", "restart_loop", "goodput"),
    *("host", "mfu", "budget", "undecided", "unjudged", "practice"),
}
PROGRESS_KEYS = {
    *("iterations", "micro_batches", "optimizer_steps", "skipped_steps", "productive_steps"),
    *("lost_steps", "samples", "tokens"),
    *("slots", "loss_tokens", "validation_batches", "test_batches", "total_steps"),
}
COST_KEYS = {
    *("currency", "total", "by_phase", "by_attempt", "per_1k_tokens", "per_million_tokens"),
    *("per_million_productive_tokens", "unknown", "is_partial", "token_basis", "rate_per_hour"),
    *("sources", "by_currency", "by_rank"),
    *("per_sample", "per_step", "per_productive_step", "per_gpu_hour", "per_effective_gpu_hour"),
    *("cost_per_effective_unit", "utilization", "utilization_name", "energy"),
}
FINDING_KEYS = {
    *("name", "severity", "money_per_hour", "evidence", "remedies"),
    *("scope", "money_so_far", "currency", "share", "ranks", "num_ranks", "since", "is_open"),
    *("remedy_shares", "traceql", "runbook", "places", "is_least"),
}
PHASES = (
    *("startup", "restore", "data_wait", "transfer", "forward", "backward", "optimizer"),
    *("compute", "communication", "checkpoint", "validation", "callbacks", "logging", "idle"),
    *("idle_device", "shutdown", "other"),
)
OUTCOMES = {
    *("running", "completed", "stopped_early", "interrupted", "failed", "preempted", "lost"),
}
SETTINGS = {
    *("enabled", "autoattach", "name", "run_id", "dir", "checkpoint_url", "gpu_hour_price"),
    *("resume", "keep_checkpoints", "max_loss", "mtbf", "checkpoint_exit_timeout_s"),
    *("budget", "budget_action"),
    *("node_hour_price", "currency", "quality", "summary", "log_level", "log_format", "window_s"),
    *("preemption_signals", "grace_s", "preemption_exit_code", "cloud_notices", "slurm_requeue"),
    *("price_discount", "energy_kwh_price", "price_book", "capacity_type", "cloud_provider"),
    *("job_submit_time", "job_eligible_time", "job_start_time"),
    *("region", "instance_type", "flops_per_token", "flops_per_step", "estimate_flops"),
    *("mfu_precision", "dataset_files", "precision"),
    *("project", "team", "experiment", "experiment_version", "model", "dataset_version"),
    *(
        "trace_period_s",
        "iteration_span_every",
        "ranges",
        "otlp_file",
        "otlp_file_max_mb",
        "flush_timeout_s",
    ),
}
OPTIONS = {
    "compare": {"runs", "--fail-above", "--baseline", "--save-baseline", "--dir", "--json"},
    "doctor": {"--dir", "--json"},
    "report": {"run", "--dir", "--json", "--watch", "--html"},
    "tune": {"run", "--detail", "--for", "--rank", "--dir", "--json"},
    "runs": {"--dir", "--since", "--group-by", "--json"},
    "replay": {
        *("run", "--endpoint", "--dir", "--protocol", "--signal", "--backend", "--rate"),
        "--dry-run",
    },
    "export": {
        *("run", "--dir", "--since", "--format", "--output", "-o", "--account", "--provider"),
    },
    "checkpoints ls": {"url", "--run", "--json"},
    "checkpoints verify": {"url", "--run", "--json"},
    "checkpoints prune": {"url", "--run", "--keep", "--dry-run", "--json"},
    "grafana export": {"directory", "--force", "--alerts", "--grafana-url", "--runbook-url"},
    "config": {"--dir", "--json"},
    "prices": {
        *("--accelerator", "--book", "--provider", "--region", "--instance-type", "--spot"),
        "--json",
    },
    "demo": {"--plain", "--seed", "--price", "--fake-gpus", "--max-steps", "--json"},
}


def test_the_merged_record_has_the_promised_keys() -> None:
    """`costlens report --json` is read by scripts: these keys stay, and none comes unnoticed."""
    assert set(RunRecord.model_fields) == RECORD_KEYS
    assert set(RunProgress.model_fields) == PROGRESS_KEYS
    assert set(FindingPart.model_fields) == FINDING_KEYS
    assert set(CostPart.model_fields) == COST_KEYS


def test_phases_and_outcomes_are_a_closed_set() -> None:
    """Dashboards and alerts name them; their order is the index into every array of phases."""
    assert NAMES == PHASES
    assert {outcome.value for outcome in Outcome} == OUTCOMES


def test_settings_are_known_by_name() -> None:
    """Launch scripts set COSTLENS_* variables: a renamed one would be ignored with a warning."""
    assert set(Config.model_fields) == SETTINGS


def test_commands_and_options_are_known_by_name() -> None:
    """A new option is a decision, not an accident."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for group in ("checkpoints", "grafana"):
        for name, command in commands.pop(group).commands.items():
            commands[f"{group} {name}"] = command
    seen = {
        name: {option for param in command.params for option in param.opts} - {"--help", "-h"}
        for name, command in commands.items()
    }
    assert seen == OPTIONS
