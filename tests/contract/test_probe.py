"""A place is tried before a run: on every kind of place, and on those that refuse."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from costlens.errors import StorageError
from costlens.storage import files
from costlens.storage.probe import probe_store
from costlens.storage.store import Store
from tests.contract.object_stores.servers import ObjectStore, why_missing


def test_a_good_place_takes_the_probe_and_keeps_nothing(url: str) -> None:
    """What was there before stays, and nothing else does."""
    store = Store(url)
    store.put("kept.txt", b"kept")
    seen = probe_store(url)
    assert seen.took_s > 0
    assert seen.clock_offset_s == pytest.approx(0, abs=2)
    assert store.list() == ["kept.txt"]


def test_a_file_is_written_and_read_at_any_url(url: str) -> None:
    """One that is there is replaced as a whole."""
    Store(url).put("first", b"")  # makes the folder
    for content in (b"one", b"two"):
        files.write_whole(f"{url}/file.json", content)
        assert files.read_bounded(f"{url}/file.json", 100) == content


def test_probes_at_once_do_not_meet(tmp_path: Path) -> None:
    """Every rank of a job may ask at the same moment."""
    url, failures = str(tmp_path / "runs"), []

    def probe() -> None:
        try:
            probe_store(url)
        except StorageError as error:
            failures.append(error)

    threads = [threading.Thread(target=probe) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_folder_that_was_not_there_is_gone_again(tmp_path: Path) -> None:
    """Looking leaves no trace; one that was there stays, though it is empty."""
    (tmp_path / "there").mkdir()
    probe_store(str(tmp_path / "there" / "a" / "b"))
    assert [*tmp_path.rglob("*")] == [tmp_path / "there"]


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    """C038: before the first step, with path, errno and remedy."""
    (tmp_path / "runs").write_text("")
    with pytest.raises(StorageError, match=r"ENOTDIR|EEXIST|ENOENT") as caught:
        probe_store(str(tmp_path / "runs"))
    assert str(tmp_path / "runs") in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_told(tmp_path: Path) -> None:
    """C038: a folder without the right to write is found out before a run is."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StorageError, match="EACCES"):
            probe_store(str(tmp_path))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("number", ["EROFS", "EDQUOT"])
def test_a_refused_write_names_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    """C038: a read-only mount and a quota are told by name, with what mends them."""
    import errno

    def refuse(*args: object, **options: object) -> Callable[..., bool]:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    monkeypatch.setattr("costlens.storage.local.LocalBackend.create", refuse)
    with pytest.raises(StorageError, match=number):
        probe_store(str(tmp_path))


def test_a_store_that_creates_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two launches would take the same number there."""
    monkeypatch.setattr("costlens.storage.local.LocalBackend.create", lambda *a, **o: True)
    with pytest.raises(StorageError, match="creates an object twice"):
        probe_store(str(tmp_path))


@pytest.mark.parametrize("part", ["s3", "gcs"])
def test_a_bucket_that_does_not_exist_is_told(
    part: str,
    servers: Callable[[str], ObjectStore],
    require: Callable[[str, bool, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commonest slip in a URL: the place is named, and what to look at."""
    missing = why_missing(part)
    require(part, not missing, missing)
    server = servers(part)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for scheme in ("gs", "gcs"):  # fsspec reads its variables once, when it is imported
        monkeypatch.setitem(fsspec.config.conf, scheme, {"token": "anon"})
    scheme = server.new_url().partition("://")[0]
    url = f"{scheme}://there-is-no-such-bucket/runs"
    with pytest.raises(StorageError, match="there-is-no-such-bucket") as caught:
        probe_store(url)
    assert "; " in str(caught.value)
