"""How a Lightning training ends, in processes of their own, with a collector that never answers."""

from __future__ import annotations

import signal

import pytest

from tests.exits.script import Script

FIT = """
import warnings
warnings.simplefilter("ignore")
import logging, torch
import PACKAGE as pl
from costlens.lightning import CostLensCallback

at_step = in_worker = lambda: None

def plant(at):
    if at == "training_step":
        at_step()
    elif at == "worker":
        in_worker()

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, at):
        if at == 3:
            plant("training_step")
        return self.layer(batch).mean()
    def validation_step(self, batch, at):
        plant("validation_step")
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
    def teardown(self, stage):
        plant("teardown")

class Other(pl.Callback):
    pass
HOOKS = ("on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start",
    "on_before_backward", "on_before_optimizer_step", "on_train_batch_end", "on_validation_start",
    "on_validation_epoch_end", "on_train_epoch_end", "on_train_end", "on_fit_end", "setup")
for _name in HOOKS:
    setattr(Other, _name, lambda self, *a, _name=_name, **k: plant(_name))

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 5:
            plant("worker")
        return torch.ones(4)

def fit(num_workers=0, max_epochs=1, **options):
    trainer = pl.Trainer(
        max_epochs=max_epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=[CostLensCallback("exits"), Other()], **options,
    )
    loader = torch.utils.data.DataLoader(Rows(), num_workers=num_workers)
    trainer.fit(Net(), loader, torch.utils.data.DataLoader(Rows()))
    return trainer
"""

# Several endings a process: importing torch and Lightning takes longer than all of them.
EVERY_HOOK = """
import json, pathlib
def ends(where):
    global plant
    def plant(at):
        if at == where:
            raise LookupError("planted")
    try:
        fit()
    except LookupError as error:
        assert str(error) == "planted"
    else:
        raise AssertionError(f"nothing failed in {where}")
    finally:
        plant = lambda at: None
for where in WHERE:
    ends(where)
handlers = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)]
assert handlers == [signal.SIG_DFL, signal.SIG_DFL], handlers
paths = pathlib.Path(os.environ["COSTLENS_DIR"]).glob("*/record-*.json")
records = [json.loads(path.read_bytes()) for path in paths]
records.sort(key=lambda record: record["attempt"]["start_time"])
for where, record in zip(WHERE, records, strict=True):
    print("OUTCOME", where, record["attempt"]["outcome"], record["attempt"]["error_type"],
        record["last_words"]["stack"][0].split()[-1].rpartition(".")[2])
"""
WHERE = (
    *("on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start"),
    *("training_step", "on_before_backward", "on_before_optimizer_step", "on_train_batch_end"),
    *("on_validation_start", "validation_step", "on_validation_epoch_end", "on_train_epoch_end"),
    *("on_train_end", "on_fit_end", "teardown"),
)


def _job(body: str, package: str = "lightning.pytorch") -> str:
    return FIT.replace("PACKAGE", package) + body


def test_an_error_in_any_hook_fails_the_run_and_passes_on(script: Script) -> None:
    """C122: wherever it comes up, in hooks of others and in the module; handlers are given back."""
    ended = script.run(
        _job(EVERY_HOOK.replace("WHERE", repr(WHERE))),
        COSTLENS_FLUSH_TIMEOUT_S="0.1",
        OTEL_SDK_DISABLED="true",
        COSTLENS_LOG_LEVEL="error",
    )
    assert ended.code == 0, ended.err
    outcomes = [line.split()[1:] for line in ended.out if line.startswith("OUTCOME")]
    assert outcomes == [[where, "failed", "LookupError", "plant"] for where in WHERE]


@pytest.mark.parametrize(
    ("ending", "code", "outcome", "exit_code"),
    [
        ("fit()", 0, "completed", None),
        (
            "plant = lambda at: sys.exit(3) if at == 'training_step' else None\nfit()",
            3,
            "failed",
            3,
        ),
        (
            "plant = lambda at: os.kill(os.getpid(), 2) if at == 'training_step' else None\nfit()",
            1,
            "interrupted",
            1,
        ),
        (
            "plant = lambda at: 1 / 0 if at == 'worker' else None\nfit(num_workers=1)",
            1,
            "failed",
            None,
        ),
    ],
)
def test_every_end_closes_the_record(
    script: Script, ending: str, code: int, outcome: str, exit_code: int | None
) -> None:
    """C122: exit codes are Lightning's own; an error of a loader worker counts as the run's."""
    ended = script.run(_job("ending()\n" + ending, "pytorch_lightning"))
    assert ended.code == code, ended.err
    assert ended.record.attempt.end_time is not None
    assert ended.record.attempt.outcome.value == outcome
    assert ended.record.attempt.exit_code == exit_code
    if "worker" in ending:
        assert ended.record.attempt.error_type == "ZeroDivisionError"


