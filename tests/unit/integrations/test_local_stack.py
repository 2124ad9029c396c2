"""The stack of integrations/local-stack: what can be known of it without its images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from costlens.cli.grafana import read_files

ROOT = Path(__file__).parents[3]
STACK = ROOT / "integrations" / "local-stack"
CLUSTER = ROOT / "integrations" / "otel-collector"
EXPORTED = "./exported/"
EXPORT = read_files()


def read(path: Path) -> Any:
    """Return a YAML file."""
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.fixture
def services() -> dict[str, Any]:
    """Return the services of the compose file."""
    return read(STACK / "compose.yaml")["services"]


def test_every_image_is_pinned(services: dict[str, Any]) -> None:
    """The stack of today is the stack of next year: each image has a full version."""
    for name, service in services.items():
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_nothing_listens_beyond_this_machine(services: dict[str, Any]) -> None:
    """Nobody has to log in, so every port is bound to loopback, and no port comes twice."""
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    assert len(ports) == len({port.split(":")[1] for port in ports})
    assert not [name for name, service in services.items() if "network_mode" in service]


def test_everything_mounted_is_there(services: dict[str, Any]) -> None:
    """A file that is missing would become an empty folder in the container."""
    volumes = read(STACK / "compose.yaml")["volumes"]
    for service in services.values():
        for mount in service["volumes"]:
            source = mount.split(":")[0]
            if source.startswith(EXPORTED):
                folder = source.removeprefix(EXPORTED)
                assert any(name.startswith(f"{folder}/") for name in EXPORT), mount
            elif source.startswith("./"):
                assert (STACK / source).is_file(), mount
            else:
                assert source in volumes, mount


def test_commands_read_the_mounted_files(services: dict[str, Any]) -> None:
    """Each configuration that a command names is mounted where it looks."""
    for name, service in services.items():
        targets = [mount.split(":")[1] for mount in service["volumes"]]
        for word in service.get("command", ()):
            path = word.partition("=")[2]
            if path.startswith("/etc/"):
                assert path in targets, (name, path)


def test_addresses_inside_the_stack_are_services(services: dict[str, Any]) -> None:
    """Whoever is told to talk to somebody finds them under that name and port."""
    listening = {
        "prometheus": {9090},
        "alertmanager": {9093},
        "tempo": {3200, 4317},
        "loki": {3100},
    }
    text = "".join((STACK / name).read_text() for name in _configs())
    text += str(services["grafana"]["environment"])
    found = re.findall(rf"\b({'|'.join(services)}):(\d+)\b(?!\.)", text)
    assert found
    for name, port in found:
        assert int(port) in listening[name], (name, port)


def test_grafana_is_given_every_address_it_fills_in(services: dict[str, Any]) -> None:
    """The provisioned data sources name variables of Grafana's environment: all of them are set."""
    wanted = set()
    for name, text in EXPORT.items():
        if name.startswith("provisioning/datasources/"):
            wanted |= set(re.findall(r"(?<!\$)\$\{(\w+)\}", text))
    assert wanted == {"PROMETHEUS_URL", "TEMPO_URL", "LOKI_URL"}
    assert wanted <= services["grafana"]["environment"].keys()


@pytest.mark.parametrize("path", [STACK / "collector.yaml", CLUSTER / "config.yaml"], ids=str)
def test_collectors_are_put_together(path: Path) -> None:
    """Each pipeline uses what is defined and all that is defined; memory is limited first."""
    config = read(path)
    pipelines = config["service"]["pipelines"]
    assert set(pipelines) == {"metrics", "traces", "logs"}
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in pipelines.values() for name in pipeline[kind]}
        assert used == set(config[kind]), kind
    for pipeline in pipelines.values():
        assert pipeline["processors"][0] == "memory_limiter"
        assert pipeline["processors"][-1] == "batch"
    assert set(config.get("extensions", {})) == set(config["service"].get("extensions", ()))
    limiter = config["processors"]["memory_limiter"]
    assert limiter["spike_limit_mib"] < limiter["limit_mib"]


def test_readme_is_three_commands() -> None:
    """A newcomer starts the stack and sends something with three lines."""
    (block,) = re.findall(r"```sh\n(.*?)```", (STACK / "README.md").read_text(), re.DOTALL)
    assert len(block.strip().splitlines()) == 3
    assert "costlens grafana export exported" in block


def _configs() -> list[str]:
    return [path.name for path in STACK.glob("*.yaml")]
