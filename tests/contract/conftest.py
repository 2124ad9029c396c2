"""Places to keep objects in: local ones, and object stores that are started when first used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import fsspec
import pytest

from costlens.storage.store import Store
from tests.contract.object_stores.servers import ObjectStore, running, why_missing
from tests.contract.places import PLACES, Place

# gcsfs reads it once, when something imports it.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")


@pytest.fixture(scope="session", name="servers")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ObjectStore]]:
    """Return what starts the object store of a part, once, and leaves it until the session ends."""
    logs, started = tmp_path_factory.mktemp("object-stores"), {}
    with ExitStack() as stack:

        def start(part: str) -> ObjectStore:
            if part not in started:
                started[part] = stack.enter_context(running(part, logs / f"{part}.log"))
            return started[part]

        yield start


@pytest.fixture(params=PLACES, name="place")
def _place(request: pytest.FixtureRequest) -> Place:
    return PLACES[request.param]


@pytest.fixture(name="url")
def _url(
    place: Place,
    servers: Callable[[str], ObjectStore],
    require: Callable[[str, bool, str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> str:
    if place.new_url is not None:
        return place.new_url(tmp_path)
    assert place.server is not None
    missing = why_missing(place.server)
    require(place.server, not missing, missing)
    server = servers(place.server)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    for scheme in ("gs", "gcs"):  # fsspec reads its variables once, when it is imported
        monkeypatch.setitem(fsspec.config.conf, scheme, {"token": "anon"})
    return server.new_url()


@pytest.fixture(name="store")
def _store(url: str) -> Store:
    return Store(url)
