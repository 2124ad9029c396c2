"""Every query of every panel has data in real back-ends: nothing is renamed behind its back."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import yaml

from grafana.alerts.catalogue import ALERTS
from grafana.alerts.render import fill as fill_rule
from tests.backends import test_rules_have_data as rules
from tests.backends.page_data import RUNS, PageData, page_data
from tests.backends.short_windows import SHORT as SHORT_WINDOWS
from tests.dashboards import Query, fill, queries
from tests.fixtures_backends import Backends

__all__ = ["page_data"]

# A training of seconds is looked at through windows of seconds.
SHORT = {"__rate_interval": "10s", "__range": "60s", "__interval": "1s"}
RUN = '{costlens_run_id="run-a", costlens_rank="0"}'


@dataclass(frozen=True)
class Absent:
    """A query that needs what neither run has, with a series it finds.

    Args:
        metric: What it asks for.
        page: The page it stands on.
        why: What is missing on a machine of a test.
        series: Series for promtool, all of which grow by 3 in a quarter of a minute.
        labels: Labels of what the query gives then.
        value: Its value.
    """

    metric: str
    page: str
    why: str
    series: tuple[str, ...]
    labels: str
    value: float


def _of_rank(metric: str, page: str, why: str, value: float, labels: str = "{}") -> Absent:
    return Absent(metric, page, why, (f"{metric}{RUN}",), labels, value)


GROUP, RANK = "a control group with limits", '{costlens_rank="0"}'
ABSENT = (
    _of_rank("costlens_mfu_ratio", "costlens-run", "a GPU whose peak is known", 120, RANK),
    Absent(
        "costlens_mfu_ratio",
        "costlens-runs",
        "a GPU whose peak is known",
        (f"costlens_mfu_ratio{RUN}", f"costlens_run_info{RUN}"),
        '{costlens_run_id="run-a"}',
        120,
    ),
    _of_rank("costlens_precision_loss_scale", "costlens-run", "a GPU that computes in fp16", 120),
    _of_rank("container_cpu_time_seconds_total", "costlens-hardware", GROUP, 0.2, RANK),
    _of_rank("costlens_container_cpu_limit", "costlens-hardware", GROUP, 120),
    _of_rank(
        "costlens_container_cpu_throttled_time_seconds_total", "costlens-hardware", GROUP, 0.2, RANK
    ),
    _of_rank("container_memory_usage_bytes", "costlens-hardware", GROUP, 120, RANK),
    _of_rank("container_memory_available_bytes", "costlens-hardware", GROUP, 120, RANK),
    Absent(
        "costlens_infiniband_io_bytes_total",
        "costlens-hardware",
        "an InfiniBand port",
        (f'costlens_infiniband_io_bytes_total{RUN[:-1]}, network_io_direction="receive"}}',),
        '{network_io_direction="receive"}',
        0.2,
    ),
)
PROMQL = [query for query in queries() if query.language == "promql"]
ANNOTATIONS = [query for query in PROMQL if query.panel.startswith("annotation ")]


def find_absent(query: Query) -> Absent | None:
    """Return why a query may be empty here, None where it must have data."""
    for absent in ABSENT:
        if absent.page == query.page and f"{absent.metric}{{" in query.text:
            return absent
    return None


def in_short(query: Query, run: str) -> str:
    """Return a query for a run of seconds."""
    return fill(query.text, run=run, **SHORT).replace(":1m]", ":1s]")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_query_has_data(backends: Backends, page_data: PageData | None) -> None:
    """C147: pushed by OTLP, or scraped: each query of each panel finds series of a real run."""
    assert page_data is not None
    for server in page_data.servers:
        assert not page_data.has_data(server, "costlens_run_staet")
        empty = [
            f"{query.place}: {query.text}"
            for query in PROMQL
            if query not in ANNOTATIONS and find_absent(query) is None
            if not any(page_data.has_data(server, in_short(query, run)) for run in RUNS)
        ]
        assert not empty, f"{server}:\n" + "\n".join(empty)


def test_few_queries_need_something_absent() -> None:
    """What a test's machine lacks is listed, each entry for one query, and the list is short."""
    listed = [absent for query in PROMQL if (absent := find_absent(query))]
    assert len(listed) == len(set(map(id, listed))) == len(ABSENT)
    assert len(ABSENT) + len(rules.ABSENT) <= 10


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_rules_about_reads_have_data_where_files_are_read(
    backends: Backends, page_data: PageData | None
) -> None:
    """What the demo has no series of, a run that reads through ``run.filesystem`` has."""
    assert page_data is not None
    judged = [alert for alert in ALERTS if alert.name in rules.ELSEWHERE]
    assert len(judged) == len(rules.ELSEWHERE) > 0
    for alert in judged:
        for server in page_data.servers:
            assert page_data.has_data(server, fill_rule(alert.value, SHORT_WINDOWS)), server


@pytest.mark.parametrize("absent", ABSENT, ids=lambda absent: f"{absent.page} {absent.metric}")
def test_an_absent_one_would_be_found(backends: Backends, absent: Absent) -> None:
    """With series of what is missing here, the query gives what it should."""
    (query,) = (query for query in PROMQL if find_absent(query) is absent)
    _check(backends, fill(query.text), absent.series, absent.labels, absent.value)


@pytest.mark.parametrize("query", ANNOTATIONS, ids=lambda query: query.place)
def test_annotations_mark_what_happens(backends: Backends, query: Query) -> None:
    """An attempt that starts and an error of a GPU are marked."""
    if "hw_errors" in query.text:
        labels = 'costlens_run_id="run-a", costlens_rank="0", hw_id="GPU-1", error_type="xid"'
        _check(backends, fill(query.text), (f"hw_errors_total{{{labels}}}",), f"{{{labels}}}", 60)
        return
    labels = '{costlens_run_id="run-a", costlens_rank="0", costlens_state="starting"}'
    name = "costlens_run_state"
    _check(backends, fill(query.text), (f"{name}{labels}",), name + labels, 1, values="1x80")


def _check(
    backends: Backends,
    query: str,
    series: tuple[str, ...],
    labels: str,
    value: float,
    values: str = "0+3x80",
) -> None:
    """Let promtool ask a query after ten minutes of series."""
    test = {
        "interval": "15s",
        "input_series": [{"series": each, "values": values} for each in series],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "10m",
                "exp_samples": [{"labels": labels, "value": value}],
            }
        ],
    }
    path = backends.folder / "absent.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [], "tests": [test]}))
    backends.promtool("test", "rules", path)
