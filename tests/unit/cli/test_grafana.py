"""`costlens grafana export`: the files of the package, with a site's own addresses."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
import yaml

from costlens.cli import grafana
from costlens.storage.store import Store
from tests.unit.cli.conftest import Cli

PAGES = "provisioning/dashboards/costlens"


def test_everything_is_written(cli: Cli, tmp_path: Path) -> None:
    """Dashboards, data sources and the provider land where Grafana looks for them."""
    code, out, _ = cli("grafana", "export", str(tmp_path / "site"))
    assert code == 0
    assert "provisioning/" in out
    pages = list((tmp_path / "site" / PAGES).glob("*.json"))
    assert len(pages) == 6
    assert all(json.loads(page.read_text())["uid"] == page.stem for page in pages)
    provider = yaml.safe_load((tmp_path / "site/provisioning/dashboards/costlens.yaml").read_text())
    assert provider["providers"][0]["options"]["path"] == f"/etc/grafana/{PAGES}"


def test_a_second_export_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    """Repeating it is no mistake as long as nobody has edited the files."""
    assert cli("grafana", "export", str(tmp_path))[0] == 0
    assert cli("grafana", "export", str(tmp_path))[0] == 0


def test_edited_files_are_kept(cli: Cli, tmp_path: Path) -> None:
    """What somebody has changed is not lost: the export refuses, whole, until it is forced."""
    cli("grafana", "export", str(tmp_path))
    edited = tmp_path / PAGES / "costlens-run.json"
    text = edited.read_text()
    edited.write_text("{}")
    other = tmp_path / PAGES / "costlens-runs.json"
    other.unlink()
    code, _, error = cli("grafana", "export", str(tmp_path))
    assert code == 2
    assert "costlens-run.json" in error
    assert "--force" in error
    assert edited.read_text() == "{}"
    assert not other.exists()
    assert cli("grafana", "export", str(tmp_path), "--force")[0] == 0
    assert edited.read_text() == text


def test_a_file_that_is_no_text_is_kept(cli: Cli, tmp_path: Path) -> None:
    """Whatever stands in the place of a file is compared by its bytes."""
    other = tmp_path / PAGES / "costlens-run.json"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"\xff\xfe")
    code, _, error = cli("grafana", "export", str(tmp_path))
    assert (code, "costlens-run.json" in error) == (2, True)
    assert other.read_bytes() == b"\xff\xfe"


@pytest.mark.parametrize("option", ["--grafana-url", "--runbook-url"])
@pytest.mark.parametrize(
    "url",
    ["grafana", "http://a b", 'http://a"b', "http://a\nb: c", "http://{{ .x }}", "http://a\\"],
)
def test_what_is_no_url_goes_into_no_file(cli: Cli, tmp_path: Path, option: str, url: str) -> None:
    """An address that would break YAML or JSON is refused before anything is written."""
    code, _, error = cli("grafana", "export", str(tmp_path / "site"), option, url)
    assert code == 2
    assert option in error
    assert not (tmp_path / "site").exists()


def test_a_file_is_no_folder(cli: Cli, tmp_path: Path) -> None:
    """A target that is a file is named, and left alone."""
    (tmp_path / "site").write_text("mine")
    code, _, error = cli("grafana", "export", str(tmp_path / "site"))
    assert code == 2
    assert "must be a folder" in error
    assert (tmp_path / "site").read_text() == "mine"


def test_the_packages_files_hold_no_place_of_this_machine() -> None:
    """What is shipped names no folder of the machine it was made on, and no unfinished address."""
    tree = grafana.read_files()
    assert len(tree) >= 8
    for name, text in tree.items():
        assert "/home/" not in text, name
        assert "/tmp/" not in text, name


@pytest.mark.parametrize("url", ["https://grafana.site.example", "https://grafana.site.example/"])
def test_links_lead_to_the_sites_own_grafana(cli: Cli, tmp_path: Path, url: str) -> None:
    """Addresses given on the command line stand in every file instead of the defaults."""
    runbook = "https://wiki.site.example/costlens"
    cli("grafana", "export", str(tmp_path), "--grafana-url", url, "--runbook-url", runbook)
    texts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert texts
    assert not [text for text in texts if grafana.GRAFANA_URL in text]
    assert not [text for text in texts if grafana.RUNBOOK_URL in text]
    assert not [text for text in texts if "site.example//" in text]


def test_alerts_are_evaluated_in_one_place(cli: Cli, tmp_path: Path) -> None:
    """Either Prometheus or Grafana gets the alerts; recording rules are Prometheus's either way."""
    rules, managed = "prometheus/rules/costlens-alerts.yaml", "provisioning/alerting/costlens.yaml"
    recording = "prometheus/rules/costlens-recording.yaml"
    for name, there, gone in (("prometheus", rules, managed), ("grafana", managed, rules)):
        folder = tmp_path / name
        code, _, error = cli("grafana", "export", str(folder), "--alerts", name)
        assert (code, error) == (0, "")
        assert (folder / there).is_file()
        assert (folder / recording).is_file()
        assert not (folder / gone).exists()


