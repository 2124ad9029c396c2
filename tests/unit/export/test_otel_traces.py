"""Traces.

Markers, periods shared by ranks, iterations with their phases, and whose tracer writes them.
"""

from __future__ import annotations

import gc
import logging
import math
import weakref
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from opentelemetry.util._once import Once

from costlens.config import Config
from costlens.core.clock import NS_PER_S
from costlens.core.phases import Phase
from costlens.core.records import Outcome
from costlens.core.telemetry_records import Detail
from costlens.export.otel_drafts import Draft
from costlens.export.otel_ids import Ids, marker_ids, period_ids
from costlens.export.otel_spans import HostSpans, OwnSpans, Spans, host_spans
from costlens.export.otel_traces import TracesExporter
from costlens.export.periods import MAX_SPANS_PER_HOUR
from tests.unit.export.rehearsal import MONO_NS, PRICE, USUAL, WALL_NS, Outbox, Rehearsal

SLOW = {Phase.DATA_WAIT: 4.0, Phase.FORWARD: 0.6}


class Tracing:
    """A rehearsed run under a traces exporter."""

    def __init__(self, run: Rehearsal, spans: Spans | None = None, **options: Any) -> None:
        self.run = run
        self.outbox = Outbox()
        config = Config(**options.pop("config", {}))
        spans = spans or OwnSpans(self.outbox)  # type: ignore[arg-type]
        self.exporter = TracesExporter(config, spans, **options)

    def start(self) -> Tracing:
        """Start."""
        self.exporter.start(self.run.look(opens=True))
        return self

    def windows(self, num: int, steps: int = 10) -> Tracing:
        """Close windows of usual iterations of a second."""
        for _ in range(num):
            self.run.steps(steps)
            self.exporter.export(self.run.look())
        return self

    def end(self, outcome: Outcome = Outcome.COMPLETED) -> Tracing:
        """End the attempt."""
        self.exporter.export(self.run.end(outcome))
        return self

    @property
    def spans(self) -> list[ReadableSpan]:
        """Return what was handed over."""
        found: list[ReadableSpan] = []
        for signal, batch, num_items in self.outbox.batches:
            assert signal == "traces"
            assert isinstance(batch, list)
            assert len(batch) == num_items <= 64
            found += batch
        return found

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of a name."""
        (span,) = self.named(name)
        return span


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Return where a span stands."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """Return start and end in seconds since the rehearsal began."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - WALL_NS) / NS_PER_S, (span.end_time - WALL_NS) / NS_PER_S


def test_a_run_is_marked_at_once() -> None:
    """Before the first window the marker is there, under the ids of run and attempt."""
    marker = Tracing(Rehearsal()).start().one("costlens.run")
    assert ids(marker) == marker_ids("run-a", 1)
    assert marker.parent is None
    assert marker.end_time == marker.start_time
    assert dict(marker.attributes) == {
        "costlens.run.id": "run-a",
        "costlens.attempt": 1,
        "costlens.rank": 0,
        "costlens.run.name": "gpt-small",
        "costlens.run.ranks": 1,
        "costlens.version": "0.1.0",
        "costlens.framework": "torch 2.13",
        "costlens.device": "cpu",
    }


def test_a_period_becomes_a_trace_when_it_is_over() -> None:
    """The windows of a minute make one trace.

    A root linked to the marker, the rank under it with what it did, all under hashed ids; nothing
    of it is sent before it is complete.
    """
    tracing = Tracing(Rehearsal(price=PRICE)).start().windows(6)
    tracing.run.log(loss=1.5)
    assert not tracing.named("costlens.period")
    tracing.windows(1)
    root, rank = tracing.one("costlens.period"), tracing.one("costlens.rank.period")
    number = WALL_NS // (60 * NS_PER_S)
    assert ids(root) == period_ids("run-a", 1, number)
    assert root.parent is None
    (link,) = root.links
    assert (link.context.trace_id, link.context.span_id) == marker_ids("run-a", 1)
    assert dict(link.attributes) == {"costlens.link": "run"}
    assert rank.parent is not None
    assert (rank.parent.trace_id, rank.parent.span_id) == ids(root)
    assert seconds(root) == seconds(rank) == (0, 60)
    attributes = rank.attributes
    assert attributes["costlens.steps"] == 60
    assert attributes["costlens.tokens.tokens"] == 6000
    assert attributes["costlens.tokens.tokens.rate"] == 100
    assert attributes["costlens.phase.time.forward"] == pytest.approx(0.3 * 59)
    assert attributes["costlens.iteration.duration.max"] == 1.0
    assert attributes["costlens.iteration.duration.median"] == pytest.approx(1.0, rel=0.01)
    assert attributes["costlens.cost"] == pytest.approx(0.06)
    assert attributes["costlens.cost.currency"] == "EUR"


