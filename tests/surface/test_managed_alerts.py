"""Alerts that Grafana evaluates itself say what the rules of Prometheus say."""

from __future__ import annotations

import re

import yaml

from costlens.cli.grafana import read_files
from grafana.settings import SETTINGS

FILES = read_files()
MANAGED = yaml.safe_load(FILES["provisioning/alerting/costlens.yaml"])
RULES = yaml.safe_load(FILES["prometheus/rules/costlens-alerts.yaml"])
OURS = {rule["title"]: rule for group in MANAGED["groups"] for rule in group["rules"]}
THEIRS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}


def test_every_alert_is_there_with_its_condition() -> None:
    """Same queries, same times to hold, same labels: the choice is who evaluates, not what."""
    assert set(OURS) == set(THEIRS)
    assert OURS
    for name, rule in OURS.items():
        query, has_result, condition = rule["data"]
        assert query["model"]["expr"] == THEIRS[name]["expr"], name
        assert query["datasourceUid"] == SETTINGS.sources.prometheus
        assert query["model"]["instant"]
        assert "$A" in has_result["model"]["expression"]
        assert condition["model"]["expression"] == has_result["refId"] == "B"
        assert rule["condition"] == condition["refId"]
        assert rule["for"] == THEIRS[name].get("for", "0s"), name
        assert rule["labels"] == THEIRS[name]["labels"], name


def test_texts_are_the_same_in_grafanas_words() -> None:
    """Grafana's `$value` describes all queries, and `$` in a file is its environment: neither."""
    for name, rule in OURS.items():
        assert rule["annotations"].keys() == THEIRS[name]["annotations"].keys()
        for key, text in rule["annotations"].items():
            assert "$" not in text, name
            back = text.replace(".Values.A.Value", "$value").replace(".Labels.", "$labels.")
            assert back == THEIRS[name]["annotations"][key]


def test_silence_is_no_alert() -> None:
    """A query without a result is all well, an error is not; uids are short enough and unique."""
    assert {rule["noDataState"] for rule in OURS.values()} == {"OK"}
    assert {rule["execErrState"] for rule in OURS.values()} == {"Error"}
    uids = [rule["uid"] for rule in OURS.values()]
    assert len(uids) == len(set(uids))
    assert all(re.fullmatch(r"[a-z0-9_-]{1,40}", uid) for uid in uids)
