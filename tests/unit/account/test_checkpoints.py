"""The checkpoints of a run over ranks and attempts: one size, that of the newest in the store."""

from __future__ import annotations

from costlens.account.checkpoints import merge_checkpoints
from costlens.core.checkpoint_records import CheckpointsPart
from costlens.core.records import RankRecord
from costlens.core.run_record import CostPart
from tests.unit.account.build import make_record


def record(attempt: int, rank: int, name: str | None, num_bytes: int) -> RankRecord:
    """Return the record of a rank whose newest checkpoint has a name and so many bytes of its."""
    part = CheckpointsPart(
        url="x", last_name=name, last_step=None if name is None else 5, num_bytes=num_bytes
    )
    return make_record(attempt=attempt, rank=rank).model_copy(update={"checkpoints": part})


def size(*records: RankRecord) -> int | None:
    """Return the bytes that the merged record tells."""
    return merge_checkpoints(records, 0.0, CostPart()).num_bytes


def test_the_size_is_that_of_all_ranks_of_the_newest_one() -> None:
    """Those of an older attempt, or of a rank that has come no further, do not count."""
    assert size(record(1, 0, "a", 100), record(1, 1, "a", 7)) == 107
    assert size(record(1, 0, "a", 100), record(2, 0, "b", 50), record(2, 1, "b", 5)) == 55
    assert size(record(1, 0, "b", 100), record(1, 1, "a", 7)) == 100
    assert size(record(1, 0, "a", 100), record(2, 0, None, 0)) == 100


def test_without_a_checkpoint_there_is_no_size() -> None:
    """Unknown, and not zero."""
    assert size(record(1, 0, None, 0)) is None
