"""The span of a run's end carries its last words, and nothing that may be a secret."""

from __future__ import annotations

from costlens.core.trouble_records import LastWordsPart
from costlens.export.otel_drafts import end_draft
from tests.unit.account.build import make_record

END_NS = 1_760_000_100_000_000_000


def test_a_bad_end_is_described_by_its_span() -> None:
    """Outcome, signal, place, kills, what was not finite and where the collectives are."""
    words = LastWordsPart(
        error_type="ValueError",
        exit_code=1,
        signal="SIGTERM",
        stack=["train.py:3 step", "train.py:9 main"],
        oom_kills=0,
        nonfinite="loss",
        nonfinite_iteration=7,
        flight_recorder="/scratch/trace_0",
    )
    record = make_record(outcome="preempted", last_words=words)
    attempt = record.attempt.model_copy(update={"signal": "SIGTERM", "exit_code": 1})
    draft = end_draft(record.model_copy(update={"attempt": attempt}), END_NS, None)
    expected = {
        "costlens.outcome": "preempted",
        "costlens.process.signal": "SIGTERM",
        "process.exit.code": 1,
        "costlens.error.location": "train.py:3 step",
        "costlens.oom_kills": 0,
        "costlens.nonfinite.name": "loss",
        "costlens.nonfinite.iteration": 7,
        "costlens.flight_recorder": "/scratch/trace_0",
    }
    assert {name: draft.attributes[name] for name in expected} == expected
    assert draft.attributes["costlens.gpu.xid"] is None, "unknown is left out, not zero"


def test_a_good_end_has_no_last_words_in_its_span() -> None:
    """No attribute of theirs is there at all."""
    draft = end_draft(make_record(outcome="completed"), END_NS, None)
    assert "costlens.oom_kills" not in draft.attributes
    assert draft.attributes["costlens.process.signal"] is None
