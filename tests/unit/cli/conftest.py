"""A command line to call, and a folder with runs in it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from costlens.cli.app import main
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store
from tests.unit.account.build import START, make_price, make_record

Cli = Callable[..., tuple[int, str, str]]
"""Called with arguments; returns exit code, standard output and standard error."""


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return a function that runs the command line as the shell would."""

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["costlens", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), out, err

    return run


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return the folder of COSTLENS_DIR with two runs: ``alpha-1`` and the newer ``beta-2``."""
    store = Store(tmp_path / "costlens-runs")
    for number, (name, price) in enumerate((("alpha", None), ("beta", make_price("3600")))):
        folder = RunFolder(store, f"{name}-{number + 1}")
        folder.claim_attempt(name, {"wall_ns": int((START + number) * 1e9)})
        record = make_record(
            time_s={"startup": 1.0, "compute": 9.0},
            start_time=START + 3600 * number,
            price=price,
            price_unknown=None if price else "no price: set COSTLENS_NODE_HOUR_PRICE",
            progress={"iterations": 20, "optimizer_steps": 10, "tokens": 1000},
        )
        record = record.model_copy(
            update={"run": record.run.model_copy(update={"id": folder.run_id, "name": name})}
        )
        folder.write_record(1, 0, record.model_dump_json(exclude_none=True).encode())
    return tmp_path / "costlens-runs"