def test_ranks_meet_in_one_trace_without_talking() -> None:
    """Two ranks that know nothing of one another write under one root, which only rank 0 writes.

    Both show the same sampled iteration, each under a span id of its own.
    """
    ranks = [Tracing(Rehearsal(rank, 2)).start().windows(7).end() for rank in (0, 1)]
    assert len(ranks[0].named("costlens.period")) == 2
    assert not ranks[1].named("costlens.period")
    assert not ranks[1].named("costlens.run")
    roots = {ids(root) for root in ranks[0].named("costlens.period")}
    for ranked in ranks:
        for span in ranked.named("costlens.rank.period"):
            assert span.parent is not None
            assert (span.parent.trace_id, span.parent.span_id) in roots
    sampled = [
        {
            ids(span)[0]: span.attributes["costlens.iteration"]
            for span in ranked.named("costlens.iteration")
            if span.attributes["costlens.reason"] == "sampled"
        }
        for ranked in ranks
    ]
    assert sampled[0] == sampled[1]
    assert len(sampled[0]) == 2
    every = [ids(span) for ranked in ranks for span in ranked.spans]
    assert len(set(every)) == len(every)


def test_an_iteration_has_a_child_per_phase() -> None:
    """A kept iteration has its true times and a child for each phase that took time.

    That the children's order is an approximation is said.
    """
    tracing = Tracing(Rehearsal()).start().windows(6).end()
    kept = [
        s for s in tracing.named("costlens.iteration") if s.attributes["costlens.iteration"] == 10
    ]
    assert len(kept) == 1
    attributes = kept[0].attributes or {}
    assert seconds(kept[0]) == (10, 11)
    assert attributes["costlens.reason"] == "sampled"
    assert attributes["costlens.iteration.duration"] == 1.0
    assert attributes["costlens.phase.order"] == "approximate"
    children = [
        (span.name, *seconds(span))
        for span in tracing.spans
        if span.parent is not None and span.parent.span_id == ids(kept[0])[1]
    ]
    assert children == [
        ("costlens.phase.data_wait", 10.0, 10.2),
        ("costlens.phase.forward", 10.2, 10.5),
        ("costlens.phase.backward", 10.5, 10.9),
        ("costlens.phase.optimizer", 10.9, 11.0),
    ]


