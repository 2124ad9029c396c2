"""A subject of the comparison, and those that need no further package.

``training.py`` arms every subject before the first step and then switches between them; a subject
must leave nothing behind on the Trainer while another one is on.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from importlib.util import find_spec
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import DeviceStatsMonitor, ThroughputMonitor
from pytorch_lightning.loggers import Logger
from pytorch_lightning.profilers import SimpleProfiler

from benchmarks.lightning_overhead import Nothing, Ring
from benchmarks.overhead.clocks import Tasks
from costlens.lightning import CostLensCallback


class Subject:
    """What is on the Trainer while its blocks run; this one is nothing at all.

    Attributes:
        name: Its row of the table.
        package: The module it needs; None needs none.
        callbacks: The Trainer's callbacks while it is on.
        profiler: The Trainer's profiler while it is on; None is Lightning's own.
        loggers: The Trainer's loggers while it is on.
        log_every_n_steps: The Trainer's setting while it is on.
        tasks: Threads and processes it started when it was armed.
        stretch_share: How long it runs alone, as a share of the plan's stretch.
        hooks: The optimizer's hooks while it is on, by attribute.
        delivers: What one gets for its price, for the table.
    """

    name = "bare"
    package: str | None = None
    delivers = ""
    stretch_share = 1.0

    def __init__(self) -> None:
        self.callbacks: list[Any] = []
        self.profiler: Any = None
        self.loggers: list[Logger] = []
        self.log_every_n_steps = 50
        self.tasks = Tasks()
        self.hooks: dict[str, OrderedDict[int, Any]] = {}

    @property
    def is_installed(self) -> bool:
        """Return whether its package is there."""
        return self.package is None or find_spec(self.package) is not None

    @property
    def is_measured_alone(self) -> bool:
        """Return whether there is something behind the training thread."""
        return not self.tasks.is_empty

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start all that it needs; once, while the Trainer sets up."""

    def begin(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Do what it does when a training starts; once."""

    def separate(self, plain: Any) -> None:
        """Put its profiler in front of Lightning's own alone; once, before the first block."""

    def enter(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Go on the Trainer, beyond callbacks, profiler, loggers and hooks."""

    def leave(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Come off the Trainer."""

    def begin_alone(self) -> None:
        """Start what runs beside the training only while this subject is alone."""

    def end_alone(self) -> None:
        """Stop it."""

    def check(self, num_steps: int) -> None:
        """Fail unless it did its work in the steps given to it."""

    def close(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """End it; after the training."""


class OneCallback(Subject):
    """A callback and nothing else."""

    def __init__(self, name: str, callback: pl.Callback, delivers: str) -> None:
        super().__init__()
        self.name = name
        self.callbacks = [callback]
        self.delivers = delivers


class Dropping(Logger):
    """A logger that takes everything and keeps nothing: monitors insist on one."""

    name = "dropping"
    version = 0

    def __init__(self) -> None:
        super().__init__()
        self.num_calls = 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Count the call."""
        self.num_calls += 1

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Take the parameters."""


class DeviceStats(OneCallback):
    """Lightning's own monitor, at every step."""

    def __init__(self) -> None:
        monitor = DeviceStatsMonitor(cpu_stats=True)
        super().__init__("Lightning DeviceStatsMonitor", monitor, "host figures, each step")
        self.logger = Dropping()
        self.loggers = [self.logger]
        self.log_every_n_steps = 1

    def check(self, num_steps: int) -> None:
        assert self.logger.num_calls >= num_steps, "DeviceStatsMonitor has not logged every step"


class Throughput(OneCallback):
    """Lightning's own monitor of throughput, at every step."""

    def __init__(self) -> None:
        monitor = ThroughputMonitor(batch_size_fn=len)
        super().__init__("Lightning ThroughputMonitor", monitor, "samples a second, each step")
        self.monitor = monitor
        self.logger = Dropping()
        self.loggers = [self.logger]
        self.log_every_n_steps = 1

    def begin(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.monitor.setup(trainer, module, "fit")
        self.monitor.on_train_start(trainer, module)

    def check(self, num_steps: int) -> None:
        assert self.logger.num_calls >= num_steps, "ThroughputMonitor has not logged every step"


# Subjects change inside this bracket: it opens on one profiler and closes on the next.
FETCH = "[_TrainingEpochLoop].train_dataloader_next"


class Simple(Subject):
    """Lightning's own profiler, which a user has chosen."""

    name = "Lightning SimpleProfiler"
    delivers = "seconds by bracket, at the end"

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.profiler = self.simple = SimpleProfiler()

    def enter(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.simple.current_actions[FETCH] = time.monotonic()

    def leave(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.simple.current_actions.pop(FETCH, None)

    def check(self, num_steps: int) -> None:
        num_seen = len(self.simple.recorded_durations["run_training_batch"])
        assert num_seen > 0.9 * num_steps, f"SimpleProfiler saw {num_seen} of {num_steps} steps"


class CostLens(Subject):
    """The Lightning door, with or without an endpoint.

    Args:
        name: Its row.
        endpoint: Where OTLP goes; None keeps everything on this machine.
        user: The user's own profiler behind it, if there is one.
    """

    delivers = "phases, counts, loss, cost, findings; record"

    def __init__(self, name: str, endpoint: str | None = None, user: Simple | None = None) -> None:
        super().__init__()
        self.name = name
        self.endpoint = endpoint
        self.user = user
        self.watcher = CostLensCallback(name)
        if endpoint is not None:
            self.delivers = "the same, live in metrics and traces"
        if user is not None:
            self.delivers += f"; {user.delivers}"

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        before = trainer.callbacks
        trainer.callbacks = [*before, self.watcher]
        if self.endpoint is not None:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = self.endpoint
        self.watcher.setup(trainer, module, "fit")
        os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
        trainer.callbacks = before
        self.callbacks = [self.watcher]
        self.profiler = trainer.profiler
        if self.user is not None:
            self.user.arm(trainer, module)

    def separate(self, plain: Any) -> None:
        self.profiler.rewrap(plain if self.user is None else self.user.simple)

    def enter(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if self.user is not None:
            self.user.enter(trainer, module)

    def begin(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.watcher.on_train_start(trainer, module)
        self.watcher.on_train_epoch_start(trainer, module)

    def leave(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.watcher._watch._times.settle(0)
        if self.user is not None:
            self.user.leave(trainer, module)

    def check(self, num_steps: int) -> None:
        num_seen = self.watcher._watch._recorder.counters.iterations
        assert num_seen > 0.9 * num_steps, f"{self.name} saw {num_seen} of {num_steps} steps"
        if self.user is not None:
            self.user.check(num_steps)

    def close(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        trainer.profiler = self.profiler
        self.watcher.teardown(trainer, module, "fit")
        record = self.watcher.run.finish()
        assert record is not None
        assert not record.telemetry.faults, record.telemetry.faults
        sent = {name for name, health in record.telemetry.exports.items() if health.exports_ok > 0}
        assert self.endpoint is None or {"metrics", "traces"} <= sent, f"it sent {sent} only"


def make_own(endpoint: str) -> list[Subject]:
    """Return the floor, costlens and what Lightning ships."""
    return [
        OneCallback("no-op callback", Nothing(), "nothing"),
        OneCallback("ring floor", Ring(), "two clock readings a step"),
        CostLens("**costlens**"),
        CostLens("**costlens**, OTLP", endpoint),
        Simple(),
        CostLens("**costlens** and SimpleProfiler", user=Simple()),
        DeviceStats(),
        Throughput(),
    ]
