"""Runs a plan once, with costlens or without."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from costlens.errors import RunStateError
from costlens.run import Run
from tests.fuzz.doubles import try_copy
from tests.fuzz.evidence import SIGNALS, Ended, Evidence, find_leftovers, gather
from tests.fuzz.plan import Plan
from tests.fuzz.planted import Planted
from tests.fuzz.setting import Setting
from tests.fuzz.witness import Witness

__all__ = ["run_plan"]

_ERRORS: dict[str, type[BaseException]] = {
    each.__name__: each
    for each in (RuntimeError, KeyboardInterrupt, StopIteration, SystemExit, BaseException)
}
_FITS = frozenset({"fit", "more", "resume", "renew"})
_NEW_TRAINER = frozenset({"renew", "retest"})


def run_plan(plan: Plan, *, is_watched: bool) -> Evidence:
    """Return the evidence of one training, which has a folder and seeds of its own."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    said = io.StringIO()
    try:
        with (
            _same_start(plan.seed),
            redirect_stdout(said),
            redirect_stderr(said),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            evidence = Job(plan, folder, is_watched=is_watched).run()
        evidence.warnings = [f"{each.filename}: {each.message}" for each in caught]
        return evidence
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _same_start(seed: int) -> Iterator[None]:
    """Begin with known states of the process, and put back what a Trainer changes in it."""
    environment = dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the state that users' code shares
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.autograd.set_detect_anomaly(False)
        for name in os.environ.keys() - environment.keys():
            del os.environ[name]
        os.environ.update(environment)


class Job:
    """One training of a plan.

    Args:
        plan: What to do.
        folder: A folder for everything that is written.
        is_watched: Whether costlens watches.
    """

    def __init__(self, plan: Plan, folder: Path, *, is_watched: bool) -> None:
        self.plan = plan
        self.folder = folder
        self.is_watched = is_watched
        self.evidence = Evidence(plan)
        self.witness = Witness(folder)
        self.saved: Path | None = None
        self.trainer: Any = None

    def run(self) -> Evidence:
        """Return the evidence."""
        evidence, witness = self.evidence, self.witness
        self._plant()
        self.setting = Setting(self.plan, witness, self.folder, is_watched=self.is_watched)
        try:
            self.trainer = witness.trainer = self.setting.make_trainer()
        except Exception as error:  # noqa: BLE001 - Lightning refuses the plan
            evidence.values["refused"] = witness.show(error)
        else:
            evidence.ended = [self._call(call) for call in self.plan.calls]
            evidence.values = gather(self.trainer, witness, self.folder, self.saved)
        evidence.events = witness.events
        return evidence

    def _plant(self) -> None:
        plan = self.plan
        # Lightning takes it for the end of an epoch, wherever it comes from, and stays in the stage
        # that it was raised in.
        is_misled = plan.fails is not None and plan.error == "StopIteration"
        if self.is_watched and not plan.is_real_time and not is_misled:
            iterating = plan.takes_iterator in ("train", "both")
            self.witness.planted = Planted(self.witness, takes_iterator=iterating)

        def fail() -> None:
            raise _ERRORS[plan.error]("planted")

        def fail_again() -> None:
            raise RuntimeError("planted again")

        def stop() -> None:
            self.trainer.should_stop = True

        def save() -> None:
            self.saved = self.folder / "saved.ckpt"
            self.trainer.save_checkpoint(self.saved)

        planted = (
            (plan.fails, fail),
            (plan.fails_again, fail_again),
            (plan.stops, stop),
            (plan.saves, save),
            (plan.copies, lambda: try_copy(self.trainer)),
        )
        for when, action in planted:
            if when is not None:
                self.witness.traps.setdefault(when[0], []).append((when[1], action))

    def _call(self, call: str) -> Ended:
        witness = self.witness
        if call in _NEW_TRAINER:
            self.trainer = witness.trainer = self.setting.make_trainer()
        trainer, profiler = self.trainer, self.trainer.profiler
        witness.tally.is_seen = False
        raised, code, returned = "", None, None
        try:
            witness.note(f"call.{call}")
            with self._clock():
                returned = witness.show(self._perform(call))
        except BaseException as error:  # noqa: BLE001 - whatever a user would see
            raised, code = str(witness.show(error)), getattr(error, "code", None)
        ended = Ended(
            call,
            raised,
            code,
            returned,
            trainer.global_step,
            trainer.should_stop,
            witness.tally.freeze(),
            None if witness.planted is None else dict(witness.planted.expected_ns),
        )
        if self.is_watched:
            # Where another callback fails in `on_exception`, nobody tells us of the end.
            if not witness.tally.is_open:
                ended.leftovers = list(find_leftovers(trainer, profiler))
            ended.records = list(self._finish())
        return ended

    def _perform(self, call: str) -> Any:
        trainer, module = self.trainer, self.setting.module
        call = "test" if call == "retest" else call
        given = self.setting.give_data(call, is_fit=call in _FITS)
        if call not in _FITS:
            return getattr(trainer, call)(module, **given)
        if call == "more":
            trainer.fit_loop.max_epochs = (trainer.fit_loop.max_epochs or 0) + 1
            if trainer.max_steps >= 0:
                trainer.fit_loop.epoch_loop.max_steps += 2
        if call in ("resume", "renew") and self.saved is not None:
            given["ckpt_path"] = self.saved
        return trainer.fit(module, **given)

    def _finish(self) -> Iterator[Any]:
        for callback in self.setting.ours:
            with suppress(RunStateError):  # nothing began
                record = callback.run.finish()
                if record is not None:
                    yield record

    @contextmanager
    def _clock(self) -> Iterator[None]:
        """Give runs that begin the fake clock, if there is one."""
        defaults = Run.__init__.__kwdefaults__
        plain = defaults["clock"]
        if self.witness.planted is not None:
            defaults["clock"] = self.witness.planted.clock
        try:
            yield
        finally:
            defaults["clock"] = plain
