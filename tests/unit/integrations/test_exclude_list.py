"""The list of nodes to leave out: from a device's errors to a scheduler's option."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from costlens.core.job_records import JobPart
from costlens.export.run_findings import find_causes
from tests.unit.diagnose.scenes import make_gpu, on_device

SCRIPT = Path(__file__).parents[3] / "integrations" / "exclude-list" / "exclude_list.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("exclude_list", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def make_report(host: str = "node-7", node: str | None = None, **errors: int) -> dict[str, Any]:
    """Return the part of a merged record that counts, of a rank whose device has errors."""
    gpu = make_gpu(100 / 120, 120.0, uuid="GPU-7f", errors=errors)
    job = None if node is None else JobPart(scheduler="kubernetes", node=node)
    record = on_device(gpu=gpu, rank={"host_name": host}, job=job).now
    findings = [finding.model_dump() for finding in find_causes([record])["findings"]]
    rank = {"host_name": host, "job": None if job is None else job.model_dump()}
    return {"findings": findings, "ranks": [rank]}


def run(
    script: ModuleType,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    report: dict[str, Any],
    *options: str,
) -> tuple[str, str]:
    """Return what the script prints of a report, and what it says beside it."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(report)))
    assert script.main([*options]) == 0
    told = capsys.readouterr()
    return told.out, told.err


def test_an_uncorrectable_error_becomes_an_option_of_sbatch(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the rule finds of a device goes all the way to the scheduler, with the reason beside."""
    out, err = run(script, capsys, monkeypatch, make_report(uncorrected=2), "--for", "slurm")
    assert out == "--exclude=node-7\n"
    assert err == "node-7: hardware_fault (GPU-7f at 00000000:17:00.0)\n"


def test_a_pod_is_known_by_its_node(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes taints nodes: the name that the scheduler gave, not what the pod calls itself."""
    report = make_report("job-0-abc", "gke-pool-12", uncorrected=1)
    out, _ = run(script, capsys, monkeypatch, report, "--for", "kubernetes")
    assert out == (
        "kubectl taint nodes gke-pool-12 costlens.io/hardware-fault=GPU-7f:NoSchedule --overwrite\n"
    )


def test_healthy_hardware_is_on_no_list(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corrected errors are no fault: no option, an empty list."""
    report = make_report(corrected=9)
    assert run(script, capsys, monkeypatch, report, "--for", "slurm") == ("", "")
    assert json.loads(run(script, capsys, monkeypatch, report)[0]) == []


def test_several_runs_make_one_list(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nodes of all files, each once, with all that was found on it."""
    files = []
    for number, host in enumerate(("node-9", "node-7", "node-9")):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(make_report(host, uncorrected=1)))
        files.append(str(file))
    assert script.main([*files, "--for", "slurm"]) == 0
    assert capsys.readouterr().out == "--exclude=node-7,node-9\n"


def test_a_name_that_is_none_reaches_no_command_line(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may hold anything; what a shell would read as more than a name is left out."""
    report = make_report("node-7;rm -rf ~", uncorrected=1)
    out, err = run(script, capsys, monkeypatch, report, "--for", "kubernetes")
    assert out == ""
    assert "is no name of a node" in err


def test_other_findings_count_when_they_are_asked_for(script: ModuleType) -> None:
    """Heat is not on the list unless somebody says so."""
    place = {"host_name": "node-1", "gpu_uuid": None, "pci_id": None}
    report = {"findings": [{"name": "throttling", "places": [place]}], "ranks": []}
    assert script.list_nodes([report]) == ([], [])
    nodes, _ = script.list_nodes([report], (*script.FAULTS, "throttling"))
    assert [node.name for node in nodes] == ["node-1"]


def test_what_is_no_report_is_said(
    script: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missing file, or one that holds no JSON, ends with 1 and what to pass."""
    assert script.main([str(tmp_path / "none.json")]) == 1
    assert "costlens report --json" in capsys.readouterr().err
