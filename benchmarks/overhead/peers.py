"""Other tools that watch a training, each used as its own documentation shows it.

They are the extra ``bench``; one that is not installed has a row that says so.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from benchmarks.overhead.subject import Subject


class TraceML(Subject):
    """Its server, its patches and its callback, armed.

    Args:
        folder: Takes its files.
    """

    name = "TraceML"
    delivers = "phases by its patches; live view"
    package = "traceml_ai"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    # Without a live server it turns itself into a no-op, which would be cheap and wrong.
    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        import traceml_ai
        from traceml_ai.integrations.lightning import TraceMLCallback

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = Path(sys.executable).with_name("traceml")
        places = ("--logs-dir", str(self.folder), "--aggregator-port", str(port))
        self.server = subprocess.Popen(
            [command, "serve", "--run-name", "overhead", *places],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.server.kill)  # whatever fails in between
        plain_to = torch.Tensor.to
        traceml_ai.init(
            mode="selective",
            patch_dataloader=True,
            patch_h2d=True,
            session_id="overhead",
            logs_dir=str(self.folder),
            aggregator_port=port,
            connect_timeout_sec=30,
            on_missing_aggregator="raise",
        )
        self.to_while = {False: plain_to, True: torch.Tensor.to}
        torch.Tensor.to = plain_to
        self.callback = TraceMLCallback()
        self.callbacks = [self.callback]
        self.mute()

    # Its loader patch asks at every fetch whether to time it: 0.3 µs in every other subject.
    def mute(self) -> None:
        """Stop timing fetches."""
        from traceml_ai.instrumentation.patches.dataloader_patch import suppress_dataloader_timing

        self.silence = suppress_dataloader_timing()
        self.silence.__enter__()

    def enter(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        torch.Tensor.to = self.to_while[True]
        self.silence.__exit__(None, None, None)
        self.callback.setup(trainer, module, "fit")
        self.callback.on_train_start(trainer, module)

    def leave(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.callback.teardown(trainer, module, "fit")
        self.mute()
        torch.Tensor.to = self.to_while[False]

    def check(self, num_steps: int) -> None:
        from traceml_ai.runtime.arming import is_tracing_armed
        from traceml_ai.runtime.state import get_trace_session_state

        assert is_tracing_armed(), "TraceML is not armed"
        assert self.server.poll() is None, "TraceML's server has ended"
        num_seen = get_trace_session_state().step
        assert num_seen > 0.9 * num_steps, f"TraceML saw {num_seen} of {num_steps} steps"

    def close(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        from traceml_ai.runtime.lifecycle import get_active_runtime_handle

        get_active_runtime_handle().stop()
        self.server.terminate()
        self.server.wait(30)


class _Windows(pl.Callback):
    def __init__(self, monitor: Any) -> None:
        self.monitor = monitor

    def on_train_batch_start(self, *_: Any) -> None:
        self.monitor.begin_window("step")

    def on_train_batch_end(self, *_: Any) -> None:
        self.measured = self.monitor.end_window("step")


class Zeus(Subject):
    """A window a step; without a GPU it reads clocks only."""

    name = "zeus, a window"
    delivers = "time and energy of a step (no energy counter here)"
    package = "zeus"

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        from zeus.monitor import ZeusMonitor

        monitor = ZeusMonitor(gpu_indices=[], cpu_indices=[], approx_instant_energy=False)
        self.windows = _Windows(monitor)
        self.callbacks = [self.windows]

    def check(self, num_steps: int) -> None:
        assert self.windows.measured.time > 0


class CodeCarbon(Subject):
    """Its offline tracker beside the training; nothing a step.

    It starts a thread a second, so it cannot be told from the others while they run.
    """

    name = "codecarbon, offline"
    delivers = "energy of the machine, every 15 s"
    package = "codecarbon"
    is_measured_alone = True
    stretch_share = 1.6  # it reads every 15 s

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        from codecarbon import OfflineEmissionsTracker

        self.tracker = OfflineEmissionsTracker(
            country_iso_code="FRA", save_to_file=False, log_level="error", allow_multiple_runs=True
        )

    def begin_alone(self) -> None:
        self.tracker.start()

    def end_alone(self) -> None:
        assert self.tracker.stop(), "codecarbon measured nothing"


class _LogStep(pl.Callback):
    def __init__(self, log: Any) -> None:
        self.log_values = log
        self.num = 0

    def on_train_batch_start(self, *_: Any) -> None:
        self.begin_s = time.perf_counter()

    def on_train_batch_end(self, *args: Any) -> None:
        loss = args[2]["loss"].item()
        self.num += 1
        self.log_values({"loss": loss, "step_s": time.perf_counter() - self.begin_s}, self.num)


class WandbOffline(Subject):
    """Two values a step into an offline run.

    Args:
        folder: Takes its files.
    """

    name = "wandb, offline log"
    delivers = "loss and step time, files"
    package = "wandb"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        import wandb

        settings = wandb.Settings(silent=True, console="off")
        self.run = wandb.init(
            project="overhead", mode="offline", dir=str(self.folder), settings=settings
        )
        self.callbacks = [_LogStep(lambda values, _: self.run.log(values))]

    def check(self, num_steps: int) -> None:
        assert self.run.step >= num_steps, f"wandb took {self.run.step} of {num_steps} steps"

    def close(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self.run.finish()


class MlflowFiles(Subject):
    """Two values a step into a local file store.

    Args:
        folder: Takes its files.
    """

    name = "mlflow, file store"
    delivers = "loss and step time, files"
    package = "mlflow"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def arm(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # it prefers a database, which is no lighter
        import mlflow

        mlflow.set_tracking_uri(self.folder.as_uri())
        self.run = mlflow.start_run()
        self.callbacks = [_LogStep(lambda values, step: mlflow.log_metrics(values, step=step))]

    def close(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        import mlflow

        mlflow.end_run()


RELEASES = {"traceml_ai": "traceml-ai", "mlflow": "mlflow-skinny"}


def describe_release(subject: Subject) -> str:
    """Return the release of a subject's package, or an empty string."""
    if subject.package is None or not subject.is_installed:
        return ""
    return version(RELEASES.get(subject.package, subject.package))


def make_peers(folder: Path) -> list[Subject]:
    """Return the peers, installed or not.

    Args:
        folder: Takes what they write.
    """
    places = [folder / name for name in ("traceml", "wandb", "mlflow")]
    for place in places[:2]:
        place.mkdir()
    return [
        TraceML(places[0]),
        Zeus(),
        CodeCarbon(),
        WandbOffline(places[1]),
        MlflowFiles(places[2]),
    ]
