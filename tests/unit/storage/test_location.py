"""Paths and URLs are told apart, and secrets stay out of what is shown."""

from __future__ import annotations

import ntpath
import os
from pathlib import Path, PureWindowsPath

import pytest

from costlens.errors import ConfigError
from costlens.storage.location import parse_location, redact
from costlens.storage.run_folder import RunFolder
from costlens.storage.store import Store


@pytest.mark.parametrize(
    "path",
    [r"C:\runs", "C:/runs", "c:runs", r"\\server\share\runs", PureWindowsPath("D:/a b/runs")],
)
def test_a_windows_path_is_local(path: str | PureWindowsPath) -> None:
    r"""C045: `C:\runs` is a folder, not a protocol named "C"."""
    assert parse_location(path).path is not None


def test_remote_keys_use_slashes_under_windows_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """C045: where the system joins paths with backslashes, remote keys still have none."""
    store = Store("memory://windows-flavour/runs")
    with monkeypatch.context() as windows:
        windows.setattr(os, "sep", "\\")
        windows.setattr(os.path, "join", ntpath.join)
        folder = RunFolder(store, r"team\run")
        folder.claim_attempt("key", {})
        folder.write_record(1, 0, b"{}")
        folder.append_segment(1, 0, 0, [b"{}"])
    keys = store.list()
    assert [key.split("/")[1:] for key in keys] == [
        ["attempts", "0001.json"],
        ["record-1-0.json"],
        ["segments", "windows-1-0-000000.jsonl"],
    ]
    assert not any("\\" in key for key in keys)


@pytest.mark.parametrize("prefix", ["", "file://", "local://", "FILE://"])
def test_file_urls_and_paths_are_the_same_place(tmp_path: Path, prefix: str) -> None:
    """A folder with a blank and an umlaut is found as a path and as a file URL."""
    folder = tmp_path / "a b ü"
    assert parse_location(f"{prefix}{folder}").path == folder


def test_a_relative_path_is_fixed_when_the_store_is_made(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training code that changes the working directory does not move the run."""
    store = Store("runs")
    (in_tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(in_tmp_path / "elsewhere")
    store.put("x", b"1")
    assert (in_tmp_path / "runs" / "x").read_bytes() == b"1"


def test_home_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A leading ~ means the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_location("~/runs").path == tmp_path / "runs"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "needs a path"),
        ("  ", "needs a path"),
        ("a\0b", "needs a path"),
        ("s3:/bucket/runs", "two slashes"),
        (Path("s3://bucket/runs"), "two slashes"),
        ("simplecache::s3://bucket", "'::'"),
        ("s3://bucket/a::b", "'::'"),
    ],
)
def test_what_is_no_place_is_refused(url: str | Path, why: str) -> None:
    """An empty text, a URL broken by pathlib and chained file systems say what is wrong."""
    with pytest.raises(ConfigError, match=why):
        parse_location(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("s3://AKIA:se/cr+et@bucket/runs", "s3://***@bucket/runs"),
        ("sftp://ann@host/runs", "sftp://***@host/runs"),
        ("https://host/c?sv=1&sig=abc#d", "https://host/c?***"),
        ("abfs://box@account.dfs.core.windows.net/x", "abfs://box@account.dfs.core.windows.net/x"),
        ("abfs://box:key@account/x", "abfs://***@account/x"),
        ("see s3://a:b@c/d and gs://e/f?g=h", "see s3://***@c/d and gs://e/f?***"),
        ("no url: a@b?c", "no url: a@b?c"),
    ],
)
def test_users_passwords_and_queries_are_not_shown(url: str, shown: str) -> None:
    """Law 8: what may be a secret is replaced, a container name is not."""
    assert redact(url) == shown


def test_a_location_does_not_show_its_url() -> None:
    """Law 8: a location printed in a traceback or a log holds no password."""
    location = parse_location("s3://AKIA:hunter2@bucket/runs")
    assert "hunter2" not in repr(location)
    assert "hunter2" not in repr(Store("s3://AKIA:hunter2@bucket/runs"))


@pytest.mark.parametrize(
    "text",
    [
        "no login for AKIA:hunter%2F2@bucket/runs",
        "password hunter%2F2 refused",
        "password hunter/2 refused",
        "GET https://bucket.example/runs?sig=topsecret failed",
        "bad query token=topsecret",
    ],
)
def test_scrubbing_finds_each_part_of_the_secret(text: str) -> None:
    """A plug-in may repeat the user, the password alone, decoded, or the query."""
    location = parse_location("s3://AKIA:hunter%2F2@bucket/runs?token=topsecret")
    scrubbed = location.scrub(text)
    assert not any(secret in scrubbed for secret in ("hunter", "topsecret"))
