"""What is known of a bad end, from the inside and from a witness."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from costlens.core.attempt_state import AttemptState
from costlens.core.clock import Anchor
from costlens.core.records import Outcome, RankPart, RunPart
from costlens.core.training_records import QualityPart
from costlens.core.trouble_records import OomPart
from costlens.observe import oom
from costlens.observe.last_words import gather_last_words, witness_end
from costlens.observe.placement.flight_recorder import find_dump
from costlens.observe.process import pid_space, start_ticks
from tests.unit.account.build import START, make_record


def _state(outcome: str, **more: object) -> AttemptState:
    state = AttemptState(
        run=RunPart(id="run", name="run", costlens_version="0"),
        rank=RankPart(rank=3, host_name="host", pid=1),
        anchor=Anchor(wall_ns=int(START * 1e9), mono_ns=0),
        start_ns=0,
        outcome=Outcome(outcome),
    )
    for name, value in more.items():
        setattr(state, name, value)
    return state


@pytest.mark.parametrize("outcome", ["completed", "stopped_early", "running"])
def test_a_good_end_needs_no_last_words(outcome: str) -> None:
    """They are for those who look for the cause."""
    assert gather_last_words(_state(outcome), {"loss": 3}) is None


def test_everything_that_is_known_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Type, code, signal, place, kills in the cgroup, and what was not finite first."""
    monkeypatch.setattr(oom, "_ROOT", tmp_path)
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 7\n")
    state = _state(
        "failed",
        error_type="RuntimeError",
        exit_code=1,
        signal="SIGTERM",
        error_stack=tuple(f"train.py:{line} step" for line in range(40)),
        oom=OomPart(path=str(events), start_count=5, count=5),
    )
    words = gather_last_words(state, {"val_loss": None, "grad_norm": 12, "loss": 9})
    assert words is not None
    assert (words.error_type, words.exit_code, words.signal) == ("RuntimeError", 1, "SIGTERM")
    assert words.oom_kills == 2
    assert (words.nonfinite, words.nonfinite_iteration) == ("loss", 9)
    assert words.stack[0] == "train.py:0 step"
    assert len(words.stack) == 12
    assert words.xid is None


def test_what_is_not_known_is_absent() -> None:
    """No cgroup is not zero kills."""
    words = gather_last_words(_state("preempted"), {})
    assert words is not None
    assert words.model_dump(exclude_none=True) == {"stack": []}


def test_a_dump_of_collectives_is_named_if_this_run_wrote_it(tmp_path: Path) -> None:
    """Torch appends the rank to a prefix; an old file is of an earlier run."""
    dump = tmp_path / "trace_3"
    dump.write_bytes(b"")
    os.utime(dump, (START, START))
    prefix = str(tmp_path / "trace_")
    new = {"TORCH_FR_DUMP_TEMP_FILE": prefix, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "elsewhere"}
    old = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": prefix}
    for environ in (new, old):
        assert find_dump(3, START - 1, environ) == str(dump)
        assert find_dump(3, START + 1, environ) is None
        assert find_dump(4, START - 1, environ) is None
    assert find_dump(3, START - 1, {"XDG_CACHE_HOME": str(tmp_path)}) is None
    cached = tmp_path / "torch" / "comm_lib_trace_rank_3"
    cached.parent.mkdir()
    cached.write_bytes(b"")
    assert find_dump(3, START - 1, {"XDG_CACHE_HOME": str(tmp_path)}) == str(cached)


def _seen(**rank: object):
    record = make_record(
        outcome="running",
        oom=OomPart(path="/none", start_count=1, count=2),
        quality={"loss": QualityPart(num_nonfinite=1, first_nonfinite_iteration=4)},
    )
    known = {"pid": os.getpid(), "pid_space": pid_space(), "pid_start_ticks": start_ticks()}
    return record.model_copy(
        update={"rank": record.rank.model_copy(update={**known, **rank})},
    )


def test_a_witness_speaks_only_of_what_it_can_see() -> None:
    """A live process, another machine and a record that does not tell get no verdict."""
    assert witness_end(_seen()) is None
    assert witness_end(_seen(pid_space="another", pid_start_ticks=0)) is None
    assert witness_end(_seen(pid_space=None)) is None
    assert witness_end(_seen(pid_start_ticks=None)) is None


def test_a_witness_of_a_silent_end_says_what_the_record_knew() -> None:
    """The process has gone: its counts and its first bad value are all there is."""
    words = witness_end(_seen(pid_start_ticks=0))
    assert words is not None
    assert (words.oom_kills, words.nonfinite, words.nonfinite_iteration) == (1, "loss", 4)
    assert (words.error_type, words.exit_code, words.stack) == (None, None, [])
