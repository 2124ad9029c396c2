"""Metrics and traces of rehearsed runs, over real exporters and workers, at a real receiver."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from costlens.config import Config
from costlens.core.phases import Phase
from costlens.export.catalog import MAX_SERIES, METRICS
from costlens.export.otel_endpoint import build_exporters, read_settings
from costlens.export.otel_ids import marker_ids
from costlens.export.otel_metrics import MetricsExporter
from costlens.export.otel_spans import OwnSpans
from costlens.export.otel_traces import TracesExporter
from costlens.export.otel_worker import ExportWorkers
from tests.fixtures_otlp import Item, OtlpReceiver
from tests.unit.export.rehearsal import Rehearsal, complete


class Rank:
    """One rank of a run with exporters of its own, as its process would have them."""

    def __init__(self, run: Rehearsal) -> None:
        self.run = run
        self.workers = ExportWorkers(build_exporters(read_settings()))
        self.workers.start()
        traces = TracesExporter(Config(), OwnSpans(self.workers))
        metrics = MetricsExporter(self.workers, take_exemplars=traces.take_exemplars)
        self.exporters = (traces, metrics)
        first = run.look(opens=True)
        for exporter in self.exporters:
            exporter.start(first)

    def window(self, steps: int = 0) -> None:
        """Make usual iterations of a second, and close a window."""
        self.run.steps(steps)
        snapshot = self.run.look()
        for exporter in self.exporters:
            exporter.export(snapshot)

    def end(self) -> None:
        """End the attempt, and flush."""
        snapshot = self.run.end()
        for exporter in self.exporters:
            exporter.export(snapshot)
            exporter.finish(0)
        health = self.workers.close(10.0)
        assert {signal: h.items_dropped for signal, h in health.items()} == dict.fromkeys(health, 0)


Launch = Callable[[Rehearsal], Rank]


@pytest.fixture
def launch(otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    """Return `launch(run)`: a rank that exports to the receiver."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
    ranks: list[Rank] = []

    def start(run: Rehearsal) -> Rank:
        ranks.append(Rank(run))
        return ranks[-1]

    yield start
    for rank in ranks:
        rank.workers.close(0.0)


def where(span: Item) -> tuple[bytes, bytes]:
    """Return where a span stands."""
    return span.proto.trace_id, span.proto.span_id


def test_two_ranks_make_one_trace(otlp_receiver: OtlpReceiver, launch: Launch) -> None:
    """A minute of two ranks arrives as one trace with one root, each rank and its phases below it.

    Every parent is among the spans that arrived, and the root links to the marker of the run.
    """
    ranks = [launch(Rehearsal(rank, 2)) for rank in (0, 1)]
    for _ in range(6):
        for rank in ranks:
            rank.window(steps=10)
    for rank in ranks:
        rank.end()
    spans = otlp_receiver.spans()
    named = {
        name: [s for s in spans if s.proto.name == name] for name in {s.proto.name for s in spans}
    }
    (root,) = named["costlens.period"]
    (marker,) = named["costlens.run"]
    assert int.from_bytes(marker.proto.trace_id, "big") == marker_ids("run-a", 1).trace_id
    assert [link.span_id for link in root.proto.links] == [marker.proto.span_id]
    assert not root.proto.parent_span_id
    assert {s.attributes["costlens.rank"] for s in named["costlens.rank.period"]} == {0, 1}
    known = {where(span) for span in spans}
    assert len(known) == len(spans)
    for span in spans:
        parent = span.proto.parent_span_id
        assert not parent or (span.proto.trace_id, parent) in known, span.proto.name
    assert {s.proto.trace_id for s in named["costlens.phase.forward"]} == {root.proto.trace_id}
    assert len(named["costlens.run.end"]) == 1


