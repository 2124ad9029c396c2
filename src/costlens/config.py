"""Every setting of costlens, once: argument > ``COSTLENS_*`` variable > default.

Resolved once when a run starts. ``OTEL_*`` variables belong to OpenTelemetry and are read where the
exporters are built. A setting is one field here; docs/config.md is generated from these fields.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from costlens.errors import ConfigError
from costlens.setting_errors import explain, nearest
from costlens.setting_values import (
    Budget,
    CapacityType,
    Flops,
    HourPrice,
    JobTime,
    Label,
    PreemptionSignal,
    Ratio,
    drop_sign,
    parse_decimal,
    parse_duration,
    parse_signals,
    parse_switch,
    split_names,
)

__all__ = ["ENV_PREFIX", "Config", "is_under_test", "resolve_config"]

ENV_PREFIX = "COSTLENS_"

# Read by the test suite and the tools around the library, not by the library.
_FOREIGN = frozenset({"COSTLENS_REQUIRE"})

_SWITCHES = ("enabled", "autoattach", "summary", "otlp_file", "estimate_flops", "slurm_requeue")
_DECIMALS = ("gpu_hour_price", "node_hour_price", "price_discount", "energy_kwh_price", "budget")


class Config(BaseSettings):
    """The settings of one run, frozen; fields that are not given come from the environment.

    Raises:
        ConfigError: If a value is not usable; the message names it, what is allowed and where it
            came from.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        frozen=True,
        extra="forbid",
        env_ignore_empty=True,
        validate_default=True,
        hide_input_in_errors=True,
    )

    enabled: bool = Field(True, description="0 turns everything into a no-op.")
    autoattach: bool = Field(
        False, description="1 watches every Lightning Trainer without a line of code."
    )
    name: str = Field(
        "run", min_length=1, max_length=200, description="Name of the run, for people; not unique."
    )
    run_id: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Identity of the run over its restarts. Unset: the checkpoint URL's run.json, "
        "else the scheduler's job id, else a new one.",
    )
    dir: str = Field(
        "",
        description="Where run folders go: a path or any fsspec URL. Unset: "
        "`<checkpoint url>/.costlens` when a checkpoint URL is set, else `costlens-runs`.",
    )
    checkpoint_url: str | None = Field(
        None,
        description="Where this run keeps its checkpoints (any fsspec URL); its run.json ties "
        "restarts to one run.",
    )
    resume: Literal["auto", "never", "must"] = Field(
        "auto",
        description="auto: go on from the newest checkpoint that verifies, else start afresh; "
        "never: start afresh; must: an error where there is none.",
    )
    keep_checkpoints: int = Field(
        2, ge=-1, description="How many checkpoints stay, at least two; -1 keeps all."
    )
    max_loss: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None,
        description="Most work that a failure may lose, such as `30m`: checkpoints come often "
        "enough for it. Unset: whatever costs the least.",
    )
    mtbf: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None,
        description="Mean time between failures of the job, such as `8h`, for those who know it. "
        "Unset: learnt from the run's own attempts.",
    )
    checkpoint_exit_timeout_s: float = Field(
        60.0,
        ge=0,
        le=86_400,
        description="Most seconds that the end of a run waits for its last checkpoint.",
    )
    gpu_hour_price: HourPrice | None = Field(
        None,
        description="Money per GPU and hour. Unset is unknown, 0 is free.",
    )
    node_hour_price: HourPrice | None = Field(
        None,
        description="Money per node and hour; used where no GPU price applies. Unset is unknown, "
        "0 is free.",
    )
    project: Label = Field(None, description="Project that the run's money is allocated to.")
    team: Label = Field(None, description="Team that the run's money is allocated to.")
    experiment: Label = Field(None, description="Experiment that the run's money is allocated to.")
    experiment_version: Label = Field(
        None, description="Version of the experiment that the run's money is allocated to."
    )
    model: Label = Field(None, description="Model that the run's money is allocated to.")
    dataset_version: Label = Field(
        None, description="Version of the training data that the run's money is allocated to."
    )
    dataset_files: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description="Comma-separated files, folders or patterns (paths or fsspec URLs) whose "
        "names and bytes make the dataset version where none is given; rank 0 reads them once, "
        "beside the training: at most 10,000 files and 64 GiB.",
    )
    price_discount: Ratio | None = Field(
        None, description="Share that comes off every price of a GPU or node, such as 0.15."
    )
    energy_kwh_price: HourPrice | None = Field(
        None,
        description="Money per kilowatt-hour of the GPUs; a cost of its own, in no other price.",
    )
    price_book: str | None = Field(
        None,
        min_length=1,
        description="Where prices are looked up when no variable says them: a path or any fsspec "
        "URL of a price book (TOML, or a SkyPilot catalog), or `bundled` for the dated list prices "
        "that come with costlens.",
    )
    capacity_type: CapacityType | None = Field(
        None, description="How the capacity was bought. Unset: on_demand, where nothing tells."
    )
    cloud_provider: Label = Field(None, description="Whose prices of the price book apply.")
    region: Label = Field(None, description="Region or zone whose prices apply.")
    instance_type: Label = Field(None, description="Machine type whose prices apply.")
    flops_per_token: Flops | None = Field(
        None, description="FLOPs of forward and backward for one token, for MFU."
    )
    flops_per_step: Flops | None = Field(
        None, description="FLOPs of one optimizer step of all ranks together, for MFU."
    )
    estimate_flops: bool = Field(
        False,
        description="1 takes 6 × parameters as the FLOPs of a token where none are given; MFU is "
        "then labelled an estimate.",
    )
    mfu_precision: Literal["bf16", "fp16", "tf32", "fp32", "fp8"] | None = Field(
        None,
        description="Precision of the peak that MFU is taken of. Unset: bf16, else fp16, as the "
        "device has it.",
    )
    currency: str = Field("USD", pattern=r"^[A-Z]{3}$", description="ISO 4217 code of the prices.")
    job_submit_time: JobTime = Field(
        None,
        description="When the job was submitted, in Unix seconds or ISO 8601 with an offset, where "
        "the scheduler does not tell.",
    )
    job_eligible_time: JobTime = Field(
        None,
        description="From when on nothing but resources and priority held the job back; as above.",
    )
    job_start_time: JobTime = Field(
        None, description="When its allocation began, from which on it is paid for; as above."
    )
    budget: Budget | None = Field(
        None,
        description="Money (in COSTLENS_CURRENCY) that the run may cost over all its attempts and "
        "ranks; told at 50, 80 and 100 %.",
    )
    budget_action: Literal["warn", "stop"] = Field(
        "warn",
        description="What happens when the budget is spent: say so, or end the training at a step "
        "that all ranks agree on.",
    )
    quality: Annotated[tuple[str, ...], NoDecode] = Field(
        ("val*", "train_loss", "loss"),
        description="Comma-separated names or globs of logged metrics to keep as quality.",
    )
    precision: Literal["off", "auto", "bf16", "fp16", "fp32"] = Field(
        "off",
        description="What to compute in, mixed with fp32. auto: bf16 where the hardware has it, "
        "else fp16 with a loss scaler, else fp32. An explicit choice of the training stays; `off` "
        "leaves everything alone.",
    )
    summary: bool = Field(True, description="Print the report on rank 0 when a run ends.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log event that is written."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: for people on a terminal, JSON lines elsewhere."
    )
    window_s: float = Field(
        10.0,
        ge=0.01,
        le=3600,
        description="Seconds of one aggregation window and of one metric export.",
    )
    trace_period_s: float = Field(
        60.0, gt=0, le=3600, description="Seconds of one trace that all ranks share."
    )
    iteration_span_every: int = Field(
        100, ge=1, description="Every n-th iteration gets a full span (at most one per window)."
    )
    ranges: Literal["off", "nvtx", "record_function"] = Field(
        "off",
        description="Phases and iterations as ranges named `costlens.*`, for Nsight (nvtx, once "
        "the training has initialised CUDA) or for torch.profiler (record_function). A range takes "
        "the training thread 1 to 10 µs; `off` takes nothing.",
    )
    otlp_file: bool | None = Field(
        None,
        description="1 also keeps telemetry as files in the run folder, which `costlens replay` "
        "sends later; 0 does not. Unset: only where nothing is sent over OTLP.",
    )
    otlp_file_max_mb: int = Field(
        64,
        ge=1,
        le=100_000,
        description="Most MiB of telemetry files that one rank keeps over all attempts of a run; "
        "the oldest go first.",
    )
    flush_timeout_s: float = Field(
        3.0,
        ge=0,
        le=60,
        description="Most seconds that ending a run waits for back-ends, all together.",
    )

    preemption_signals: Annotated[tuple[PreemptionSignal, ...], NoDecode] = Field(
        ("SIGTERM", "SIGHUP"),
        description="Signals that announce the end of the process: the record is closed as "
        "preempted before it dies of one; with checkpoints the training saves first. Others keep "
        "their effect; `none` leaves all alone.",
    )
    grace_s: float = Field(
        30.0,
        gt=0,
        le=86_400,
        description="Seconds from such a signal until the process is killed: a save has to fit.",
    )
    preemption_exit_code: int = Field(
        143,
        ge=0,
        le=255,
        description="Exit code of a process that left its training because it was asked to.",
    )
    cloud_notices: Literal["off", "aws", "gcp", "azure"] = Field(
        "off",
        description="Whose notices of a machine about to be taken are asked for, beside signals: "
        "from the cloud's metadata address, by one rank a node, where checkpoints are kept.",
    )
    slurm_requeue: bool = Field(
        False,
        description="1 lets rank 0 queue its Slurm job again once the save of a preemption is "
        "durable and the run has ended.",
    )

    _arguments: frozenset[str] = PrivateAttr(default=frozenset())

    if not TYPE_CHECKING:  # type checkers see the signature that pydantic makes of the fields

        def __init__(self, **values: object) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(_explain(error, values)) from None
            self._arguments = frozenset(values)

    _parse_switch = field_validator(*_SWITCHES, mode="before")(parse_switch)
    _parse_price = field_validator(*_DECIMALS, mode="before")(parse_decimal)
    _drop_sign = field_validator(*_DECIMALS)(drop_sign)
    _parse_duration = field_validator("max_loss", "mtbf", mode="before")(parse_duration)
    _split = field_validator("quality", "dataset_files", mode="before")(split_names)
    _parse_signals = field_validator("preemption_signals", mode="before")(parse_signals)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic passes all by name
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources in order of precedence: arguments, the environment, nothing else."""
        return init_settings, env_settings

    def source_of(self, name: str) -> str:
        """Return where a setting came from: ``argument name``, its variable, or ``default``."""
        if name in self._arguments:
            return f"argument {name}"
        return ENV_PREFIX + name.upper() if name in self.model_fields_set else "default"

    @property
    def run_dir(self) -> str:
        """Return the path or URL that holds run folders."""
        if self.dir:
            return self.dir
        if self.checkpoint_url:
            return self.checkpoint_url.rstrip("/") + "/.costlens"
        return "costlens-runs"

    @property
    def job_times(self) -> dict[str, float]:
        """Return the times of the scheduler's job that were given, in Unix seconds."""
        given = {
            "submit_time": self.job_submit_time,
            "eligible_time": self.job_eligible_time,
            "start_time": self.job_start_time,
        }
        return {name: moment.timestamp() for name, moment in given.items() if moment is not None}

    @property
    def window_ns(self) -> int:
        """Return the length of a window in nanoseconds."""
        return int(self.window_s * 1_000_000_000)


