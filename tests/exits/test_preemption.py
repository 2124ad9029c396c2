"""A training that keeps checkpoints saves before it leaves; in processes of their own."""

from __future__ import annotations

import io
import os
import signal
import time
from pathlib import Path

import pytest
from rich.console import Console

from costlens.core.preemption_records import PreemptionPart
from costlens.core.run_record import RunRecord
from costlens.export.console import render
from costlens.protect.shelf import Shelf
from costlens.storage.store import Store
from tests.exits.script import Ended, Script, wait_ready

TRAIN = """
import torch, costlens
from costlens.storage.store import Store
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
delay_s = [0.0]
original = Store.put_many
def slow_put_many(self, objects, *args, **kwargs):
    if any("data/" in key for key in objects):
        time.sleep(delay_s[0])
    return original(self, objects, *args, **kwargs)
run = costlens.start("preempted")
run.watch(model, optimizer)
checkpoints = run.checkpoints(model=model, optimizer=optimizer)
Store.put_many = slow_put_many
begun = checkpoints.resume()
def step():
    with run.iteration(samples=1):
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
    checkpoints.step()
for _ in range(3):
    step()
"""
TRAIN_ON = """
ready()
while True:
    step()
"""
SLOW = """
checkpoints.save()
checkpoints.manager.wait(30)
type(checkpoints.manager).estimate_s = 0.1  # on a busy machine one may not fit into 2 s
delay_s[0] = 10.0
"""


pytestmark = pytest.mark.slow


@pytest.fixture(name="place")
def _place(script: Script) -> Path:
    place = script.runs.parent / "checkpoints"
    script.environ["COSTLENS_CHECKPOINT_URL"] = str(place)
    return place


def steps_in(place: Path, ended: Ended) -> list[int]:
    """Return the steps of the checkpoints that verify, newest first."""
    shelf = Shelf(Store(str(place)), ended.record.run.id)
    return [found.manifest.step for name in shelf.names() if (found := shelf.verify(name))]


def left(ended: Ended) -> PreemptionPart:
    """Return how the attempt left."""
    part = ended.record.preemption
    assert part is not None, ended.err
    return part


def show_report(record: RunRecord) -> str:
    """Return the report as text."""
    console = Console(width=200, record=True, file=io.StringIO())
    render(record, console)
    return console.export_text()


@pytest.mark.parametrize(
    ("signum", "environ", "code"),
    [
        (signal.SIGTERM, {}, 143),
        (signal.SIGHUP, {}, 143),
        (signal.SIGUSR2, {"COSTLENS_PREEMPTION_SIGNALS": "USR2"}, 143),
        (signal.SIGTERM, {"COSTLENS_PREEMPTION_EXIT_CODE": "0"}, 0),
    ],
)
def test_a_signal_saves_the_step_it_meets_and_leaves(
    script: Script, place: Path, signum: signal.Signals, environ: dict[str, str], code: int
) -> None:
    """C064: a checkpoint of the last step, then a clean end with the code that was asked for."""
    ended = script.send(TRAIN + TRAIN_ON, signum, **environ)
    assert ended.code == code, ended.err
    ended.check_closed()
    record, part = ended.record, left(ended)
    assert (record.attempt.outcome.value, record.attempt.signal) == ("preempted", signum.name)
    assert record.attempt.exit_code == code
    assert (part.reason, part.is_covered, part.uncovered_because) == (signum.name, True, None)
    assert part.step == record.attempt.end_step == record.attempt.saved_step > 3
    assert steps_in(place, ended)[0] == part.step
    assert "Traceback" not in ended.err
    again = script.run(TRAIN + "print('BEGUN', begun)\nrun.finish()", COSTLENS_RUN_ID=record.run.id)
    assert f"BEGUN {part.step}" in again.out
    merged = again.merged
    assert [attempt.outcome.value for attempt in merged.attempts] == ["preempted", "completed"]
    assert merged.progress.lost_steps == 0


def test_the_users_handler_runs_once_and_the_loop_is_told_to_stop(
    script: Script, place: Path
) -> None:
    """C063: theirs is called and comes back; ours saves, ends `batches`, and exits nothing."""
    ended = script.send(
        "calls = []\ndef mine(*_):\n    calls.append(1)\nsignal.signal(signal.SIGTERM, mine)\n"
        + TRAIN
        + """
threading.Timer(0.3, ready).start()
for _ in run.batches(range(3000)):
    step()
print("STOPPED", run.should_stop)
ending()
run.finish()
print("CALLS", len(calls), signal.getsignal(signal.SIGTERM) is mine)
""",
        signal.SIGTERM,
    )
    assert ended.code == 0, ended.err
    assert {"STOPPED True", "CALLS 1 True"} <= {*ended.out}
    part = left(ended)
    assert part.is_covered
    assert ended.record.attempt.outcome.value == "preempted"
    assert steps_in(place, ended)[0] == part.step < 3000


def test_a_wait_for_data_ends_before_the_grace_does(script: Script, place: Path) -> None:
    """The signal meets the loop in a fetch; the step after it is saved."""
    ended = script.send(
        TRAIN
        + """
def slow():
    threading.Timer(0.2, ready).start()
    time.sleep(1.0)
    yield 1
    yield 2
for _ in run.batches(slow()):
    step()
""",
        signal.SIGTERM,
    )
    assert ended.code == 143, ended.err
    part = left(ended)
    assert (part.step, part.is_covered) == (4, True)
    assert ended.record.time_ns["data_wait"] > 5e8