def test_exemplars_open_spans_that_arrived(otlp_receiver: OtlpReceiver, launch: Launch) -> None:
    """Every exemplar of the durations names the span of an iteration that the receiver has."""
    rank = launch(Rehearsal())
    rank.window(steps=25)
    rank.run.step({Phase.DATA_WAIT: 5.0})
    for _ in range(5):
        rank.window(steps=10)
    rank.end()
    iterations = {where(s) for s in otlp_receiver.spans() if s.proto.name == "costlens.iteration"}
    exemplars = [
        (exemplar.trace_id, exemplar.span_id)
        for point in otlp_receiver.points("costlens.iteration.duration")
        for exemplar in point.proto.exemplars
    ]
    assert len(exemplars) == 3  # a sampled one of each minute, and the slow one
    assert set(exemplars) <= iterations


def test_the_receiver_sees_the_catalogue(otlp_receiver: OtlpReceiver, launch: Launch) -> None:
    """What arrives are exactly the metrics of the catalogue with their units, within the limit."""
    rank = launch(complete())
    rank.window()
    rank.end()
    points = otlp_receiver.points()
    assert {(p.name, p.unit) for p in points} == {(m.name, m.unit) for m in METRICS}
    series = {(p.name, tuple(sorted(p.attributes.items()))) for p in points}
    assert len(series) <= MAX_SERIES
    kinds = {"counter": "sum", "updowncounter": "sum", "gauge": "gauge", "histogram": "histogram"}
    assert {p.name: p.kind for p in points} == {m.name: kinds[m.kind] for m in METRICS}


def test_ranks_do_not_overwrite_each_other(otlp_receiver: OtlpReceiver, launch: Launch) -> None:
    """C025: of two ranks with 10 steps of 4 samples, the newest counters add up to 80.

    Series differ by rank, and the resources by instance id.
    """
    for rank in [launch(Rehearsal(rank, 2)) for rank in (0, 1)]:
        rank.window(steps=5)
        rank.window(steps=5)
        rank.end()
    newest = {
        point.attributes["costlens.rank"]: point
        for point in otlp_receiver.points("costlens.samples")
    }
    assert sum(point.value for point in newest.values()) == 80
    assert len({point.resource["service.instance.id"] for point in newest.values()}) == 2


def test_an_outage_loses_no_window(otlp_receiver: OtlpReceiver, launch: Launch) -> None:
    """While the back-end answers 503 windows wait, and arrive in order once it recovers."""
    rank = launch(Rehearsal())
    otlp_receiver.wait_for(lambda receiver: receiver.points("costlens.iterations"))
    otlp_receiver.fault(status=503)
    rank.window(steps=10)
    rank.window(steps=10)
    otlp_receiver.wait_for(lambda r: [q for q in r.requests if not q.accepted])
    otlp_receiver.fault()
    rank.end()
    values = [point.value for point in otlp_receiver.points("costlens.iterations")]
    assert values == [0, 10, 20, 20]


def test_a_preference_for_differences_is_followed(
    otlp_receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the SDK's exporter makes of the temporality variable decides how counters arrive."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp_receiver.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    signals = build_exporters(read_settings())
    workers = ExportWorkers(signals)
    workers.start()
    temporality = signals["metrics"]._exporter._preferred_temporality
    exporter, run = MetricsExporter(workers, temporality=temporality), Rehearsal()
    for _ in range(3):
        run.steps(10)
        exporter.export(run.look())
    workers.close(10.0)
    assert [p.value for p in otlp_receiver.points("costlens.iterations")] == [10, 10, 10]
    durations = otlp_receiver.points("costlens.iteration.duration")
    assert [point.proto.count for point in durations] == [9, 10, 10]
    starts = [point.proto.start_time_unix_nano for point in durations]
    assert starts[1:] == [point.proto.time_unix_nano for point in durations[:-1]]


def test_grpc_carries_the_same(
    otlp_receiver: OtlpReceiver, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over gRPC metrics and traces arrive as over HTTP."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{otlp_receiver.grpc_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    rank = launch(Rehearsal())
    rank.window(steps=10)
    rank.end()
    assert otlp_receiver.points("costlens.iteration.duration")[-1].proto.count == 9
    assert "costlens.period" in {span.proto.name for span in otlp_receiver.spans()}
    assert {request.transport for request in otlp_receiver.requests} == {"grpc"}
