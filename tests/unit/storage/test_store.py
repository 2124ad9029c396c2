"""The store's own part: when it loads and builds what, and what its errors say."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import traceback
import uuid
from collections.abc import Iterator

import fsspec
import pytest
from fsspec.registry import _registry, known_implementations
from fsspec.spec import AbstractFileSystem

from costlens.errors import StorageError
from costlens.storage.store import Store


class Plugin(AbstractFileSystem):
    """An object store in memory, as a plug-in for fsspec would be."""

    cachable = False
    objects: dict[str, bytes]
    raises: BaseException | None
    is_conditional: bool

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: str) -> None:
        """Write an object whole."""
        if self.raises:
            raise self.raises
        if mode == "create" and self.is_conditional and path in self.objects:
            raise OSError(errno.EINVAL, "At least one of the pre-conditions did not hold")
        self.objects[path] = value

    def cat_file(self, path: str, start: None = None, end: None = None, **kwargs: str) -> bytes:
        """Read an object."""
        if self.raises:
            raise self.raises
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path]


class InPlace(AbstractFileSystem):
    """A file system like SFTP, which only opens files and writes into them."""

    cachable = False


@pytest.fixture(name="plugin")
def _plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Plugin]]:
    for name, value in (("objects", {}), ("raises", None), ("is_conditional", True)):
        monkeypatch.setattr(Plugin, name, value, raising=False)
    fsspec.register_implementation("plugin", Plugin, clobber=True)
    fsspec.register_implementation("inplace", InPlace, clobber=True)
    yield Plugin
    _registry.pop("plugin")
    _registry.pop("inplace")


@pytest.mark.parametrize("url", ["local", "memory://x"])
def test_fsspec_is_loaded_on_first_use(url: str, tmp_path: object) -> None:
    """Making a store loads no fsspec; a local one never does, whatever is done with it."""
    code = (
        "import sys; from costlens.storage import run_folder, runs; "
        "from costlens.storage.store import Store; store = Store(sys.argv[1]); "
        "print('fsspec' in sys.modules); store.put('a', b'1'); store.list(); "
        "print('fsspec' in sys.modules)"
    )
    target = f"{tmp_path}/runs" if url == "local" else url
    done = subprocess.run(
        [sys.executable, "-c", code, target], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", str(url != "local")]


def test_the_backend_is_built_once_a_process() -> None:
    """The same backend serves all calls of a process; a forked child builds its own."""
    store = Store(f"memory://{uuid.uuid4().hex}")
    assert store._backend is None
    mine = store._opened()
    assert store._opened() is mine
    child = os.fork()
    if child == 0:
        os._exit(7 if store._opened() is not mine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert store._opened() is mine


def test_an_unknown_protocol_is_told() -> None:
    """A protocol that no plug-in serves names itself; making the store does not look yet."""
    store = Store("nosuch://bucket/runs")
    with pytest.raises(StorageError, match=r"cannot write 'a' in nosuch://bucket/runs: .*nosuch"):
        store.put("a", b"1")


def test_a_missing_plugin_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a protocol needs a package that is not installed, the error says to install it."""
    missing = {"class": "costlens_no_such_package.FileSystem", "err": "Install nosuchfs"}
    monkeypatch.setitem(known_implementations, "missing", missing)
    with pytest.raises(StorageError, match="Install nosuchfs; install that package"):
        Store("missing://host/runs").read("a")


def test_a_file_system_that_writes_in_place_is_refused(plugin: type[Plugin]) -> None:
    """Where readers could meet half an object, nothing is written and others are named."""
    store = Store("inplace://host/runs")
    for write in (store.put, store.create):
        with pytest.raises(StorageError, match=r"writes in place.*S3, GCS or Azure") as raised:
            write("a", b"1")
        assert raised.value.errno == errno.ENOTSUP


def test_a_store_that_overwrites_on_create_is_refused(plugin: type[Plugin]) -> None:
    """A server that ignores If-None-Match is found out at the first create."""
    plugin.is_conditional = False
    store = Store("plugin://bucket/runs")
    store.put("a", b"1")
    with pytest.raises(StorageError, match="conditional writes"):
        store.create("b", b"1")


def test_a_conflict_without_a_name_is_a_conflict(plugin: type[Plugin]) -> None:
    """A server that answers a bare 412 reads as "exists"; other failures are raised."""
    store = Store("plugin://bucket/runs")
    assert store.create("a", b"1")
    assert not store.create("a", b"2")
    assert store.read("a") == b"1"
    plugin.raises = PermissionError("no")
    with pytest.raises(StorageError, match=r"\(EACCES\).*give this user access"):
        store.create("b", b"1")


def test_many_reads_with_one_failure(plugin: type[Plugin], monkeypatch: pytest.MonkeyPatch) -> None:
    """`read_many` gives the good ones and says why the other failed."""
    store, cat_file = Store("plugin://bucket/runs"), plugin.cat_file
    for key in ("a", "b"):
        store.put(key, b"1")

    def fail_b(self: Plugin, path: str, **kwargs: str) -> bytes:
        if path.endswith("/b"):
            raise OSError(errno.EREMOTEIO, "Internal Error")
        return cat_file(self, path)

    monkeypatch.setattr(plugin, "cat_file", fail_b)
    found = store.read_many(["a", "b", "c"])
    assert found.keys() == {"a", "b"}
    assert found["a"] == b"1"
    assert isinstance(found["b"], StorageError)
    assert "cannot read 'b' in plugin://bucket/runs: Internal Error" in str(found["b"])


def test_a_root_that_looks_like_a_pattern() -> None:
    """Brackets and stars in the place's own name are only characters."""
    store = Store(f"memory://{uuid.uuid4().hex}/[a]*")
    store.put("x", b"1")
    store.put("y", b"2")
    assert store.read_many(["x", "y", "z"]) == {"x": b"1", "y": b"2"}
    assert store.list() == ["x", "y"]


def test_any_failure_of_a_plugin_is_a_storage_error(plugin: type[Plugin]) -> None:
    """A plug-in's own exception, no OSError, is translated and kept as the cause."""
    plugin.raises = RuntimeError("connection reset")
    with pytest.raises(StorageError, match="connection reset; check that") as raised:
        Store("plugin://bucket/runs").put("a", b"1")
    assert raised.value.__cause__ is plugin.raises
    assert raised.value.errno is None


def test_an_interruption_is_not_translated(plugin: type[Plugin]) -> None:
    """Control-C while a store is busy stays Control-C."""
    plugin.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        Store("plugin://bucket/runs").put("a", b"1")


def test_no_secret_in_an_error(plugin: type[Plugin]) -> None:
    """Law 8: neither the message nor the printed traceback repeats the password of the URL."""
    url = "plugin://ann:hunter2@bucket/runs?token=topsecret"
    plugin.raises = RuntimeError(f"403 for {url} with hunter2")
    with pytest.raises(StorageError) as raised:
        Store(url).put("a", b"1")
    printed = "".join(traceback.format_exception(raised.value))
    assert "cannot write 'a' in plugin://***@bucket/runs?***" in printed
    assert "403" in printed
    assert "hunter2" not in printed
    assert "topsecret" not in printed
