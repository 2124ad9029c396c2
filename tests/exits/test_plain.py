"""How a plain loop ends, in processes of their own, with a collector that never answers."""

from __future__ import annotations

import re
import signal
import time

import pytest

from costlens.observe import oom
from tests.exits.script import Script, read_record, wait_ready, wait_until

LOOP = """
import costlens
run = costlens.start("exits")
for number in range(3):
    with run.iteration(samples=2):
        pass
"""
TRAIN_ON = """
ready()
while True:
    with run.iteration(samples=2):
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("ending", "code", "outcome", "exit_code", "error_type"),
    [
        ("ending(); run.finish()", 0, "completed", None, None),
        ("ending(); run.finish('stopped_early')", 0, "stopped_early", None, None),
        ("ending()", 0, "completed", None, None),
        ("ending(); sys.exit()", 0, "completed", 0, None),
        ("ending(); sys.exit(3)", 3, "failed", 3, "SystemExit"),
        ("ending(); sys.exit('no')", 1, "failed", 1, "SystemExit"),
        ("with run:\n    ending()\n    raise SystemExit(4)", 4, "failed", 4, "SystemExit"),
        ("with run.phase('validation'):\n    ending(); 1 / 0", 1, "failed", 1, "ZeroDivisionError"),
        (
            "ending()\nwith run.iteration():\n    signal.raise_signal(signal.SIGINT)",
            -signal.SIGINT,
            "interrupted",
            None,
            "KeyboardInterrupt",
        ),
    ],
)
def test_every_end_closes_the_record(
    script: Script, ending: str, code: int, outcome: str, exit_code: int | None, error_type: str
) -> None:
    """C122: outcome and counts are right, the exit code and the traceback are the script's own."""
    ended = script.run(LOOP + ending)
    assert ended.code == code, ended.err
    ended.check_closed()
    attempt = ended.record.attempt
    assert attempt.outcome.value == outcome
    assert (attempt.exit_code, attempt.error_type) == (exit_code, error_type)
    assert ended.record.progress.iterations == 3
    assert ended.record.progress.samples == 6
    shown = error_type in {"ZeroDivisionError", "KeyboardInterrupt"}
    assert ("Traceback" in ended.err) is shown
    is_bad = outcome in {"failed", "interrupted"}
    assert (ended.record.last_words is not None) is is_bad
    assert len(ended.events("costlens.run.failed")) == (outcome == "failed")


def test_a_crash_ends_the_process_within_the_default_deadline(script: Script) -> None:
    """C067: an error in step 3, no `finally`, a dead collector, nothing configured: 5 s."""
    ended = script.run(
        LOOP + "with run.iteration():\n    ending()\n    raise RuntimeError('a ' + 'secret')",
        COSTLENS_FLUSH_TIMEOUT_S="3",
    )
    assert ended.code == 1
    ended.check_closed()
    words = ended.record.last_words
    assert words is not None
    assert (words.error_type, words.exit_code, words.signal) == ("RuntimeError", 1, None)
    assert re.fullmatch(r".*/train\.py:\d+ <module>", words.stack[0])
    (event,) = ended.events("costlens.run.failed")
    assert (event["level"], event["outcome"], event["exit_code"]) == ("error", "failed", 1)
    assert event["stack"] == words.stack
    # The message may hold anything: it is in Python's own traceback and nowhere else.
    assert ended.err.count("a secret") == 1
    assert "a secret" not in ended.record.model_dump_json()


def test_finishing_and_leaving_a_with_block_close_one_record(script: Script) -> None:
    """C112: `finish` inside `with`, then the end of the process: one record, closed once."""
    ended = script.run(LOOP + "with run:\n    run.finish()\nending(); sys.exit(5)")
    assert ended.code == 5
    ended.check_closed()
    assert ended.record.attempt.outcome.value == "completed"
    assert ended.record.attempt.exit_code is None


def test_an_exit_that_was_caught_did_not_happen(script: Script) -> None:
    """A loop that goes on after `sys.exit` was caught ends as it ends."""
    ended = script.run(
        LOOP
        + "try:\n    sys.exit(7)\nexcept SystemExit:\n    pass\nwith run.iteration():\n    pass\n"
    )
    assert ended.code == 0
    assert ended.record.attempt.outcome.value == "completed"
    assert ended.record.attempt.exit_code is None


