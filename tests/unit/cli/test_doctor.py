"""``costlens doctor``: what is said, the exit codes, and what it must not do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from importlib import metadata
from pathlib import Path

import pytest

from costlens.cli.doctor import versions
from costlens.cli.doctor.answer import Check, Status, ok, problem, skipped, warning, worst
from costlens.cli.doctor.running import run_checks
from costlens.cli.doctor.versions import check_versions
from costlens.config import Config
from costlens.errors import StorageError
from costlens.storage.probe import Probe
from tests.unit.cli.conftest import Cli

CHECKS = {
    *("settings", "versions", "run folder", "checkpoints", "otlp", "clock", "gpus", "precision"),
    *("scheduler", "price"),
}


def test_a_plain_machine_has_no_problem(cli: Cli, tmp_path: Path) -> None:
    """Every check answers, nothing stays in the run folder, and warnings do not fail."""
    code, out, err = cli("doctor", "--json")
    document = json.loads(out)
    assert (code, err) == (0, ""), out
    assert document["schema_version"] == "costlens.doctor/1"
    assert {check["name"] for check in document["checks"]} == CHECKS
    assert document["status"] in {"ok", "warning"}
    assert not (tmp_path / "costlens-runs").exists()
    origins = {row["setting"]: row["origin"] for row in document["settings"]}
    assert origins["dir"] == "variable"
    assert origins["budget"] == "default"


def test_the_page_names_status_check_and_fix(cli: Cli) -> None:
    """A line for each answer, with what to do below it."""
    code, out, _ = cli("doctor")
    assert code == 0
    assert any(line.split()[:2] == ["skipped", "checkpoints"] for line in out.splitlines())
    assert "→ set COSTLENS_CHECKPOINT_URL" in out


def test_a_place_that_refuses_is_a_problem(cli: Cli, tmp_path: Path) -> None:
    """C038: exit code 1 before anything is trained, with the path and what to do."""
    (tmp_path / "file").write_text("")
    code, out, _ = cli("doctor", "--dir", str(tmp_path / "file"), "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    assert code == 1
    (answer,) = checks["run folder"]["answers"]
    assert answer["status"] == "problem"
    assert str(tmp_path / "file") in answer["text"]
    assert answer["fix"]


@pytest.mark.parametrize(
    "case",
    [
        ("DIR", "nosuch://b/c", "run folder", "no store of the scheme nosuch://", "s3://"),
        ("CHECKPOINT_URL", "nosuch://b", "checkpoints", "no store of the scheme nosuch://", "s3:"),
        ("PRICE_BOOK", "nosuch://b/c", "price", "no store of the scheme nosuch://", "s3://"),
        ("PRICE_BOOK", "gone.toml", "price", "No such file", "check the name"),
        ("PRICE_BOOK", ".", "price", "Is a directory", "name a file"),
        ("PRICE_BOOK", "junk.toml", "price", "not UTF-8", "name another one"),
        ("DIR", "s3:/b/c", "settings", "two slashes", "mend it"),
        ("CHECKPOINT_URL", "s3:/b/c", "settings", "two slashes", "mend it"),
    ],
)
def test_a_place_is_told_with_its_variable_and_what_to_do(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, ...]
) -> None:
    """Whoever reads a problem knows which variable to look at, and what may stand in it."""
    variable, value, check, told, fix = case
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.toml").write_bytes(b"\xff\xfe")
    monkeypatch.setenv(f"COSTLENS_{variable}", value)
    code, out, _ = cli("doctor", "--json")
    answers = {each["name"]: each["answers"] for each in json.loads(out)["checks"]}[check]
    (answer,) = (each for each in answers if each["status"] == "problem")
    assert code == 1
    assert f"COSTLENS_{variable}" in answer["text"]
    assert told in answer["text"]
    assert fix in answer["fix"]


@pytest.mark.parametrize(("offset_s", "status"), [(40.0, "warning"), (-400.0, "problem")])
def test_a_store_with_another_clock_is_told(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, offset_s: float, status: str
) -> None:
    """A file server or object store whose clock differs: by how much, and which way."""
    seen = Probe(took_s=0.01, clock_offset_s=offset_s)
    monkeypatch.setattr("costlens.storage.probe.probe_store", lambda url: seen)
    checks = {check["name"]: check for check in json.loads(cli("doctor", "--json")[1])["checks"]}
    told = checks["run folder"]["answers"][1]
    side = "behind" if offset_s > 0 else "ahead of"
    assert told["status"] == status
    assert f"this clock is {abs(offset_s):.0f} s {side} the clock of" in told["text"]


def test_a_misspelt_variable_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """C118: the unknown variable and the nearest one; an unusable value is a problem."""
    monkeypatch.setenv("COSTLENS_GPU_PRICE_HOUR", "2.5")
    document = json.loads(cli("doctor", "--json")[1])
    (settings,) = [check for check in document["checks"] if check["name"] == "settings"]
    told = settings["answers"][1]
    assert told["status"] == "warning"
    assert "COSTLENS_GPU_PRICE_HOUR is not a costlens setting" in told["text"]
    assert "COSTLENS_GPU_HOUR_PRICE" in told["fix"]
    monkeypatch.setenv("COSTLENS_ENABLED", "ture")
    code, out, _ = cli("doctor")
    assert code == 1
    assert "enabled cannot be 'ture' (from COSTLENS_ENABLED)" in out.replace("\n", " ")
    assert "the rest is looked at once the settings can be used" in out


def test_no_secret_is_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """C151: users, passwords and queries of URLs are in no answer and in no setting."""
    monkeypatch.setenv("COSTLENS_CHECKPOINT_URL", "memory://user:hunter2@host/run?sig=hunter2")
    monkeypatch.setenv("COSTLENS_PRICE_BOOK", "memory://user:hunter2@host/book.toml")
    for arguments in (("doctor", "--json"), ("doctor",)):
        _, out, err = cli(*arguments)
        assert "hunter2" not in out + err


def test_scheduler_variables_are_seen(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm job whose ranks disagree with a script's own is a warning with both numbers."""
    for name, value in {
        "SLURM_JOB_ID": "77",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": "1",
        "SLURM_NTASKS": "2",
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    document = json.loads(cli("doctor", "--json")[1])
    (found,) = [check for check in document["checks"] if check["name"] == "scheduler"]
    placed, told = found["answers"]
    assert placed["details"]["scheduler"] == "slurm"
    assert placed["details"]["world_size"] == 2
    assert "RANK is 0 and SLURM_PROCID is 1" in told["text"]


def test_it_needs_no_torch(tmp_path: Path) -> None:
    """Where torch cannot be imported, nor found, that is said and nothing fails."""
    script = (
        "import importlib.metadata as m, importlib.util as u, sys\n"
        "found, find = m.version, u.find_spec\n"
        "def version(name):\n"
        "    if name in {'torch', 'lightning', 'pytorch-lightning'}:\n"
        "        raise m.PackageNotFoundError(name)\n"
        "    return found(name)\n"
        "m.version = version\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "sys.modules['torch'] = None\n"
        "sys.argv = ['costlens', 'doctor']\n"
        "from costlens.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "COSTLENS_DIR": str(tmp_path / "runs")},
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert "torch is not installed" in done.stdout
    assert done.stderr == ""


def test_a_check_that_hangs_holds_nobody_up() -> None:
    """The others answer, and it is told with how long it was waited for and what mends it."""
    released = threading.Event()

    def hang(config: Config) -> list:
        released.wait(30)
        return []

    checks = [Check("quick", lambda config: [ok("fine")]), Check("slow", hang, "ask again")]
    quick, slow = run_checks(checks, Config(), limit_s=0.2)
    released.set()
    assert (quick.status, slow.status) == (Status.OK, Status.PROBLEM)
    assert slow.answers[0].text == "no answer within 0.2 s"
    assert slow.answers[0].fix == "ask again"


def test_slow_packages_cost_no_check_its_time() -> None:
    """A check is asked once packages are loaded, however much longer than its limit that takes."""
    loaded = threading.Event()

    def load() -> None:
        time.sleep(0.5)
        loaded.set()

    def look(config: Config) -> list:
        return [ok("fine")] if loaded.wait(5) else []

    (outcome,) = run_checks([Check("quick", look)], Config(), limit_s=0.2, load=load)
    assert outcome.status is Status.OK


def test_packages_that_do_not_load_are_told() -> None:
    """What can be looked at without them is looked at."""
    released = threading.Event()
    check = Check("quick", lambda config: [ok("fine")])
    loading, quick = run_checks(
        [check], Config(), load=lambda: bool(released.wait(30)) and None, loading_limit_s=0.2
    )
    released.set()
    assert (loading.status, quick.status) == (Status.PROBLEM, Status.OK)
    assert "not loaded after 0.2 s" in loading.answers[0].text


def test_no_check_loads_what_takes_long(tmp_path: Path) -> None:
    """A disk under the environment may be so slow that the imports outlast a check's limit."""
    script = (
        "import json, sys\n"
        "from costlens.cli.doctor.checks import list_checks\n"
        "from costlens.cli.doctor.loading import load_packages\n"
        "from costlens.config import resolve_config\n"
        "config = resolve_config()\n"
        "checks = list_checks()\n"
        "load_packages(config)\n"
        "loaded = {*sys.modules}\n"
        "for check in checks:\n"
        "    [*check.look(config)]\n"
        "print(json.dumps(sorted({*sys.modules} - loaded)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=tmp_path,
        env=os.environ
        | {
            "COSTLENS_DIR": str(tmp_path / "runs"),
            "COSTLENS_CHECKPOINT_URL": "memory://doctor",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        },
    )
    heavy = ("torch", "opentelemetry", "requests", "grpc", "fsspec", "pynvml", "numpy", "rich")
    late = [name for name in json.loads(done.stdout) if name.partition(".")[0] in heavy]
    assert late == []


def test_what_costlens_raises_is_the_answer() -> None:
    """A store's own words reach the page."""

    def refuse(config: Config) -> list:
        raise StorageError("cannot write; free some space")

    (outcome,) = run_checks([Check("store", refuse)], Config())
    assert outcome.answers[0].text == "cannot write; free some space"


def test_the_worst_answer_is_the_check() -> None:
    """A problem goes before a warning, and what was skipped before nothing."""
    answers = [skipped("a"), ok("b"), warning("c"), problem("d")]
    for count, expected in enumerate(("skipped", "ok", "warning", "problem"), start=1):
        assert worst(answer.status for answer in answers[:count]).value == expected
    assert worst([]) is Status.OK


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"torch": "2.1.0"}, "torch 2.1.0 is older than the 2.2 that costlens needs"),
        ({"opentelemetry-sdk": "1.46.0"}, "OpenTelemetry's packages are of several releases"),
        ({"torch": "2.2.2", "numpy": "2.1.0"}, "torch 2.2.2 was built for NumPy 1"),
    ],
)
def test_packages_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], told: str
) -> None:
    """Old ones, mixed ones and ones built for another: each with the command that mends it."""
    real = metadata.version
    monkeypatch.setattr(versions.metadata, "version", lambda name: changed.get(name) or real(name))
    found = [answer for answer in check_versions(Config()) if answer.status is Status.PROBLEM]
    assert any(told in answer.text for answer in found), found
    assert all((answer.fix or "").startswith("pip install") for answer in found)


def test_a_missing_plugin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """s3:// needs a package of its own, which the first save should not be the first to miss."""
    real = metadata.version

    def version(name: str) -> str:
        if name == "s3fs":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(versions.metadata, "version", version)
    answers = [*check_versions(Config(checkpoint_url="s3://bucket/run"))]
    assert any("s3:// " in f"{answer.text} " or "needs s3fs" in answer.text for answer in answers)
    assert answers[-1].fix == "pip install s3fs"
