"""Every command with what it cannot use: one clear message, the right exit code, no traceback."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.cli.conftest import Cli

HUGE_BYTES = 5_000_000
BROKEN = {
    "corrupt": b"\x00\xff{{{",
    "cut": b'{"run": {"id',
    "deep": b"[" * 200_000,
    "empty": b"",
    "huge": b'{"run": "' + b"x" * HUGE_BYTES + b'"}',
    "other": b'{"schema_version": "other/9"}',
}
READ = "report ID|report ID --json|report ID --watch|compare ID alpha-1|tune ID|export ID"

CASES = {
    # What is not there, or is no run.
    "report nosuch": (1, "no run 'nosuch' in"),
    "report ./costlens-runs/file": (1, "there is no run in"),
    "report ./costlens-runs/notarun": (1, "there is no run in"),
    "report nosuch://a/b": (1, "no store of the scheme nosuch://"),
    "report s3:/a/b": (2, "'s3:/a/b' is neither a path nor a URL"),
    "report same": (1, "'same' fits 2 runs in"),
    "compare alpha-1 nosuch": (1, "no run 'nosuch' in"),
    "tune nosuch": (1, "no run 'nosuch' in"),
    "export nosuch": (1, "no run 'nosuch' in"),
    "replay nosuch --endpoint http://127.0.0.1:9": (1, "no run 'nosuch' in"),
    "runs --dir nosuch://x": (1, "cannot list names in nosuch://x: fsspec knows no store"),
    "runs --dir costlens-runs/file": (1, "a file is in the way"),
    "checkpoints ls nowhere": (1, "there are no checkpoints in"),
    "checkpoints ls costlens-runs/file": (1, "a file is in the way"),
    "checkpoints verify nosuch://x": (1, "no store of the scheme nosuch://"),
    "checkpoints ls": (2, "COSTLENS_CHECKPOINT_URL"),
    # Places that cannot be written, or read.
    "report alpha-1 --html costlens-runs": (1, "Is a directory (EISDIR); name a file"),
    "report alpha-1 --html costlens-runs/file/x.html": (1, "cannot write"),
    "report alpha-1 --html /proc/x.html": (1, "cannot write /proc/x.html: "),
    "report alpha-1 --html nosuch://a/b.html": (1, "no store of the scheme nosuch://"),
    "compare alpha-1 --save-baseline nowhere/x.json": (1, "cannot write"),
    "export beta-2 -o nowhere/x.csv": (2, "--output cannot be 'nowhere/x.csv'"),
    "export beta-2 -o nosuch://a/x.csv": (1, "no store of the scheme nosuch://"),
    "grafana export costlens-runs/file": (2, "DIR must be a folder or a URL"),
    "grafana export costlens-runs/file/x": (1, "a file is in the way"),
    "compare gone.json alpha-1": (1, "gone.json: No such file or directory (ENOENT); check the"),
    "compare bad.json alpha-1": (1, "is not JSON"),
    "compare huge.json alpha-1": (1, "is larger than"),
    "prices --book gone.toml": (1, "No such file"),
    "prices --book costlens-runs": (1, "Is a directory"),
    "prices --book bad.json": (2, "neither TOML nor"),
    # Values that are not allowed.
    "runs --since yesterday": (2, "--since cannot be 'yesterday'"),
    "runs --group-by nolabel": (2, "--group-by cannot be 'nolabel'"),
    "compare alpha-1": (2, "two runs are compared"),
    "compare alpha-1 alpha-1 --fail-above nan": (2, "--fail-above cannot be 'nan'"),
    "report alpha-1 --html x.html --json": (2, "--html goes neither with"),
    "replay alpha-1 --endpoint 'not a url'": (2, "got 'not a url': it holds a space"),
    "replay alpha-1 --endpoint http://c:x": (2, "its port is no number"),
    "demo --price abc": (2, "a plain decimal number"),
}
TABLES = {  # what the parser of arguments says, in a box
    "export --format xx": "--format",
    "tune alpha-1 --detail xx": "--detail",
    "tune alpha-1 --for 5m": "--for goes with",
    "tune alpha-1 --detail steps --for ever": "--for cannot be",
    "replay alpha-1 --endpoint http://c --signal xx": "--signal",
    "checkpoints prune x --keep 0": "--keep",
    "grafana export x --alerts xx": "--alerts",
    "demo --max-steps 0": "--max-steps",
    "nosuch": "No such command",
}


@pytest.fixture
def place(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with runs that are well, runs that are not, and what is no run."""
    home = run_dir.parent
    monkeypatch.chdir(home)
    monkeypatch.delenv("COSTLENS_CHECKPOINT_URL", raising=False)
    (run_dir / "file").write_text("mine")
    (run_dir / "notarun").mkdir()
    (home / "bad.json").write_text("{")
    (home / "huge.json").write_bytes(b" " * 2_000_000)
    store = Store(run_dir)
    for name in ("same-1", "same-2", *BROKEN):
        RunFolder(store, name).claim_attempt(name, {"wall_ns": 1})
    for name, data in BROKEN.items():
        store.put(f"{name}/record-1-0.json", data)
    return home


@pytest.mark.parametrize("command", CASES)
def test_what_cannot_be_used_is_told_in_one_line(cli: Cli, place: Path, command: str) -> None:
    """1 where something is not there or refuses, 2 where the command line cannot be used."""
    code, out, err = cli(*shlex.split(command))
    expected, told = CASES[command]
    lines = err.splitlines()
    assert (code, out, len(lines)) == (expected, "", 1), err
    assert lines[0].startswith("costlens: ")
    assert told in lines[0]
    assert (place / "costlens-runs" / "file").read_text() == "mine"


@pytest.mark.parametrize("command", TABLES)
def test_the_command_line_itself_is_a_usage_error(cli: Cli, place: Path, command: str) -> None:
    """What the parser refuses names the option."""
    code, out, err = cli(*shlex.split(command))
    assert (code, out) == (2, "")
    assert TABLES[command] in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_told_with_run_and_reason(cli: Cli, place: Path, name: str) -> None:
    """Whichever way it is read: which run, which file, why, what to do; nothing is written."""
    for command in READ.split("|"):
        code, out, err = cli(*command.replace("ID", name).split())
        assert (code, out, len(err.splitlines())) == (1, "", 1), command
        assert f"run '{name}' has no readable record yet: record-1-0.json: " in err
        assert "left no record" not in err, "it did, and nobody can read it"
    target = place / "kept.csv"
    target.write_text("mine")
    assert cli("export", name, "-o", str(target))[0] == 1
    assert target.read_text() == "mine"


def test_broken_records_hide_no_run(cli: Cli, place: Path) -> None:
    """Lists go on, with a note for each that cannot be read; also where ages are asked for."""
    for options in ((), ("--since", "999999w")):
        code, out, _ = cli("runs", *options)
        assert code == 0
        assert all(name in out for name in ("alpha-1", "beta-2", *BROKEN))
        code, out, err = cli("export", *options)
        assert code == 0
        assert len([line for line in err.splitlines() if "left out" in line]) >= len(BROKEN)


def test_a_huge_record_is_not_read(cli: Cli, place: Path) -> None:
    """Somebody else's file of any size costs neither time nor memory."""
    _, _, err = cli("report", "huge")
    assert f"it has {len(BROKEN['huge'])} bytes and a record 262144 at most" in err
