"""Every cause has a section that its findings point to."""

from __future__ import annotations

import re
from pathlib import Path

from costlens.diagnose.causes import CAUSES
from costlens.diagnose.job import JOB_RULES
from costlens.diagnose.rules import RULES

PAGE = Path(__file__).parents[2] / "docs" / "findings.md"
RUNBOOK = PAGE.parents[1] / "grafana" / "runbook.md"


def test_every_cause_has_a_section() -> None:
    """A finding's `runbook` is the anchor of a section in docs/findings.md, one for each cause."""
    sections = re.findall(r"^#{2,3} ([a-z_]+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(sections) == sorted(CAUSES)


def test_every_rule_finds_a_known_cause() -> None:
    """What a rule finds has words for people, and a section."""
    assert {rule.name for rule in (*RULES, *JOB_RULES)} <= CAUSES.keys()


def test_alerts_that_the_page_names_exist() -> None:
    """Whoever follows it to the alerts' runbook finds the section there."""
    named = set(re.findall(r"Costlens[A-Z]\w+", PAGE.read_text(encoding="utf-8")))
    sections = set(re.findall(r"^## (\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= sections
