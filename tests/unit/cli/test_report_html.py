"""``costlens report --html``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.made_runs import usual_price, write_run
from tests.unit.cli.conftest import Cli


@pytest.fixture
def run(tmp_path: Path) -> str:
    """Return the id of a run in the folder of COSTLENS_DIR."""
    return write_run(tmp_path / "costlens-runs", num_windows=65, price=usual_price()).run_id


def test_a_page_is_written_and_its_place_told(cli: Cli, run: str, in_tmp_path: Path) -> None:
    """One line says where it is and how large; the file is a whole document."""
    code, out, err = cli("report", run, "--html", "out.html")
    assert (code, err) == (0, "")
    assert out.startswith(f"{in_tmp_path}/out.html: ")
    assert out.endswith("open it in a browser\n")
    text = (in_tmp_path / "out.html").read_text(encoding="utf-8")
    assert text.lstrip().startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert len(text.encode()) < 2_000_000


def test_a_url_is_written_like_a_file(cli: Cli, run: str) -> None:
    """Any fsspec URL will do."""
    import fsspec

    code, out, _ = cli("report", run, "--html", "memory://pages/run.html")
    assert code == 0
    assert out.startswith("memory://pages/run.html: ")
    with fsspec.open("memory://pages/run.html", "rt") as file:
        assert "</html>" in file.read()


def test_a_dash_is_standard_output(
    run: str, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document and nothing else, to be piped."""
    from costlens.cli.app import main

    monkeypatch.setattr(sys, "argv", ["costlens", "report", run, "--html", "-"])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsysbinary.readouterr()
    assert (ended.value.code, err) == (0, b"")
    assert out.lstrip().startswith(b"<!doctype html>")
    assert out.rstrip().endswith(b"</html>")


def test_a_target_that_cannot_be_understood_is_a_usage_error(cli: Cli, run: str) -> None:
    """It is told before the run is read."""
    code, out, err = cli("report", run, "--html", "s3:/bucket/page.html")
    assert (code, out) == (2, "")
    assert "two slashes" in err


def test_two_forms_at_once_are_a_usage_error(cli: Cli, run: str) -> None:
    """A page is neither JSON nor watched."""
    for other in ("--json", "--watch"):
        code, _, err = cli("report", run, "--html", "x.html", other)
        assert code == 2
        assert "--html goes neither with --json nor with --watch" in err


def test_a_place_that_cannot_be_written_is_one_line(cli: Cli, run: str, tmp_path: Path) -> None:
    """It names the place, why, and what to do."""
    (tmp_path / "taken").write_text("a file")
    code, out, err = cli("report", run, "--html", str(tmp_path / "taken" / "page.html"))
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "a file is in the way: remove it" in err


@pytest.mark.parametrize(
    ("module", "package"), [("vl_convert", "vl-convert"), ("jinja2", "Jinja2")]
)
def test_a_missing_package_names_the_command_that_installs_it(
    cli: Cli, run: str, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    """Before anything is read."""
    monkeypatch.setitem(sys.modules, module, None)
    code, out, err = cli("report", run, "--html", "x.html")
    assert (code, out) == (1, "")
    assert package in err
    assert "pip install 'costlens[html]'" in err


def test_the_help_names_the_extra_whole(cli: Cli) -> None:
    """Brackets are no markup: who reads `pip install costlens` gets no charts."""
    code, out, _ = cli("report", "--help")
    assert code == 0
    assert "costlens[html]" in out