def resolve_config(config: Config | None = None, **arguments: Any) -> Config:
    """Return the settings: arguments that are not None, then the environment, then defaults.

    An unknown ``COSTLENS_*`` variable warns once with the nearest known name.

    Args:
        config: Ready settings; arguments override its fields.
        **arguments: Fields of :class:`Config`; None means "not given".

    Raises:
        ConfigError: If a value is not usable; the message names it, what is allowed and where it
            came from.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    _warn_unknown(os.environ)
    if config is None:
        return Config(**given)
    if not given:
        return config
    merged = Config(**{**dict(config), **given})
    # Which fields somebody set, rather than left at their default, stays known.
    set_fields = config.model_fields_set | given.keys()
    resolved = Config.model_construct(_fields_set=set_fields, **dict(merged))
    resolved._arguments = config._arguments | given.keys()  # noqa: SLF001 - its own class
    return resolved


def is_under_test() -> bool:
    """Return whether a pytest test is running in this process or in the one that started it."""
    return "PYTEST_CURRENT_TEST" in os.environ


def _warn_unknown(environ: Mapping[str, str]) -> None:
    known = {ENV_PREFIX + name.upper() for name in Config.model_fields} | _FOREIGN
    for variable in sorted(environ):
        if variable.upper().startswith(ENV_PREFIX) and variable.upper() not in known:
            warnings.warn(
                f"{variable} is not a costlens setting and is ignored; did you mean "
                f"{nearest(variable.upper(), known)}?",
                stacklevel=4,
            )


def _explain(error: ValidationError, given: Mapping[str, object]) -> str:
    return explain(
        error, Config.model_fields, given, os.environ, prefix=ENV_PREFIX, numbers=_DECIMALS
    )