def test_two_places_are_told(cli: Cli, tmp_path: Path) -> None:
    """Who changes the place and leaves the old file would be woken twice: it is said."""
    cli("grafana", "export", str(tmp_path))
    code, _, error = cli("grafana", "export", str(tmp_path), "--alerts", "grafana")
    assert code == 0
    assert "costlens-alerts.yaml" in error
    assert "twice" in error


def test_links_that_lead_nowhere_are_told(cli: Cli, tmp_path: Path) -> None:
    """Alerts link to a runbook that nobody serves yet, until it is said where it is."""
    served = ("--runbook-url", "https://wiki.site.example/costlens", "--force")
    assert "--runbook-url" in cli("grafana", "export", str(tmp_path))[1]
    assert "--runbook-url" not in cli("grafana", "export", str(tmp_path), *served)[1]


def test_a_store_takes_what_a_folder_takes(cli: Cli, tmp_path: Path) -> None:
    """Into a URL go the same files, edited ones are kept there too, and no secret is shown."""
    place = f"{uuid.uuid4().hex}/site"
    url = f"memory://me:s3cret@{place}"
    cli("grafana", "export", str(tmp_path))
    code, out, _ = cli("grafana", "export", url)
    assert code == 0
    assert f"files in memory://***@{place}:" in out
    store = Store(url)
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")}
    assert {*store.list()} == {name for name in written if (tmp_path / name).is_file()}
    page = f"{PAGES}/costlens-run.json"
    assert store.read(page) == (tmp_path / page).read_bytes()
    store.put(page, b"{}")
    code, out, error = cli("grafana", "export", url)
    assert (code, "costlens-run.json" in error, "s3cret" in out + error) == (2, True, False)
    assert store.read(page) == b"{}"
    assert cli("grafana", "export", url, "--force", "--alerts", "grafana")[0] == 0
    assert store.read(page) == (tmp_path / page).read_bytes()
    assert "twice" in cli("grafana", "export", url, "--alerts", "grafana")[2]


@pytest.mark.parametrize(
    ("url", "code", "word"),
    [
        ("nosuch://bucket/site", 1, "nosuch"),
        ("s3:/bucket/site", 2, "two slashes"),
        ("a::memory://b", 2, "chains"),
    ],
)
def test_a_place_that_is_none_is_told(cli: Cli, url: str, code: int, word: str) -> None:
    """A scheme that nobody knows, or a URL that is none, is one line as in any other command."""
    ended, _, error = cli("grafana", "export", url)
    assert (ended, error.count("\n")) == (code, 1)
    assert word in error


def test_links_are_followed_and_folders_are_not_written_over(cli: Cli, tmp_path: Path) -> None:
    """In a local folder a linked file stays a link; a folder in a file's place stops everything."""
    site, kept = tmp_path / "site", tmp_path / "kept.md"
    site.mkdir()
    kept.write_text("mine")
    (site / "runbook.md").symlink_to(kept)
    assert cli("grafana", "export", str(site), "--force")[0] == 0
    assert (site / "runbook.md").is_symlink()
    assert kept.read_text() == (site / "runbook.md").read_text() != "mine"
    (tmp_path / "other" / "runbook.md").mkdir(parents=True)
    code, _, error = cli("grafana", "export", str(tmp_path / "other"))
    assert (code, "runbook.md is a folder" in error) == (1, True)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["runbook.md"]