def test_spans_follow_what_is_asked() -> None:
    """From the window after a request `steps` shows each iteration, `off` none, `normal` as ever.

    The period says what was asked in it, and how many of its iterations have spans.
    """
    tracing = Tracing(Rehearsal()).start()
    for detail in (Detail.STEPS, Detail.OFF, Detail.NORMAL, Detail.NORMAL):
        tracing.run.totals.tune(detail)
        for _ in range(6):
            for _ in range(2):
                tracing.run.step({Phase.FORWARD: 5.0})
            tracing.exporter.export(tracing.run.look())
    tracing.end()
    periods = [dict(span.attributes or {}) for span in tracing.named("costlens.rank.period")]
    assert [period["costlens.detail"] for period in periods[:4]] == [
        "steps",
        "off",
        "off",
        "normal",
    ]
    iterations = tracing.named("costlens.iteration")
    minutes = [int(seconds(span)[0] // 60) for span in iterations]
    assert [minutes.count(minute) for minute in range(4)] == [11, 2, 1, 1]
    assert [period["costlens.iterations.shown"] for period in periods[:4]] == [11, 2, 1, 1]
    reasons = [(span.attributes or {})["costlens.reason"] for span in iterations]
    assert reasons == ["first", *["asked"] * 8, "sampled", *["asked"] * 3, "sampled", "sampled"]


def test_an_hour_of_everything_stays_within_the_limit() -> None:
    """`steps` in a loop of five iterations a second: periods, ranks and bad steps keep their spans.

    No hour holds more than 1500 spans, and none of those that every period needs is missing.
    """
    tracing = Tracing(Rehearsal(), config={"window_s": 60.0}).start()
    tracing.run.totals.tune(Detail.STEPS)
    for minute in range(120):
        for _ in range(300):
            tracing.run.step({Phase.FORWARD: 0.2})
        tracing.run.log(**{f"loss_{minute % 4}": math.nan})
        tracing.exporter.export(tracing.run.look())
    tracing.end()
    starts = [seconds(span)[1] for span in tracing.spans]
    assert (
        max(sum(hour <= at < hour + 3600 for at in starts) for hour in range(0, 7200, 60))
        <= MAX_SPANS_PER_HOUR
    )
    assert len(tracing.named("costlens.period")) == 120
    assert len(tracing.named("costlens.rank.period")) == 120
    assert tracing.exporter.num_spans_dropped == 0
    assert len(tracing.named("costlens.iteration")) > 600


def test_exemplars_point_at_spans_that_exist() -> None:
    """Each exemplar names a span that was handed over, with its duration.

    None is given twice, and none for the first iteration, which the histogram does not hold.
    """
    tracing = Tracing(Rehearsal()).start().windows(2)
    tracing.run.steps(2)
    tracing.run.step(SLOW)
    tracing.windows(5).end()
    exemplars = tracing.exporter.take_exemplars()
    iterations = {
        ids(span): span.attributes["costlens.iteration.duration"]
        for span in tracing.named("costlens.iteration")
    }
    assert {(e.trace_id, e.span_id) for e in exemplars} < set(iterations)
    assert len(exemplars) == len(iterations) - 1
    assert all(iterations[e.trace_id, e.span_id] == e.value for e in exemplars)  # type: ignore[index]
    assert max(e.value for e in exemplars) == pytest.approx(4.6)
    assert tracing.exporter.take_exemplars() == []


def test_an_iteration_belongs_to_the_period_it_began_in() -> None:
    """A slow step that crosses into the next minute is found in the minute it began in.

    On all ranks alike, though the window that reports it began in the next minute on some.
    """
    tracing = Tracing(Rehearsal()).start().windows(5)
    tracing.run.steps(9)
    tracing.run.spend(Phase.DATA_WAIT, 2)  # from 59 to 61 s
    tracing.exporter.export(tracing.run.look())
    tracing.run.step(SLOW)
    tracing.exporter.export(tracing.run.look())
    tracing.windows(1).end()
    (slow,) = [
        span
        for span in tracing.named("costlens.iteration")
        if span.attributes["costlens.reason"] == "slow"
    ]
    assert seconds(slow) == (59, 65.6)
    assert ids(slow)[0] == period_ids("run-a", 1, WALL_NS // (60 * NS_PER_S)).trace_id


def test_a_periods_median_is_its_own() -> None:
    """The durations of a minute are not mixed with those of the minutes before."""
    tracing = Tracing(Rehearsal()).start().windows(6)
    for _ in range(6):
        tracing.run.step({Phase.FORWARD: 10.0})
        tracing.exporter.export(tracing.run.look())
    tracing.end()
    medians = [
        span.attributes["costlens.iteration.duration.median"]
        for span in tracing.named("costlens.rank.period")
    ]
    assert medians == [pytest.approx(1.0, rel=0.01), pytest.approx(10.0, rel=0.01)]


def test_a_process_that_stood_still_leaves_no_orphans() -> None:
    """After ten minutes of SIGSTOP every span still has its parent among those handed over."""
    tracing = Tracing(Rehearsal()).start().windows(3)
    tracing.run.step({Phase.FORWARD: 600})
    tracing.windows(8).end()
    known = {ids(span) for span in tracing.spans}
    for span in tracing.spans:
        assert span.parent is None or (span.parent.trace_id, span.parent.span_id) in known, (
            span.name
        )


def test_periods_are_never_shorter_than_windows() -> None:
    """With windows longer than periods, ranks whose windows begin at other moments still meet."""
    config = {"trace_period_s": 1.0, "window_s": 30.0}
    later = Rehearsal(1, 2, wall_ns=WALL_NS + 3 * NS_PER_S)
    ranks = [Tracing(run, config=config) for run in (Rehearsal(0, 2), later)]
    for tracing in ranks:
        tracing.start().windows(4, steps=30).end()
    roots = [ids(root)[0] for root in ranks[0].named("costlens.period")]
    assert len(roots) == 4
    assert [ids(span)[0] for span in ranks[1].named("costlens.rank.period")] == roots


def test_the_first_value_that_is_not_a_number_is_an_error() -> None:
    """A loss that turns NaN marks its iteration if that was kept, else it is a moment."""
    tracing = Tracing(Rehearsal()).start().windows(1)
    tracing.run.steps(1)  # iteration 10, sampled
    tracing.run.log(loss=math.nan)
    tracing.run.steps(2)
    tracing.run.log(accuracy=math.inf)
    tracing.exporter.export(tracing.run.look())
    tracing.end()
    bad = [s for s in tracing.spans if s.status.status_code is StatusCode.ERROR]
    found = [
        (s.name, s.attributes["costlens.iteration"], s.attributes["costlens.quality.name"])
        for s in bad
    ]
    assert found == [("costlens.iteration", 10, "loss"), ("costlens.nonfinite", 12, "accuracy")]
    assert {s.attributes["error.type"] for s in bad} == {"nonfinite"}
    assert (bad[0].attributes or {})["costlens.reason"] == "nonfinite"


def test_a_resumed_attempt_links_to_the_one_before() -> None:
    """The marker of attempt 2 links to that of attempt 1 and to what launched it."""
    launcher = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    marker = Tracing(Rehearsal(attempt=2), traceparent=launcher).start().one("costlens.run")
    links = {link.attributes["costlens.link"]: link.context for link in marker.links}
    assert set(links) == {"resumed_from", "launched_by"}
    before = links["resumed_from"]
    assert (before.trace_id, before.span_id) == marker_ids("run-a", 1)
    assert links["launched_by"].span_id == 0xB7AD6B7169203331


@pytest.mark.parametrize(
    "launcher", [None, "", "rubbish", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"]
)
def test_a_launcher_without_a_trace_is_no_link(launcher: str | None) -> None:
    """An unreadable or invalid trace context is ignored, as its specification says.

    Even while the host application has a span open.
    """
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("host")
    with tracer.start_as_current_span("host"):
        marker = Tracing(Rehearsal(), traceparent=launcher).start().one("costlens.run")
    assert marker.links == ()
    assert marker.parent is None


def test_an_attempts_end_joins_its_marker() -> None:
    """The end tells outcome and totals in the marker's trace.

    A failure has the status of an error.
    """
    run = Rehearsal(price=PRICE)
    tracing = Tracing(run).start().windows(6)
    run.state.error_type, run.state.exit_code = "RuntimeError", 1
    run.state.signal = "SIGUSR1"
    end = tracing.end(Outcome.FAILED).one("costlens.run.end")
    attributes = end.attributes
    assert ids(end)[0] == marker_ids("run-a", 1).trace_id
    assert end.parent is not None
    assert end.parent.span_id == marker_ids("run-a", 1).span_id
    assert end.status.status_code is StatusCode.ERROR
    assert end.status.description == "RuntimeError"
    assert attributes["costlens.outcome"] == "failed"
    assert attributes["costlens.steps"] == 60
    assert attributes["costlens.run.time"] == 60.0
    assert attributes["costlens.cost"] == pytest.approx(0.06)
    assert attributes["process.exit.code"] == 1
    assert attributes["costlens.process.signal"] == "SIGUSR1"
    assert "costlens.signal" not in attributes, "that is traces, metrics or logs"


def test_only_rank_0_and_failed_ranks_tell_the_end() -> None:
    """A rank that ended well leaves the end to rank 0; one that failed says so itself."""
    assert not Tracing(Rehearsal(1, 2)).start().windows(1).end().named("costlens.run.end")
    failed = [Tracing(Rehearsal(rank, 3)).start().windows(1).end(Outcome.FAILED) for rank in (1, 2)]
    assert len({ids(tracing.one("costlens.run.end")) for tracing in failed}) == 2


def test_a_second_fit_goes_on_in_the_same_attempt() -> None:
    """Starting again under the same run and attempt marks nothing twice.

    A new attempt is marked.
    """
    tracing = Tracing(Rehearsal()).start().windows(1).end()
    tracing.run.state.end_ns = None
    tracing.start().windows(1).end()
    assert len(tracing.named("costlens.run")) == 1
    tracing.run.state.number = 2
    tracing.start()
    assert len(tracing.named("costlens.run")) == 2


def test_an_empty_last_window_makes_no_trace() -> None:
    """A run that ends exactly with a minute has no trace for a minute in which nothing happened."""
    tracing = Tracing(Rehearsal()).start().windows(6).end()
    assert len(tracing.named("costlens.period")) == 1


def test_no_hour_has_more_spans_than_allowed() -> None:
    """A run in which every third iteration is slow stays under 1500 spans an hour (law 5).

    It still shows every minute.
    """
    tracing = Tracing(Rehearsal()).start()
    for _ in range(3 * 360):
        for _ in range(3):
            tracing.run.steps(2)
            tracing.run.step({phase: 5 * usual for phase, usual in USUAL.items()})
        tracing.exporter.export(tracing.run.look())
    per_hour: dict[float, int] = {}
    for span in tracing.spans:
        hour = seconds(span)[1] // 3600
        per_hour[hour] = per_hour.get(hour, 0) + 1
    assert len(per_hour) > 3
    assert max(per_hour.values()) <= MAX_SPANS_PER_HOUR
    minutes = {seconds(span)[0] // 60 for span in tracing.named("costlens.rank.period")}
    assert len(minutes) >= tracing.run.now_ns // (60 * NS_PER_S) - MONO_NS // (60 * NS_PER_S) - 2
    assert tracing.exporter.num_spans_dropped == 0


def test_spans_over_the_limit_are_counted() -> None:
    """A period of a second makes more spans than an hour may have.

    The rest is dropped and counted.
    """
    tracing = Tracing(Rehearsal(), config={"trace_period_s": 1.0, "window_s": 1.0}).start()
    tracing.windows(600, steps=1)
    assert len(tracing.spans) <= MAX_SPANS_PER_HOUR
    assert tracing.exporter.num_spans_dropped > 0


def test_of_many_ranks_some_trace_each_period() -> None:
    """Above 256 ranks a rank traces in some periods only.

    In the others it gives no exemplar that would point nowhere, and rank 0 still writes the root.
    """
    shown = {}
    for rank in (0, 1, 2, 3):
        tracing = Tracing(Rehearsal(rank, 1024)).start().windows(6 * 60)
        shown[rank] = len(tracing.named("costlens.rank.period"))
        spans = {ids(span) for span in tracing.spans}
        assert {(e.trace_id, e.span_id) for e in tracing.exporter.take_exemplars()} <= spans
        assert len(tracing.named("costlens.period")) == (59 if rank == 0 else 0)
    assert 0 < sum(shown.values()) < 4 * 59 / 4


def test_log_lines_can_name_the_present_period() -> None:
    """The ids for log lines are those of the span that the window under way will be part of."""
    tracing = Tracing(Rehearsal(1, 2))
    assert tracing.exporter.current_ids() is None
    tracing.start()
    named = []
    for _ in range(8):  # windows of 10 s, periods of 60
        named.append(tracing.exporter.current_ids() or ("", ""))
        tracing.windows(1)
    tracing.end()
    spans = [ids(span) for span in tracing.named("costlens.rank.period")]
    assert len(spans) == 2
    found = [(int(trace_id, 16), int(span_id, 16)) for trace_id, span_id in named]
    assert found == [spans[0]] * found.count(spans[0]) + [spans[1]] * found.count(spans[1])
    assert all(found.count(span) for span in spans)


def test_a_line_at_the_turn_of_a_minute_names_a_span_that_is_sent() -> None:
    """What is said after the minute has turned, in the run's last window, finds its trace."""
    tracing = Tracing(Rehearsal(0, 1)).start().windows(5)
    tracing.run.steps(25)  # the last window begins in one minute and ends in the next
    named = tracing.exporter.current_ids()
    tracing.end()
    trace_id, span_id = named or ("", "")
    spans = {ids(span) for span in tracing.named("costlens.rank.period")}
    assert (int(trace_id, 16), int(span_id, 16)) in spans


@pytest.mark.parametrize("sampler", ["traceidratio", "parentbased_traceidratio"])
def test_sampling_follows_the_hosts_variables(
    monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    """OTEL_TRACES_SAMPLER decides by trace id, so ranks keep and drop the same periods.

    No exemplar points at a span that was not sampled.
    """
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    ranks = [Tracing(Rehearsal(rank, 2)).start().windows(6 * 20) for rank in (0, 1)]
    traces = [{ids(span)[0] for span in r.spans if "rank" in span.name} for r in ranks]
    assert traces[0] == traces[1]
    assert 2 < len(traces[0]) < 18
    spans = {ids(span) for ranked in ranks for span in ranked.spans}
    for ranked in ranks:
        assert {(e.trace_id, e.span_id) for e in ranked.exporter.take_exemplars()} <= spans


def test_batches_are_small() -> None:
    """Many spans leave in batches of at most 64: encoding more at once holds up the training."""
    outbox = Outbox()
    spans = OwnSpans(outbox)  # type: ignore[arg-type]
    spans.open(Rehearsal().look().record)
    for number in range(150):
        spans.write(Draft("x", Ids(1, number + 1), 1, 2, {}))
    assert outbox.batches == []
    spans.flush()
    assert [num_items for _, _, num_items in outbox.batches] == [64, 64, 22]
    spans.flush()
    assert len(outbox.batches) == 3


def test_the_private_provider_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tracer provider of ours lives on: each fork of the process would make it start threads."""
    made: list[weakref.ref[TracerProvider]] = []
    make = TracerProvider.__init__

    def note(self: TracerProvider, *args: Any, **kwargs: Any) -> None:
        made.append(weakref.ref(self))
        make(self, *args, **kwargs)

    monkeypatch.setattr(TracerProvider, "__init__", note)
    tracing = Tracing(Rehearsal()).start().windows(7)
    gc.collect()
    assert made
    assert [provider() for provider in made] == [None] * len(made)
    assert tracing.named("costlens.period")


@pytest.fixture
def global_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the global tracer provider, and put it back afterwards."""
    monkeypatch.setattr(api, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(api, "_TRACER_PROVIDER_SET_ONCE", Once())


def test_a_host_without_a_provider_stays_without(
    global_tracer: None, caplog: pytest.LogCaptureFixture
) -> None:
    """C093: looking for a provider and tracing sets none, and the user can still set theirs."""
    assert host_spans() is None
    tracing = Tracing(Rehearsal()).start().windows(7)
    assert tracing.spans
    assert api._TRACER_PROVIDER is None
    provider = TracerProvider(shutdown_on_exit=False)
    with caplog.at_level(logging.WARNING):
        api.set_tracer_provider(provider)
    assert api.get_tracer_provider() is provider
    assert not caplog.records


def test_a_hosts_provider_writes_the_spans(global_tracer: None) -> None:
    """C093, the other order.

    Spans go through the host's provider under its own ids; the hashed id of the trace is an
    attribute of each root, the tree and the link to the marker stay.
    """
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    api.set_tracer_provider(provider)
    spans = host_spans()
    assert isinstance(spans, HostSpans)
    tracing = Tracing(Rehearsal(), spans).start().windows(7).end()
    assert tracing.outbox.batches == []
    found = {span.name: span for span in memory.get_finished_spans()}
    marker, root = found["costlens.run"], found["costlens.period"]
    key = f"{marker_ids('run-a', 1).trace_id:032x}"
    assert marker.attributes["costlens.trace.key"] == key
    assert ids(marker) != marker_ids("run-a", 1)
    assert ids(found["costlens.run.end"])[0] == ids(marker)[0]
    assert ids(found["costlens.rank.period"])[0] == ids(root)[0]
    assert [link.context.span_id for link in root.links] == [ids(marker)[1]]
    assert tracing.exporter.current_ids() is None
    provider.shutdown()


def test_ranks_under_a_hosts_provider_share_a_key(global_tracer: None) -> None:
    """A rank other than 0 cannot join under a host's ids: its spans are roots with the same key."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    Tracing(Rehearsal(1, 2), HostSpans(provider)).start().windows(7)
    (rank,) = [s for s in memory.get_finished_spans() if s.name == "costlens.rank.period"]
    number = WALL_NS // (60 * NS_PER_S)
    assert rank.parent is None
    assert rank.attributes["costlens.trace.key"] == (
        f"{period_ids('run-a', 1, number).trace_id:032x}"
    )
    provider.shutdown()
