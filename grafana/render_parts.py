"""What pages and panels have in common in Grafana's model: data sources, thresholds, words."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

__all__ = ["SOURCES", "map_texts", "refer", "thresholds"]

SOURCES = {"prometheus": "datasource", "tempo": "traces", "loki": "logs"}
"""The variable that holds each kind of data source."""

_OK, _BAD = "green", "red"


def refer(kind: str) -> common.DataSourceRef:
    """Return a reference to the variable of a kind of data source."""
    return common.DataSourceRef(type_val=kind, uid=f"${{{SOURCES[kind]}}}")


def thresholds(limit: float | None, *, is_bad_below: bool) -> builders.ThresholdsConfig:
    """Return what is green and what is red; all is green without a limit."""
    steps = [models.Threshold(value=None, color=_OK)]
    if limit is not None:
        first, second = (_BAD, _OK) if is_bad_below else (_OK, _BAD)
        steps = [models.Threshold(value=None, color=first), models.Threshold(limit, second)]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def map_texts(texts: Mapping[int, tuple[str, str]]) -> models.ValueMap:
    """Return the word and the colour of each number."""
    return models.ValueMap(
        options={
            str(number): models.ValueMappingResult(text=text, color=colour, index=number)
            for number, (text, colour) in texts.items()
        }
    )