def test_loader_workers_that_die_with_it_do_not_break_the_step(script: Script, place: Path) -> None:
    """Slurm signals every process of a job: torch would raise in the middle of the step."""
    process = script.start(
        "os.setpgrp()\n"
        + TRAIN
        + """
rows = torch.utils.data.TensorDataset(torch.ones(100, 4))
for number, _ in enumerate(run.batches(torch.utils.data.DataLoader(rows, num_workers=2))):
    with run.iteration(samples=1):
        if number == 3:
            ready()
            for _ in range(200):
                time.sleep(0.01)
        optimizer.step()
    checkpoints.step()
"""
    )
    lines = wait_ready(process)
    os.killpg(process.pid, signal.SIGTERM)
    ended = script.wait(process, time.monotonic(), lines)
    assert ended.code == 143, ended.err
    assert left(ended).is_covered
    assert steps_in(place, ended)[0] == 7


def test_an_evaluation_is_left_where_it_is(script: Script, place: Path) -> None:
    """It changes nothing that is saved: the last step is saved, and nobody waits for its end."""
    ended = script.send(
        TRAIN
        + """
threading.Timer(0.3, ready).start()
with run.phase("validation"):
    for number in run.batches(range(3000)):
        time.sleep(0.01)
""",
        signal.SIGTERM,
    )
    assert ended.code == 143, ended.err
    part = left(ended)
    assert (part.step, part.is_covered) == (3, True)
    assert ended.record.time_ns["checkpoint"] > 0
    assert ended.delay_s < 10


def test_a_main_thread_stuck_in_foreign_code_flushes_what_is_staged(
    script: Script, place: Path
) -> None:
    """No boundary comes: the snapshot in flight becomes durable, and the process dies in time."""
    ended = script.send(
        TRAIN
        + """
import ctypes
lock = ctypes.CDLL(None).pthread_mutex_lock
mutex = (ctypes.c_byte * 64)()
lock(mutex)
delay_s[0] = 0.5
checkpoints.save()
step()
threading.Timer(0.3, ready).start()
lock(mutex)
""",
        signal.SIGTERM,
        COSTLENS_GRACE_S="4",
    )
    assert ended.code == -signal.SIGTERM, ended.err
    part = left(ended)
    assert (part.step, part.is_covered, part.uncovered_because) == (4, False, "no_boundary")
    assert steps_in(place, ended) == [3]
    assert ended.record.attempt.saved_step == 3
    assert ended.delay_s < 6


def test_a_save_that_takes_longer_than_the_grace_is_left(script: Script, place: Path) -> None:
    """C065: grace 2 s, save 10 s: gone within 3 s, the checkpoint before intact, and said so."""
    ended = script.send(TRAIN + SLOW + TRAIN_ON, signal.SIGTERM, COSTLENS_GRACE_S="2")
    assert ended.code == 143, ended.err
    assert ended.delay_s <= 3
    part = left(ended)
    assert (part.is_covered, part.uncovered_because) == (False, "save_incomplete")
    assert steps_in(place, ended) == [3]
    assert "preempted, save incomplete (SIGTERM)" in show_report(ended.merged)


def test_a_second_signal_gives_up(script: Script, place: Path) -> None:
    """C065: half a second into the save it comes; dead of it 1.5 s later, and not covered."""
    process = script.start(TRAIN + SLOW + TRAIN_ON)
    lines = wait_ready(process)
    process.terminate()
    time.sleep(0.5)
    assert process.poll() is None
    process.terminate()
    ended = script.wait(process, time.monotonic(), lines)
    assert ended.code == -signal.SIGTERM
    assert ended.delay_s <= 1.5
    part = left(ended)
    assert (part.is_covered, part.uncovered_because) == (False, "given_up")
    assert ended.record.attempt.outcome.value == "preempted"
    assert steps_in(place, ended) == [3]


def test_a_signal_after_the_last_step_still_kills(script: Script, place: Path) -> None:
    """There is nothing left to train: the run ends as it does, then the signal has its effect."""
    ended = script.send(
        TRAIN + "delay_s[0] = 0.5\nready()\nrun.finish()\nprint('SURVIVED')", signal.SIGTERM
    )
    assert ended.code == -signal.SIGTERM, ended.err
    assert "SURVIVED" not in ended.out
    assert ended.record.attempt.outcome.value == "preempted"
    assert steps_in(place, ended) == [3]


def test_off_the_main_thread_there_is_one_notice_and_no_exception(
    script: Script, place: Path
) -> None:
    """C066: a run with checkpoints in a worker thread trains; the signal kills as ever."""
    body = TRAIN.replace("\n", "\n    ")
    ended = script.send(
        "def work():" + body + "\n    ready()\n    while True:\n        step()\n"
        "threading.Thread(target=work, daemon=True).start()\ntime.sleep(60)",
        signal.SIGTERM,
    )
    assert ended.code == -signal.SIGTERM, ended.err
    assert len(ended.events("costlens.signals.off")) == 1
    assert ended.record.preemption is None


def test_a_loop_in_another_thread_saves_and_ends_the_process(script: Script, place: Path) -> None:
    """An exit there would end that thread only; the process dies of the signal, after the save."""
    ended = script.send(
        TRAIN
        + """
def train():
    while True:
        step()
threading.Thread(target=train, daemon=True).start()
ready()
time.sleep(60)
""",
        signal.SIGTERM,
    )
    assert ended.code == -signal.SIGTERM, ended.err
    part = left(ended)
    assert part.is_covered
    assert steps_in(place, ended)[0] == part.step
