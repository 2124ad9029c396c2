"""``costlens demo``: trains the demo's small real model, watched, and shows what came out.

The jobs in ``demo/`` know nothing of costlens; this file adds the callback or the run, as a user
would.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from costlens.cli.options import JsonFlag, load_config, make_console, print_json
from costlens.errors import MissingExtraError, RunStateError

if TYPE_CHECKING:
    from costlens.cli.demo.recipe import Trained
    from costlens.config import Config
    from costlens.core.run_record import RunRecord
    from costlens.run import Run

__all__ = ["demo"]

_PACKAGES = frozenset({"torch", "pytorch_lightning"})


def demo(
    plain: Annotated[
        bool, typer.Option("--plain", help="Train in a plain torch loop instead of Lightning.")
    ] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Decides initial weights and the order of the batches.")
    ] = 0,
    price: Annotated[
        str | None,
        typer.Option(
            metavar="P",
            help="Money per hour of the node, or of each fake GPU. Default: the COSTLENS_* prices.",
        ),
    ] = None,
    fake_gpus: Annotated[
        int | None,
        typer.Option(
            min=1, max=16, metavar="N", help="Let a simulated driver show N GPUs; needs gcc."
        ),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps; fewer make a shorter demo.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a small real model on the CPU, under a minute, and show where time and money went."""
    paid = "node_hour_price" if fake_gpus is None else "gpu_hour_price"
    config = load_config(name="demo", summary=False, **{paid: price})
    if not config.enabled:
        raise RunStateError(
            "COSTLENS_ENABLED is 0: nothing is watched, so there is nothing to show"
        )
    typer.echo("training a small model on the CPU; this takes less than a minute", err=True)
    if config.checkpoint_url is not None:
        typer.echo("killed at any instant, the next launch goes on from its last save", err=True)
    # Lightning draws its bar on standard output, which --json keeps for the record.
    out = sys.stderr if as_json else sys.stdout
    with contextlib.redirect_stdout(out), _simulated(fake_gpus):
        train = _train_plain if plain else _train_lightning
        run, trained = train(config, seed, {} if max_steps is None else {"max_steps": max_steps})
    record = _read(config, run)
    if as_json:
        document = record.model_dump(mode="json") | {
            "final_loss": trained.final,
            "weights_digest": trained.weights_digest,
        }
        print_json(json.dumps(document, indent=2))
    else:
        _show(record, trained)


@contextlib.contextmanager
def _simulated(num_gpus: int | None) -> Iterator[None]:
    """Let a stand-in driver show GPUs that do not exist; before torch looks for a driver."""
    if num_gpus is None:
        yield
        return
    from costlens.cli.demo.fake_gpus.model import make_scenario
    from costlens.cli.demo.fake_gpus.stand_in import load_stand_in

    driver = load_stand_in()
    driver.load(make_scenario(num_gpus))
    typer.echo(f"GPUs: {num_gpus}, simulated; all that is told of them is made up", err=True)
    try:
        yield
    finally:
        driver.unload()


def _read(config: Config, run: Run) -> RunRecord:
    from costlens.export.record import read_run
    from costlens.storage.run_folder import RunFolder
    from costlens.storage.store import Store

    return read_run(RunFolder(Store(config.run_dir), run.id or ""), time.time())


def _show(record: RunRecord, trained: Trained) -> None:
    from costlens.export.console import render

    render(record, make_console())
    typer.echo(
        f"weights {trained.weights_digest} (xxh3 over their names and bits)\n"
        f"final loss {trained.final:.4f} nats a byte (mean of the last 20 iterations), "
        f"from {trained.first:.4f}; {trained.validation:.4f} in validation\n"
        f"the same numbers as JSON: costlens report {record.run.id} --json"
    )


def _train_lightning(config: Config, seed: int, options: dict[str, Any]) -> tuple[Run, Trained]:
    with _needs_packages():
        from costlens.cli.demo import lightning_job
        from costlens.lightning import CostLensCallback
    callback: Any = CostLensCallback(config=config)  # a Callback of Lightning's when it runs
    show_progress = sys.stdout.isatty()
    trained = lightning_job.train([callback], seed, show_progress=show_progress, **options)
    return callback.run, trained


def _train_plain(config: Config, seed: int, options: dict[str, Any]) -> tuple[Run, Trained]:
    with _needs_packages():
        from costlens.cli.demo import plain_job
    from costlens.run import start

    with start(config=config) as run:
        keeps = config.checkpoint_url is not None
        return run, plain_job.train(run, seed, keeps=keeps, **options)


@contextlib.contextmanager
def _needs_packages() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if error.name not in _PACKAGES:
            raise
        raise MissingExtraError(
            f"the demo needs {error.name}, which is not installed: "
            "pip install 'costlens[lightning]'"
        ) from error
