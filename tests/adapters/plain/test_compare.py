"""``costlens compare`` over real runs of a real loop."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

import costlens
from costlens.cli.app import main
from costlens.config import Config


def train(name: str, step_s: float, num_steps: int, folder: Path) -> None:
    """Run a loop whose steps sleep for so long, in windows of a tenth of a second."""
    config = Config(
        name=name, run_id=name, dir=str(folder), window_s=0.1, node_hour_price="1.2", summary=False
    )
    with costlens.start(config=config) as run:
        for _ in run.batches(range(num_steps)):
            with run.iteration(tokens=100, samples=1):
                time.sleep(step_s)


@pytest.mark.timing
def test_a_loop_that_became_slower_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten times the sleep is more time and money than allowed, and ends with exit code 3."""
    train("quick", 0.002, 1000, tmp_path)
    train("slow", 0.02, 150, tmp_path)
    arguments = ["--dir", str(tmp_path), "--fail-above", "50%", "--json"]
    monkeypatch.setattr(sys, "argv", ["costlens", "compare", "quick", "slow", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    document = json.loads(capsys.readouterr().out)
    figures = {figure["name"]: figure for figure in document["figures"]}
    assert figures["iteration_s"]["verdict"] == "worse"
    assert 3 < figures["iteration_s"]["change"] < 11
    assert figures["tokens_per_s"]["verdict"] == "worse"
    assert figures["cost_per_million_tokens"]["verdict"] == "worse"
    assert figures["cost_per_million_tokens"]["change"] > 0  # less: start-up is in it
    assert "iteration_s" in document["too_bad"]
