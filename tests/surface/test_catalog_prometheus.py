"""Prometheus names of the catalogue: the same by OTLP and by scrape, or dashboards show nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import MetricsData
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric as Family

from costlens.export.catalog import METRICS
from costlens.export.otel_metrics import MetricsExporter
from grafana.names import series_names, translate
from tests.unit.export.rehearsal import Outbox, complete

# OpenTelemetry named it: a server adds the suffix of a ratio, the exporter does not.
TWO_NAMES = {"hw_gpu_utilization_ratio": "hw_gpu_utilization"}


@pytest.fixture
def scraped() -> Iterator[list[Family]]:
    """Return what a scrape of the real Prometheus exporter sees of one window."""
    outbox = Outbox()
    MetricsExporter(outbox).export(complete().look())  # type: ignore[arg-type]
    data = outbox.batches[-1][1]
    assert isinstance(data, MetricsData)
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(registry=registry, disable_target_info=True)
    reader._collector._callback = None  # nobody to collect from: the window is handed over
    reader._receive_metrics(data)
    yield list(registry.collect())
    reader.shutdown()


def test_names_are_the_same_by_otlp_and_by_scrape(scraped: list[Family]) -> None:
    """C147: every series has one name on both paths, but the one that OpenTelemetry named."""
    by_scrape = {sample.name for family in scraped for sample in family.samples}
    by_otlp = {name for metric in METRICS for name in series_names(metric)}
    assert by_scrape == {TWO_NAMES.get(name, name) for name in by_otlp}


def test_no_surprising_suffixes() -> None:
    """C147: no `_ratio_total`, no word twice in a row, nothing a query would stumble over."""
    for metric in METRICS:
        for name in series_names(metric):
            words = name.split("_")
            assert not name.endswith("ratio_total"), name
            assert all(a != b for a, b in pairwise(words)), name
            assert re.fullmatch(r"[a-z][a-z_]*", name), name


def test_states_get_no_unit_suffix() -> None:
    """A 0/1 state has an empty unit: unit 1 would make it a ratio on one back-end only."""
    assert translate("costlens.run.state", "", "updowncounter") == "costlens_run_state"
    assert not [m.name for m in METRICS if m.kind == "updowncounter" and m.unit == "1"]


def test_the_rules_are_the_specifications() -> None:
    """The translation used here agrees with the specification's own examples."""
    assert translate("system.filesystem.usage", "By", "gauge") == "system_filesystem_usage_bytes"
    assert translate("system.network.dropped", "{packets}", "counter") == (
        "system_network_dropped_total"
    )
    assert translate("system.network.dropped", "", "counter") == "system_network_dropped_total"
    assert translate("hw.fan.speed", "1", "gauge") == "hw_fan_speed_ratio"
    assert translate("costlens.cost.rate", "{currency}/h", "gauge") == "costlens_cost_rate_per_hour"


def test_labels_tell_run_and_rank(scraped: list[Family]) -> None:
    """C025: each sample carries run id and rank, so that no rank overwrites another's series."""
    for family in scraped:
        for sample in family.samples:
            assert sample.labels["costlens_run_id"] == "run-a", sample.name
            assert sample.labels["costlens_rank"] == "0", sample.name
