"""Rules stand whatever a record leaves out or says: what is missing is no error, and never 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from costlens.core.finding_records import FindingPart
from costlens.core.phases import Phase
from costlens.core.records import RankRecord
from costlens.diagnose.evidence import Evidence
from costlens.diagnose.job import JOB_RULES
from costlens.diagnose.job_evidence import JobEvidence
from costlens.diagnose.job_judge import judge_job
from costlens.diagnose.rules import RULES
from costlens.export.run_findings import find_causes
from tests.unit.export.rehearsal import complete

SLOW = {Phase.DATA_WAIT: 0.5, Phase.FORWARD: 0.4, Phase.CALLBACKS: 0.2, Phase.LOGGING: 0.2}
# What pydantic accepts in the place of a number or a part.
ODD_NUMBERS = (0, 1, 10**9)


@pytest.fixture(scope="module")
def windows() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two records of a rank that tell everything, as JSON, a window apart."""
    run = complete()
    before = run.look().record
    for _ in range(50):
        run.step(SLOW)
        run.spend(Phase.VALIDATION, 0.2)
        run.spend(Phase.CHECKPOINT, 0.2)
    now = run.look().record
    return json.loads(before.model_dump_json()), json.loads(now.model_dump_json())


def variants(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each place of a document with what could stand there instead."""
    items: Any = ()
    if isinstance(document, dict):
        items = document.items()
    elif isinstance(document, list):
        items = enumerate(document[:1])
    for key, value in items:
        place = (*path, key)
        yield place, None
        if isinstance(value, (dict, list)):
            yield place, type(value)()
            yield from variants(value, place)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            for odd in ODD_NUMBERS:
                yield place, odd


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> RankRecord | None:
    """Return the record with another value in one place; None where no record may say that."""
    copy = json.loads(json.dumps(document))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    try:
        return RankRecord.model_validate(copy)
    except ValidationError:
        return None


def test_no_rule_stumbles_over_what_a_record_may_say(
    windows: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """Each field absent, empty, 0, 1 and huge: in the newer record, the older, and the only one.

    Faults of rules are raised in tests; shares stay within 0 and 1, and records can hold them.
    """
    first, last = (RankRecord.model_validate(each) for each in windows)
    num_tried = 0
    for path, value in variants(windows[1]):
        if path[0] in {"run", "attempt", "schema_version", "telemetry", "quality"}:
            continue
        odd = replaced(windows[1], path, value)
        if odd is None:
            continue
        num_tried += 1
        for evidence in (Evidence(odd, first), Evidence(last, odd), Evidence(odd)):
            other = last.model_copy(update={"rank": last.rank.model_copy(update={"rank": 1})})
            job = JobEvidence((evidence, Evidence(other)))
            for each in judge_job(job, RULES, JOB_RULES).findings:
                assert each.share is None or 0 <= each.share <= 1, (path, value, each)
        for part in find_causes([odd])["findings"]:
            FindingPart.model_validate_json(part.model_dump_json(), strict=True)
    assert num_tried > 500
