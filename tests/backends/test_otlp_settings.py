"""What the OTEL_* variables switch on, and with which values."""

from __future__ import annotations

import pytest

from costlens.export.otel_settings import SIGNALS, parse_settings

BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
OTLP = "OTEL_EXPORTER_OTLP_"


@pytest.mark.parametrize(
    ("environ", "signals"),
    [
        ({}, set()),
        (BASE, {"traces", "metrics"}),
        ({OTLP + "ENDPOINT": "  "}, set()),
        ({OTLP + "TRACES_ENDPOINT": "http://collector/t"}, {"traces"}),
        ({OTLP + "LOGS_ENDPOINT": "http://collector/l"}, set()),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, {"metrics"}),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, {"traces"}),
        ({**BASE, "OTEL_LOGS_EXPORTER": "otlp"}, set(SIGNALS)),
        ({**BASE, "OTEL_TRACES_EXPORTER": "none"}, {"metrics"}),
        ({**BASE, "OTEL_METRICS_EXPORTER": "prometheus"}, {"traces"}),
        ({**BASE, "OTEL_TRACES_EXPORTER": ""}, {"traces", "metrics"}),
        ({**BASE, "OTEL_LOGS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}, set()),
        ({**BASE, "OTEL_SDK_DISABLED": "false"}, {"traces", "metrics"}),
    ],
)
def test_signals_are_on_only_when_configured(environ: dict[str, str], signals: set[str]) -> None:
    """A signal needs an endpoint or an exporter named otlp; logs need the latter; none is off."""
    settings = parse_settings(environ)
    assert set(settings.signals) == signals
    assert settings.problems == ()


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({}, "http/protobuf"),
        ({OTLP + "PROTOCOL": "grpc"}, "grpc"),
        ({OTLP + "PROTOCOL": "grpc", OTLP + "TRACES_PROTOCOL": "http/protobuf"}, "http/protobuf"),
        ({"OTEL_TRACES_EXPORTER": "otlp_proto_grpc"}, "grpc"),
    ],
)
def test_protocol_of_the_signal_beats_the_general_one(
    environ: dict[str, str], protocol: str
) -> None:
    """HTTP is the default; general variable, signal's own and exporter's name change it."""
    assert parse_settings({**BASE, **environ}).signals["traces"].protocol == protocol


@pytest.mark.parametrize(
    ("value", "timeout_s"),
    [("", 5.0), ("10000", 10.0), ("2500", 2.5), ("100", 0.1), ("10", 10.0), ("0.5", 0.5)],
)
def test_timeout_is_read_in_milliseconds_and_in_the_sdks_seconds(
    value: str, timeout_s: float
) -> None:
    """The specification says ms, the Python SDK s; each usual value gets the meant meaning."""
    settings = parse_settings({**BASE, OTLP + "TIMEOUT": value})
    assert settings.signals["metrics"].timeout_s == timeout_s


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        (OTLP + "TIMEOUT", "10s", "number of milliseconds > 0"),
        (OTLP + "TRACES_TIMEOUT", "-1", "number of milliseconds > 0"),
        (OTLP + "TIMEOUT", "nan", "number of milliseconds > 0"),
        (OTLP + "PROTOCOL", "http/json", "http/protobuf or grpc"),
        (OTLP + "METRICS_COMPRESSION", "zstd", "none, gzip or deflate"),
    ],
)
def test_bad_value_is_one_problem_and_the_default(variable: str, value: str, allowed: str) -> None:
    """A value that cannot be used is named once with what is allowed, and its default is used."""
    settings = parse_settings({**BASE, variable: value})
    (problem,) = settings.problems
    assert problem.startswith(variable)
    assert value in problem
    assert allowed in problem
    usual = parse_settings(BASE)
    assert settings.signals == usual.signals


def test_endpoint_without_scheme_is_a_problem_over_http_only() -> None:
    """A bare host:port cannot be used over HTTP, which is said with the way out; gRPC takes it."""
    bare = {OTLP + "ENDPOINT": "collector:4317"}
    (problem,) = parse_settings(bare).problems
    assert "http://" in problem
    assert "PROTOCOL=grpc" in problem
    settings = parse_settings({**bare, OTLP + "PROTOCOL": "grpc"})
    assert settings.problems == ()
    assert settings.signals["traces"].target == "collector:4317"


@pytest.mark.parametrize(
    ("endpoint", "insecure"),
    [("http://c:4317", True), ("https://c:4317", False), ("HTTPS://c", False), ("c:4317", None)],
)
def test_scheme_decides_about_tls(endpoint: str, insecure: bool | None) -> None:
    """C091: http:// is plaintext, https:// TLS, whatever INSECURE says; a bare port asks it."""
    environ = {OTLP + "ENDPOINT": endpoint, OTLP + "PROTOCOL": "grpc"}
    for said in ("true", "false"):
        settings = parse_settings({**environ, OTLP + "INSECURE": said})
        assert settings.signals["traces"].insecure is insecure


def test_headers_are_decoded_and_bad_ones_named_by_position_only() -> None:
    """C090: spaces, `=` and percent codes arrive as meant; a bad entry is not repeated anywhere."""
    text = (
        "Authorization=Bearer abc, k=p@ss%2Cword,basic=Basic eA==,both=a b%20c,,s3cret,x=s3%0Acret"
    )
    settings = parse_settings({**BASE, OTLP + "HEADERS": text})
    assert settings.signals["traces"].headers == {
        "authorization": "Bearer abc",
        "k": "p@ss,word",
        "basic": "Basic eA==",
        "both": "a b c",
    }
    assert [p.partition(" is not")[0] for p in settings.problems] == [
        "OTEL_EXPORTER_OTLP_HEADERS: entry 6",
        "OTEL_EXPORTER_OTLP_HEADERS: entry 7",
    ]
    assert "s3" not in repr(settings)
    assert "abc" not in repr(settings)


def test_signals_own_headers_replace_the_general_ones() -> None:
    """The specification gives the signal's variable the last word; nothing is merged."""
    environ = {**BASE, OTLP + "HEADERS": "a=1", OTLP + "METRICS_HEADERS": "b=2"}
    signals = parse_settings(environ).signals
    assert signals["traces"].headers == {"a": "1"}
    assert signals["metrics"].headers == {"b": "2"}


def test_target_shows_no_credentials() -> None:
    """What is shown of an endpoint is host and port; user, password, path and query stay out."""
    settings = parse_settings({OTLP + "ENDPOINT": "https://user:s3cret@c:4318/t0ken?key=s3cret"})
    assert settings.signals["traces"].target == "c:4318"
    assert "s3cret" not in repr(settings)
