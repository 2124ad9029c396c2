"""A run from start to finish, in this process and in processes of its own."""

from __future__ import annotations

import copy
import json
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path

import pytest

import costlens
from costlens.config import Config
from costlens.core import lifetime
from costlens.core.guard import faults
from costlens.core.phases import NAMES
from costlens.core.records import Outcome, RankRecord
from costlens.core.spread import first_window_ns
from costlens.errors import ConfigError, CostlensError
from costlens.observe.placement.place import Placement
from costlens.run import Run
from costlens.testing import MemoryExporter


def _start(name: str = "test", **settings: object) -> costlens.Run:
    return costlens.start(name, summary=False, log_level="error", **settings)


def _records(folder: Path) -> list[RankRecord]:
    return [
        RankRecord.model_validate_json(path.read_bytes())
        for path in sorted(folder.glob("*/record-*.json"))
    ]


def _launch(body: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    script = "import costlens, os, sys, time\n" + textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-c", script],
        env={
            "PATH": "/usr/bin:/bin",
            "COSTLENS_DIR": str(folder),
            "COSTLENS_SUMMARY": "0",
            "COSTLENS_LOG_LEVEL": "warning",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_phases_sum_to_the_time_of_the_attempt_and_counts_are_those_reported() -> None:
    """Every nanosecond is in one phase; what was not reported is absent."""
    run = _start()
    for _ in range(5):
        with run.iteration(samples=4, tokens=30, slots=32):
            pass
    record = run.finish()
    assert record is not None
    assert sum(record.time_ns.values()) == record.total_ns
    assert list(record.time_ns) == list(NAMES)
    assert record.progress.iterations == record.progress.micro_batches == 5
    assert (record.progress.samples, record.progress.tokens, record.progress.slots) == (
        20,
        150,
        160,
    )
    assert record.progress.loss_tokens is None
    assert record.attempt.outcome is Outcome.COMPLETED
    assert faults.num_total == 0


def test_finishing_twice_gives_one_record_c112() -> None:
    """C112: a context manager plus an explicit finish give one record and the same value."""
    with _start() as run:
        with run.iteration():
            pass
        first = run.finish()
    assert run.finish() is first
    again = _start()
    assert again is not run
    assert again.id != run.id
    again.finish()


def test_starting_again_with_the_same_name_returns_the_open_run() -> None:
    """A notebook cell can be run again; another name ends the open run."""
    run = _start("cell")
    assert _start("cell") is run
    other = _start("other")
    assert other is not run
    assert not run.is_active
    assert run.finish().attempt.outcome is Outcome.COMPLETED  # type: ignore[union-attr]
    other.finish()


def test_a_run_that_goes_on_after_finish_books_the_gap_as_idle() -> None:
    """C113 in spirit: paid time between two fits is idle; totals go on."""
    run = _start()
    for _ in range(2):
        with run.iteration(samples=1):
            pass
    first = run.finish()
    time.sleep(0.05)
    run.open()
    for _ in range(3):
        with run.iteration(samples=1):
            pass
    second = run.finish()
    assert first is not None
    assert second is not None
    assert second.progress.iterations == 5
    assert second.attempt.number == first.attempt.number
    assert second.time_ns["idle"] >= 45_000_000
    assert sum(second.time_ns.values()) == second.total_ns


def test_an_iteration_that_raises_is_not_counted_and_its_exception_passes() -> None:
    """Watching changes no exception, and an incomplete pass of the loop is not an iteration."""
    run = _start()
    with run.iteration():
        pass
    with pytest.raises(KeyError, match="mine"), run.iteration(), run.phase("forward"):
        raise KeyError("mine")
    with run.iteration():
        pass
    record = run.finish()
    assert record is not None
    assert record.progress.iterations == 2
    assert sum(record.time_ns.values()) == record.total_ns


def test_with_block_tells_the_outcome() -> None:
    """An exception in the block fails the run, Ctrl-C interrupts it; both pass through."""
    with pytest.raises(ValueError, match="boom"), _start() as run:
        raise ValueError("boom")
    record = run.finish()
    assert record is not None
    assert (record.attempt.outcome, record.attempt.error_type) == (Outcome.FAILED, "ValueError")
    with pytest.raises(KeyboardInterrupt), _start() as run:
        raise KeyboardInterrupt
    record = run.finish()
    assert record is not None
    assert record.attempt.outcome is Outcome.INTERRUPTED


def test_disabled_is_a_no_op(tmp_path: Path) -> None:
    """COSTLENS_ENABLED=0: no thread, no folder, the loader as it is, no record."""
    run = costlens.start("off", enabled=False, dir=str(tmp_path / "none"))
    loader = [1, 2, 3]
    assert list(run.batches(loader)) == loader
    with run.iteration(tokens=1), run.phase("validation"):
        run.log(loss=1.0)
    assert run.finish() is None
    assert (run.id, run.attempt, run.is_active) == (None, None, False)
    assert not (tmp_path / "none").exists()


def test_an_unknown_phase_is_a_clear_error() -> None:
    """A typo in the user's own call is loud and lists what is allowed."""
    run = _start()
    with pytest.raises(ConfigError, match=r"'validate'.*validation"):
        run.phase("validate")
    run.finish()


def test_copies_are_inert() -> None:
    """C132 in spirit: pickles and deep copies hold settings only and watch nothing."""
    run = _start()
    for twin in (copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert not twin.is_active
        with twin.iteration():
            pass
        assert twin.finish() is None
        twin.open()
        assert not twin.is_active
    record = run.finish()
    assert record is not None
    assert record.progress.iterations == 0


def test_closing_every_run_leaves_nothing_alive() -> None:
    """Fifty short runs in one process leave no thread and no registration behind."""
    for number in range(50):
        run = _start(f"short-{number}")
        with run.iteration():
            pass
        run.finish()
    assert lifetime.live() == []


@pytest.mark.parametrize(
    ("ending", "code", "outcome", "error_type"),
    [
        ("", 0, "completed", None),
        ("sys.exit(0)", 0, "completed", None),
        ("raise ValueError('x')", 1, "failed", "ValueError"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted", "KeyboardInterrupt"),
    ],
)
def test_the_end_of_the_process_closes_the_record(
    tmp_path: Path, ending: str, code: int, outcome: str, error_type: str | None
) -> None:
    """A run nobody finished is closed at exit with its outcome; the exit code is the script's."""
    done = _launch(
        f"""
        run = costlens.start("exits")
        for _ in range(3):
            with run.iteration():
                pass
        {ending}
        """,
        tmp_path,
    )
    assert done.returncode == code, done.stderr
    (record,) = _records(tmp_path)
    assert record.attempt.outcome.value == outcome
    assert record.attempt.error_type == error_type
    assert record.progress.iterations == 3
    assert record.attempt.end_time is not None
    assert record.telemetry.faults == {}


def test_start_up_begins_with_the_process(tmp_path: Path) -> None:
    """The time before the run was started belongs to its start-up, from the operating system."""
    done = _launch(
        """
        time.sleep(0.3)
        with costlens.start("late") as run:
            with run.iteration():
                pass
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (record,) = _records(tmp_path)
    assert record.attempt.paid_from == "process_start"
    assert record.startup.process_s is not None
    assert 0.3 <= record.startup.process_s < 30
    assert record.time_ns["startup"] >= 300_000_000


def test_a_forked_child_is_silent(tmp_path: Path) -> None:
    """A fork copies no thread: the child counts nothing, writes nothing and ends at once."""
    done = _launch(
        """
        run = costlens.start("forks")
        with run.iteration():
            pass
        pid = os.fork()
        if pid == 0:
            with run.iteration():
                pass
            run.finish()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        with run.iteration():
            pass
        run.finish()
        """,
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (record,) = _records(tmp_path)
    assert record.progress.iterations == 2


def test_changing_the_working_directory_does_not_move_the_run(tmp_path: Path) -> None:
    """A relative COSTLENS_DIR means the directory at the start, whatever a launcher does later."""
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import costlens, os\nrun = costlens.start()\nos.chdir('elsewhere')\nrun.finish()",
        ],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(_records(tmp_path / "costlens-runs")) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_unwritable_run_folder_harms_nothing(tmp_path: Path) -> None:
    """Training goes on, one warning says why, failures are counted in the returned record."""
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    done = _launch(
        """
        run = costlens.start("blocked")
        for _ in range(3):
            with run.iteration():
                pass
        record = run.finish()
        print(record.progress.iterations, record.telemetry.record_failures > 0)
        """,
        blocker / "below",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "True"]
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(line["level"] == "warning" for line in lines)
    assert len(lines) <= 3


def test_errors_of_the_user_are_one_family() -> None:
    """Whoever wants to catch everything of costlens can."""
    with pytest.raises(CostlensError):
        costlens.start("x", window_s=-1)


def test_a_price_says_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record names the argument or the variable that set the price."""
    monkeypatch.setenv("COSTLENS_NODE_HOUR_PRICE", "2.5")
    record = _start().finish()
    assert record is not None
    assert record.price is not None
    assert (record.price.amount, record.price.source) == ("2.5", "COSTLENS_NODE_HOUR_PRICE")
    record = _start(node_hour_price="3").finish()
    assert record is not None
    assert record.price is not None
    assert (record.price.amount, record.price.source) == ("3", "argument node_hour_price")


def test_eight_ranks_that_begin_together_export_apart_and_lose_nothing() -> None:
    """Windows of each rank follow one another without a gap, however short its first one is.

    A run of no length at all has its one window, and its counts.
    """
    config = Config(name="job", run_id="job", window_s=0.2, summary=False, log_level="error")
    exporters = [MemoryExporter() for _ in range(8)]
    runs = [
        Run(
            config,
            placement=Placement(launch_key="launch", rank=rank, world_size=8),
            exporters=[exporter],
        ).open()
        for rank, exporter in enumerate(exporters)
    ]
    for _ in range(30):
        for run in runs:
            with run.iteration(samples=1):
                pass
        time.sleep(0.02)
    for run, exporter in zip(runs, exporters, strict=True):
        record = run.finish()
        windows = [snapshot.window for snapshot in exporter.snapshots]
        assert all(a.end_ns == b.start_ns for a, b in pairwise(windows))
        assert sum(window.counts.get("samples", 0) for window in windows) == 30
        assert sum(window.num_iterations for window in windows) == 29
        assert sum(sum(window.phase_ns) for window in windows) <= record.total_ns
    firsts = [
        exporter.snapshots[0].window.end_ns - exporter.announced.window.end_ns
        for exporter in exporters
    ]
    planned = [first_window_ns("job", rank, 8, config.window_ns) for rank in range(8)]
    assert all(first >= plan for first, plan in zip(firsts, planned, strict=True))
    short = MemoryExporter()
    place = Placement(launch_key="short", rank=5, world_size=8)
    run = Run(config, placement=place, exporters=[short]).open()
    with run.iteration(samples=7):
        pass
    run.finish()
    assert sum(snapshot.window.counts.get("samples", 0) for snapshot in short.snapshots) == 7
    assert short.snapshots[-1].is_last
