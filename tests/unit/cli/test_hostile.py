"""The command line where files, outputs and names are not what they should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.account.build import START, make_price, make_record
from tests.unit.cli.conftest import Cli

FULL = Path("/dev/full")


def _write(run_dir: Path, attempt: int, **parts: object) -> Path:
    """Write a record of ``beta-2`` with other values at the given places."""
    record = json.loads(
        make_record(
            attempt, start_time=START + 9000, time_s={"compute": 1.0}, price=make_price("1")
        ).model_dump_json()
    )
    for place, value in parts.items():
        part, _, name = place.partition("__")
        record[part][name] = value
    path = run_dir / "beta-2" / f"record-{attempt}-0.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    return path


def _shell(command: str, run_dir: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m costlens {command}', sys.executable],
        env={**os.environ, "COSTLENS_DIR": str(run_dir), **variables},
        capture_output=True,
        timeout=60,
        check=False,
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("price__amount", "1e60"),
        ("price__amount", "1e999999"),
        ("rank__pid", 2**70),
        ("run__name", "\ud800"),
        ("attempt__heartbeat_time", 1e300),
    ],
)
def test_a_bad_record_hides_no_run(cli: Cli, run_dir: Path, place: str, value: object) -> None:
    """The page, the JSON and the list show the rest, and the first two name the file."""
    _write(run_dir, 2, **{place: value, "attempt__outcome": "running"})
    code, out, err = cli("report", "beta")
    assert (code, err) == (0, "")
    assert "record-2-0.json: the record was skipped" in " ".join(out.split())
    document = json.loads(cli("report", "beta", "--json")[1])
    assert document["cost"]["total"] == "10.00"
    assert any(problem.startswith("record-2-0.json: ") for problem in document["problems"])
    assert [row["cost"] for row in json.loads(cli("runs", "--json")[1])] == ["10.00", None]


def test_a_pipe_in_the_place_of_a_record_does_not_block(run_dir: Path) -> None:
    """It is named, like every file that is none."""
    os.mkfifo(run_dir / "beta-2/record-2-0.json")
    os.mkfifo(run_dir / "beta-2/attempts/0002.json")
    done = _shell("report beta --json", run_dir)
    assert done.returncode == 0, done.stderr
    assert any(line.startswith("record-2-0.json: ") for line in json.loads(done.stdout)["problems"])


def test_names_command_no_terminal(cli: Cli, run_dir: Path) -> None:
    """Escapes, line breaks and turned text in a record are shown; JSON keeps them, escaped."""
    name = "beta\x1b]0;owned\x07\n\x9b2J\u202e"
    _write(run_dir, 2, run__name=name, rank__host_name="node\x1b[2J")
    code, out, _ = cli("report", "beta")
    assert code == 0
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)
    assert r"beta\x1b]0;owned\x07\n\x9b2J\u202e" in out
    out = cli("report", "beta", "--json")[1]
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)
    assert json.loads(out)["run"]["name"] == name


def test_json_on_an_output_of_ascii(run_dir: Path) -> None:
    """What ASCII lacks is escaped, so that the same document arrives."""
    _write(run_dir, 2, run__name="größe 実験 🙂")
    done = _shell("report beta --json", run_dir, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert json.loads(done.stdout)["run"]["name"] == "größe 実験 🙂"


@pytest.mark.parametrize(
    "command", ["report beta", "runs", "compare alpha beta", "doctor", "config"]
)
def test_pages_on_an_output_of_ascii(run_dir: Path, command: str) -> None:
    """A sign that the output lacks becomes a question mark, and the page is printed."""
    done = _shell(command, run_dir, PYTHONIOENCODING="ascii")
    assert done.stderr == ""
    assert done.stdout.isascii()
    assert len(done.stdout.splitlines()) > 2


def test_exported_names_are_the_same_on_any_output(run_dir: Path) -> None:
    """CSV is data: it is UTF-8, as in a file, whatever the terminal takes."""
    _write(run_dir, 2, run__name="größe 実験")
    done = _shell("export", run_dir, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr.count("Error")) == (0, 0)
    assert "größe 実験" in done.stdout


@pytest.mark.skipif(not FULL.exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("command", ["report beta --json", "report beta", "runs", "runs --json"])
@pytest.mark.parametrize("output", [">/dev/full", ">&-"])
def test_an_output_that_takes_nothing(run_dir: Path, command: str, output: str) -> None:
    """A full disk or a closed output is one line and exit code 1."""
    done = _shell(f"{command} {output}", run_dir)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert done.stderr.startswith("costlens: ")


def test_runs_of_a_file_are_not_none(cli: Cli, tmp_path: Path) -> None:
    """A place that cannot be listed is no empty place."""
    (tmp_path / "file").write_bytes(b"")
    code, out, err = cli("runs", "--dir", str(tmp_path / "file"))
    assert (code, out) == (1, "")
    assert "cannot list" in err
    assert "a file is in the way" in err


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is closed to root"
)
def test_runs_of_a_closed_folder_are_not_none(cli: Cli, run_dir: Path) -> None:
    """Without permission the command says so; one closed run hides no other."""
    (run_dir / "alpha-1").chmod(0)
    try:
        out = cli("runs")[1]
        run_dir.chmod(0)
        code, _, err = cli("runs")
    finally:
        run_dir.chmod(0o755)
        (run_dir / "alpha-1").chmod(0o755)
    assert "unreadable" in next(line for line in out.splitlines() if line.startswith("alpha-1"))
    assert "beta-2" in out
    assert code == 1
    assert "EACCES" in err


def test_one_run_that_cannot_be_looked_into_hides_no_other(cli: Cli, run_dir: Path) -> None:
    """Its attempts are a link to themselves: it is listed with what its records say."""
    attempts = run_dir / "alpha-1/attempts"
    attempts.rename(run_dir / "alpha-1/moved")
    attempts.symlink_to(attempts)
    code, out, _ = cli("runs")
    assert code == 0
    assert {line.split()[0] for line in out.splitlines()[1:]} == {"alpha-1", "beta-2"}
    assert cli("report", "alpha-1")[0] == 0


def test_a_run_is_recorded_where_file_names_are_ascii(tmp_path: Path) -> None:
    """Its folder has a name that the file system takes; the record keeps the run's."""
    script = 'import costlens\nwith costlens.start("\\u00e9") as run:\n    pass\n'
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **variables, "COSTLENS_DIR": str(tmp_path), "COSTLENS_SUMMARY": "0"},
        check=True,
        timeout=60,
    )
    store = Store(tmp_path)
    (folder,) = store.children()
    records, problems = RunFolder(store, folder.rstrip("/")).read_records()
    assert problems == []
    assert [record["run"]["name"] for record in records.values()] == ["é"]  # type: ignore[index]