def test_an_error_from_before_the_run_is_not_its_end(script: Script) -> None:
    """`sys.last_value` stays for ever; only an error that came up since the start counts."""
    ended = script.run("import sys\nsys.last_value = ValueError()\n" + LOOP)
    assert ended.code == 0
    assert ended.record.attempt.outcome.value == "completed"


def test_an_excepthook_that_fails_hides_nothing(script: Script) -> None:
    """The error is known before any hook is asked, whatever that hook does."""
    ended = script.run(LOOP + "sys.excepthook = lambda *_: 1 / 0\nending()\nraise KeyError('x')")
    assert ended.code == 1
    ended.check_closed()
    assert ended.record.attempt.error_type == "KeyError"


def test_logging_and_pools_that_end_with_the_interpreter_are_not_disturbed(script: Script) -> None:
    """Executors, multiprocessing and logging have their own ends; the order of all is Python's."""
    ended = script.run(
        LOOP
        + """
import concurrent.futures, logging, multiprocessing
pool = concurrent.futures.ThreadPoolExecutor(2)
future = pool.submit(time.sleep, 0.1)
worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.1,))
worker.start()
logging.basicConfig(level="INFO")
atexit.register(logging.info, "said at exit")
ending()
raise LookupError
"""
    )
    assert ended.code == 1, ended.err
    ended.check_closed()
    assert ended.record.attempt.error_type == "LookupError"
    assert ended.err.count("said at exit") == 1


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_kills_closes_the_record_first(
    script: Script, signum: signal.Signals
) -> None:
    """C064: preempted, closed, flushed; the process still dies of that very signal."""
    ended = script.send(LOOP + TRAIN_ON, signum)
    assert ended.code == -signum, ended.err
    ended.check_closed()
    record = ended.record
    assert (record.attempt.outcome.value, record.attempt.signal) == ("preempted", signum.name)
    assert record.attempt.exit_code is None
    assert record.time_ns["shutdown"] > 0
    (event,) = ended.events("costlens.run.failed")
    assert (event["outcome"], event["process_signal"]) == ("preempted", signum.name)


def test_sigterm_is_held_up_by_a_dead_collector_for_the_deadline_at_most(script: Script) -> None:
    """With nothing configured the process is gone in 5 s."""
    ended = script.send(LOOP + TRAIN_ON, signal.SIGTERM, COSTLENS_FLUSH_TIMEOUT_S="3")
    assert ended.code == -signal.SIGTERM
    ended.check_closed()


def test_other_signals_are_configured_or_left_alone(script: Script) -> None:
    """C064: USR2 is handled where it is asked for, and does what it always did where it is not."""
    ended = script.send(LOOP + TRAIN_ON, signal.SIGUSR2, COSTLENS_PREEMPTION_SIGNALS="usr2,hup")
    assert ended.code == -signal.SIGUSR2
    assert ended.record.attempt.outcome.value == "preempted"
    assert ended.record.attempt.signal == "SIGUSR2"


@pytest.mark.parametrize(
    ("signum", "names"), [(signal.SIGUSR2, "SIGTERM,SIGHUP"), (signal.SIGTERM, "none")]
)
def test_a_signal_that_is_not_configured_keeps_its_effect(
    script: Script, signum: signal.Signals, names: str
) -> None:
    """C064: the process dies at once, and a reader finds it gone."""
    ended = script.send(LOOP + TRAIN_ON, signum, COSTLENS_PREEMPTION_SIGNALS=names)
    assert ended.code == -signum
    assert ended.record.attempt.outcome.value == "running"
    assert ended.attempt.outcome.value == "lost"


def test_a_second_signal_ends_the_process_at_once(script: Script) -> None:
    """The flush would take 20 s; whoever asks twice does not wait for it."""
    process = script.start(LOOP + TRAIN_ON, COSTLENS_FLUSH_TIMEOUT_S="20")
    lines = wait_ready(process)
    process.terminate()
    # What matters is written before the flush begins.
    wait_until(lambda: read_record(script.runs).attempt.outcome.value == "preempted")
    process.terminate()
    ended = script.wait(process, time.monotonic(), lines)
    assert ended.code == -signal.SIGTERM
    assert ended.delay_s < 10


