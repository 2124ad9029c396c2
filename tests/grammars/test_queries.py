"""Every query that is shipped is understood by the grammar of its language."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files

import pytest
import yaml

from tests.dashboards import fill, queries
from tests.grammars.grammars import complaints, missing


@pytest.fixture(autouse=True)
def _needs_grammars(require: Callable[[str, bool, str], None]) -> None:
    require("grammars", not missing(), missing())


def test_every_query_of_every_panel_is_understood() -> None:
    """PromQL, LogQL and TraceQL of the dashboards parse without a complaint."""
    asked = list(queries())
    found = complaints([(query.language, fill(query.text)) for query in asked])
    wrong = {
        query.place: complaint for query, complaint in zip(asked, found, strict=True) if complaint
    }
    assert not wrong
    assert {query.language for query in asked} == {"promql", "logql", "traceql"}


def test_queries_of_the_data_sources_are_understood() -> None:
    """What a span leads to, metrics and logs, parses as well."""
    tree = files("costlens") / "data" / "grafana" / "provisioning" / "datasources"
    document = yaml.safe_load((tree / "costlens.yaml").read_text("utf-8"))
    tempo = next(s for s in document["datasources"] if s["type"] == "tempo")["jsonData"]
    asked = [
        ("promql", fill(q["query"].replace("$$", "$"))) for q in tempo["tracesToMetrics"]["queries"]
    ]
    of_span = re.sub(r"\$\$\{[^}]*\}", "value", tempo["tracesToLogsV2"]["query"])
    asked.append(("logql", of_span))
    assert complaints(asked) == [[]] * len(asked)


@pytest.mark.parametrize(
    ("language", "query"),
    [
        ("promql", "sum by (costlens_rank (up)"),
        ("promql", 'costlens_phase_time_seconds_total{costlens_phase="forward"'),
        ("promql", "rate(up[5 minutes])"),
        ("promql", "sum(rate(up[5m]) / )"),
        ("logql", '{service_name="x"} | event_name=~'),
        ("logql", 'sum by (event_name) (count_over_time({service_name="x"}))'),
        ("logql", '{service_name="x" | costlens_rank="0"'),
        ("traceql", '{ name = "costlens.iteration" && }'),
        ("traceql", '{ name = "costlens.iteration" | select(duration)'),
        ("traceql", "{ duration > 1.5 seconds } | by resource.x)"),
    ],
)
def test_broken_queries_are_refused(language: str, query: str) -> None:
    """The grammars do find mistakes: else the tests above would prove nothing."""
    assert complaints([(language, query)]) != [[]]