TRAIN_ON = """
def plant(at):
    if at == "on_train_batch_end":
        ready() if not said else None
        said.append(at)
        time.sleep(0.01)
said = []
"""


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_sigterm_takes_lightnings_own_way_out(script: Script, package: str) -> None:
    """C063: its handler and ours both run; it ends at a batch with its own exit code, preempted."""
    ended = script.send(_job(TRAIN_ON + "ending_ = fit(max_epochs=-1)", package), signal.SIGTERM)
    assert ended.code == 0, ended.err  # Lightning raises a SystemExit without a code
    ended.check_closed()
    attempt = ended.record.attempt
    assert (attempt.outcome.value, attempt.signal) == ("preempted", "SIGTERM")
    assert (attempt.error_type, attempt.exit_code) == ("SIGTERMException", 0)
    progress = ended.record.progress
    assert progress.iterations == progress.optimizer_steps > 0


def test_sighup_ends_a_fit_as_it_ends_a_plain_loop(script: Script) -> None:
    """C064: Lightning does not handle it: the record is closed, and the process dies of it."""
    ended = script.send(_job(TRAIN_ON + "fit(max_epochs=-1)"), signal.SIGHUP)
    assert ended.code == -signal.SIGHUP, ended.err
    ended.check_closed()
    attempt = ended.record.attempt
    assert (attempt.outcome.value, attempt.signal) == ("preempted", "SIGHUP")


def test_sigterm_before_the_training_begins_closes_the_record(script: Script) -> None:
    """Until Lightning has handlers of its own the signal kills, as it always did."""
    ended = script.send(
        _job(
            "def plant(at):\n"
            "    if at == 'on_fit_start':\n"
            "        ready()\n"
            "        time.sleep(60)\n"
            "fit()\n"
        ),
        signal.SIGTERM,
    )
    assert ended.code == -signal.SIGTERM, ended.err
    ended.check_closed()
    assert ended.record.attempt.outcome.value == "preempted"
    assert ended.record.open_phase is None


def test_a_users_handler_that_asks_the_trainer_to_stop_is_a_preemption(script: Script) -> None:
    """C063: it runs once, beside Lightning's and ours, and is installed again afterwards."""
    ended = script.send(
        _job(
            """
calls = []
def mine(signum, frame):
    calls.append(signum)
signal.signal(signal.SIGUSR1, mine)
class Stop(Other):
    def on_train_batch_end(self, trainer, *_):
        plant("on_train_batch_end")
        trainer.should_stop = bool(calls)
Other = Stop
"""
            + TRAIN_ON
            + """
fit(max_epochs=-1, max_steps=100000)
ending()
print("CALLS", len(calls), signal.getsignal(signal.SIGUSR1) is mine)
print("TERM", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""
        ),
        signal.SIGUSR1,
        COSTLENS_PREEMPTION_SIGNALS="TERM,USR1",
    )
    assert ended.code == 0, ended.err
    assert "CALLS 1 True" in ended.out
    assert "TERM True" in ended.out
    attempt = ended.record.attempt
    assert (attempt.outcome.value, attempt.signal) == ("preempted", "SIGUSR1")


def test_a_fit_in_a_worker_thread_trains_without_signals(script: Script) -> None:
    """C066: no exception, one notice, the fit is complete."""
    ended = script.run(
        _job(
            """
thread = threading.Thread(target=fit)
thread.start()
thread.join()
print("TERM", signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""
        )
    )
    assert ended.code == 0, ended.err
    assert "TERM True" in ended.out
    assert ended.record.attempt.outcome.value == "completed"
    assert ended.record.progress.optimizer_steps == 8
    assert len(ended.events("costlens.signals.off")) == 1


def test_a_killed_fit_is_seen_by_the_next_reader(script: Script) -> None:
    """Nothing can be written; the reader closes the attempt, and tells where it was last seen."""
    ended = script.send(_job(TRAIN_ON + "fit(max_epochs=-1)"), signal.SIGKILL)
    assert ended.code == -signal.SIGKILL
    assert ended.attempt.outcome.value == "lost"
    assert ended.merged.ranks[0].open_phase is not None
