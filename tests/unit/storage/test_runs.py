"""Finding the run that a user means."""

from __future__ import annotations

from pathlib import Path

import pytest

from costlens.errors import RunNotFoundError
from costlens.storage.names import new_run_id
from costlens.storage.run_folder import RunFolder
from costlens.storage.runs import find_run, list_runs, open_run
from costlens.storage.store import Store

DAY_NS = 86_400 * 10**9
FIRST_NS = 1_700_000_000 * 10**9

SMALL = new_run_id("gpt-small", FIRST_NS, "a")
SMALL_LATER = new_run_id("gpt-small", FIRST_NS + DAY_NS, "b")
LARGE = new_run_id("gpt-large", FIRST_NS + 2 * DAY_NS, "c")
JOB = "slurm-4711"


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    for run_id in (LARGE, SMALL, JOB, SMALL_LATER):
        RunFolder(store, run_id).claim_attempt("k", {})
    store.put("notes/readme.md", b"not a run")
    store.put(".costlens/attempts/0001.json", b"{}")
    store.put("run.json", b"{}")
    return store


def test_runs_are_the_folders_with_an_attempt(store: Store) -> None:
    """Other folders and files beside the runs are not runs."""
    assert list_runs(store) == sorted([LARGE, SMALL, SMALL_LATER, JOB])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SMALL, SMALL),
        (SMALL[:-2], SMALL),
        ("gpt-l", LARGE),
        ("large", LARGE),
        ("4711", JOB),
        ("slurm", JOB),
        (SMALL_LATER[10:18], SMALL_LATER),
    ],
)
def test_a_run_is_found(store: Store, text: str, found: str) -> None:
    """The exact id, its beginning, or any part that only one run has."""
    assert find_run(store, text) == found


def test_a_run_that_cannot_be_looked_into_hides_no_other(store: Store, tmp_path: Path) -> None:
    """Its attempts lead nowhere: it is listed, found by name, and no obstacle to the latest."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/attempts").symlink_to(tmp_path / "broken/attempts")
    assert list_runs(store) == sorted(["broken", LARGE, SMALL, SMALL_LATER, JOB])
    assert find_run(store, "brok") == "broken"
    assert find_run(store, "latest") == LARGE


def test_an_exact_id_wins_over_longer_ones(store: Store) -> None:
    """A run whose id begins another's can still be named."""
    RunFolder(store, "slurm-47").claim_attempt("k", {})
    assert find_run(store, "slurm-47") == "slurm-47"


def test_a_name_that_had_to_change_is_found(store: Store) -> None:
    """The user types the name as given, not as it was made safe."""
    run_id = new_run_id("team a/exp #3", FIRST_NS, "d")
    RunFolder(store, run_id).claim_attempt("k", {})
    assert find_run(store, "team a/exp #3") == run_id
    RunFolder(store, "job/1").claim_attempt("k", {})
    assert find_run(store, "job/1") == RunFolder(store, "job/1").run_id


def test_latest_is_the_run_launched_last(store: Store) -> None:
    """Not by text or file time: the stamp of the id, or a later launch that a claim tells of."""
    assert find_run(store, "latest") == LARGE
    RunFolder(store, SMALL).claim_attempt("k2", {"wall_ns": FIRST_NS + 3 * DAY_NS})
    assert find_run(store, "latest") == SMALL
    RunFolder(store, JOB).claim_attempt("k2", {"wall_ns": FIRST_NS + 4 * DAY_NS})
    assert find_run(store, "latest") == JOB
    RunFolder(store, LARGE).claim_attempt("k2", {"wall_ns": "yesterday"})
    assert find_run(store, "latest") == JOB


def test_an_id_that_only_looks_stamped(tmp_path: Path) -> None:
    """Digits that are no date do not stop `latest`."""
    store = Store(tmp_path)
    RunFolder(store, "x-20239999-999999-abcd").claim_attempt("k", {})
    assert find_run(store, "latest") == "x-20239999-999999-abcd"


@pytest.mark.parametrize("text", ["gpt", "gpt-small", "2023"])
def test_what_fits_several_runs_lists_them(store: Store, text: str) -> None:
    """Nothing is guessed: the fitting ids are shown, and that more of the id is needed."""
    with pytest.raises(RunNotFoundError, match="write more of the id") as raised:
        find_run(store, text)
    assert SMALL in str(raised.value)
    assert JOB not in str(raised.value)


def test_what_fits_no_run_shows_the_nearest(store: Store) -> None:
    """A mistyped id shows the ids it is close to, and where was looked."""
    with pytest.raises(RunNotFoundError, match="the nearest are slurm-4711") as raised:
        find_run(store, "slrum-4711")
    assert store.shown_url in str(raised.value)


@pytest.mark.parametrize("text", ["", "../..", "zzz\0"])
def test_what_resembles_no_run_shows_what_there_is(store: Store, text: str) -> None:
    """Nothing near: the runs there are, the number of those not shown, and no way out."""
    for number in range(20):
        RunFolder(store, f"job-{number:02d}").claim_attempt("k", {})
    with pytest.raises(RunNotFoundError, match=r"it holds .*gpt-large.* and 14 more"):
        find_run(store, text)


@pytest.mark.parametrize("text", ["latest", "gpt"])
def test_a_place_without_runs_says_so(tmp_path: Path, text: str) -> None:
    """An empty or absent folder names itself and the variable that chooses another."""
    with pytest.raises(RunNotFoundError, match=r"there are no runs in .*COSTLENS_DIR"):
        find_run(Store(tmp_path / "absent"), text)


def test_the_claims_of_allocations_are_no_run(store: Store) -> None:
    """They stand beside the run folders, out of the way."""
    before = list_runs(store)
    store.create(".allocations/0123456789abcdef.json", b"{}")
    assert list_runs(store) == before


def test_a_run_is_opened_by_the_path_or_url_of_its_folder(tmp_path: Path) -> None:
    """Relative, absolute and file URLs name the same folder; a slash at the end does not matter."""
    RunFolder(Store(tmp_path / "runs"), "mine").claim_attempt("key", {})
    for text in (f"{tmp_path}/runs/mine", f"{tmp_path}/runs/mine/", f"file://{tmp_path}/runs/mine"):
        assert open_run(text, "/nowhere").attempts() == [1]
    assert open_run("mine", str(tmp_path / "runs")).run_id == "mine"


def test_a_name_with_a_slash_is_still_a_name(tmp_path: Path) -> None:
    """What is no folder may be the name of a run, which was made safe as a path."""
    RunFolder(Store(tmp_path), "team/model").claim_attempt("key", {})
    assert open_run("team/model", str(tmp_path)).attempts() == [1]


@pytest.mark.parametrize("text", ["/no/such/run", "memory://x/y", "memory://bucket", "./gone", "/"])
def test_a_path_without_a_run_says_what_a_folder_holds(text: str, tmp_path: Path) -> None:
    """A path is never taken for a part of some run's id."""
    RunFolder(Store(tmp_path), "gone-and-y").claim_attempt("key", {})
    with pytest.raises(RunNotFoundError, match=r"attempts/0001\.json"):
        open_run(text, str(tmp_path))
