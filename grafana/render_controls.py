"""What stands above the panels of a page: variables, annotations, links to the other pages."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard as models

from grafana.dashboard import Dashboard
from grafana.names import select
from grafana.queries import RANK, RUN, THE_RUN
from grafana.render_parts import SOURCES, refer
from grafana.settings import SETTINGS

__all__ = ["TAG", "links", "marks", "variables"]

TAG = "costlens"
"""Links between the dashboards find them by it."""


def variables(page: Dashboard) -> list[Any]:
    """Return data sources, team, run and rank."""
    labels = {"prometheus": "Metrics", "tempo": "Traces", "loki": "Logs"}
    sources = [
        builders.DatasourceVariable(SOURCES[kind]).label(label).type(kind)
        for kind, label in labels.items()
    ]
    info = select("costlens.run.info")
    of_team = select("costlens.run.info", SETTINGS.team)
    of_run = select("costlens.run.info", THE_RUN)
    newest_first = models.VariableSort.ALPHABETICAL_DESC
    team = _query_variable("team", f"label_values({info}, costlens_team)")
    run = _query_variable("run", f"label_values({of_team}, {RUN})").sort(newest_first)
    if page.scope == "runs":
        return [*sources, _many(team), _many(run)]
    rank = _query_variable("rank", f"label_values({of_run}, {RANK})")
    rank.sort(models.VariableSort.NUMERICAL_ASC)
    return [*sources, _many(team), run, _many(rank)]


def _query_variable(name: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(name.capitalize())
        .datasource(refer("prometheus"))
        .query({"query": query, "refId": name, "qryType": 1})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
    )


def _many(variable: builders.QueryVariable) -> builders.QueryVariable:
    everything = models.VariableOption(selected=True, text=["All"], value=["$__all"])
    # ".*" also fits what has no such label, and no list of ten thousand ranks is sent.
    return variable.multi(True).include_all(True).all_value(".*").current(everything)


def marks(page: Dashboard) -> list[Any]:
    """Return marks of what happens to one run."""
    if page.scope == "runs":
        return []
    starting = select(
        "costlens.run.state", THE_RUN, 'costlens_rank="0"', 'costlens_state="starting"'
    )
    errors = select("hw.errors", THE_RUN, 'error_type=~"uncorrected|xid|row_remap_failure"')
    return [
        _annotation("attempts", "An attempt starts", "blue", f"{starting} == 1", RUN),
        _annotation(
            "GPU errors",
            "GPU {{hw_id}}: {{error_type}}",
            "red",
            f"increase({errors}[$__rate_interval]) > 0",
            RANK,
        ),
    ]


def _annotation(name: str, title: str, colour: str, query: str, tag: str) -> Any:
    return (
        builders.AnnotationQuery()
        .name(name)
        .datasource(refer("prometheus"))
        .enable(True)
        .icon_color(colour)
        .expr(query)
        .title_format(title)
        .tag_keys(tag)
    )


def links() -> Any:
    """Return links to the other pages, which keep run and time."""
    return (
        builders.DashboardLink(TAG)
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .include_vars(True)
        .keep_time(True)
        .as_dropdown(False)
        .target_blank(False)
    )