def test_the_users_handler_is_called_once_and_decides(script: Script) -> None:
    """C063: a handler from before runs once, the loop goes on, and ends as preempted."""
    ended = script.send(
        """
import signal
calls = []
def mine(signum, frame):
    calls.append(signum)
signal.signal(signal.SIGTERM, mine)
"""
        + LOOP
        + """
ready()
while not calls:
    with run.iteration(samples=2):
        time.sleep(0.01)
with run.iteration():
    pass
ending()
run.finish()
print("CALLS", calls, signal.getsignal(signal.SIGTERM) is mine)
""",
        signal.SIGTERM,
    )
    assert ended.code == 0, ended.err
    ended.check_closed()
    assert f"CALLS [{int(signal.SIGTERM)}] True" in ended.out
    assert ended.record.attempt.outcome.value == "preempted"
    assert ended.record.attempt.signal == "SIGTERM"


def test_a_handler_that_exits_keeps_its_exit_code(script: Script) -> None:
    """The usual `sys.exit` in a handler: its code is the process's, the attempt is preempted."""
    ended = script.send(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(99))\n" + LOOP + TRAIN_ON,
        signal.SIGTERM,
    )
    assert ended.code == 99
    ended.check_closed()
    attempt = ended.record.attempt
    assert (attempt.outcome.value, attempt.exit_code) == ("preempted", 99)


def test_a_handler_put_in_later_is_not_fought(script: Script) -> None:
    """C063 in the other order: theirs replaces ours, calls it, and both run once; theirs stays."""
    ended = script.send(
        LOOP
        + """
calls = []
before = signal.getsignal(signal.SIGTERM)
def mine(signum, frame):
    calls.append(signum)
    before(signum, frame)
signal.signal(signal.SIGTERM, mine)
ready()
while not calls:
    with run.iteration():
        time.sleep(0.01)
ending()
run.finish()
print("CALLS", len(calls), signal.getsignal(signal.SIGTERM) is mine)
signal.raise_signal(signal.SIGTERM)
print("CALLS", len(calls))
""",
        signal.SIGTERM,
    )
    assert ended.code == 0, ended.err
    assert [line for line in ended.out if line.startswith("CALLS")] == ["CALLS 1 True", "CALLS 2"]
    assert ended.record.attempt.outcome.value == "preempted"


def test_an_ignored_signal_stays_ignored(script: Script) -> None:
    """`nohup` and the like: nothing is installed, nothing is noted."""
    ended = script.run(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        + LOOP
        + "os.kill(os.getpid(), signal.SIGHUP)\n"
        + "print('IGNORED', signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)\n"
    )
    assert ended.code == 0
    assert "IGNORED True" in ended.out
    assert ended.record.attempt.outcome.value == "completed"


def test_a_main_thread_stuck_in_foreign_code_still_dies(script: Script) -> None:
    """Python cannot run a handler there, as in a hung collective; the signal kills as before."""
    ended = script.send(
        LOOP
        + """
import ctypes
lock = ctypes.CDLL(None).pthread_mutex_lock
mutex = (ctypes.c_byte * 64)()
lock(mutex)
threading.Timer(0.3, ready).start()
with run.phase("communication"):
    lock(mutex)
""",
        signal.SIGTERM,
    )
    assert ended.code == -signal.SIGTERM
    ended.check_closed()
    record = ended.record
    assert (record.attempt.outcome.value, record.attempt.signal) == ("preempted", "SIGTERM")
    assert record.time_ns["communication"] > 0


def test_a_loop_in_another_thread_is_closed_by_the_main_threads_handler(script: Script) -> None:
    """The handler interrupts the main thread; the timeline belongs to the one that trains."""
    ended = script.send(
        LOOP
        + """
def train():
    while True:
        with run.iteration():
            time.sleep(0.001)
threading.Thread(target=train, daemon=True).start()
ready()
time.sleep(60)
""",
        signal.SIGTERM,
    )
    assert ended.code == -signal.SIGTERM
    ended.check_closed()
    assert ended.record.attempt.outcome.value == "preempted"


