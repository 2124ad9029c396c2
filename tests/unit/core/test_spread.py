"""When the ranks of a job close their windows."""

from __future__ import annotations

from itertools import pairwise

import pytest

from costlens.core.clock import NS_PER_S
from costlens.core.spread import first_window_ns

WINDOW_NS = 10 * NS_PER_S


@pytest.mark.parametrize("run_id", ["job-1", "job-2", "ü"])
@pytest.mark.parametrize("world_size", [2, 8, 1000])
def test_ranks_close_their_windows_one_after_another(run_id: str, world_size: int) -> None:
    """No two at once, and no long time without any: no gap is three times an even one's."""
    ends = sorted(
        first_window_ns(run_id, rank, world_size, WINDOW_NS) for rank in range(world_size)
    )
    assert ends[0] > 0
    assert ends[-1] <= WINDOW_NS
    gaps = [after - before for before, after in pairwise([*ends, ends[0] + WINDOW_NS])]
    assert min(gaps) > WINDOW_NS / world_size / 4
    assert max(gaps) < 3 * WINDOW_NS / world_size


def test_a_rank_keeps_its_place_and_runs_differ() -> None:
    """A restarted pipeline comes at the same moment; jobs that begin together keep apart."""
    assert first_window_ns("job", 3, 8, WINDOW_NS) == first_window_ns("job", 3, 8, WINDOW_NS)
    assert len({first_window_ns(f"job-{n}", 0, 8, WINDOW_NS) for n in range(20)}) == 20


def test_a_single_rank_has_whole_windows() -> None:
    """There is nobody to keep out of the way of."""
    assert first_window_ns("job", 0, 1, WINDOW_NS) == WINDOW_NS


def test_the_shortest_window_is_still_one() -> None:
    """Settings allow windows of a hundredth of a second; none becomes empty."""
    assert all(first_window_ns("job", rank, 64, 5) >= 1 for rank in range(64))
