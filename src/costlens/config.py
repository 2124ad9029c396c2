"""Every setting of costlens, once: argument > ``COSTLENS_*`` variable > default.

Resolved once when a run starts. ``OTEL_*`` variables belong to OpenTelemetry and are read where the
exporters are built. A setting is one field here; docs/config.md is generated from these fields.
"""

from __future__ import annotations

import difflib
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AwareDatetime, Field, PrivateAttr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from costlens.duration import parse_duration_s
from costlens.errors import ConfigError

__all__ = ["ENV_PREFIX", "Config", "is_under_test", "resolve_config"]

ENV_PREFIX = "COSTLENS_"

# Read by the test suite and the tools around the library, not by the library.
_FOREIGN = frozenset({"COSTLENS_REQUIRE"})

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})

# Everything before the last @ of a URL, and its query: where credentials stand.
_CREDENTIALS = re.compile(r"(?<=://)\S*@|(?<=\?)\S*")
_MAX_SHOWN = 80


# Not what Decimal takes: it knows 1_000, NaN and the digits of every script.
_DECIMAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)
_MAX_SHOWN_PRICE = 20
_SWITCHES = ("enabled", "autoattach", "summary", "otlp_file", "estimate_flops", "slurm_requeue")
_DECIMALS = ("gpu_hour_price", "node_hour_price", "price_discount", "energy_kwh_price", "budget")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END = datetime(9999, 1, 1, tzinfo=timezone.utc)

HourPrice = Annotated[
    Decimal, Field(ge=0, lt=1_000_000_000, decimal_places=12, allow_inf_nan=False)
]
"""Money per hour; the bounds keep every sum exact."""

Ratio = Annotated[Decimal, Field(ge=0, le=1, decimal_places=12, allow_inf_nan=False)]
"""A share of 0 to 1 that money is multiplied with."""

Flops = Annotated[float, Field(gt=0, lt=1e30, allow_inf_nan=False)]

CapacityType = Literal["on_demand", "spot", "reserved"]
"""How capacity was bought: prices differ by it."""
JobTime = Annotated[AwareDatetime, Field(ge=_EPOCH, lt=_END)] | None
"""A moment that a scheduler's template passes."""

Label = Annotated[str, Field(min_length=1, max_length=200)] | None


Budget = Annotated[
    Decimal, Field(gt=0, lt=1_000_000_000_000, decimal_places=12, allow_inf_nan=False)
]
"""Money for a whole run."""

PreemptionSignal = Literal["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU"]


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
                raise ConfigError(_explain(error, values, os.environ)) from None
            self._arguments = frozenset(values)

    @field_validator(*_SWITCHES, mode="before")
    @classmethod
    def _parse_switch(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        lowered = value.strip().lower()
        if lowered in _TRUE:
            return True
        if lowered in _FALSE:
            return False
        raise ValueError("allowed are 1, true, yes, on and 0, false, no, off")

    @field_validator(*_DECIMALS, mode="before")
    @classmethod
    def _parse_price(cls, value: object) -> object:
        if isinstance(value, str) and not _DECIMAL.fullmatch(value):
            raise ValueError("a plain decimal number such as 2.50 is needed")
        return value

    @field_validator(*_DECIMALS)
    @classmethod
    def _drop_sign(cls, value: Decimal | None) -> Decimal | None:
        return None if value is None else value.copy_abs()  # of -0

    @field_validator("max_loss", "mtbf", mode="before")
    @classmethod
    def _parse_duration(cls, value: object) -> object:
        return parse_duration_s(value) if isinstance(value, str) else value

    @field_validator("quality", "dataset_files", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("preemption_signals", mode="before")
    @classmethod
    def _parse_signals(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = [name.strip().upper() for name in value.split(",")]
        names = [name for name in names if name not in {"", "NONE"}]
        return tuple(name if name.startswith("SIG") else f"SIG{name}" for name in names)

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
                f"{_nearest(variable.upper(), known)}?",
                stacklevel=4,
            )


def _nearest(name: str, known: Iterable[str]) -> str:
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]


def _explain(
    error: ValidationError, given: Mapping[str, object], environ: Mapping[str, str]
) -> str:
    lines = []
    for problem in error.errors(include_url=False, include_input=False):
        name = str(problem["loc"][0]) if problem["loc"] else "config"
        if name not in Config.model_fields:
            nearest = _nearest(name, Config.model_fields)
            lines.append(f"{name} is not a costlens setting; did you mean {nearest}?")
            continue
        variable = ENV_PREFIX + name.upper()
        if name in given:
            source, value = f"argument {name}", given[name]
        else:
            source = variable
            value = next((v for k, v in environ.items() if k.upper() == variable), None)
        message = problem["msg"].removeprefix("Value error, ")
        limit = _MAX_SHOWN_PRICE if name in _DECIMALS else _MAX_SHOWN
        described = Config.model_fields[name].description
        lines.append(
            f"{name} cannot be {_show(value, limit)} (from {source}): {message}. "
            f"{name}: {described}"
        )
    return "\n".join(lines)


def _show(value: object, limit: int) -> str:
    text = _CREDENTIALS.sub("…", repr(value))
    return text if len(text) <= limit else text[:limit] + "…"