def test_forked_children_die_of_their_own_signals(script: Script) -> None:
    """A child that is terminated says nothing about the run, and dies as it would have."""
    ended = script.run(
        LOOP
        + """
import multiprocessing
context = multiprocessing.get_context("fork")
codes = []
for _ in range(3):
    child = context.Process(target=time.sleep, args=(60,))
    child.start()
    child.terminate()
    child.join()
    codes.append(child.exitcode)
print("CODES", codes)
with run.iteration():
    pass
run.finish()
"""
    )
    assert ended.code == 0, ended.err
    assert f"CODES {[-signal.SIGTERM] * 3}" in ended.out
    assert ended.record.attempt.outcome.value == "completed"
    assert ended.record.attempt.signal is None


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGKILL); time.sleep(9)", -signal.SIGKILL),
    ],
)
def test_an_end_without_a_word_is_seen_by_the_next_reader(
    script: Script, ending: str, code: int
) -> None:
    """Nothing can be written; a reader on this machine closes the attempt at once as lost."""
    ended = script.run(LOOP + "ready()\n" + ending)
    assert ended.code == code
    assert ended.record.attempt.outcome.value == "running"
    attempt = ended.attempt
    assert attempt.outcome.value == "lost"
    assert attempt.end_time == attempt.heartbeat_time
    assert attempt.last_words is not None


def test_a_kill_for_lack_of_memory_is_told_by_the_reader(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts it in the cgroup: the reader finds the process gone and the count risen."""
    group = script.runs.parent / "cgroup"
    group.mkdir()
    monkeypatch.setattr(oom, "_ROOT", group)
    events = group / "memory.events"
    events.write_text("low 0\noom 5\noom_kill 2\n")
    ended = script.run(
        f"""
from pathlib import Path
from costlens.observe import oom
oom._ROOT = Path({str(group)!r})
oom._MEMBERSHIP = Path({str(group)!r}) / "none"
oom._MEMBERSHIP.write_text("0::/")
"""
        + LOOP
        + f"""
ready()
Path({str(events)!r}).write_text("low 0\\noom 6\\noom_kill 3\\n")
os.kill(os.getpid(), signal.SIGKILL)
time.sleep(9)
"""
    )
    assert ended.code == -signal.SIGKILL
    attempt = ended.attempt
    assert attempt.outcome.value == "lost"
    assert attempt.last_words is not None
    assert attempt.last_words.oom_kills == 1


def test_a_notice_before_a_kill_makes_it_a_preemption(script: Script) -> None:
    """SIGTERM, noted by the loop's own handler, then SIGKILL after the grace period."""
    process = script.start(
        "signal.signal(signal.SIGTERM, lambda *_: print('READY', flush=True))\n"
        + LOOP
        + "ready()\n"
        + "while True:\n    time.sleep(0.01)\n",
        COSTLENS_WINDOW_S="0.1",
    )
    wait_ready(process)
    process.terminate()
    lines = wait_ready(process)
    wait_until(lambda: read_record(script.runs).attempt.signal)
    process.kill()
    ended = script.wait(process, time.monotonic(), lines)
    assert ended.record.attempt.outcome.value == "running"
    assert (ended.attempt.outcome.value, ended.attempt.signal) == ("preempted", "SIGTERM")


def test_the_main_thread_blocked_in_a_write_is_no_deadlock(script: Script) -> None:
    """Standard error is a full pipe and the loop waits in a write: the record is closed first."""
    process = script.start(LOOP + "ready()\nwhile True:\n    sys.stderr.write('x' * 65536)\n")
    lines = wait_ready(process)
    time.sleep(0.3)  # by now the pipe is full
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM
    ended = script.wait(process, time.monotonic(), lines)
    assert ended.record.attempt.outcome.value == "preempted"
    assert ended.record.attempt.end_time is not None


def test_importing_installs_nothing_and_other_threads_get_one_notice(script: Script) -> None:
    """C066: no side effect of the import; off the main thread one notice, and training works."""
    ended = script.run(
        """
import signal
names = ("SIGTERM", "SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2")
before = [signal.getsignal(getattr(signal, name)) for name in names]
leave = sys.exit
import costlens, costlens.run, costlens.protect.signals
assert before == [signal.getsignal(getattr(signal, name)) for name in names]
assert sys.exit is leave
def train(name):
    run = costlens.start(name)
    with run.iteration():
        pass
    run.finish()
for name in ("first", "second"):
    thread = threading.Thread(target=train, args=(name,))
    thread.start()
    thread.join()
assert before == [signal.getsignal(getattr(signal, name)) for name in names]
assert sys.exit is leave
ending()
"""
    )
    assert ended.code == 0, ended.err
    (event,) = ended.events("costlens.signals.off")
    assert event["level"] == "info"
