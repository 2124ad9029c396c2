"""What the telemetry of a rank says it is about."""

from __future__ import annotations

import os

import pytest

from costlens.export.otel_endpoint import build_resource
from tests.log_events import capture_events


def test_resource_names_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance id is unique per run, attempt and rank; the service is costlens by default."""
    ids = {
        build_resource(*identity).attributes["service.instance.id"]
        for identity in [("a", 1, 0), ("a", 1, 1), ("a", 2, 0), ("b", 1, 0), ("a/1", 1, 0)]
    }
    assert len(ids) == 5
    attributes = build_resource("a", 1, 0, {"k8s.pod.name": "p"}).attributes
    assert attributes["service.name"] == "costlens"
    assert attributes["process.pid"] == os.getpid()
    assert attributes["telemetry.sdk.language"] == "python"
    assert attributes["host.name"]
    assert attributes["k8s.pod.name"] == "p"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("OTEL_SERVICE_NAME", "mine"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=mine,team=a%20b")],
)
def test_resource_of_the_environment_wins_except_over_the_identity(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """The user names the service; an instance id shared by all ranks does not stick to them."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=shared")
    monkeypatch.setenv(variable, value + (",service.instance.id=shared" if "," in value else ""))
    attributes = build_resource("a", 1, 0).attributes
    assert attributes["service.name"] == "mine"
    assert attributes["service.instance.id"] == "a/1/0"
    assert attributes.get("team") == ("a b" if "team" in value else None)


def test_bad_resource_attribute_warns_without_the_sdks_words(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry without `=` is left out with one warning of our own."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=a,t0ken")
    with capture_events() as lines:
        assert build_resource("a", 1, 0).attributes["team"] == "a"
    assert len(lines) == 1
    assert "t0ken" not in str(lines) + caplog.text
